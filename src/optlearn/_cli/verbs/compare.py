"""``optlearn compare``: the optimum beside the usual schedules, and beside one's own."""

from typing import Annotated

import typer

from optlearn._cli import options
from optlearn._cli.inputs import given, make_problem, read_schedules, scenario_arguments
from optlearn._cli.output import console, deliver, exit_code, reporting


def command(
    scenario: options.Scenario,
    settings: options.Settings = None,
    schedule: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="A schedule of yours, as JSON. Repeatable."),
    ] = None,
    method: options.MethodOption = options.Method.auto,
    intervals: options.Intervals = None,
    starts: options.Starts = None,
    seed: options.Seed = 0,
    max_iterations: options.MaxIterations = None,
    out: options.OutFile = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show the optimal schedule beside the usual ones, and beside yours.

    All objectives are re-integrated to the same accuracy. Excess: over the optimum. Reduction: by how much
    the optimum is lower. Improvement: the excess in percent of what the other schedule has learned itself.

    Example: optlearn compare curriculum --schedule mine.json
    """
    arguments = scenario_arguments(scenario, settings, out)
    limits = given(starts=starts, max_iterations=max_iterations)
    with reporting(quiet) as tell:
        problem = make_problem(scenario, arguments, tell)
        from optlearn._control.compare import OPTIMUM, compare

        own = read_schedules(schedule or [], {OPTIMUM, *problem.baselines})

        comparison = compare(
            problem, own, intervals=intervals, method=method.value, seed=seed, progress=tell, **limits
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
