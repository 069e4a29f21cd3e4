"""Solve many problems of one structure: descents from several starts, rounding, re-integration, certificates.

Everything that takes time runs as lanes of compiled programs. Problems that are not certified at the end are
left to the one-by-one solvers (``optlearn.solve``).
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import float64
from optlearn._control.batched import descent, rounding
from optlearn._control.batched.descent import project
from optlearn._control.batched.stack import stack
from optlearn._control.certificate import NEGLIGIBLE, ROUND_OFF, STEPS, Certificate, Starts, judged, limits
from optlearn._control.problem import Problem
from optlearn._control.relaxation import Relaxation
from optlearn._control.rounding.counts import nearest_counts, value_counts
from optlearn._control.runs import Outcome
from optlearn._control.solvers.rules import TOLERANCE, gap_tolerance
from optlearn._control.solvers.scouts import (
    KEPT,
    LOWER,
    LOWER_COARSE,
    MORE_PASSES,
    PIECES,
    SCOUT_PASSES,
    SCOUTS,
    Ends,
    coarsened,
    descend,
    looks,
    lower_ends,
)
from optlearn._control.solvers.starts import MORE_STARTS, STARTS, STARTS_ALONE
from optlearn._engine.lanes import Lanes, LaneStructure, blocks, drain, forward, run
from optlearn._schedule import Schedule

MAX_PASSES = 240
MOST_STEPS = 64  # in an interval; finer steps are left to the one-by-one solvers
_ACCURACY = 1e-10  # relative accuracy of a re-integrated objective
LONGER = 4  # length of scouts' steps on a coarser grid, in units of those of a descent
_FEW = 256  # number of problems below which a separate program does not pay off


@dataclass
class Solved:
    """Solutions of P problems on I intervals.

    Attributes:
        problems: the solved problems.
        objective: (P,) re-integrated objectives.
        certificates: P certificates.
        outcomes: P outcomes of the solver.
        w: (P, I, m) controls; shares of 0 or 1 if rounded.
        relaxed: (P, I, m) the best mixed controls.
        relaxed_objective: (P,) re-integrated.
        passes: (P,) forward and backward passes of the longest descent.
    """

    problems: Sequence[Problem]
    objective: np.ndarray
    certificates: list[Certificate]
    outcomes: list[Outcome]
    w: np.ndarray
    relaxed: np.ndarray
    relaxed_objective: np.ndarray
    passes: np.ndarray

    def schedule(self, i: int) -> Schedule:
        """The schedule of problem i."""
        return Relaxation(self.problems[i]).schedule(self.w[i], {}, rounded=True)

    def relaxed_schedule(self, i: int) -> Schedule | None:
        """The mixed schedule of problem i, with a discrete control."""
        if not self.problems[i].discrete:
            return None
        return Relaxation(self.problems[i]).schedule(self.relaxed[i], {})


@float64
@np.errstate(over="ignore", invalid="ignore")
def solve_many(
    problems: Sequence[Problem],
    intervals: int | None = None,
    *,
    starts: int | None = None,
    seed: int = 0,
    steps: int | None = None,
    max_iterations: int | None = None,
    tolerance: float | None = None,
    negligible: float | None = None,
) -> Solved:
    """The optimal schedules of problems that differ only in numbers, by the indirect method.

    Args:
        problems: problems with continuous controls or one discrete control, and at most one budget of each.
        intervals: number of equal intervals (default: the problems').
        starts: number of first guesses: a neutral one, then random ones (default: 3; 6 without baselines).
        seed: seed of the random ones.
        steps: Runge-Kutta steps in an interval (default: as many as each problem needs).
        max_iterations: maximum passes from one start.
        tolerance: tolerance of the Hamiltonian gap (default: that of the indirect method; a tenth of it with
            several continuous controls).
        negligible: improvement that does not matter (default: 1e-7 of the neutral guess).

    Raises:
        SpecificationError: they cannot be solved together.
    """
    structure, lanes = stack(problems, intervals)
    most = max_iterations or MAX_PASSES
    # The gap is of first order: along a valley of several controls, where states add little to the curvature
    # of the Hamiltonian, the possible improvement may be many times larger.
    tolerance = tolerance or (TOLERANCE if structure.curved < 2 else TOLERANCE / 10)
    count = len(problems)
    alone = not all(problem.baselines for problem in problems)
    scouts = alone and starts != 1
    starts = starts or (STARTS_ALONE if alone else STARTS)
    batch = _Batch(structure, lanes, starts, seed, most, tolerance, negligible, scouts)
    shape = (count, structure.intervals, structure.size)
    v, own_steps = np.zeros(shape), np.ones(count, dtype=int)
    ended, solved = [[np.inf]] * count, np.zeros(count, dtype=bool)
    passes = np.zeros(count, dtype=int)
    needed = batch.steps_needed(problems) if steps is None else np.full(count, steps)
    todo, first = np.arange(count), True
    while len(todo):
        again = []
        for level in np.unique(needed[todo]):
            own = todo[needed[todo] == level]
            best = batch.descend(own, int(level), None if first else v[own])
            v[own], solved[own], own_steps[own] = best.v, best.solved, level
            passes[own] = np.maximum(passes[own], best.passes)
            if first:  # agreement of starts refers to their own ends, before any continuation
                for i, ends in zip(own, best.ends, strict=True):
                    ended[i] = ends
            if steps is None and not structure.exact:
                coarse = batch.too_coarse(own, v[own], int(level)) & (level < MOST_STEPS)
                again.append(own[coarse])
        todo, first = np.concatenate([np.zeros(0, dtype=int), *again]), False
        needed[todo] *= 2
    final, solver_objective = batch.rounded(problems, v, own_steps)
    exact, relaxed_exact = batch.accurate(final, own_steps), None
    if structure.discrete:
        relaxed_exact = batch.accurate(v, own_steps)
        # An interior point stops short of a bound by its tolerance; pure values reach the bound.
        relaxed_exact = np.fmin(relaxed_exact, exact)
    gap, largest = batch.gaps(final, own_steps)
    mixed = batch.gaps(v, own_steps)[0] if structure.discrete else None
    w, relaxed = (lanes.lower[:, None] + lanes.width[:, None] * u for u in (final, v))
    outcomes = [Outcome.SOLVED if ok else Outcome.ITERATIONS for ok in solved]
    certificates = [
        judged(
            problem,
            objective=float(exact[i]),
            hamiltonian_gap=max(float(gap[i]), 0.0),
            mixed_gap=None if mixed is None else max(float(mixed[i]), 0.0),
            relaxed_objective=None if relaxed_exact is None else float(relaxed_exact[i]),
            integration_error=float(solver_objective[i] - exact[i]),
            budget_error=Relaxation(problem).budget_rows.error(w[i]),
            outcome=outcomes[i],
            starts=Starts.of(ended[i], negligible=float(batch.gains[i])),
            largest=float(largest[i]),
            negligible=float(batch.gains[i]),
        )
        for i, problem in enumerate(problems)
    ]
    return Solved(
        problems, exact, certificates, outcomes, w, relaxed,
        exact if relaxed_exact is None else relaxed_exact, passes,
    )  # fmt: skip


@dataclass
class _Best:
    """Ends of the descents of P problems: the best of each, and the objectives of all its starts."""

    v: np.ndarray
    solved: np.ndarray
    passes: np.ndarray
    ends: list[list[float]]

    def take(self, places: np.ndarray, more: "_Best") -> None:
        """Merge further descents of the problems at some places."""
        for j, place in enumerate(places):
            if min(more.ends[j]) < min(self.ends[place]):
                self.v[place], self.solved[place] = more.v[j], more.solved[j]
            self.passes[place] = max(self.passes[place], more.passes[j])
            self.ends[place] = [*self.ends[place], *more.ends[j]]


@dataclass(frozen=True)
class _Batch:
    """Work on rows of the lanes.

    Attributes:
        structure: structure that all share.
        lanes: N lanes.
        starts: number of first guesses of each.
        seed: seed of the random ones.
        most: maximum passes from one start.
        tolerance: tolerance of the gap.
        negligible: improvement that does not matter, if the user sets it.
        scouts: whether to look for basins that starts have missed.
    """

    structure: LaneStructure
    lanes: Lanes
    starts: int
    seed: int
    most: int
    tolerance: float
    negligible: float | None = None
    scouts: bool = False

    def rows(self, own: np.ndarray) -> Lanes:
        """Some of the lanes."""
        return Lanes(*(part[own] for part in self.lanes))

    @property
    def neutral(self) -> np.ndarray:
        """(N, I, m) neutral controls."""
        v = np.repeat(self.lanes.neutral[:, None], self.structure.intervals, axis=1)
        return blocks(partial(_project, self.structure), self.lanes, v)

    @cached_property
    def gains(self) -> np.ndarray:
        """(N,) improvements that do not matter; by default a share of the neutral guess's objective."""
        every = np.arange(len(self.lanes.horizon))
        if self.negligible is not None:
            return np.full(len(every), self.negligible)
        guesses = np.abs(self.objective(every, self.neutral, 1))
        return NEGLIGIBLE * np.where(np.isfinite(guesses), guesses, 0.0)

    def objective(self, own: np.ndarray, v: np.ndarray, steps: int) -> np.ndarray:
        """(P,) objectives of controls v (P, I, m)."""
        return blocks(partial(_objective, self.structure, steps), self.rows(own), v)

    def steps_needed(self, problems: Sequence[Problem]) -> np.ndarray:
        """(N,) steps in an interval that the neutral guess needs for 1e-8; see ``enough_steps``."""
        count = len(problems)
        if self.structure.exact:
            lengths = self.lanes.horizon / self.structure.intervals
            longest = np.array([problem.model.longest for problem in problems])
            return np.maximum(1, np.ceil(lengths / longest * (1 - 1e-9))).astype(int)
        needed, todo, guess = np.ones(count, dtype=int), np.arange(count), self.neutral
        coarse, steps = self.objective(todo, guess, 1), 1
        while len(todo) and steps < MOST_STEPS:
            fine = self.objective(todo, guess[todo], 2 * steps)
            small = np.minimum(1e-8 * np.maximum(1.0, np.abs(fine)), 1e-5 * np.abs(fine) + ROUND_OFF)
            left = ~(np.abs(fine - coarse) <= small)
            todo, coarse, steps = todo[left], fine[left], 2 * steps
            needed[todo] = steps
        return _merged(needed)

    def too_coarse(self, own: np.ndarray, v: np.ndarray, steps: int) -> np.ndarray:
        """(P,) flags: twice as many steps change the objective by more than a certificate allows."""
        coarse, fine = self.objective(own, v, steps), self.objective(own, v, 2 * steps)
        pairs = zip(coarse, self.gains[own], strict=True)
        allowed = np.array([limits(*pair)["integration_error"] for pair in pairs])
        return np.asarray(~(np.abs(fine - coarse) <= allowed / 2))

    def descend(self, own: np.ndarray, steps: int, near: np.ndarray | None) -> _Best:
        """Descend from all starts, or continue from controls ``near`` (P, I, m)."""
        if near is not None:
            return self._best(own, [near], steps)
        best = self._best(own, [self.neutral[own], *self._randoms(own, self.starts - 1, self.seed)], steps)
        pieces = min(PIECES, self.structure.intervals)
        for place, guess in self._scouted(own, best.v, steps, pieces) if self.scouts else ():
            best.take(place, self._best(own[place], [guess], steps))
        scouted = self.scouts and pieces == self.structure.intervals
        for again in range(1, MORE_STARTS + 1):
            pairs = zip(best.ends, self.gains[own], strict=True)
            starts = [Starts.of(ends, negligible=gain) for ends, gain in pairs]
            places = np.flatnonzero([s.lone if scouted else s.scattered for s in starts])
            if len(places) == 0:
                break
            # At most half have reached the best so far: another may reach a better one.
            randoms = self._randoms(own[places], self.starts, (self.seed, again))
            best.take(places, self._best(own[places], randoms, steps))
        return best

    def _scouted(
        self, own: np.ndarray, best: np.ndarray, steps: int, pieces: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Places of problems where a scout ended below ``best`` (P, I, m), and where to continue.

        Each item holds the next scout of the problems that have more; see ``scouts``.
        """
        intervals, size, every = self.structure.intervals, self.structure.size, np.arange(len(own))
        coarse = self.structure.on(pieces)
        if not coarse.exact:
            steps = -(-steps * intervals // (pieces * LONGER)) if pieces < intervals else steps

        def descended(v: np.ndarray, most: int) -> Ends:
            """Descend from controls (P, L, I, m)."""
            lanes = self.rows(np.repeat(own, v.shape[1]))

            def passes(rows: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
                return blocks(partial(_slopes, coarse, steps), Lanes(*(part[rows] for part in lanes)), v)

            def nearest(rows: np.ndarray, v: np.ndarray) -> np.ndarray:
                return blocks(partial(_project, coarse), Lanes(*(part[rows] for part in lanes)), v)

            ends = descend(passes, nearest, v.reshape(-1, pieces, size), most)
            return Ends(ends.v.reshape(v.shape), ends.objective.reshape(v.shape[:2]))

        generator = np.random.default_rng((self.seed, MORE_STARTS + 1))
        first = np.repeat(looks(generator, SCOUTS, pieces, size)[None], len(own), axis=0)
        ours = np.array([coarsened(v, pieces) for v in best])[:, None]
        ends = descended(np.concatenate([first, ours], axis=1), SCOUT_PASSES)
        order = np.argsort(ends.objective[:, :-1], axis=1)[:, :KEPT]
        kept = np.concatenate([order, np.full((len(own), 1), SCOUTS)], axis=1)
        last = descended(ends.v[every[:, None], kept], MORE_PASSES)
        share = LOWER if pieces == intervals else LOWER_COARSE
        lower = share * np.abs(last.objective[:, -1]) + self.gains[own]
        numbers = [lower_ends(Ends(*pair), gain) for *pair, gain in zip(*last, lower, strict=True)]
        for turn in range(max(map(len, numbers))):
            places = np.flatnonzero([len(n) > turn for n in numbers])
            v = last.v[places, [numbers[place][turn] for place in places]]
            fine = v[:, np.arange(intervals) * pieces // intervals]
            yield places, blocks(partial(_project, self.structure), self.rows(own[places]), fine)

    def _descents(self, own: np.ndarray, v: np.ndarray, steps: int) -> Any:
        advance = partial(descent.advance, self.structure, steps)
        return drain(advance, descent.begin, self.rows(own), v, self.tolerance, self.most)

    def _best(self, own: np.ndarray, guesses: list[np.ndarray], steps: int) -> _Best:
        """The lowest of each problem's descents from guesses (P, I, m)."""
        shape, every = (len(guesses), len(own)), np.arange(len(own))
        ends = self._descents(np.tile(own, len(guesses)), np.concatenate(guesses), steps)
        objective = np.where(np.isfinite(ends.objective), ends.objective, np.inf).reshape(shape)
        start = np.argmin(objective, axis=0)
        lowest, gap = objective[start, every], ends.gap.reshape(shape)[start, every]
        return _Best(
            v=ends.v.reshape(*shape, *ends.v.shape[1:])[start, every],
            solved=gap <= gap_tolerance(lowest, self.tolerance),
            passes=ends.passes.reshape(shape).max(axis=0),
            ends=objective.T.tolist(),
        )

    def _randoms(self, own: np.ndarray, count: int, seed: int | tuple[int, ...]) -> list[np.ndarray]:
        """Guesses (P, I, m) with a few random levels in time that meet the budgets; see ``starts``."""
        generator, guesses = np.random.default_rng(seed), []
        intervals, size = self.structure.intervals, self.structure.size
        for _ in range(count):
            pieces = int(generator.integers(2, 7))
            levels = generator.uniform(size=(pieces, size))
            guess = levels[np.arange(intervals) * pieces // intervals]
            every = np.repeat(guess[None], len(own), axis=0)
            guesses.append(blocks(partial(_project, self.structure), self.rows(own), every))
        return guesses

    def rounded(
        self, problems: Sequence[Problem], v: np.ndarray, own_steps: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Controls with shares of 0 and 1, and their objectives on the solver's grid."""
        final, objective = v.copy(), np.zeros(len(v))
        for steps in np.unique(own_steps):
            own = np.flatnonzero(own_steps == steps)
            if not self.structure.discrete:
                objective[own] = self.objective(own, v[own], int(steps))
                continue
            counts, free = zip(*(_counts(problems[int(i)], v[i]) for i in own), strict=True)
            sum_up = partial(rounding.sum_up, self.structure)
            levels = blocks(sum_up, self.rows(own), v[own], np.array(counts))
            search = partial(rounding.exchange, self.structure, int(steps))
            rounded = drain(search, rounding.begin, self.rows(own), (levels, np.array(free)))
            final[own], objective[own] = self.structure.vertices[rounded.levels], rounded.objective
        return final, objective

    def accurate(self, v: np.ndarray, own_steps: np.ndarray) -> np.ndarray:
        """(N,) objectives, re-integrated with finer steps until they converge; NaN if they do not."""
        objective = np.full(len(v), np.nan)
        steps = np.where(self.structure.exact, own_steps, np.maximum(STEPS, 2 * own_steps))
        todo = np.flatnonzero(np.isfinite(v).all(axis=(1, 2)))
        while len(todo):
            again = []
            for level in np.unique(steps[todo]):
                own = todo[steps[todo] == level]
                coarse = self.objective(own, v[own], int(level))
                if self.structure.exact:
                    objective[own] = coarse
                    continue
                fine = self.objective(own, v[own], 2 * int(level))
                # Richardson extrapolation of a fourth-order method: this is most of the remaining error.
                correction = (fine - coarse) / 15
                good = np.abs(correction) <= _ACCURACY * np.abs(fine) + ROUND_OFF
                objective[own[good]] = (fine + correction)[good]
                again.append(own[~good & (2 * level <= MOST_STEPS) & np.isfinite(fine)])
            todo = np.concatenate([np.zeros(0, dtype=int), *again])
            steps[todo] *= 2
        return objective

    def gaps(self, v: np.ndarray, own_steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(N,) Hamiltonian gaps, and the largest number in a state along training."""
        gap, largest = np.zeros(len(v)), np.zeros(len(v))
        steps = own_steps if self.structure.exact else np.maximum(STEPS, own_steps)
        for level in np.unique(steps):
            own = np.flatnonzero(steps == level)
            gap[own], largest[own] = blocks(
                partial(_gaps, self.structure, int(level)), self.rows(own), v[own]
            )
        return gap, largest


def _merged(needed: np.ndarray) -> np.ndarray:
    """Steps (N,) rounded up to a few distinct numbers, since each needs a compiled program."""
    merged = needed.copy()
    levels = np.unique(needed)
    for level, finer in itertools.pairwise(levels):
        own = merged == level
        if own.sum() < max(_FEW, len(needed) // 4):
            merged[own] = finer
    return merged


def _counts(problem: Problem, v: np.ndarray) -> tuple[np.ndarray, bool]:
    """(n,) intervals of each value of the discrete control, and whether other counts are allowed."""
    ((name, control),) = problem.discrete.items()
    prescribed = value_counts(name, control, problem.mean_budgets, len(v))
    totals = control.shares(v).sum(axis=0)
    return nearest_counts(name, control, problem.mean_budgets, totals), bool(np.any(prescribed < 0))


@partial(jax.jit, static_argnums=0)
def _project(structure: LaneStructure, lanes: Lanes, v: np.ndarray) -> Any:
    return jax.vmap(partial(project, structure))(lanes, v)


@partial(jax.jit, static_argnums=(0, 1))
def _objective(structure: LaneStructure, steps: int, lanes: Lanes, v: np.ndarray) -> Any:
    return forward(structure, lanes, v, steps)[0]


@partial(jax.jit, static_argnums=(0, 1))
def _slopes(structure: LaneStructure, steps: int, lanes: Lanes, v: np.ndarray) -> Any:
    passed = run(structure, lanes, v, steps)
    return passed.objective, passed.gradient


@partial(jax.jit, static_argnums=(0, 1))
def _gaps(structure: LaneStructure, steps: int, lanes: Lanes, v: np.ndarray) -> Any:
    passed = run(structure, lanes, v, steps)
    gap = descent.gaps(structure, lanes, v, passed.gradient, passed, search=True)
    return gap, jnp.max(jnp.abs(passed.states), axis=(0, 1))
