"""Schedules side by side: the solution, the usual ones, and the user's own."""

import html
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from optlearn._arguments import Arguments
from optlearn._control.baselines import baselines_of
from optlearn._control.certificate import Certificate, limits, unmet_limits
from optlearn._control.compiled import compile_problem
from optlearn._control.controls import TOLERANCE, Control
from optlearn._control.evaluate import check_schedule, evaluate_anyway
from optlearn._control.identity import check_same, description
from optlearn._control.kept import excesses
from optlearn._control.path import KEPT
from optlearn._control.problem import Problem
from optlearn._control.solution import Solution
from optlearn._control.solve import solve
from optlearn._control.summary import path_words
from optlearn._errors import SpecificationError, UnphysicalStateError, warn
from optlearn._progress import Progress, Report, shown, silent
from optlearn._schedule import Schedule
from optlearn._signatures import checked
from optlearn._trajectory import Trajectory, improvement, reduction

if TYPE_CHECKING:
    from rich.table import Table

# Names of the solution: only a converged one that no schedule here beats is called optimum.
OPTIMUM, SOLUTION = "optimum", "solution"
ROUND_OFF = 1e-12  # of an objective


@checked
def baselines(problem: Problem, intervals: int | None = None) -> dict[str, Schedule]:
    """Baseline schedules to compare with: name → schedule.

    A problem without baselines of its own gets the best constant, the best straight line, the best cosine and
    the best single switch, as far as its controls and budgets allow them. A baseline that cannot be computed
    is left out with a warning.

    Args:
        problem: the problem.
        intervals: control intervals for baselines that need a grid (default: the problem's).
    """
    count = Arguments("baselines").count("intervals", problem.intervals if intervals is None else intervals)
    return _made(problem, count, silent)


def _made(problem: Problem, count: int, tell: Report) -> dict[str, Schedule]:
    """All baselines on ``count`` intervals."""
    schedules = {}
    for name, make in baselines_of(problem).items():
        tell(Progress(f"comparing with {name!r}"))
        try:
            schedules[name] = make(problem, count)
        except (SpecificationError, UnphysicalStateError) as error:
            warn(f"the baseline {name!r} is left out: {error}")
    return schedules


@dataclass(frozen=True)
class Row:
    """One schedule of a comparison.

    Attributes:
        name: of the schedule.
        objective: re-integrated; None if the schedule leaves the physical region.
        excess: objective minus that of the solution.
        reduction: how much lower the solution's objective is, in percent.
        improvement: the same as a percentage of what this schedule itself has learned,
            100 (J − J*)/(error at the start − error at the end), the paper's measure; None if the
            objective is not the final error, or nothing was learned.
        budgets_met: whether budgets and bounds hold.
        note: which of them is violated.
    """

    name: str
    objective: float | None
    excess: float | None
    reduction: float | None
    improvement: float | None
    budgets_met: bool
    note: str = ""

    @property
    def solved(self) -> bool:
        """Is it the solved schedule?"""
        return self.name in (OPTIMUM, SOLUTION)

    def _cells(self) -> list[str]:
        """Numbers and note, as text for tables."""
        reduction, improvement, excess = self.reduction, self.improvement, self.excess
        if self.solved:
            reduction = improvement = excess = None
        objective = _shown(self.objective, ".8g")
        percent = [_shown(value, ".2f", " %") for value in (reduction, improvement)]
        return [self.name, objective, _shown(excess, ".2e"), *percent, self.note or "met"]


def _shown(value: float | None, form: str, unit: str = "") -> str:
    return "–" if value is None else f"{value:{form}}{unit}"


_NUMBERS = ("objective", "excess", "reduction", "improvement")


