"""Hops: where every pass is a wide quadrature, brief descents from beside the best run.

Random schedules lead to the basin that is widest, and a dozen of them that agree say nothing of a lower one
beside it. Scouts, who are many, cannot be afforded. But the best run is right almost everywhere, and what
another basin does otherwise is often how training begins or ends: one layer waits for another, a rate warms
up. A hop holds one control at a bound there while the others adapt. Where that ends lower than the best run,
or does not come back from there once it is let go, is a start.
"""

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple, Protocol

import numpy as np

from optlearn._control.certificate import agreement
from optlearn._control.compiled import Rollout
from optlearn._control.runs import Curvature, Run, Start
from optlearn._control.solvers.feasible import FeasibleSet

# Shares of training, at its beginning or at its end.
LENGTHS = 0.25, 0.1
# Hops at most, quasi-Newton steps of each; how many go on, and how many times as many steps at most.
MOST, STEPS, FOLLOWED, ROUNDS = 24, 6, 3, 3
PATIENCE = 3  # times what it has just won, that a hop may still be above the best run
PRESSURE = 10  # times the largest derivative along a control, that holds it at a bound
SHORTEST = 1e-6  # distance of states that counts as one, in ranges of the best run
BACK = 0.2  # of how far away it was when it was let go: it has come back
WORTH = 1.1  # times the objective of the best run: what is still higher is not followed
STAYS = 1e-3  # of a control's range: what is as near to the bound as this is no hop


class Walker(Protocol):
    """A descent that may be stopped and go on."""

    def settle(self, most: int) -> float:
        """So many steps at most; what they have won."""
        ...

    @property
    def at(self) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
        """Controls (I, m), free parameters (k,), the objective, and states (I·s + 1, n)."""
        ...

    @property
    def curvature(self) -> Curvature:
        """Of the objective, as far as it has learned it."""
        ...


class Hop(NamedTuple):
    """One control at a bound for a while."""

    name: str
    column: int
    during: slice
    value: float

    def others(self, intervals: int) -> Iterator["Hop"]:
        """The same for half as long again and for half as long, the more usual length first."""
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


class _Place(NamedTuple):
    """Where a hop has led.

    Attributes:
        away: distance of states from the best run's, in ranges of these.
        objective: without what holds the hop.
        start: from there.
    """

    away: float
    objective: float
    start: Start


def hops(
    rollout: Rollout, best: Run, walk: Callable[[Rollout, Start], Walker], goal: Run | None = None
) -> list[tuple[Hop, Start]]:
    """Those that do not lead back to the best run, and starts from where they lead.

    While a hop is held, all other controls adapt to it, with the best run's curvature to begin with. Those go
    on that are far away at the lowest price: in a basin the objective rises with the square of the distance.
    With a goal, which is another run, it is those that have come nearest to it. One that ends lower than the
    best run has found another basin; if none does, the lowest is let go, to see whether it comes back.
    """
    within = FeasibleSet(rollout.compiled, rollout.intervals)
    objective, states = rollout.forward(best.w, best.theta)
    worthwhile = objective + (WORTH - 1) * abs(objective)
    size = np.ptp(states, axis=0)
    size = np.where(size > 0, size, 1.0)
    wanted = None if goal is None else rollout.forward(goal.w, goal.theta)[1]

    def between(one: np.ndarray, other: np.ndarray) -> float:
        return float(np.linalg.norm((one - other)[:: rollout.steps] / size))

    def walked(hop: Hop, walker: Walker) -> _Place:
        walker.settle(STEPS)
        w, theta, _, course = walker.at
        start = Start(hop.name, w, theta, local=True, curvature=walker.curvature)
        return _Place(between(course, states), rollout.objective(w, theta), start)

    held: list[tuple[float, _Place, Hop, Walker]] = []
    for hop in list(_every(rollout, best))[:MOST]:
        start = hop.of(best, within)
        rolled = rollout.run(start.w, start.theta)
        if np.isfinite(rolled.objective) and rollout.compiled.is_possible(rolled.states[:: rollout.steps]):
            pressure = hop.pressure(rolled.gradient, best.w)
            walker = walk(rollout.tilted(pressure, np.zeros(len(best.theta))), start)
            place = walked(hop, walker)
            price = (place.objective - objective) / max(place.away, SHORTEST) ** 2
            if place.objective < worthwhile:
                rank = price if wanted is None else between(walker.at[3], wanted)
                held.append((rank, place, hop, walker))
    ends: list[tuple[_Place, Hop]] = []
    for _, place, hop, walker in sorted(held, key=lambda each: each[0])[:FOLLOWED]:
        for _ in range(ROUNDS):
            before, place = place, walked(hop, walker)
            if place.objective < objective - agreement(objective):
                return [(hop, place.start)]
            if place.objective - objective > PATIENCE * (before.objective - place.objective):
                break
        ends.append((place, hop))
    if not ends:
        return []
    place, hop = min(ends, key=lambda end: end[0].objective)
    released = walked(hop, walk(rollout, place.start))
    return [(hop, released.start)] if released.away > BACK * place.away else []


def _every(rollout: Rollout, best: Run) -> Iterator[Hop]:
    """All hops, the long ones first."""
    relaxation = rollout.compiled.relaxation
    (low, high), blocks = relaxation.bounds, relaxation.blocks
    names = {column: name for name, block in blocks.items() for column in range(len(low))[block]}
    counts = dict.fromkeys(max(1, round(length * rollout.intervals)) for length in LENGTHS)
    for count, column, side in product(counts, range(len(low)), ("lower", "upper")):
        value, near = (low, high)[side == "upper"][column], STAYS * (high - low)[column]
        for where, during in (("first", slice(0, count)), ("last", slice(-count, None))):
            if np.abs(best.w[during, column] - value).max() > near:
                yield Hop(f"{names[column]} {side} {where} {count}", column, during, float(value))
