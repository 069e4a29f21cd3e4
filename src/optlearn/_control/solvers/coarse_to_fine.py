"""Descents from several starts where passes take long: most of them have a coarse quadrature, or fewer steps.

A coarse quadrature, and half of the steps if these are enough, tell starts apart. Only the best goes on with
the fine quadrature, and those that the difference of both may have put behind it. On its way most passes are
coarse as well: they are corrected by a few fine ones. Besides starts there are hops from the best of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from optlearn._control.certificate import agreement
from optlearn._control.compiled import Rollout
from optlearn._control.runs import Level, Run, Start, Tilt, lowest, with_fewer_steps
from optlearn._control.solvers.descent import MAX_ITERATIONS, Descent
from optlearn._control.solvers.feasible import FeasibleSet
from optlearn._control.solvers.hops import Hop, Hops

_CORRECTED = 80  # passes at most with a coarse objective whose gradient is corrected by the fine one
_SETTLED = 0.1  # of the tolerance: corrections that promise no more are not worth a pass with the fine rule
_MANY_STEPS, _TOLD_APART = 8, 1e-4  # steps in an interval; what half as many may change of an objective
_LOOSE = 5  # times the tolerance, to tell starts apart: a gap is far above the improvement left
_HOP_TOLERANCE = 1e-4  # as coarse as a brief look is
_BESIDE = 0.05  # of a control's range: ends of two runs that are as near as this are in one basin


class Descend(Protocol):
    """A solver's run."""

    def __call__(
        self, passes: Rollout, start: Start, *, tolerance: float, rival: Run | None = None
    ) -> Run: ...


class _Went(NamedTuple):
    """A run, and where it began."""

    start: Start
    end: Run