@dataclass(frozen=True)
class Comparison:
    """Rows from the lowest objective to the highest; schedules that violate a limit come last.

    Attributes:
        problem: name of the problem.
        rows: one for each schedule.
        schedules: name → schedule.
        solution: the solved schedule, with its certificate.
        doubts: why its row is called "solution" and not "optimum", in words; empty if it is the optimum.
    """

    problem: str
    rows: tuple[Row, ...]
    schedules: Mapping[str, Schedule]
    solution: Solution
    doubts: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Row:
        """The row of a schedule."""
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"no schedule {name!r}; there are {[row.name for row in self.rows]}")

    def table(self) -> "Table":
        """A table for rich consoles."""
        from rich.table import Table

        table = Table(title=self.problem, caption=self._caption or None, caption_justify="left")
        headings, lines = self._cells
        # Words may wrap where the screen is narrow; numbers must not.
        for heading in headings:
            number = heading in _NUMBERS
            table.add_column(heading, justify="right" if number else "left", no_wrap=number)
        for row, cells in zip(self.rows, lines, strict=True):
            table.add_row(*cells, style="bold" if row.solved else None)
        return table

    @property
    def _caption(self) -> str:
        return f"The solution may not be the optimum: {'; '.join(self.doubts)}." if self.doubts else ""

    @property
    def _cells(self) -> tuple[list[str], list[list[str]]]:
        """Column headings and cells; the column of limits only if one is violated."""
        headings = ["schedule", *_NUMBERS, *(["limits"] if any(row.note for row in self.rows) else [])]
        return headings, [row._cells()[: len(headings)] for row in self.rows]

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return {
            "problem": self.problem,
            "rows": [asdict(row) for row in self.rows],
            "converged": self.solution.certificate.converged,
            "doubts": list(self.doubts),
        }

    def __str__(self) -> str:
        from io import StringIO

        from rich.console import Console

        text = StringIO()
        # In a notebook, rich would show the table there instead of writing it.
        Console(file=text, width=110, color_system=None, force_jupyter=False).print(self.table())
        return text.getvalue().rstrip()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def line(tag: str, cells: list[str]) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

        headings, lines = self._cells
        caption, body = html.escape(self.problem), "".join(line("td", cells) for cells in lines)
        head = f"<caption>{caption}</caption><thead>{line('th', headings)}</thead>"
        doubts = f"<p>{html.escape(self._caption)}</p>" if self.doubts else ""
        return f"<table>{head}<tbody>{body}</tbody></table>{doubts}"


@checked
def compare(
    problem: Problem,
    schedules: Mapping[str, Schedule] | None = None,
    solution: Solution | None = None,
    intervals: int | None = None,
    progress: bool | Report | None = None,
    **solve_options: Any,
) -> Comparison:
    """The optimum, every baseline and the given schedules, all re-integrated to the same accuracy.

    A schedule that violates a budget or a bound is shown with a note. The solved schedule is called "optimum"
    only if it is converged and no admissible schedule in the table is better; otherwise "solution".

    Args:
        problem: the problem; with ``reach`` or a free horizon, schedules are compared over the solution's
            training time.
        schedules: name → further schedule.
        solution: the optimum, if known already; by default the problem is solved.
        intervals: control intervals of the optimum and of the baselines (default: the problem's, or
            those of ``solution``).
        progress: as for ``solve``.
        solve_options: options of ``solve``.
    """
    with shown(progress) as tell:
        return _compared(problem, schedules or {}, solution, intervals, tell, solve_options)


def _compared(
    problem: Problem,
    schedules: Mapping[str, Schedule],
    solution: Solution | None,
    intervals: int | None,
    tell: Report,
    solve_options: Mapping[str, Any],
) -> Comparison:
    """``compare`` with a function ``tell`` that is called at every stage."""
    usual = baselines_of(problem)
    horizon_known = problem.reach is None and problem.free_horizon is None
    for name, schedule in schedules.items():
        if name in (OPTIMUM, SOLUTION) or name in usual:
            raise SpecificationError(f"the name {name!r} is taken; call your schedule something else")
        if horizon_known:  # else the training time is not known yet
            check_schedule(problem, schedule)
    was_given = solution is not None
    if solution is None:
        solution = solve(problem, intervals=intervals, progress=tell, **solve_options)
    if problem.unbounded:
        problem = replace(problem, controls=solution.problem.controls)
    if not horizon_known:
        problem = problem.at_horizon(solution.problem.horizon)
        for schedule in schedules.values():
            check_schedule(problem, schedule)
    if was_given and solution.problem is not problem:
        check_same(problem, description(solution.problem), "solution")
    count = solution.schedule.intervals if intervals is None else intervals
    others = {**_made(problem, count, tell), **schedules}
    rows = [_row(problem, name, schedule, solution) for name, schedule in others.items()]
    doubts = _doubts(solution, [row for row in rows if _beats(row, others[row.name], solution)])
    name = SOLUTION if doubts else OPTIMUM
    rows = [_row(problem, name, solution.schedule, solution), *rows]
    rows.sort(key=_place)
    return Comparison(problem.name, tuple(rows), {name: solution.schedule, **others}, solution, doubts)


def _place(row: Row) -> tuple[bool, float]:
    """Sort key of a row; the solved schedule comes before schedules that differ from it by round-off."""
    if row.objective is None:
        return not row.budgets_met, np.inf
    return not row.budgets_met, row.objective - row.solved * ROUND_OFF * abs(row.objective)


