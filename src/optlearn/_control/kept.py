"""Whether a schedule keeps its paths, between the points that a solver looks at too."""

from dataclasses import replace

import numpy as np

from optlearn._control.compiled import CompiledProblem, Rollout, weighing_on
from optlearn._control.path import KEPT, Excess
from optlearn._schedule import Schedule
from optlearn._trajectory import Trajectory

POINTS = 16  # in an interval, at least, and
BETWEEN = 4  # in a step of the solver's, at which paths are looked at
PAST = 16  # of these steps in an interval, all of them, more points are not worth their time


def excesses(
    compiled: CompiledProblem,
    schedule: Schedule,
    theta: np.ndarray,
    trajectory: Trajectory,
    steps: int = 1,
) -> list[Excess]:
    """Of every side of every path, where it is worst along a trajectory that was integrated accurately.

    Args:
        compiled: the problem.
        schedule: under which it was integrated.
        theta: (k,) free parameters.
        trajectory: with dense output.
        steps: of the solver's, in an interval.
    """
    if not compiled.problem.paths:
        return []
    points = max(POINTS, BETWEEN * min(steps, PAST))
    # Both ends belong to the interval: where controls jump, so may what reads them.
    part = np.linspace(0.0, 1.0, points + 1)
    times = schedule.grid[:-1, None] * (1 - part) + schedule.grid[1:, None] * part
    times = np.minimum(times.ravel(), trajectory.alpha[-1])
    states = np.stack(list(trajectory.at(times).values()), axis=1)
    intervals = np.repeat(np.arange(schedule.intervals), points + 1)
    values = _values(compiled, schedule, theta, states, intervals)
    found = []
    for bound, row in zip(compiled.problem.path_bounds, values, strict=True):
        worst = int(np.argmax(row))  # which is that of a NaN, if there is one
        size = abs(bound.limit) or float(np.abs(row).max()) or 1.0
        found.append(Excess(bound, bound.sign * float(row[worst]), float(times[worst]), size))
    return found


def with_paths(
    compiled: CompiledProblem, schedule: Schedule, theta: np.ndarray, trajectory: Trajectory
) -> Trajectory:
    """The trajectory, with the courses of what paths limit."""
    bounds = compiled.problem.path_bounds
    if all(bound.path.label in trajectory.values for bound in bounds):
        return trajectory
    intervals = np.searchsorted(schedule.grid, trajectory.alpha, side="right") - 1
    intervals = np.minimum(intervals, schedule.intervals - 1)
    values = _values(compiled, schedule, theta, trajectory.states, intervals)
    courses = {bound.path.label: bound.sign * row for bound, row in zip(bounds, values, strict=True)}
    return replace(trajectory, values={**courses, **trajectory.values})


def _values(
    compiled: CompiledProblem,
    schedule: Schedule,
    theta: np.ndarray,
    states: np.ndarray,
    intervals: np.ndarray,
) -> np.ndarray:
    """(p, T) of what paths limit, at states (T, n) on the schedule's intervals (T,)."""
    w = compiled.relaxation.own_vectors(schedule)[intervals]
    return np.array(compiled.engine.path_kernels.value(compiled.constants, states.T, w.T, theta))


def worst(found: list[Excess]) -> Excess | None:
    """The one that is exceeded most, or is nearest to its limit; None: there are no paths."""

    def over(excess: Excess) -> float:
        return (excess.bound.sign * excess.value - excess.bound.limit) / excess.size

    return max(found, key=over, default=None)


def broken_between(rollout: Rollout, w: np.ndarray, theta: np.ndarray) -> bool:
    """Is a path that is kept at the ends of steps exceeded between them?"""
    weighing = weighing_on(rollout)
    if weighing is None or not rollout.compiled.problem.paths:
        return False
    finer = rollout.with_steps(BETWEEN * rollout.steps)
    inside = weighing_on(finer)
    assert inside is not None
    first = len(rollout.compiled.problem.limits)
    on_grid, between = (
        (weigher.broken(roll.costs(w, theta)) / np.array(weigher.sizes))[first:].max(initial=0.0)
        for weigher, roll in ((weighing, rollout), (inside, finer))
    )
    return bool(on_grid <= KEPT < between)
