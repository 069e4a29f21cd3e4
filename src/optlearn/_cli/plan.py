"""Verbs about what is achievable: a bound that no schedule beats, and a front between two objectives."""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from optlearn._cli import inputs
from optlearn._cli.inputs import flag, option, whole
from optlearn._cli.output import NOT_CONVERGED, bad_input, console, deliver, exit_code, reporting, table
from optlearn._progress import Progress

if TYPE_CHECKING:
    from optlearn._bounds.bound import Bound
    from optlearn._control.objective import Objective
    from optlearn._control.solution import Solution
    from optlearn._planning.pareto import Front

Kind = StrEnum("Kind", ["auto", "convex", "sos", "hjb"])  # of bounds
Against = StrEnum("Against", ["average", "price"])  # second objectives that need no settings


def run_bound(
    scenario: inputs.Scenario,
    settings: inputs.Settings = None,
    kind: Annotated[
        Kind, option("KIND", "auto, convex or sos (proofs), or hjb (an estimate with an error bar).")
    ] = Kind.auto,
    degree: Annotated[int | None, whole("sos: degree of the polynomials in the state.")] = None,
    pieces: Annotated[int | None, whole("sos: pieces of time.")] = None,
    nodes: Annotated[
        int | None, whole("hjb: nodes along each coordinate of the coarsest grid.", lowest=4)
    ] = None,
    out: inputs.OutFile = None,
    as_json: inputs.Json = False,
    quiet: inputs.Quiet = False,
) -> None:
    """Compute a lower bound that no schedule of a scenario beats, and compare the best schedule with it.

    The bound is independent of the solver and its first guesses: a proof where the problem is linear (convex)
    or polynomial (sos, needs the extra bounds) in the state, an estimate with an error bar where the state
    moves in a few dimensions (hjb). The scenario is solved first.

    Example: optlearn bound power_law --set N=3 --set recursion=false --set max_rate=0.6 --kind sos

    Exit codes: 0 done, 2 bad input or a kind that does not fit, 3 the schedule is not converged, 130 stopped.
    """
    arguments = inputs.scenario_arguments(scenario, settings, out)
    limits = inputs.chosen(degree=degree, pieces=pieces, nodes=nodes)
    with reporting(quiet) as tell:
        problem = inputs.make_problem(scenario, arguments, tell)
        from optlearn._bounds.bound import bound
        from optlearn._control.solve import solve

        solution = solve(problem, progress=tell)
        tell(Progress("bounding"))
        road = cast(Literal["auto", "convex", "sos", "hjb"], kind.value)
        lower_bound = bound(problem, road, solution=solution, **limits)
    gap = solution.objective - lower_bound.lower
    result = {
        "scenario": scenario,
        "arguments": arguments,
        "lower_bound": lower_bound.lower,
        "value": lower_bound.value,
        "error": lower_bound.error,
        "kind": lower_bound.kind,
        "proven": lower_bound.proven,
        "assumes": lower_bound.assumes,
        "intervals": lower_bound.intervals,
        "objective": solution.objective,
        "gap": gap,
        "certificate": solution.certificate.to_dict(),
    }
    deliver(result, out, as_json, lambda: _show_bound(lower_bound, solution, gap))
    raise typer.Exit(exit_code(solution))


def _show_bound(bound: "Bound", solution: "Solution", gap: float) -> None:
    screen = console()
    about = "" if bound.intervals is None else f" on {bound.intervals} equal intervals"
    if bound.kind == "hjb":
        screen.print(f"estimated optimum: {bound.value:.8g} ± {bound.error:.2g} (hjb)", markup=False)
    else:
        proof = "proven" if bound.proven else "proven under the assumption below"
        screen.print(f"no schedule{about} is below {bound.lower:.8g} ({bound.kind}, {proof})", markup=False)
    share = f", {100 * gap / abs(solution.objective):.2g} %" if solution.objective else ""
    screen.print(f"best schedule found: {solution.objective:.8g}; gap: {gap:.2g}{share}", markup=False)
    if bound.assumes:
        screen.print(f"rests on: {bound.assumes}", style="dim", markup=False, soft_wrap=True)
    if not solution.certificate.converged:
        screen.print("the schedule is not converged: see `optlearn solve`", style="yellow", markup=False)


