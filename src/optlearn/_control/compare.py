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
from optlearn._trajectory import improvement, reduction

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

    def _cells(self) -> list[str]:
        """Its numbers and note, as a table shows them."""
        reduction, improvement, excess = self.reduction, self.improvement, self.excess
        if self.name == OPTIMUM:
            reduction = improvement = excess = None
        objective = _shown(self.objective, ".8g")
        percent = [_shown(value, ".2f", " %") for value in (reduction, improvement)]
        return [self.name, objective, _shown(excess, ".2e"), *percent, self.note or "met"]


def _shown(value: float | None, form: str, unit: str = "") -> str:
    return "–" if value is None else f"{value:{form}}{unit}"


_NUMBERS = ("objective", "excess", "reduction", "improvement")


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
        headings, lines = self._cells
        # Words may wrap where the screen is narrow; numbers must not.
        for heading in headings:
            number = heading in _NUMBERS
            table.add_column(heading, justify="right" if number else "left", no_wrap=number)
        for row, cells in zip(self.rows, lines, strict=True):
            table.add_row(*cells, style="bold" if row.name == OPTIMUM else None)
        return table

    @property
    def _cells(self) -> tuple[list[str], list[list[str]]]:
        """Headings of the columns, and what they show of each row; limits only where one is broken."""
        headings = ["schedule", *_NUMBERS, *(["limits"] if any(row.note for row in self.rows) else [])]
        return headings, [row._cells()[: len(headings)] for row in self.rows]

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

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def line(tag: str, cells: list[str]) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

        headings, lines = self._cells
        caption, body = html.escape(self.problem), "".join(line("td", cells) for cells in lines)
        head = f"<caption>{caption}</caption><thead>{line('th', headings)}</thead>"
        return f"<table>{head}<tbody>{body}</tbody></table>"


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
    schedules = schedules or {}
    for name, schedule in schedules.items():
        if name == OPTIMUM or name in problem.baselines:
            raise SpecificationError(f"the name {name!r} is taken; call your schedule something else")
        check_schedule(problem, schedule)
    if solution is None:
        solution = solve(problem, intervals=intervals, **solve_options)
    elif solution.problem is not problem:
        check_same(problem, description(solution.problem), "solution")
    count = solution.schedule.intervals if intervals is None else intervals
    everything = {OPTIMUM: solution.schedule, **baselines(problem, count), **schedules}
    rows = [_row(problem, name, schedule, solution) for name, schedule in everything.items()]
    rows.sort(key=lambda row: np.inf if row.objective is None else row.objective)
    return Comparison(problem.name, tuple(rows), everything, solution)


def _row(problem: Problem, name: str, schedule: Schedule, solution: Solution) -> Row:
    notes, trajectory = broken_limits(problem, schedule), solution.trajectory
    try:
        if name != OPTIMUM:
            trajectory = evaluate_anyway(problem, schedule, record=2)
    except (UnphysicalStateError, SpecificationError) as error:
        return Row(name, None, None, None, None, not notes, "; ".join([*notes, str(error)]))
    aim, objective, best = problem.objective, trajectory.objective, solution.objective
    only_final = not (aim.has_running or aim.terminal or aim.tests) and problem.weighing is None
    start = aim.final * trajectory["error"][0]
    learned = improvement([objective], [best], start)[0] if only_final else np.nan
    percents = [None if np.isnan(p) else float(p) for p in (reduction(objective, best), learned)]
    return Row(name, objective, objective - best, percents[0], percents[1], not notes, "; ".join(notes))


def broken_limits(problem: Problem, schedule: Schedule) -> list[str]:
    """What a schedule breaks of bounds, admissible values and budgets, in words."""
    bounds = (control.broken_bounds(name, schedule) for name, control in problem.controls.items())
    return [note for notes in (*bounds, *(b.broken(schedule) for b in problem.budgets)) for note in notes]
