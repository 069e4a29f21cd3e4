"""Schedules side by side: the optimum, the problem's baselines, and the user's own."""

import html
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from optlearn._arguments import Arguments
from optlearn._control.evaluate import check_schedule, evaluate_anyway
from optlearn._control.identity import check_same, description
from optlearn._control.problem import Problem
from optlearn._control.solution import Solution
from optlearn._control.solve import solve
from optlearn._errors import SpecificationError, UnphysicalStateError, warn
from optlearn._schedule import Schedule
from optlearn._signatures import checked
from optlearn._trajectory import Trajectory, improvement, reduction

if TYPE_CHECKING:
    from rich.table import Table

OPTIMUM = "optimum"


@checked
def baselines(problem: Problem, intervals: int | None = None) -> dict[str, Schedule]:
    """The schedules that people would try: name → schedule.

    One that cannot be made is left out, with a warning.

    Args:
        problem: the problem.
        intervals: control intervals for those that need a grid (default: the problem's).
    """
    count = Arguments("baselines").count("intervals", problem.intervals if intervals is None else intervals)
    schedules = {}
    for name, make in problem.baselines.items():
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
        excess: objective minus that of the optimum.
        reduction: by how many percent the optimum's objective is lower.
        improvement: the same as a percentage of what this schedule itself has learned,
            100 (J − J*)/(error at the start − error at the end), the paper's measure; None if the
            objective is not the final error, or nothing was learned.
        budgets_met: whether budgets and bounds hold.
        note: what does not hold.
    """

    name: str
    objective: float | None
    excess: float | None
    reduction: float | None
    improvement: float | None
    budgets_met: bool
    note: str = ""


@dataclass(frozen=True)
class Comparison:
    """Rows from the lowest objective to the highest.

    Attributes:
        problem: name of the problem.
        rows: one for each schedule.
        schedules: name → schedule.
        solution: the optimum with its certificate.
    """

    problem: str
    rows: tuple[Row, ...]
    schedules: Mapping[str, Schedule]
    solution: Solution

    def __getitem__(self, name: str) -> Row:
        """The row of a schedule."""
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"no schedule {name!r}; there are {[row.name for row in self.rows]}")

    def table(self) -> "Table":
        """A table for rich consoles."""
        from rich.table import Table

        table = Table(title=self.problem)
        # Words may wrap where the screen is narrow; numbers must not.
        for heading in self._headings:
            number = heading in _NUMBERS
            table.add_column(heading, justify="right" if number else "left", no_wrap=number)
        for row in self.rows:
            table.add_row(*self._cells(row), style="bold" if row.name == OPTIMUM else None)
        return table

    @property
    def _headings(self) -> tuple[str, ...]:
        """What the columns show; limits only where one is broken."""
        return ("schedule", *_NUMBERS, *(("limits",) if any(row.note for row in self.rows) else ()))

    def _cells(self, row: Row) -> tuple[str, ...]:
        return _cells(row)[: len(self._headings)]

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return {
            "problem": self.problem,
            "rows": [asdict(row) for row in self.rows],
            "converged": self.solution.certificate.converged,
        }

    def __str__(self) -> str:
        from io import StringIO

        from rich.console import Console

        text = StringIO()
        # In a notebook, rich would show the table there instead of writing it.
        Console(file=text, width=110, color_system=None, force_jupyter=False).print(self.table())
        return text.getvalue().rstrip()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        def line(tag: str, cells: tuple[str, ...]) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

        body = "".join(line("td", self._cells(row)) for row in self.rows)
        caption = f"<caption>{html.escape(self.problem)}</caption>"
        head = f"<thead>{line('th', self._headings)}</thead>"
        return f"<table>{caption}{head}<tbody>{body}</tbody></table>"


@checked
def compare(
    problem: Problem,
    schedules: Mapping[str, Schedule] | None = None,
    solution: Solution | None = None,
    intervals: int | None = None,
    **solve_options: Any,
) -> Comparison:
    """The optimum, every baseline and the given schedules, all re-integrated to the same accuracy.

    A schedule that breaks a budget or a bound is shown with a note.

    Args:
        problem: the problem.
        schedules: name → further schedule.
        solution: the optimum, if it is known already; else it is solved for.
        intervals: control intervals of the optimum and of the baselines (default: the problem's, or
            those of ``solution``).
        solve_options: for ``solve``.
    """
    own = dict(schedules or {})
    for name, schedule in own.items():
        if name == OPTIMUM or name in problem.baselines:
            raise SpecificationError(f"the name {name!r} is taken; call your schedule something else")
        check_schedule(problem, schedule)
    if solution is None:
        solution = solve(problem, intervals=intervals, **solve_options)
    elif solution.problem is not problem:
        check_same(problem, description(solution.problem), "solution")
    count = solution.schedule.intervals if intervals is None else intervals
    everything = {OPTIMUM: solution.schedule, **baselines(problem, count), **own}
    known = {OPTIMUM: solution.trajectory}
    rows = [_row(problem, name, s, solution.objective, known.get(name)) for name, s in everything.items()]
    rows.sort(key=lambda row: np.inf if row.objective is None else row.objective)
    return Comparison(problem.name, tuple(rows), everything, solution)


def _row(
    problem: Problem, name: str, schedule: Schedule, best: float, known: Trajectory | None = None
) -> Row:
    notes = broken_limits(problem, schedule)
    try:
        trajectory = evaluate_anyway(problem, schedule, record=2) if known is None else known
    except (UnphysicalStateError, SpecificationError) as error:
        return Row(name, None, None, None, None, not notes, "; ".join([*notes, str(error)]))
    objective = trajectory.objective
    start = problem.objective.final * trajectory["error"][0]
    own = problem.objective
    only_final = not (own.has_running or own.terminal or own.tests) and problem.weighing is None
    learned = improvement([objective], [best], start)[0] if only_final else np.nan
    return Row(
        name,
        objective,
        objective - best,
        _defined(reduction(objective, best)),
        _defined(learned),
        not notes,
        "; ".join(notes),
    )


def _defined(percent: np.ndarray | float) -> float | None:
    return None if np.isnan(percent) else float(percent)


def broken_limits(problem: Problem, schedule: Schedule) -> list[str]:
    """What a schedule breaks of bounds, admissible values and budgets, in words."""
    bounds = (control.broken_bounds(name, schedule) for name, control in problem.controls.items())
    return [note for notes in (*bounds, *(b.broken(schedule) for b in problem.budgets)) for note in notes]


_NUMBERS = ("objective", "excess", "reduction", "improvement")


def _cells(row: Row) -> tuple[str, ...]:
    percent = [
        "–" if value is None or row.name == OPTIMUM else f"{value:.2f} %"
        for value in (row.reduction, row.improvement)
    ]
    return (
        row.name,
        "–" if row.objective is None else f"{row.objective:.8g}",
        "–" if row.excess is None or row.name == OPTIMUM else f"{row.excess:.2e}",
        *percent,
        row.note or "met",
    )
