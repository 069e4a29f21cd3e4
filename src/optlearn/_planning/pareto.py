"""Fronts between two objectives, and the largest of several."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import Float
from optlearn._control.compiled import compile_problem
from optlearn._control.objective import Limit, Objective
from optlearn._control.problem import Problem
from optlearn._control.solution import NotConvergedWarning, Solution
from optlearn._control.solve import solve
from optlearn._errors import SpecificationError
from optlearn._planning.accounts import accounted
from optlearn._signatures import checked

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# One objective, the largest of several, or None: the problem's own.
Goal = Objective | Sequence[Objective] | None

_LAST = 1e-2  # of the range: at the second objective's optimum the first has no freedom left


@dataclass(frozen=True)
class Front:
    """Schedules none of which is better than another in both objectives.

    Attributes:
        names: of the two objectives.
        values: name → (P,) values along the front; the first objective rises, the second falls.
        solutions: (P,) solutions, each with its certificate.
    """

    names: tuple[str, str]
    values: Mapping[str, Float[np.ndarray, " P"]]
    solutions: tuple[Solution, ...]

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """The front, in the caller's axes or new ones."""
        from optlearn.plotting import plot_front

        return plot_front(self, axes)


@checked
def worst_of(problem: Problem, objectives: Sequence[Objective]) -> Problem:
    """The problem in which the largest of several objectives is minimised.

    Args:
        problem: the problem; its own objective is ignored.
        objectives: for example the errors of groups,
            ``[ol.Objective.under({"test_share": s}) for s in (0, 1)]``.
    """
    if not objectives:
        raise SpecificationError("objectives must be at least one, got none")
    made, ends = accounted(problem, list(objectives))
    return replace(made, objective=ends[0], rivals=tuple(ends[1:]))


@checked
def pareto(problem: Problem, objectives: Mapping[str, Goal], points: int = 12, **options: Any) -> Front:
    """Compute the front between two objectives by limiting the second (the ε-constraint method).

    Each point is a separate solve, from the previous point and a neutral start, with its own certificate.

    Args:
        problem: the problem.
        objectives: two names → an ``Objective``; several of them, whose maximum counts; or None for the
            problem's own. The first is minimised under limits on the second.
        points: number of points of the front, at least 2.
        options: options of ``ol.solve`` (default: 2 starts).
    """
    if len(objectives) != 2:
        raise SpecificationError(f"objectives must be two, got {len(objectives)}")
    Arguments("pareto").count("points", points, 2)
    groups = [_several(problem, goal) for goal in objectives.values()]
    # Baselines belong to the problem's own objective and budgets.
    bare = replace(problem, baselines={})
    made, ends = accounted(bare, [objective for group in groups for objective in group])
    first, second = ends[: len(groups[0])], ends[len(groups[0]) :]
    options = {"starts": 2, **options}

    def limited(most: float | None) -> Problem:
        limits = () if most is None else tuple(Limit(objective, most) for objective in second)
        return replace(made, objective=first[0], rivals=tuple(first[1:]), limits=(*limits, *made.limits))

    with warnings.catch_warnings():
        # It marks the end of the front and is not part of it; its value, such as a gap between groups, may be
        # 0.
        warnings.simplefilter("ignore", NotConvergedWarning)
        alone = solve(replace(made, objective=second[0], rivals=tuple(second[1:])), **options)
    free = solve(limited(None), warm_start=alone, **options)
    probe = limited(0.0)
    low, high = (_values(probe, end, len(first), len(second))[1] for end in (alone, free))
    if not high > low:
        raise SpecificationError(
            f"objectives must be in conflict, got two with a common minimum, at {high:.6g}"
        )
    solutions = [free]
    for most in high - (high - low) * np.append(np.arange(1, points - 1) / (points - 1), 1 - _LAST):
        solutions.append(solve(limited(float(most)), warm_start=solutions[-1], **options))
    values = np.array([_values(probe, solution, len(first), len(second)) for solution in solutions])
    names = tuple(objectives)
    return Front((names[0], names[1]), dict(zip(names, values.T, strict=True)), tuple(solutions))


def _several(problem: Problem, goal: Goal) -> list[Objective]:
    if goal is None:
        return [problem.objective]
    objectives = [goal] if isinstance(goal, Objective) else list(goal)
    if not objectives or not all(isinstance(objective, Objective) for objective in objectives):
        raise SpecificationError(f"objectives must be of ol.Objective, got {goal!r}")
    return objectives


def _values(probe: Problem, solution: Solution, first: int, second: int) -> tuple[float, float]:
    """Both objectives of a solution, given their numbers of costs."""
    theta = np.array([solution.parameters[name] for name in probe.free])
    costs = compile_problem(probe).costs(solution.trajectory.states[-1], theta)
    return float(costs[:first].max()), float(costs[first : first + second].max())
