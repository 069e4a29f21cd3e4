"""What a schedule made for one world costs in another."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from optlearn._control.evaluate import evaluate
from optlearn._control.planning.robust import Over, changes, members
from optlearn._control.problem import Problem
from optlearn._control.solution import Solution
from optlearn._control.solve import continuation
from optlearn._errors import UnphysicalStateError
from optlearn._signatures import checked

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Regret:
    """Schedules by the world that they were made for, and what they cost in every one.

    Attributes:
        labels: (W,) the worlds in words.
        objectives: (W, W) objective of the schedule made for world i (row) in world j (column); infinite
            where it leaves the physical region.
        solutions: (W,) the optimum of every world.
    """

    labels: tuple[str, ...]
    objectives: np.ndarray
    solutions: tuple[Solution, ...]

    @property
    def matrix(self) -> np.ndarray:
        """(W, W) the regret: objective minus that of the schedule made for the world."""
        return np.asarray(self.objectives - np.diag(self.objectives))

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """The matrix as colours and numbers, in the caller's axes or new ones."""
        from optlearn.plotting import plot_regret

        return plot_regret(self, axes)


@checked
def regret(problem: Problem | Sequence[Problem], over: Over | None = None, **solve_options: Any) -> Regret:
    """Solve for every possible world, and try each schedule in all others.

    Free parameters belong to the schedule: they keep the values that they were optimised to.

    Args:
        problem: the problem, or one for each world.
        over: parameter → its possible values, as in ``ol.robust``.
        solve_options: for ``ol.solve``; each world is solved from the solution of the one before.
    """
    worlds = members(problem, over)
    solutions = continuation(worlds, **solve_options)
    objectives = np.array([[_objective(world, made) for world in worlds] for made in solutions])
    labels = [_label(change) for change in changes(over)] if isinstance(problem, Problem) else None
    return Regret(
        tuple(labels or (f"problem {number}" for number in range(1, len(worlds) + 1))),
        objectives,
        tuple(solutions),
    )


def _objective(world: Problem, made: Solution) -> float:
    try:
        return evaluate(world, made.schedule, dict(made.parameters), record=2).objective
    except UnphysicalStateError:
        return float("inf")


def _label(change: Any) -> str:
    return ", ".join(
        f"{name} = {value:g}" if np.ndim(value) == 0 and name != "start" else name
        for name, value in change.items()
    )
