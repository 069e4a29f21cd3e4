"""Does reacting to the state pay off? Open loop, linear feedback and replanning at finite N.

All run on the exact chain of overlaps with the same random numbers, so paired differences are known far more
precisely than each result.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import jax
import numpy as np
from scipy.stats import t as student_t

from optlearn._arguments import Arguments
from optlearn._arrays import float64
from optlearn._control.solution import Solution
from optlearn._errors import SpecificationError, UnphysicalStateError
from optlearn._simulate.normals import make_keys
from optlearn._simulate.overlaps import advance_overlaps, initial_overlaps
from optlearn._simulate.record import evaluate
from optlearn._simulate.run import prepare
from optlearn._theory.model import LearningModel

ARMS = ("open loop", "feedback", "planning again")

# (interval, states (S, n), controls name → (S, I)) → controls from this interval on are changed in place.
Policy = Callable[[int, np.ndarray, dict[str, np.ndarray]], None]


@dataclass(frozen=True)
class Interval:
    """A mean over seeds, and the half-width of its 95 % confidence interval."""

    mean: float
    half: float

    @classmethod
    def of(cls, values: np.ndarray) -> "Interval":
        """From independent values (S,)."""
        half = student_t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
        return cls(float(values.mean()), float(half))

    def __str__(self) -> str:
        return f"{self.mean:.3g} ± {self.half:.2g}"


@dataclass(frozen=True)
class LoopComparison:
    """Final errors of runs that differ only in how they react to their state.

    Attributes:
        problem: name of the problem.
        N: input dimension.
        theory: objective of the plan, for N → ∞.
        errors: name of an arm → (S,) final error of every seed; all arms use the same random numbers.
        failed: number of replans that failed, so that the old plan was kept, and number of attempts.
    """

    problem: str
    N: int
    theory: float
    errors: dict[str, np.ndarray]
    failed: tuple[int, int]

    def mean(self, arm: str) -> Interval:
        """The mean final error of an arm."""
        return Interval.of(self.errors[arm])

    def gain(self, arm: str) -> Interval:
        """Improvement of an arm over the open loop, from paired differences."""
        return Interval.of(self.errors["open loop"] - self.errors[arm])


@float64
def closed_loop(
    solution: Solution,
    N: int,
    *,
    seeds: int = 16,
    seed: int = 0,
    arms: Sequence[str] = ARMS,
    every: int | None = None,
) -> LoopComparison:
    """Run a plan at finite N in open loop, and with feedback from the state.

    Args:
        solution: the plan, of a problem of a learning model.
        N: input dimension.
        seeds: number of independent runs, at least 2.
        seed: seed of the random numbers, which all arms share.
        arms: any of ``"open loop"``, ``"feedback"`` (``solution.feedback()``, at every interval) and
            ``"planning again"`` (``solution.replan``, at every ``every``-th interval).
        every: number of intervals between two plans (default: a tenth of training).
    """
    check = Arguments("closed_loop")
    check.count("N", N)
    check.count("seeds", seeds, 2)
    problem, schedule = solution.problem, solution.schedule
    if not isinstance(problem.model, LearningModel):
        raise SpecificationError(f"{type(problem.model).__name__} has no chain of overlaps to run")
    for arm in arms:
        check.one_of("arms", arm, ARMS)
    stride = max(1, schedule.intervals // 10) if every is None else check.count("every", every)
    again = _Again(solution, stride, seeds)
    policies: dict[str, Policy] = {"open loop": lambda interval, states, controls: None}
    if "feedback" in arms:
        policies["feedback"] = _feedback(solution)
    if "planning again" in arms:
        policies["planning again"] = again
    order = dict.fromkeys(("open loop", *arms))
    errors = {arm: _final_errors(solution, N, seeds, seed, policies[arm]) for arm in order}
    return LoopComparison(problem.name, N, solution.objective, errors, (again.failed, again.asked))


def _final_errors(solution: Solution, N: int, seeds: int, seed: int, policy: Policy) -> np.ndarray:
    """(S,) final errors of the runs of all seeds, each under its own controls."""
    schedule, keys = solution.schedule, make_keys(seed, seeds)
    run = prepare(solution.problem, schedule, None, N, dict(solution.parameters))
    model = run.model
    edges = [*map(int, run.controls.first), round(schedule.horizon * N)]
    values = {name: np.tile(v, (seeds, 1)) for name, v in schedule.values.items()}
    state = initial_overlaps(run.start, seeds)

    def advance_one(values: Any, key: Any, x: Any, begin: Any, end: Any) -> Any:
        changed = replace(run, controls=replace(run.controls, values=values))
        one_key, one_state = jax.tree.map(lambda leaf: leaf[None], (key, x))
        moved = advance_overlaps(changed, one_key, np.float64(N), one_state, begin, end)
        return jax.tree.map(lambda leaf: leaf[0], moved)

    advance = jax.jit(jax.vmap(advance_one, in_axes=(0, 0, 0, None, None)))
    for interval, (begin, end) in enumerate(pairwise(edges)):
        policy(interval, np.asarray(model.layout.flatten(state)), values)
        state = advance(values, keys, state, np.int64(begin), np.int64(end))
    final = np.asarray(model.layout.flatten(state))[:, None, :]
    observed = evaluate(run, schedule, np.array([schedule.horizon]), final)
    return np.asarray(observed["error"]).reshape(seeds)


def _feedback(solution: Solution) -> Policy:
    law, grid = solution.feedback(), solution.schedule.grid
    planned = np.stack(list(solution.trajectory.at(grid[:-1]).values()), axis=1)

    def answer(interval: int, states: np.ndarray, controls: dict[str, np.ndarray]) -> None:
        for run, state in enumerate(states):
            for name, value in law.correct(grid[interval], state - planned[interval]).items():
                controls[name][run, interval] = value

    return answer


class _Again:
    """Replan the rest of every run every few intervals; if that fails, keep the old plan."""

    def __init__(self, solution: Solution, stride: int, seeds: int) -> None:
        self.stride, self.grid = stride, solution.schedule.grid
        self.plans = [solution] * seeds
        self.asked = self.failed = 0

    def __call__(self, interval: int, states: np.ndarray, controls: dict[str, np.ndarray]) -> None:
        if interval == 0 or interval % self.stride:
            return
        for run, state in enumerate(states):
            self.asked += 1
            try:
                plan = self.plans[run].replan(at=float(self.grid[interval]), state=state, method="indirect")
            except (SpecificationError, UnphysicalStateError):
                self.failed += 1
                continue
            self.plans[run] = plan
            for name in plan.schedule.controls:
                controls[name][run, interval:] = plan.schedule[name]
