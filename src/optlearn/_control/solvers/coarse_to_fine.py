"""Descents from several starts where passes take long: most use a coarse quadrature or fewer steps.

A coarse quadrature, with half of the steps if these suffice, is enough to rank starts. Only the best
continues with the fine quadrature, along with those that the difference between the quadratures may have put
behind it. Even then most passes are coarse and are corrected by a few fine ones. Hops from the best run add
more starts.
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

_CORRECTED = 80  # maximum passes with a coarse objective whose gradient is corrected by the fine one
_SETTLED = 0.1  # of the tolerance: smaller promised gains are not worth a fine pass
# Steps in an interval, half of which may be enough, and the change of an objective that is allowed to these.
_MANY_STEPS, _TOLD_APART = 8, 1e-4
_LOOSE = 5  # times the tolerance, to tell starts apart: a gap is far above the improvement left
_HOP_TOLERANCE = 1e-4  # as coarse as a brief look is
_BESIDE = 0.05  # of a control's range: ends of two runs that are this close lie in one basin


class Descend(Protocol):
    """A solver's run."""

    def __call__(
        self, passes: Rollout, start: Start, *, tolerance: float, rival: Run | None = None
    ) -> Run: ...


class _Went(NamedTuple):
    """A run and its start."""

    start: Start
    end: Run