def _doubts(solution: Solution, better: list[Row]) -> tuple[str, ...]:
    """Why a solution may not be the optimum, in words."""
    certificate = solution.certificate
    doubts = [] if certificate.converged else [f"it is not converged ({'; '.join(certificate.reasons)})"]
    if better:
        best = min(better, key=lambda row: row.excess or 0.0)
        doubts.append(f"{best.name!r} is better by {-(best.excess or 0.0):.2g}")
    return tuple(doubts)


def _beats(row: Row, schedule: Schedule, solution: Solution) -> bool:
    return row.objective is not None and row.budgets_met and is_better(row.objective, schedule, solution)


class Solved(Protocol):
    """The part of a solution that decides its name."""

    @property
    def objective(self) -> float:
        """Re-integrated objective."""

    @property
    def schedule(self) -> Schedule:
        """The solved schedule."""

    @property
    def certificate(self) -> Certificate:
        """Evidence of optimality."""


def is_better(objective: float, schedule: Schedule, solution: Solved) -> bool:
    """Is a schedule that keeps all limits better than a solution by more than what counts as small?

    The tolerance is larger for a schedule that is mixed, or that changes between the edges of the solution's
    grid, since no optimum on that grid can follow it.
    """
    small = limits(solution.objective, solution.certificate.negligible)
    edges = schedule.grid / schedule.horizon * solution.schedule.intervals
    on_grid = np.all(np.abs(edges - np.round(edges)) < 1e-6) and not schedule.mixtures
    return solution.objective - objective > small["hamiltonian_gap" if on_grid else "relaxation_gap"]


def _row(problem: Problem, name: str, schedule: Schedule, solution: Solution) -> Row:
    notes, trajectory = broken_limits(problem, schedule), solution.trajectory
    try:
        if schedule is not solution.schedule:
            trajectory = evaluate_anyway(problem, schedule, record=2)
            notes += _broken_on_the_way(problem, schedule, trajectory)
        elif (solution.certificate.path_error or 0.0) > KEPT:
            notes.append(path_words(solution))
    except (UnphysicalStateError, SpecificationError) as error:
        return Row(name, None, None, None, None, not notes, "; ".join([*notes, str(error)]))
    aim, objective, best = problem.objective, trajectory.objective, solution.objective
    several = problem.risk is not None or problem.rivals or problem.limits
    only_final = not (aim.has_running or aim.terminal or aim.tests or several)
    start = aim.final * trajectory["error"][0]
    learned = improvement([objective], [best], start)[0] if only_final else np.nan
    percents = [None if np.isnan(p) else float(p) for p in (reduction(objective, best), learned)]
    return Row(name, objective, objective - best, percents[0], percents[1], not notes, "; ".join(notes))


def broken_limits(problem: Problem, schedule: Schedule) -> list[str]:
    """Violations of bounds, admissible values, limits on switches and budgets by a schedule, in words."""
    controls = problem.controls.items()
    notes = [note for name, control in controls for note in control.broken_bounds(name, schedule)]
    notes += [note for name, control in controls for note in _broken_switches(name, control, schedule)]
    return [*notes, *(note for budget in problem.budgets for note in budget.broken(schedule))]


def _broken_on_the_way(problem: Problem, schedule: Schedule, trajectory: Trajectory) -> list[str]:
    """Violations of final limits and path limits by a schedule, in words."""
    if not (problem.limits or problem.paths):
        return []
    compiled = compile_problem(problem)
    theta = np.array([trajectory.info["parameters"][name] for name in problem.free])
    path_excesses = excesses(compiled, schedule, theta, trajectory)
    return [
        *unmet_limits(problem, np.asarray(compiled.costs(trajectory.states[-1], theta))),
        *(excess.words for excess in path_excesses if not excess.kept),
    ]


def _broken_switches(name: str, control: Control, schedule: Schedule) -> list[str]:
    """Violations of the limits on how often, and how soon, a control may change."""
    if not control.limited:
        return []
    if name in schedule.mixtures:
        return [f"{name} is mixed, but switches are limited"]
    own = Schedule(schedule.grid, {name: schedule[name]}).merged()
    notes, switches, dwell = [], own.intervals - 1, float(np.diff(own.grid).min())
    if control.max_switches is not None and switches > control.max_switches:
        notes.append(f"{name} changes {switches} times, more than the {control.max_switches} allowed")
    if dwell < control.min_dwell * (1 - TOLERANCE):
        notes.append(f"{name} keeps a value for only {dwell:.4g}; the minimum is {control.min_dwell:g}")
    return notes
