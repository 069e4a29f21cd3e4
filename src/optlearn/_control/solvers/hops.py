"""Hops: brief descents from the neighbourhood of the best run, where every pass is a wide quadrature.

Random schedules lead to the widest basin, and agreement among a dozen of them does not rule out a lower one
nearby. Scouts would be too many to afford. But the best run is right almost everywhere, and another basin
often differs in how training begins or ends: one layer waits for another, or a rate warms up. A hop holds one
control at a bound there while the others adapt. If it ends lower than the best run, or does not return after
its release, its end becomes a start.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple, Protocol

import numpy as np

from optlearn._control.certificate import agreement
from optlearn._control.compiled import Rollout
from optlearn._control.runs import Curvature, Run, Start
from optlearn._control.solvers.feasible import FeasibleSet

# Shares of training, at its beginning or at its end.
LENGTHS = 0.25, 0.1
# Maximum number of hops, quasi-Newton steps of each; how many continue, and for how many more rounds at most.
MOST, STEPS, FOLLOWED, ROUNDS = 24, 6, 3, 5
PATIENCE = 10  # a hop continues while its height above the best run is at most this multiple of its last gain
PRESSURE = 10  # the slope that holds a control at a bound, in units of the largest derivative along it
SHORTEST = 1e-6  # distance of states that counts as one, in ranges of the best run
BACK = 0.2  # share of its distance at release below which a hop has returned
HOPELESS = 2  # times the objective of the best run: hops that begin higher are dropped
WORTH = 1.1  # times the objective of the best run: hops that are still higher are not followed
STAYS = 1e-3  # of a control's range: a control this close to its bound already allows no hop


class Walker(Protocol):
    """A descent that can be paused and continued."""

    def settle(self, most: int) -> float:
        """Take at most so many steps; returns their gain."""
        ...

    @property
    def at(self) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
        """Controls (I, m), free parameters (k,), the objective, and states (I·s + 1, n)."""
        ...

    @property
    def curvature(self) -> Curvature:
        """Curvature of the objective, as learned so far."""
        ...


class Hop(NamedTuple):
    """One control held at a bound for part of training."""

    name: str
    column: int
    during: slice
    value: float

    def others(self, intervals: int) -> Iterator["Hop"]:
        """The same hop 1.5 and 0.5 times as long, the more common length first."""
        before = len(range(intervals)[self.during])
        is_long = before > sum(LENGTHS) / 2 * intervals
        for times in (0.5, 1.5) if is_long else (1.5, 0.5):
            count = min(intervals, math.ceil(times * before))
            if count != before:
                during = slice(0, count) if self.during.start == 0 else slice(-count, None)
                yield self._replace(name=f"{self.name}, {count} instead", during=during)

    def pressure(self, gradient: np.ndarray, w: np.ndarray) -> np.ndarray:
        """(I, m) a slope of the objective that holds the control at its bound, beside a gradient (I, m)."""
        slope = np.zeros_like(gradient)
        outwards = np.sign(w[self.during, self.column] - self.value)
        slope[self.during, self.column] = PRESSURE * outwards * np.abs(gradient[:, self.column]).max()
        return slope

    def of(self, start: Start | Run, within: FeasibleSet) -> Start:
        """The same controls and free parameters, with the hop."""
        w = start.w.copy()
        w[self.during, self.column] = self.value
        return Start(self.name, *within.nearest(w, start.theta), local=True, curvature=start.curvature)


@dataclass
class _Held:
    """A hop in progress.

    Attributes:
        hop: the control that is held.
        walker: descent that adapts the other controls.
        away: distance of states from those of the best run, in units of their ranges.
        objective: objective without the slope that holds the control.
    """

    hop: Hop
    walker: Walker
    away: float = 0.0
    objective: float = np.inf

    @property
    def start(self) -> Start:
        """A start at its end."""
        w, theta, *_ = self.walker.at
        return Start(self.hop.name, w, theta, local=True, curvature=self.walker.curvature)


class Hops:
    """Hops from one run; the other controls adapt, initially with the run's curvature.

    Args:
        rollout: coarse passes.
        best: the run.
        walk: starts a descent.
    """

    def __init__(self, rollout: Rollout, best: Run, walk: Callable[[Rollout, Start], Walker]) -> None:
        self.rollout, self.best, self.walk = rollout, best, walk
        self.within = FeasibleSet(rollout.compiled, rollout.intervals)
        self.objective, self.states = rollout.forward(best.w, best.theta)
        size = np.ptp(self.states, axis=0)
        self._size = np.where(size > 0, size, 1.0)

    def starts(self, goal: Run | None = None) -> list[tuple[Hop, Start]]:
        """Hops that do not lead back to the best run, with starts at their ends.

        Those with the smallest rise per squared distance continue, since within a basin the objective rises
        with the square of the distance. With a goal, which is another run, those closest to it continue. A
        hop that ends lower than the best run has found another basin; if none does, the lowest is released to
        see whether it returns.
        """
        worthwhile = self.objective + (WORTH - 1) * abs(self.objective)
        goal_states = None if goal is None else self.rollout.forward(goal.w, goal.theta)[1]
        ranked: list[tuple[float, _Held]] = []
        for hop in list(_every(self.rollout, self.best))[:MOST]:
            held = self._hold(hop)
            if held is not None and held.objective < worthwhile:
                price = (held.objective - self.objective) / max(held.away, SHORTEST) ** 2
                rank = price if goal_states is None else self._between(held.walker.at[3], goal_states)
                ranked.append((rank, held))
        ends = [held for _, held in sorted(ranked, key=lambda each: each[0])[:FOLLOWED]]
        for held in ends:
            if self._leads_lower(held):
                return [(held.hop, held.start)]
        if not ends:
            return []
        lowest = min(ends, key=lambda held: held.objective)
        released = _Held(lowest.hop, self.walk(self.rollout, lowest.start))
        self._go_on(released)
        return [(lowest.hop, released.start)] if released.away > BACK * lowest.away else []

    def start(self, hop: Hop) -> Start | None:
        """A start at the end of a hop; None if it begins far too high or in an impossible state."""
        held = self._hold(hop)
        if held is None:
            return None
        self._leads_lower(held)
        return held.start

    def _hold(self, hop: Hop) -> _Held | None:
        """The first steps of a held hop."""
        start = hop.of(self.best, self.within)
        first = self.rollout.objective(start.w, start.theta)
        if not first < self.objective + (HOPELESS - 1) * abs(self.objective):
            return None
        rolled = self.rollout.run(start.w, start.theta)
        possible = self.rollout.compiled.is_possible(rolled.states[:: self.rollout.steps])
        if not possible:
            return None
        pressure = hop.pressure(rolled.gradient, self.best.w)
        held = _Held(hop, self.walk(self.rollout.tilted(pressure, np.zeros(len(self.best.theta))), start))
        self._go_on(held)
        return held

    def _leads_lower(self, held: _Held) -> bool:
        """Continue while it may still end lower than the best run; whether it does, while held."""
        for _ in range(ROUNDS):
            before = held.objective
            self._go_on(held)
            if held.objective < self.objective - agreement(self.objective):
                return True
            if held.objective - self.objective > PATIENCE * (before - held.objective):
                break
        return False

    def _go_on(self, held: _Held) -> None:
        held.walker.settle(STEPS)
        w, theta, _, course = held.walker.at
        held.away, held.objective = self._between(course, self.states), self.rollout.objective(w, theta)

    def _between(self, one: np.ndarray, other: np.ndarray) -> float:
        return float(np.linalg.norm((one - other)[:: self.rollout.steps] / self._size))


def _every(rollout: Rollout, best: Run) -> Iterator[Hop]:
    """All hops, longest first."""
    relaxation = rollout.compiled.relaxation
    (low, high), blocks = relaxation.bounds, relaxation.blocks
    names = {column: name for name, block in blocks.items() for column in range(len(low))[block]}
    counts = dict.fromkeys(max(1, round(length * rollout.intervals)) for length in LENGTHS)
    for count, column, side in product(counts, range(len(low)), ("lower", "upper")):
        value, near = (low, high)[side == "upper"][column], STAYS * (high - low)[column]
        for where, during in (("first", slice(0, count)), ("last", slice(-count, None))):
            if np.abs(best.w[during, column] - value).max() > near:
                yield Hop(f"{names[column]} {side} {where} {count}", column, during, float(value))