@dataclass
class CoarseToFine:
    """Descents from the starts of one problem.

    Attributes:
        descend: runs from one start, on any grid of steps and with any quadrature.
        fine: passes under the fine quadrature.
        accurate: passes with a coarse quadrature, if there is one, and as many steps.
        tolerance: tolerance of the gap, relative to the objective.
        most: maximum passes of a correction's descent.
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
        """One run from each start, and some from the neighbourhood of the best.

        The best continues with the fine quadrature, unless a rival from an earlier call was no worse. After
        an interruption, or if all steps lead astray, the last run's outcome says so.
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
        # Hops that returned are in the basin that they came from, and do not count.
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
        # Among those that agree, the continued one comes first.
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
        """Move towards the optimum under the fine quadrature, using only a few fine passes.

        Both quadratures give almost the same curvature. The coarse objective, tilted to have the fine
        gradient at the present point, leads to the minimum of the fine one, up to the difference in
        curvature; there the tilt is updated.

        References:
            R. M. Lewis, S. G. Nash, *Model problems for the multigrid optimization of systems governed by
            differential equations*, SIAM J. Sci. Comput. 26 (2005).
        """
        if self.accurate is self.fine:
            return start
        left, before = _CORRECTED, np.inf  # where passes creep along a valley, more of them would not pay off
        # The steps that led here suffice for the difference of the quadratures.
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
            # The remaining gain, by the coarse curvature; it shrinks quickly from round to round unless
            # gradients jump at a kink of the loss.
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
        """Was the last run interrupted, or do even the most steps lead astray?"""
        return self._went[-1].end.interrupted or self._went[-1].end.astray

    def _follow_all(self, starts: Sequence[Start]) -> None:
        """Run from all starts, then from the neighbourhood of the best; the last run may have failed."""
        for start in starts:
            self._follow(self._informed(start))
            if self._failed:
                return
        # Baselines are tailored to their problem and make hops unnecessary.
        if not self.fine.compiled.problem.baselines and len(starts) > 1 and not self._rival:
            best = lowest(self._ends)
            self._look_beside(best)
            # A single run at the lowest end is no evidence. Of two basins, hops may lead from the higher to
            # the lower.
            best = lowest(self._ends)
            others = [end for end in self._ends if not _is_beside(self.fine, end, best)]
            if len(others) == len(self._ends) - 1 > 0 and not self._failed:
                self._look_beside(lowest(others), goal=best)

    def _follow(self, start: Start) -> None:
        """Run from a start, with the best run so far as rival.

        If few steps lead it astray, more are used from then on: this run restarts from its beginning, and the
        earlier ones continue from their ends.
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
        runs = self._ends if self._rival is None else [self._rival, *self._ends]
        return lowest(runs) if runs else None

    def _loosely(self, start: Start, rival: Run | None) -> Run:
        return self.descend(self._coarse, start, tolerance=_LOOSE * self.tolerance, rival=rival)

    def _further(self, end: Run, *, loosely: bool) -> Run:
        """Continue from an end to its own optimum, whatever the others have reached."""
        # A run that followed the straight line to another has the same end.
        place = end.w.tobytes(), end.theta.tobytes(), self._coarse.steps, loosely
        earlier = self._from_there.get(place)
        if earlier is not None:
            own = {name: getattr(end.record, name) for name in ("start", "iterations", "seconds")}
            return replace(earlier, record=replace(earlier.record, **own), counts=end.counts)
        start = Start(end.record.start, end.w, end.theta, near=True, curvature=end.curvature)
        run = self.descend(self._coarse, start, tolerance=(_LOOSE if loosely else 1) * self.tolerance)
        self._from_there[place] = run
        return replace(_with_work_of(end, run), counts=end.counts)

    def _informed(self, start: Start) -> Start:
        """The start with the curvature of the best end so far, which is mostly the same."""
        curvature = (
            lowest(self._ends).curvature if self._went and start.curvature is None else start.curvature
        )
        return replace(start, curvature=curvature)

    def _look_beside(self, run: Run, goal: Run | None = None) -> None:
        """Run from hops that do not return to a run; if one ends below all others, try other lengths of it.

        Two that end alike have come there along different paths. Runs that return after all are no evidence
        for the run that they came from. With a goal, the hop that leads closest to it continues.
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
        """Run from the same hop with other lengths until one ends as low as the first."""
        for other in hop.others(self.fine.intervals):
            start = hops.start(other)
            end = None if start is None else self._follow_hop(start)
            if self._failed or (end is not None and _may_reach(end, lowest(self._ends[:-1]).objective)):
                return

    def _follow_hop(self, start: Start) -> Run | None:
        """Run from the end of a hop; None if it was led astray, and it is then discarded."""
        self._follow(start)
        if self._went[-1].end.astray:
            del self._went[-1]
            return None
        return self._went[-1].end

    def _settle(self) -> None:
        """If an end may still come down to the lowest, continue both to their optima.

        The two optima may coincide, and coarse passes are the cheapest way to find out.
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
        """Continue from the end of a coarse run with as few fine passes as possible."""
        start = Start(end.record.start, end.w, end.theta, near=True, curvature=end.curvature)
        nearer = self.nearer(start)
        run = self.descend(self.fine, nearer, tolerance=self.tolerance)
        level = Level(end.objective, self._coarse.steps)
        return replace(_with_work_of(end, run), counts=end.counts, coarse=level, tilt=nearer.tilt)


def _quick_to_tell_apart(rollout: Rollout) -> Rollout:
    """The same passes with half as many steps if these suffice to rank starts; else unchanged."""
    if rollout.steps < _MANY_STEPS:
        return rollout
    compiled = rollout.compiled
    w = np.tile(compiled.relaxation.neutral, (rollout.intervals, 1))
    theta = np.array([free.start for free in compiled.problem.free.values()])
    w, theta = FeasibleSet(compiled, rollout.intervals).nearest(w, theta)
    return with_fewer_steps(rollout, w, theta, (2,), _TOLD_APART)


def _is_beside(rollout: Rollout, end: Run, other: Run) -> bool:
    """Whether two runs ended at the same place, within the accuracy of a coarse quadrature."""
    low, high = rollout.compiled.relaxation.bounds
    return bool(np.all(np.abs(end.w - other.w) <= _BESIDE * (high - low)))


def _is_below(end: Run, others: Sequence[Run]) -> bool:
    """Whether a run ended below all others by more than the agreement tolerance."""
    level = lowest(others).objective
    return end.objective < level - agreement(level)


def _may_reach(end: Run, level: float) -> bool:
    """Whether a run's possible improvement would bring it down to a level."""
    return end.objective - level <= max(end.gap or 0.0, agreement(level))


def _with_work_of(before: Run, run: Run) -> Run:
    """A run that continued another, with the iterations and seconds of both."""
    both = {
        name: getattr(before.record, name) + getattr(run.record, name) for name in ("iterations", "seconds")
    }
    return replace(run, record=replace(run.record, **both))
