"""Whether a schedule keeps its paths, including between the solver's grid points."""

from dataclasses import replace

import numpy as np

from optlearn._control.compiled import CompiledProblem, Rollout, weighing_on
from optlearn._control.path import KEPT, Excess
from optlearn._schedule import Schedule
from optlearn._trajectory import Trajectory

POINTS = 16  # points in an interval, at least, and …
BETWEEN = 4  # … in a step of the solver's, at which paths are checked
PAST = 16  # steps in an interval beyond which more points are not worth their time


def excesses(
    compiled: CompiledProblem,
    schedule: Schedule,
    theta: np.ndarray,
    trajectory: Trajectory,
    steps: int = 1,
) -> list[Excess]:
    """The worst point of every path bound along an accurately integrated trajectory.

    Args:
        compiled: the problem.
        schedule: the schedule of the trajectory.
        theta: (k,) free parameters.
        trajectory: a trajectory with dense output.
        steps: the solver's steps in an interval.
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
    path_excesses = []
    for bound, row in zip(compiled.problem.path_bounds, values, strict=True):
        worst = int(np.argmax(row))  # argmax returns the first NaN, if there is one
        size = abs(bound.limit) or float(np.abs(row).max()) or 1.0
        path_excesses.append(Excess(bound, bound.sign * float(row[worst]), float(times[worst]), size))
    return path_excesses


def with_paths(
    compiled: CompiledProblem, schedule: Schedule, theta: np.ndarray, trajectory: Trajectory
) -> Trajectory:
    """The trajectory, with the time courses of the quantities that paths limit."""
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
    """(p, T) sign · quantity of each path bound, at states (T, n) on the schedule's intervals (T,)."""
    w = compiled.relaxation.own_vectors(schedule)[intervals]
    return np.array(compiled.engine.path_kernels.value(compiled.constants, states.T, w.T, theta))


def worst(path_excesses: list[Excess]) -> Excess | None:
    """The path bound that is exceeded most, or is closest to its limit; None without paths."""

    def over(excess: Excess) -> float:
        return (excess.bound.sign * excess.value - excess.bound.limit) / excess.size

    return max(path_excesses, key=over, default=None)


def broken_between(rollout: Rollout, w: np.ndarray, theta: np.ndarray) -> bool:
    """Is a path exceeded between the ends of steps, although it is kept at them?"""
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
