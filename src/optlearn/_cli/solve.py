"""Verbs for one problem: solve it, compare schedules, check the theory by simulation."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optlearn._cli import inputs
from optlearn._cli.inputs import option, whole
from optlearn._cli.output import console, deliver, exit_code, reporting, table
from optlearn._json import finite, plain
from optlearn._progress import Progress

if TYPE_CHECKING:
    from optlearn._trajectory import Trajectory


Mode = StrEnum("Mode", ["overlaps", "weights"])  # what is simulated


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
        option(
            "FILE",
            "Write the result here: NetCDF if FILE ends in .nc (for `optlearn show`), else JSON.",
        ),
    ] = None,
    export: Annotated[
        Path | None, option("FILE.py", "Write a PyTorch script that trains under the schedule.")
    ] = None,
    as_json: inputs.Json = False,
    quiet: inputs.Quiet = False,
) -> None:
    """Find the optimal schedule of a scenario, with a certificate.

    A greedy schedule (--method greedy) is only locally optimal by design; it is never called converged, and
    the exit code is 0.

    Example: optlearn solve dropout --set sigma_n=0.2 --out s.nc
    """
    arguments = inputs.scenario_arguments(scenario, settings, out)
    limits = inputs.chosen(starts=starts, max_iterations=max_iterations)
    with reporting(quiet) as tell:
        problem = inputs.make_problem(scenario, arguments, tell)
        from optlearn._control.solve import solve

        if export is not None:
            from optlearn.practice.script import check_controls

            check_controls(problem.controls)
        solution = solve(problem, intervals, method.value, seed=seed, progress=tell, **limits)
    result = {"scenario": scenario, "arguments": arguments, **solution.to_dict()}
    hint = inputs.command_line("compare", scenario, settings, intervals=intervals)

    def show() -> None:
        screen = console()
        screen.print(solution)
        screen.print(
            f"Compare it with the usual schedules: {hint}", style="dim", markup=False, soft_wrap=True
        )

    script = None if export is None else (export, solution.export)
    deliver(result, out, as_json, show, solution.save, script)
    raise typer.Exit(exit_code(solution))


def run_compare(
    scenario: inputs.Scenario,
    settings: inputs.Settings = None,
    schedule: Annotated[list[str] | None, option("FILE", "Your own schedule, as JSON. Repeatable.")] = None,
    method: inputs.MethodOption = inputs.Method.auto,
    intervals: inputs.Intervals = None,
    starts: inputs.Starts = None,
    seed: inputs.Seed = 0,
    max_iterations: inputs.MaxIterations = None,
    out: inputs.OutFile = None,
    as_json: inputs.Json = False,
    quiet: inputs.Quiet = False,
) -> None:
    """Compare the optimal schedule with the usual ones, and with your own.

    All objectives are re-integrated to the same accuracy. Excess: objective minus that of the optimum.
    Reduction: how much lower the optimum is, in percent. Improvement: the excess as a percentage of what the
    other schedule itself has learned since the start of training.

    Example: optlearn compare curriculum --schedule mine.json
    """
    arguments = inputs.scenario_arguments(scenario, settings, out)
    limits = inputs.chosen(starts=starts, max_iterations=max_iterations)
    with reporting(quiet) as tell:
        problem = inputs.make_problem(scenario, arguments, tell)
        from optlearn._control.baselines import baselines_of
        from optlearn._control.compare import OPTIMUM, SOLUTION, compare

        mine = inputs.read_schedules(schedule or [], {OPTIMUM, SOLUTION, *baselines_of(problem)})
        limits |= {"intervals": intervals, "method": method.value, "seed": seed}
        comparison = compare(problem, mine, progress=tell, **limits)
    solution = comparison.solution
    evidence = {"certificate": solution.certificate.to_dict(), "method": solution.method}
    solved = {**comparison.to_json(), **evidence, "seconds": solution.seconds}
    result = {"scenario": scenario, "arguments": arguments, **solved}
    deliver(result, out, as_json, lambda: console().print(comparison.table()))
    raise typer.Exit(exit_code(solution))


def run_simulate(
    scenario: inputs.Scenario,
    settings: inputs.Settings = None,
    N: Annotated[int, whole("Input dimension.", "--N")] = 1000,
    seeds: Annotated[int, whole("Independent runs.")] = 8,
    mode: Annotated[
        Mode,
        option("MODE", "overlaps: their exact Markov chain; weights: SGD on N-dimensional weights."),
    ] = Mode.overlaps,
    schedule: Annotated[
        str, option("SCHEDULE", "The schedule: optimal, the name of a baseline, or a JSON file.")
    ] = inputs.OPTIMAL,
    times: Annotated[int, whole("Training times to compare at.", lowest=2)] = 11,
    method: inputs.MethodOption = inputs.Method.auto,
    intervals: inputs.Intervals = None,
    starts: inputs.Starts = None,
    seed: inputs.Seed = 0,
    max_iterations: inputs.MaxIterations = None,
    out: inputs.OutFile = None,
    as_json: inputs.Json = False,
    quiet: inputs.Quiet = False,
) -> None:
    """Run SGD in input dimension N under a schedule, and compare it with the theory.

    z is the difference in standard errors of the mean over seeds. The theory describes N → ∞: with many
    seeds, a bias of order 1/N becomes visible.

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
    result = {"scenario": scenario, "arguments": arguments, "schedule": schedule, **simulated.info}
    result |= _side_by_side(theory, simulated)
    deliver(result, out, as_json, lambda: _show_simulation(result))
    raise typer.Exit(0 if solution is None else exit_code(solution))


def _side_by_side(theory: "Trajectory", simulated: "Trajectory") -> dict[str, Any]:
    """Theory, mean over seeds, standard error and z-score of every common quantity."""
    names = [name for name in simulated.values if name in theory.values]
    result: dict[str, Any] = {"alpha": simulated.alpha, "theory": {name: theory[name] for name in names}}
    result["mean"] = {name: simulated.mean(name) for name in names}
    if simulated.seeds > 1:
        result["standard_error"] = {name: simulated.standard_error(name) for name in names}
        result["z"] = {name: simulated.z_scores(name, theory[name]) for name in names}
    return result


def _show_simulation(result: Mapping[str, Any]) -> None:
    """A table of the error, and of the quantity with the largest deviation."""
    runs = "1 run" if result["seeds"] == 1 else f"{result['seeds']} runs"
    title = f"{result['scenario']}: theory and {runs} at N = {result['N']}"
    result = plain(result, number=finite, other=str)
    z = result.get("z", {})
    errors = result.get("standard_error", {}).get("error")
    rows = []
    for i, alpha in enumerate(result["alpha"]):
        all_z = {name: abs(scores[i]) for name, scores in z.items() if scores[i] is not None}
        worst = max(all_z, key=lambda name: all_z[name], default=None)
        means = [f"{alpha:.4g}", *(f"{result[key]['error'][i]:.6g}" for key in ("theory", "mean"))]
        rows.append(
            (
                *means,
                "–" if errors is None else f"{errors[i]:.2g}",
                "–" if not z or z["error"][i] is None else f"{z['error'][i]:+.1f}",
                "–" if worst is None else f"{all_z[worst]:.1f} ({worst})",
            )
        )
    headings = ("α", "error, theory", "error, simulation", "standard error", "z", "largest |z|")
    console().print(table(f"{title}, {result['mode']}, {result['schedule']}", headings, rows))
