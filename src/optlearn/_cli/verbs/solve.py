"""``optlearn solve``: the optimal schedule of a scenario."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from optlearn._cli import options
from optlearn._cli.inputs import command_line, given, make_problem, scenario_arguments
from optlearn._cli.output import bad_input, console, deliver, exit_code, reporting

if TYPE_CHECKING:
    from optlearn._control.solution import Solution


def command(
    scenario: options.Scenario,
    settings: options.Settings = None,
    method: options.MethodOption = options.Method.auto,
    intervals: options.Intervals = None,
    starts: options.Starts = None,
    seed: options.Seed = 0,
    max_iterations: options.MaxIterations = None,
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
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Find the optimal schedule of a scenario, with a certificate.

    A greedy schedule is only locally optimal by design: no claim is made that it is converged, and the exit
    code is 0.

    Example: optlearn solve dropout --set sigma_n=0.2 --out s.nc
    """
    arguments = scenario_arguments(scenario, settings, out)
    limits = given(starts=starts, max_iterations=max_iterations)
    with reporting(quiet) as tell:
        problem = make_problem(scenario, arguments, tell)
        from optlearn._control.solve import solve

        solution = solve(problem, intervals, method.value, seed=seed, progress=tell, **limits)
    result = {"scenario": scenario, "arguments": arguments, **solution.to_dict()}
    hint = command_line("compare", scenario, settings, intervals=intervals)
    deliver(result, out, as_json, lambda: _show(solution, hint), solution.save)
    if export is not None:
        try:
            solution.export(export)
        except OSError as error:
            bad_input(f"--export {export}: {error.strerror or error}")
    raise typer.Exit(exit_code(solution))


def _show(solution: "Solution", hint: str) -> None:
    """A summary with the shape of the schedule."""
    screen = console()
    screen.print(solution)
    screen.print(f"Beside the usual schedules: {hint}", style="dim", markup=False, soft_wrap=True)
