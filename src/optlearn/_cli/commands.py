"""The commands and their options."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from optlearn import __version__
from optlearn._cli.inputs import (
    OPTIMAL,
    baseline_or_file,
    given,
    make_problem,
    read_schedules,
    scenario_arguments,
    with_dimension,
)
from optlearn._cli.output import (
    console,
    deliver,
    exit_code,
    reporting,
    show_scenarios,
    show_simulation,
    show_solution,
)
from optlearn._cli.simulation import side_by_side, theory_and_simulation
from optlearn._progress import stages
from optlearn.scenarios import list_scenarios

app = typer.Typer(
    help="Optimal schedules for learning: find them, compare them, check them against SGD.",
    epilog="Exit codes: 0 done, 2 bad input, 3 not converged (printed all the same), 130 stopped.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Method(StrEnum):
    """How to solve."""

    auto = "auto"
    indirect = "indirect"
    direct = "direct"
    greedy = "greedy"


class Mode(StrEnum):
    """What is simulated."""

    overlaps = "overlaps"
    weights = "weights"


_Scenario = Annotated[
    str,
    typer.Argument(
        help="Name of a scenario; `optlearn list` shows them.",
        autocompletion=lambda: list(list_scenarios()),
    ),
]
_Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="An argument of the scenario, such as eta=2 or 'Delta=(0, 2)'. Repeatable.",
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
_Method = Annotated[Method, typer.Option(help="How to solve.")]
_Intervals = Annotated[int | None, typer.Option(min=1, help="Control intervals (default: the scenario's).")]
_Starts = Annotated[
    int | None, typer.Option(min=1, help="First guesses to optimise (default: the solver's).")
]
_Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random.")]
_Iterations = Annotated[int | None, typer.Option(min=1, help="Iteration limit (default: the solver's).")]
_Out = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the JSON result to this file.")]
_Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"optlearn {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit."),
    ] = False,
) -> None:
    del version


@app.command("list")
def list_command(as_json: _Json = False) -> None:
    """Show the scenarios that are ready to use."""
    scenarios = list_scenarios()
    deliver({"scenarios": scenarios}, None, as_json, lambda: show_scenarios(scenarios))


@app.command()
def solve(
    scenario: _Scenario,
    settings: _Set = None,
    method: _Method = Method.auto,
    intervals: _Intervals = None,
    starts: _Starts = None,
    seed: _Seed = 0,
    max_iterations: _Iterations = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the result here: FILE.nc as NetCDF, for `optlearn show`; else as JSON.",
        ),
    ] = None,
    as_json: _Json = False,
    quiet: _Quiet = False,
) -> None:
    """Find the optimal schedule of a scenario, with a certificate.

    A greedy schedule is only locally optimal by design: no claim is made that it is converged, and
    the exit code is 0.
    """
    arguments = scenario_arguments(scenario, settings, out)
    options = given(starts=starts, max_iterations=max_iterations)
    with reporting(quiet) as tell:
        problem = make_problem(scenario, arguments, tell)
        from optlearn._control.solve import solve as solve_problem

        solution = solve_problem(
            problem, intervals, method.value, seed=seed, progress=stages(tell), **options
        )
    result = {"scenario": scenario, "arguments": arguments, **solution.to_dict()}
    deliver(result, out, as_json, lambda: show_solution(scenario, solution), solution.save)
    raise typer.Exit(exit_code(solution))


@app.command()
def compare(
    scenario: _Scenario,
    settings: _Set = None,
    schedule: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="A schedule of yours, as JSON. Repeatable."),
    ] = None,
    method: _Method = Method.auto,
    intervals: _Intervals = None,
    starts: _Starts = None,
    seed: _Seed = 0,
    max_iterations: _Iterations = None,
    out: _Out = None,
    as_json: _Json = False,
    quiet: _Quiet = False,
) -> None:
    """Show the optimal schedule beside the usual ones, and beside yours.

    All objectives are re-integrated to the same accuracy. Excess: over the optimum. Reduction: by
    how much the optimum is lower. Improvement: the excess in percent of what the other schedule has
    learned itself.
    """
    arguments = scenario_arguments(scenario, settings, out)
    options = given(starts=starts, max_iterations=max_iterations)
    with reporting(quiet) as tell:
        problem = make_problem(scenario, arguments, tell)
        own = read_schedules(schedule or [])
        from optlearn._control.compare import compare as compare_schedules

        comparison = compare_schedules(
            problem,
            own,
            intervals=intervals,
            method=method.value,
            seed=seed,
            progress=stages(tell),
            **options,
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


@app.command()
def simulate(
    scenario: _Scenario,
    settings: _Set = None,
    N: Annotated[int, typer.Option("--N", min=1, help="Input dimension.")] = 1000,
    seeds: Annotated[int, typer.Option(min=1, help="Independent runs.")] = 8,
    mode: Annotated[
        Mode, typer.Option(help="The exact chain of overlaps, or SGD on N-dimensional weights.")
    ] = Mode.overlaps,
    schedule: Annotated[
        str,
        typer.Option(
            metavar="optimal|BASELINE|FILE.json",
            help="Which schedule: the optimal one, a baseline's name, or a JSON file.",
        ),
    ] = OPTIMAL,
    times: Annotated[int, typer.Option(min=2, help="Training times to compare at.")] = 11,
    method: _Method = Method.auto,
    intervals: _Intervals = None,
    starts: _Starts = None,
    seed: _Seed = 0,
    max_iterations: _Iterations = None,
    out: _Out = None,
    as_json: _Json = False,
    quiet: _Quiet = False,
) -> None:
    """Run SGD in input dimension N under a schedule, and set it beside the theory.

    z is the distance of the two in standard errors of the mean over seeds. The theory is that of
    N → ∞: with many seeds, a difference of order 1/N shows.
    """
    arguments = scenario_arguments(scenario, settings, out)
    options = given(starts=starts, max_iterations=max_iterations)
    solution = None
    with reporting(quiet) as tell:
        problem = make_problem(scenario, with_dimension(scenario, arguments, N), tell)
        if schedule == OPTIMAL:
            from optlearn._control.solve import solve as solve_problem

            solution = solve_problem(
                problem, intervals, method.value, seed=seed, progress=stages(tell), **options
            )
            chosen = solution.schedule
        else:
            chosen = baseline_or_file(problem, schedule, intervals)
        tell(f"simulating {seeds} runs at N = {N}")
        theory, simulated = theory_and_simulation(
            problem, chosen, N=N, seeds=seeds, mode=mode.value, seed=seed, times=times
        )
    result = {
        "scenario": scenario,
        "arguments": arguments,
        "schedule": schedule,
        **simulated.info,
        **side_by_side(theory, simulated),
    }
    deliver(result, out, as_json, lambda: show_simulation(result))
    raise typer.Exit(0 if solution is None else exit_code(solution))