@dataclass
class CoarseToFine:
    """Descents from the starts of one problem.

    Attributes:
        descend: from one start, on any grid of steps and with any quadrature.
        fine: passes under the fine quadrature.
        accurate: with a coarse one, if there is one, and as many steps.
        tolerance: of the gap, relative to the objective.
        most: passes of a correction's descent.
    """

    descend: Descend
    fine: Rollout
    accurate: Rollout
    tolerance: float
    most: int
    _coarse: Rollout = field(init=False)
    _rival: Run | None = field(init=False, default=None)
    _went: list[_Went] = field(init=False, default_factory=list)
    _from_there: dict[Any, Run] = field(init=False, default_factory=dict)

    def run_all(self, starts: Sequence[Start]) -> list[Run]:
        """One run from each start, and some from beside the best of them.

        The best goes on with the fine quadrature, unless a rival of an earlier call was no worse. After an
        interruption, or where all steps lead astray, the last run says so.
        """
        rival = starts[0].rival
        if rival is not None and rival.coarse is not None:
            self._coarse = self.accurate.with_steps(rival.coarse.steps)
            self._rival = replace(rival, record=replace(rival.record, objective=rival.coarse.objective))
        else:
            self._coarse = _quick_to_tell_apart(self.accurate)
        self._follow_all(starts)
        if not self._failed:
            self._settle()
        if self._failed:
            return self._ends
        # What came back is where it came from.
        first = lowest([end for end in self._ends if end.counts])
        if (
            rival is not None
            and self._rival is not None
            and self._rival.objective <= first.objective + agreement(first.objective)
        ):
            level, best = self._rival.objective, rival
            doubt = 2 * abs(best.objective - level)
        else:
            level, best = first.objective, self._refined(first)
            doubt = 2 * abs(self.fine.objective(first.w, first.theta) - level)
        runs: list[Run] = []
        confirmed = False
        # Of those that agree, the one that has gone on comes first.
        for end in sorted(self._ends, key=lambda end: (end is not first, end.objective)):
            behind = max(0.0, end.objective - level)
            doubtful = end.counts and agreement(level) < behind <= doubt and not best.interrupted
            if end is first and best is not rival:
                runs.append(best)
            elif doubtful and not (confirmed and _is_beside(self.fine, end, first)):
                runs.append(self._refined(end))
                confirmed |= abs(runs[-1].objective - best.objective) <= agreement(best.objective)
            else:
                confirmed |= end.counts and behind <= agreement(level)
                runs.append(replace(end, record=replace(end.record, objective=best.objective + behind)))
        return sorted(runs, key=lambda run: run.interrupted)

    def nearer(self, start: Start) -> Start:
        """Nearer to the optimum under the fine quadrature, by passes of which only a few are with it.

        Both quadratures have almost the same curvature. The coarse objective, tilted so that its gradient is
        right where we are, leads to where the fine one is lowest, up to the difference in curvature; from
        there the tilt is corrected.

        References:
            R. M. Lewis, S. G. Nash, *Model problems for the multigrid optimization of systems governed by
            differential equations*, SIAM J. Sci. Comput. 26 (2005).
        """
        if self.accurate is self.fine:
            return start
        left, before = _CORRECTED, np.inf  # in valleys along which passes creep, more of them would not pay
        # Steps that led here are enough to see what rules differ by.
        few = self.fine if start.tilt is None else with_fewer_steps(self.fine, start.w, start.theta)
        crude = few.coarser() or few

        def difference(w: np.ndarray, theta: np.ndarray) -> tuple[float, Tilt]:
            fine, rough = few.run(w, theta), crude.run(w, theta)
            by_w, by_theta = fine.gradient - rough.gradient, fine.free_gradient - rough.free_gradient
            return fine.objective - rough.objective, Tilt(by_w, by_theta)

        level, tilt = np.inf, start.tilt
        if tilt is None:
            more, tilt = difference(start.w, start.theta)
            level = self.accurate.objective(start.w, start.theta) + more
        while left > 0:
            descent = Descent(self.accurate.tilted(*tilt), start, self.most, self.tolerance)
            descent.settle(left)
            left -= descent.iterations
            w, theta = descent.feasible.split(descent.point.v)
            more, corrected = difference(w, theta)
            reached = self.accurate.objective(w, theta) + more
            if not reached < level:
                break
            level = reached
            start = replace(start, w=w, theta=theta, curvature=descent.curvature, tilt=corrected)
            # What is left, by the curvature of the coarse rule; each round leaves far less than the one
            # before, unless gradients jump, where a loss bends.
            promise = descent.promise(corrected.by_w - tilt.by_w, corrected.by_theta - tilt.by_theta)
            if promise <= _SETTLED * descent.tolerance or promise > before / 2:
                break
            before, tilt = promise, corrected
        return start

    # Coarse passes.

    @property
    def _ends(self) -> list[Run]:
        return [end for _, end in self._went]

    @property
    def _failed(self) -> bool:
        """Is there no going on: was the last run interrupted, or do all steps that there are lead astray?"""
        return self._went[-1].end.interrupted or self._went[-1].end.astray

    def _follow_all(self, starts: Sequence[Start]) -> None:
        """Runs from all starts, and from beside the best of the first ones; the last one may have failed."""
        for start in starts:
            self._follow(self._informed(start))
            if self._failed:
                return
        # Baselines know their problem.
        if not self.fine.compiled.problem.baselines and len(starts) > 1 and not self._rival:
            best = lowest(self._ends)
            self._look_beside(best)
            # One that came there alone is no evidence; of two basins, hops may lead from the higher to the
            # lower.
            best = lowest(self._ends)
            others = [end for end in self._ends if not _is_beside(self.fine, end, best)]
            if len(others) == len(self._ends) - 1 > 0 and not self._failed:
                self._look_beside(lowest(others), goal=best)

    def _follow(self, start: Start) -> None:
        """A run from a start, beside the best so far.

        Where few steps lead it astray, more are taken from now on: by this one from where it began, by the
        others from where they have ended.
        """
        self._went.append(_Went(start, self._loosely(start, self._lowest)))
        if not self._went[-1].end.astray or self._coarse.steps == self.accurate.steps:
            return
        self._coarse = self.accurate
        if self._rival is not None:
            self._rival = self._further(self._rival, loosely=True)
        *went, astray = self._went
        self._went = []
        for before, end in went:
            self._went.append(_Went(before, self._further(end, loosely=True)))
            if self._failed:
                return
        if np.isfinite(self._coarse.objective(start.w, start.theta)):
            astray = _Went(start, self._loosely(start, self._lowest))
        self._went.append(astray)

    @property
    def _lowest(self) -> Run | None:
        known = self._ends if self._rival is None else [self._rival, *self._ends]
        return lowest(known) if known else None

    def _loosely(self, start: Start, rival: Run | None) -> Run:
        return self.descend(self._coarse, start, tolerance=_LOOSE * self.tolerance, rival=rival)

    def _further(self, end: Run, *, loosely: bool) -> Run:
        """On from an end, to its own optimum whatever the others have reached."""
        # One that took the straight line to another is where that one is.
        place = end.w.tobytes(), end.theta.tobytes(), self._coarse.steps, loosely
        known = self._from_there.get(place)
        if known is not None:
            own = {name: getattr(end.record, name) for name in ("start", "iterations", "seconds")}
            return replace(known, record=replace(known.record, **own), counts=end.counts)
        start = Start(end.record.start, end.w, end.theta, near=True, curvature=end.curvature)
        run = self.descend(self._coarse, start, tolerance=(_LOOSE if loosely else 1) * self.tolerance)
        self._from_there[place] = run
        return replace(_with_work_of(end, run), counts=end.counts)

    def _informed(self, start: Start) -> Start:
        """With the curvature at the best end so far, for a descent of its own: most is the same there."""
        known = lowest(self._ends).curvature if self._went and start.curvature is None else start.curvature
        return replace(start, curvature=known)

    def _look_beside(self, run: Run, goal: Run | None = None) -> None:
        """Runs from hops that keep away from a run; after one below all ends, from hops of other lengths too.

        Where two end alike, they have come there by different ways. Runs that come back all the same are no
        evidence for the run from which they came. With a goal, that hop goes on which leads nearest to it.
        """

        def brief(passes: Rollout, start: Start) -> Descent:
            return Descent(passes, start, MAX_ITERATIONS, _HOP_TOLERANCE)

        origin, first = next(i for i, end in enumerate(self._ends) if end is run), len(self._went)
        hops = Hops(self._coarse, run, brief)
        for hop, start in hops.starts(goal):
            end = self._follow_hop(start)
            if end is not None and _is_below(end, self._ends[:-1]):
                self._confirm(hops, hop)
            if self._failed:
                break
        close = self._ends[origin].objective
        close -= agreement(close)
        self._went[first:] = [
            _Went(start, replace(end, counts=end.objective < close)) for start, end in self._went[first:]
        ]

    def _confirm(self, hops: Hops, hop: Hop) -> None:
        """Runs from the same hop with other lengths, until one ends as low as the first."""
        for other in hop.others(self.fine.intervals):
            start = hops.start(other)
            end = None if start is None else self._follow_hop(start)
            if self._failed or (end is not None and _may_reach(end, lowest(self._ends[:-1]).objective)):
                return

    def _follow_hop(self, start: Start) -> Run | None:
        """A run from where a hop has led; None: it was led astray, and is forgotten."""
        self._follow(start)
        if self._went[-1].end.astray:
            del self._went[-1]
            return None
        return self._went[-1].end

    def _settle(self) -> None:
        """Where one may still come down to the lowest, both go on to their optima.

        These may be one, and passes with a coarse rule are the cheapest way to see it.
        """
        assert self._lowest is not None
        least = self._lowest.objective
        able = [_may_reach(end, least) for end in self._ends]
        apart = [end.objective - least > agreement(least) for end in self._ends]
        if any(np.logical_and(able, apart)):
            went = [
                each._replace(end=self._further(each.end, loosely=False)) if may else each
                for each, may in zip(self._went, able, strict=True)
            ]
            self._went = sorted(went, key=lambda each: each.end.interrupted)

    # Fine passes.

    def _refined(self, end: Run) -> Run:
        """On from where a coarse quadrature led, by as few passes with the fine one as suffice."""
        start = Start(end.record.start, end.w, end.theta, near=True, curvature=end.curvature)
        nearer = self.nearer(start)
        run = self.descend(self.fine, nearer, tolerance=self.tolerance)
        level = Level(end.objective, self._coarse.steps)
        return replace(_with_work_of(end, run), counts=end.counts, coarse=level, tilt=nearer.tilt)


