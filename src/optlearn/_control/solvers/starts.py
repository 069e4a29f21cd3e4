"""Where solvers start: a neutral guess, the problem's baselines, a warm start, random controls."""

import numpy as np

from optlearn._control.program.build import CompiledProblem
from optlearn._control.program.rollout import Rollout
from optlearn._control.solvers.base import Start
from optlearn._control.solvers.feasible import FeasibleSet
from optlearn._errors import RunawayError
from optlearn._schedule import Schedule


def choose_starts(rollout: Rollout, count: int, seed: int, warm: Schedule | None) -> list[Start]:
    """The best ``count`` guesses by objective; a warm start and the neutral one come first.

    All are moved to the nearest controls that meet bounds and budgets.
    """
    compiled = rollout.compiled
    first = [neutral(compiled, rollout.intervals)]
    if warm is not None:
        first.insert(0, _from_schedule(compiled, "warm start", warm, rollout.intervals))
    others = [
        _from_schedule(compiled, name, make(compiled.problem, rollout.intervals), rollout.intervals)
        for name, make in compiled.problem.baselines.items()
        if count > len(first)
    ]
    ranked = sorted(((rollout.objective(s.w, s.theta), i) for i, s in enumerate(others)), key=_finite_first)
    chosen = _distinct(first + [others[i] for _, i in ranked])[: max(1, count)]
    generator = np.random.default_rng(seed)
    missing = range(count - len(chosen))
    chosen += [_random(compiled, rollout.intervals, generator, i) for i in missing]
    usable = [s for s in chosen if np.isfinite(rollout.objective(s.w, s.theta))]
    if not usable:
        raise RunawayError(
            "the objective is not finite for any start "
            f"({', '.join(s.name for s in chosen)}): the dynamics leave the physical region. "
            "Tighten the bounds of the controls, or give a warm_start schedule that stays physical."
        )
    return usable


def _distinct(starts: list[Start]) -> list[Start]:
    """The starts without those that repeat an earlier one: a baseline is often the neutral guess."""
    kept: list[Start] = []
    for start in starts:
        if not any(np.allclose(start.w, k.w) and np.allclose(start.theta, k.theta) for k in kept):
            kept.append(start)
    return kept


def neutral(compiled: CompiledProblem, intervals: int) -> Start:
    """Every control constant: its guess or the middle of its bounds, moved to meet its budget."""
    w = np.tile(compiled.relaxation.neutral, (intervals, 1))
    return _feasible(compiled, "neutral", w, _theta(compiled))


def _random(compiled: CompiledProblem, intervals: int, generator: np.random.Generator, number: int) -> Start:
    """A few random levels in time, moved to meet the budgets."""
    low, high = compiled.relaxation.bounds
    pieces = int(generator.integers(2, 7))
    levels = generator.uniform(low, high, size=(pieces, len(low)))
    w = levels[np.arange(intervals) * pieces // intervals]
    return _feasible(compiled, f"random {number + 1}", w, _theta(compiled))


def _feasible(compiled: CompiledProblem, name: str, w: np.ndarray, theta: np.ndarray) -> Start:
    return Start(name, *FeasibleSet(compiled, len(w)).nearest(w, theta))


def _theta(compiled: CompiledProblem) -> np.ndarray:
    return np.array([free.start for free in compiled.problem.free.values()])


def _from_schedule(compiled: CompiledProblem, name: str, schedule: Schedule, intervals: int) -> Start:
    free = compiled.problem.free
    theta = np.array([schedule.parameters.get(n, f.start) for n, f in free.items()], dtype=float)
    return _feasible(compiled, name, compiled.relaxation.vectors(schedule, intervals), theta)


def _finite_first(item: tuple[float, int]) -> tuple[bool, float]:
    return not np.isfinite(item[0]), item[0]