def run_pareto(
    scenario: inputs.Scenario,
    settings: inputs.Settings = None,
    against: Annotated[
        Against | None,
        option("WHAT", "The second objective: average (error over training) or price (samples per step)."),
    ] = None,
    under: Annotated[
        list[str] | None,
        option("NAME=VALUE", "The second objective: the error in a test with this setting. Repeatable."),
    ] = None,
    points: Annotated[int, whole("Points of the front.", lowest=2)] = 8,
    no_budgets: Annotated[
        bool, flag("Without the scenario's budgets, as a front against a price needs.", "--no-budgets")
    ] = False,
    intervals: inputs.Intervals = None,
    plot: Annotated[
        Path | None, option("FILE", "Draw the front; the ending is the format (png, pdf, svg).")
    ] = None,
    out: inputs.OutFile = None,
    as_json: inputs.Json = False,
    quiet: inputs.Quiet = False,
) -> None:
    """Compute the front between a scenario's objective and a second one.

    Every point is the schedule with the lowest objective among those that keep the second one below a limit,
    with a certificate of its own. Give one of --against and --under.

    Example: optlearn pareto batch_size --no-budgets --against price --points 4

    Exit codes: 0 done, 2 bad input, 3 some points are not converged, 130 stopped.
    """
    arguments = inputs.scenario_arguments(scenario, settings, out)
    if (against is None) == (not under):
        bad_input("--against, --under: give one of them as the second objective")
    tests = inputs.read_settings(under, "test_noise=0.5")
    with reporting(quiet) as tell:
        problem = inputs.make_problem(scenario, arguments, tell)
        from optlearn._planning.pareto import pareto

        if no_budgets:
            problem = replace(problem, budgets=())
        if against is Against.price and "batch" not in problem.controls:
            controls = ", ".join(problem.controls)
            bad_input(f"--against price: needs the control batch; {problem.name} has {controls}")
        name, second = _second(against, tests)
        tell(Progress(f"solving {points + 1} problems along the front"))
        front = pareto(
            problem,
            {"objective": None, name: second},
            points,
            **inputs.chosen(intervals=intervals),
        )
        if plot is not None:
            _draw(front, plot)
    rows = [
        {
            **{label: float(values[i]) for label, values in front.values.items()},
            "converged": solution.certificate.converged,
            "schedule": solution.schedule.to_dict(),
        }
        for i, solution in enumerate(front.solutions)
    ]
    result = {"scenario": scenario, "arguments": arguments, "objectives": list(front.names), "points": rows}
    deliver(result, out, as_json, lambda: _show_front(front))
    sure = all(solution.certificate.converged for solution in front.solutions)
    raise typer.Exit(0 if sure else NOT_CONVERGED)


def _second(against: Against | None, tests: dict[str, Any]) -> "tuple[str, Objective]":
    """Name and objective."""
    from optlearn._control.objective import Objective

    if tests:
        words = ", ".join(f"{name} = {value}" for name, value in tests.items())
        return f"error under {words}", Objective.under(tests)
    if against is Against.price:
        return "samples a step", Objective.price()
    return "average error", Objective.average_error()


def _draw(front: "Front", path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from optlearn.plotting.style import save_figure

    figure = front.plot().get_figure(root=True)
    assert figure is not None
    try:
        save_figure(figure, path)
    except (OSError, ValueError) as error:
        bad_input(f"--plot {path}: {error}")


def _show_front(front: "Front") -> None:
    rows = [
        (
            *(f"{front.values[name][i]:.6g}" for name in front.names),
            "yes" if s.certificate.converged else "no",
        )
        for i, s in enumerate(front.solutions)
    ]
    console().print(table("Front", (*front.names, "converged"), rows))
