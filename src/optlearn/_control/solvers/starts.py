"""Where solvers start: a neutral guess, the problem's baselines, a warm start, random controls."""

import numpy as np

from optlearn._control.evaluate import evaluate
from optlearn._control.program.build import CompiledProblem
from optlearn._control.program.rollout import Rollout
from optlearn._control.solvers.base import Start
from optlearn._control.solvers.feasible import FeasibleSet
from optlearn._errors import SpecificationError, UnphysicalStateError
from optlearn._schedule import Schedule

Seed = int | tuple[int, ...]


def choose_starts(
    rollout: Rollout, count: int, seed: int, warm: Schedule | None, notes: list[str] | None = None
) -> list[Start]:
    """The best ``count`` guesses by objective; a warm start and the neutral one come first.

    All are moved to the nearest controls that meet bounds and budgets. What cannot be used is left out, and
    ``notes`` get a line that says why.
    """
    compiled, notes = rollout.compiled, [] if notes is None else notes
    first = [neutral(compiled, rollout.intervals)]
    if warm is not None:
        first.insert(0, _from_schedule(compiled, "warm start", warm, rollout.intervals))
    others = []
    for name, make in compiled.problem.baselines.items() if count > len(first) else ():
        try:
            schedule = make(compiled.problem, rollout.intervals)
        except (SpecificationError, UnphysicalStateError) as error:
            notes.append(f"the baseline {name!r} is no start: {error}")
            continue
        others.append(_from_schedule(compiled, name, schedule, rollout.intervals))
    ranked = sorted(((rollout.objective(s.w, s.theta), i) for i, s in enumerate(others)), key=_finite_first)
    chosen = _distinct(first + [others[i] for _, i in ranked])[: max(1, count)]
    chosen += _randoms(compiled, rollout.intervals, count - len(chosen), seed)
    usable = _usable(rollout, chosen)
    notes += [
        f"the start {s.name!r} is left out: its objective is not finite" for s in chosen if s not in usable
    ]
    if not usable:
        raise SpecificationError(
            f"the objective is not finite for any start ({', '.join(s.name for s in chosen)}), also not with "
            f"{rollout.steps} steps in an interval: {_reason(compiled, chosen)}"
        )
    return usable


def random_starts(rollout: Rollout, count: int, seed: Seed) -> list[Start]:
    """Further random guesses with a finite objective."""
    return _usable(rollout, _randoms(rollout.compiled, rollout.intervals, count, seed))


def _usable(rollout: Rollout, starts: list[Start]) -> list[Start]:
    return [start for start in starts if np.isfinite(rollout.objective(start.w, start.theta))]


def _reason(compiled: CompiledProblem, starts: list[Start]) -> str:
    """What an accurate integration says of the starts."""
    reason = ""
    for start in starts:
        free = dict(zip(compiled.problem.free, map(float, start.theta), strict=True))
        try:
            evaluate(compiled.problem, compiled.relaxation.schedule(start.w, free), record=2)
        except UnphysicalStateError as error:
            reason = str(error)
        else:
            return (
                f"an accurate integration from {start.name!r} is finite, so the dynamics are too fast for "
                "steps of this length; take more intervals"
            )
    return f"{reason} Tighten the bounds of the controls, or give a warm_start that stays physical."


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


def _randoms(compiled: CompiledProblem, intervals: int, count: int, seed: Seed) -> list[Start]:
    """Guesses with a few random levels in time, moved to meet the budgets."""
    generator = np.random.default_rng(seed)
    low, high = compiled.relaxation.bounds
    found = []
    for number in range(count):
        pieces = int(generator.integers(2, 7))
        levels = generator.uniform(low, high, size=(pieces, len(low)))
        w = levels[np.arange(intervals) * pieces // intervals]
        found.append(_feasible(compiled, f"random {number + 1}", w, _theta(compiled)))
    return found


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
