"""Verbs about one problem: its optimal schedule, that beside others, and theory beside simulation."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optlearn._cli import inputs
from optlearn._cli.output import bad_input, console, deliver, exit_code, reporting
from optlearn._json import finite, plain
from optlearn._progress import Progress

if TYPE_CHECKING:
    from optlearn._control.solution import Solution
    from optlearn._trajectory import Trajectory


class Mode(StrEnum):
    """What is simulated."""

    overlaps = "overlaps"
    weights = "weights"


def run_solve(
    scenario: inputs.Scenario,
    settings: inputs.Settings = None,
    method: inputs.MethodOption = inputs.Method.auto,
    intervals: inputs.Intervals = None,
    starts: inputs.Starts = None,
    seed: inputs.Seed = 0,
    max_iterations: inputs.MaxIterations = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the result here: FILE.nc as NetCDF, for `optlearn show`; else as JSON.",
        ),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(metavar="FILE.py", help="Write a script of PyTorch that trains under the schedule."),
    ] = None,
    as_json: inputs.Json = False,
    quiet: inputs.Quiet = False,
) -> None:
    """Find the optimal schedule of a scenario, with a certificate.

    A greedy schedule is only locally optimal by design: no claim is made that it is converged, and the exit
    code is 0.

    Example: optlearn solve dropout --set sigma_n=0.2 --out s.nc
    """
    arguments = inputs.scenario_arguments(scenario, settings, out)
    limits = inputs.chosen(starts=starts, max_iterations=max_iterations)
    with reporting(quiet) as tell:
        problem = inputs.make_problem(scenario, arguments, tell)
        from optlearn._control.solve import solve

        solution = solve(problem, intervals, method.value, seed=seed, progress=tell, **limits)
    result = {"scenario": scenario, "arguments": arguments, **solution.to_dict()}
    hint = inputs.command_line("compare", scenario, settings, intervals=intervals)
    deliver(result, out, as_json, lambda: _show_solution(solution, hint), solution.save)
    if export is not None:
        try:
            solution.export(export)
        except OSError as error:
            bad_input(f"--export {export}: {error.strerror or error}")
    raise typer.Exit(exit_code(solution))


def _show_solution(solution: "Solution", hint: str) -> None:
    """A summary with the shape of the schedule."""
    screen = console()
    screen.print(solution)
    screen.print(f"Beside the usual schedules: {hint}", style="dim", markup=False, soft_wrap=True)


def run_compare(
    scenario: inputs.Scenario,
    settings: inputs.Settings = None,
    schedule: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="A schedule of yours, as JSON. Repeatable."),
    ] = None,
    method: inputs.MethodOption = inputs.Method.auto,
    intervals: inputs.Intervals = None,
    starts: inputs.Starts = None,
    seed: inputs.Seed = 0,
    max_iterations: inputs.MaxIterations = None,
    out: inputs.OutFile = None,
    as_json: inputs.Json = False,
    quiet: inputs.Quiet = False,
) -> None:
    """Show the optimal schedule beside the usual ones, and beside yours.

    All objectives are re-integrated to the same accuracy. Excess: over the optimum. Reduction: by how much
    the optimum is lower. Improvement: the excess in percent of what the other schedule has learned itself.

    Example: optlearn compare curriculum --schedule mine.json
    """
    arguments = inputs.scenario_arguments(scenario, settings, out)
    limits = inputs.chosen(starts=starts, max_iterations=max_iterations)
    with reporting(quiet) as tell:
        problem = inputs.make_problem(scenario, arguments, tell)
        from optlearn._control.compare import OPTIMUM, compare

        mine = inputs.read_schedules(schedule or [], {OPTIMUM, *problem.baselines})
        comparison = compare(
            problem, mine, intervals=intervals, method=method.value, seed=seed, progress=tell, **limits
        )
    solution = comparison.solution
    result = {
        "scenario": scenario,
        "arguments": arguments,
        **comparison.to_json(),
        "certificate": solution.certificate.to_dict(),
        "method": solution.method,
        "seconds": solution.seconds,
    }
    deliver(result, out, as_json, lambda: console().print(comparison.table()))
    raise typer.Exit(exit_code(solution))


def run_simulate(
    scenario: inputs.Scenario,
    settings: inputs.Settings = None,
    N: Annotated[int, inputs.whole("Input dimension.", "--N")] = 1000,
    seeds: Annotated[int, inputs.whole("Independent runs.")] = 8,
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
    ] = inputs.OPTIMAL,
    times: Annotated[int, inputs.whole("Training times to compare at.", lowest=2)] = 11,
    method: inputs.MethodOption = inputs.Method.auto,
    intervals: inputs.Intervals = None,
    starts: inputs.Starts = None,
    seed: inputs.Seed = 0,
    max_iterations: inputs.MaxIterations = None,
    out: inputs.OutFile = None,
    as_json: inputs.Json = False,
    quiet: inputs.Quiet = False,
) -> None:
    """Run SGD in input dimension N under a schedule, and set it beside the theory.

    z is the distance of the two in standard errors of the mean over seeds. The theory is that of N → ∞: with
    many seeds, a difference of order 1/N shows.

    Example: optlearn simulate dropout --N 500 --seeds 100
    """
    arguments = inputs.scenario_arguments(scenario, settings, out)
    limits = inputs.chosen(starts=starts, max_iterations=max_iterations)
    solution = None
    with reporting(quiet) as tell:
        problem = inputs.make_problem(scenario, inputs.with_dimension(scenario, arguments, N), tell)
        if schedule == inputs.OPTIMAL:
            from optlearn._control.solve import solve

            solution = solve(problem, intervals, method.value, seed=seed, progress=tell, **limits)
            chosen = solution.schedule
        else:
            chosen = inputs.baseline_or_file(problem, schedule, intervals)
        tell(Progress(f"simulating {seeds} runs at N = {N}"))
        from optlearn._control.evaluate import evaluate
        from optlearn._simulate.run import simulate, theory_beside

        free = evaluate(problem, chosen, record=2).info["parameters"]
        simulated = simulate(
            problem, chosen, N=N, seeds=seeds, mode=mode.value, seed=seed, parameters=free, record=times
        )
        theory = theory_beside(simulated, problem, chosen, parameters=free)
    result = {
        "scenario": scenario,
        "arguments": arguments,
        "schedule": schedule,
        **simulated.info,
        **_side_by_side(theory, simulated),
    }
    deliver(result, out, as_json, lambda: _show_simulation(result))
    raise typer.Exit(0 if solution is None else exit_code(solution))


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


def _show_simulation(result: Mapping[str, Any]) -> None:
    """A table of the error, and of the quantity that is farthest off."""
    from rich.table import Table

    runs = "1 run" if result["seeds"] == 1 else f"{result['seeds']} runs"
    title = f"{result['scenario']}: theory and {runs} at N = {result['N']}"
    table = Table(title=f"{title}, {result['mode']}, {result['schedule']}")
    for heading in ("α", "error, theory", "error, simulation", "standard error", "z", "largest |z|"):
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