def _quick_to_tell_apart(rollout: Rollout) -> Rollout:
    """The same passes with half as many steps, if these are enough to tell starts apart; else as it is."""
    if rollout.steps < _MANY_STEPS:
        return rollout
    compiled = rollout.compiled
    w = np.tile(compiled.relaxation.neutral, (rollout.intervals, 1))
    theta = np.array([free.start for free in compiled.problem.free.values()])
    w, theta = FeasibleSet(compiled, rollout.intervals).nearest(w, theta)
    return with_fewer_steps(rollout, w, theta, (2,), _TOLD_APART)


def _is_beside(rollout: Rollout, end: Run, other: Run) -> bool:
    """Whether two runs have come to the same place, as far as a coarse rule can tell."""
    low, high = rollout.compiled.relaxation.bounds
    return bool(np.all(np.abs(end.w - other.w) <= _BESIDE * (high - low)))


def _is_below(end: Run, others: Sequence[Run]) -> bool:
    """Whether a run has ended below all others, by more than what agrees."""
    level = lowest(others).objective
    return end.objective < level - agreement(level)


def _may_reach(end: Run, level: float) -> bool:
    """Whether what a run may still win would bring it down to a level."""
    return end.objective - level <= max(end.gap or 0.0, agreement(level))


def _with_work_of(before: Run, run: Run) -> Run:
    """A run that went on from another, with the iterations and seconds of both."""
    both = {
        name: getattr(before.record, name) + getattr(run.record, name) for name in ("iterations", "seconds")
    }
    return replace(run, record=replace(run.record, **both))
