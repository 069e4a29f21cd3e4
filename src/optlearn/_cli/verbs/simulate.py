"""``optlearn simulate``: theory and simulation side by side."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optlearn._cli import options
from optlearn._cli.inputs import (
    OPTIMAL,
    baseline_or_file,
    given,
    make_problem,
    scenario_arguments,
    with_dimension,
)
from optlearn._cli.output import console, deliver, exit_code, reporting
from optlearn._json import finite, plain
from optlearn._progress import Progress

if TYPE_CHECKING:
    from optlearn._control.problem import Problem
    from optlearn._schedule import Schedule
    from optlearn._trajectory import Trajectory


class Mode(StrEnum):
    """What is simulated."""

    overlaps = "overlaps"
    weights = "weights"


def command(
    scenario: options.Scenario,
    settings: options.Settings = None,
    N: Annotated[int, options.whole("Input dimension.", "--N")] = 1000,
    seeds: Annotated[int, options.whole("Independent runs.")] = 8,
    mode: Annotated[
        Mode,
        typer.Option(
            metavar="MODE", help="overlaps: their exact chain; weights: SGD on N-dimensional weights."
        ),
    ] = Mode.overlaps,
    schedule: Annotated[
        str,
        typer.Option(
            metavar="SCHEDULE", help="Which schedule: optimal, the name of a baseline, or a JSON file."
        ),
    ] = OPTIMAL,
    times: Annotated[int, options.whole("Training times to compare at.", lowest=2)] = 11,
    method: options.MethodOption = options.Method.auto,
    intervals: options.Intervals = None,
    starts: options.Starts = None,
    seed: options.Seed = 0,
    max_iterations: options.MaxIterations = None,
    out: options.OutFile = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Run SGD in input dimension N under a schedule, and set it beside the theory.

    z is the distance of the two in standard errors of the mean over seeds. The theory is that of N → ∞: with
    many seeds, a difference of order 1/N shows.

    Example: optlearn simulate dropout --N 500 --seeds 100
    """
    arguments = scenario_arguments(scenario, settings, out)
    limits = given(starts=starts, max_iterations=max_iterations)
    solution = None
    with reporting(quiet) as tell:
        problem = make_problem(scenario, with_dimension(scenario, arguments, N), tell)
        if schedule == OPTIMAL:
            from optlearn._control.solve import solve

            solution = solve(problem, intervals, method.value, seed=seed, progress=tell, **limits)
            chosen = solution.schedule
        else:
            chosen = baseline_or_file(problem, schedule, intervals)
        tell(Progress(f"simulating {seeds} runs at N = {N}"))
        theory, simulated = _theory_and_simulation(
            problem, chosen, N=N, seeds=seeds, mode=mode.value, seed=seed, times=times
        )
    result = {
        "scenario": scenario,
        "arguments": arguments,
        "schedule": schedule,
        **simulated.info,
        **_side_by_side(theory, simulated),
    }
    deliver(result, out, as_json, lambda: _show(result))
    raise typer.Exit(0 if solution is None else exit_code(solution))


def _theory_and_simulation(
    problem: "Problem",
    schedule: "Schedule",
    *,
    N: int,
    seeds: int,
    mode: str,
    seed: int,
    times: int,
) -> "tuple[Trajectory, Trajectory]":
    """The same schedule in the theory and at finite N, at the same training times."""
    from optlearn._control.evaluate import evaluate
    from optlearn._engine.integrate import integrate
    from optlearn._simulate.run import simulate as run_simulation

    free = evaluate(problem, schedule, record=2).info["parameters"]
    simulated = run_simulation(
        problem,
        schedule,
        N=N,
        seeds=seeds,
        mode=mode,
        seed=seed,
        parameters=free,
        record=times,
    )
    theory = integrate(
        problem.model,
        schedule,
        start=problem.start,
        parameters={**problem.parameters, **free},
        record=simulated.alpha.clip(max=schedule.horizon),
        quadrature=problem.quadrature,
    )
    return theory, simulated


def _side_by_side(theory: "Trajectory", simulated: "Trajectory") -> dict[str, Any]:
    """Theory, mean over seeds, standard error and z-score of everything that both know."""
    names = [name for name in simulated.values if name in theory.values]
    mean = {name: simulated.mean(name) for name in names}
    result: dict[str, Any] = {
        "alpha": simulated.alpha,
        "theory": {name: theory[name] for name in names},
        "mean": mean,
    }
    if simulated.seeds > 1:
        errors = {name: simulated.standard_error(name) for name in names}
        result["standard_error"] = errors
        result["z"] = {name: simulated.z_scores(name, theory[name]) for name in names}
    return result


def _show(result: Mapping[str, Any]) -> None:
    """A table of the error, and of the quantity that is farthest off."""
    from rich.table import Table

    runs = "1 run" if result["seeds"] == 1 else f"{result['seeds']} runs"
    title = f"{result['scenario']}: theory and {runs} at N = {result['N']}"
    table = Table(title=f"{title}, {result['mode']}, {result['schedule']}")
    for heading in (
        "α",
        "error, theory",
        "error, simulation",
        "standard error",
        "z",
        "largest |z|",
    ):
        table.add_column(heading, justify="right")
    result = plain(result, number=finite, other=str)
    z = result.get("z", {})
    errors = result.get("standard_error", {}).get("error")
    for i, alpha in enumerate(result["alpha"]):
        all_z = {name: abs(scores[i]) for name, scores in z.items() if scores[i] is not None}
        worst = max(all_z, key=lambda name: all_z[name], default=None)
        table.add_row(
            f"{alpha:.4g}",
            f"{result['theory']['error'][i]:.6g}",
            f"{result['mean']['error'][i]:.6g}",
            "–" if errors is None else f"{errors[i]:.2g}",
            "–" if not z or z["error"][i] is None else f"{z['error'][i]:+.1f}",
            "–" if worst is None else f"{all_z[worst]:.1f} ({worst})",
        )
    console().print(table)
