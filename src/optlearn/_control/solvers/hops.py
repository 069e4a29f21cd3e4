"""Hops: where every pass is a wide quadrature, brief descents from beside the best run.

Random schedules lead to the basin that is widest, and a dozen of them that agree say nothing of a lower one
beside it. Scouts, who are many, cannot be afforded. But the best run is right almost everywhere, and what
another basin does otherwise is often how training begins or ends: one layer waits for another, a rate warms
up. A hop holds one control at a bound there. Most come back within a few passes; those that do not are
starts.
"""

from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple, Protocol

import numpy as np

from optlearn._control.compiled import Rollout
from optlearn._control.runs import Run, Start
from optlearn._control.solvers.feasible import FeasibleSet

# Share of training, at its beginning or at its end.
LENGTH = 0.25
# Hops at most, quasi-Newton steps of each; how many go on, and for how many steps more.
MOST, STEPS, FOUND, MORE_STEPS = 24, 6, 1, 18
BACK = 0.2  # of the way that it hopped, as a distance of states: it has come back
COMING = 0.5  # of how far away it was when it went on: it is coming back
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


class Hop(NamedTuple):
    """One control at a bound for a while."""

    name: str
    column: int
    during: slice
    value: float

    def longer(self, intervals: int) -> "Hop":
        """The same, for half as long again."""
        count = len(range(intervals)[self.during])
        more = min(intervals, count + max(1, count // 2))
        during = slice(0, more) if self.during.start == 0 else slice(-more, None)
        return self._replace(name=f"{self.name} and more", during=during)

    def of(self, start: Start | Run, within: FeasibleSet) -> Start:
        """The same controls and free parameters, with the hop."""
        w = start.w.copy()
        w[self.during, self.column] = self.value
        return Start(self.name, *within.nearest(w, start.theta), local=True)


def hops(rollout: Rollout, best: Run, walk: Callable[[Start], Walker]) -> list[tuple[Hop, Start]]:
    """Those that do not lead back to the best run, and starts from where they lead; the farthest first."""
    within = FeasibleSet(rollout.compiled, rollout.intervals)
    objective, states = rollout.forward(best.w, best.theta)
    size = np.ptp(states, axis=0)
    size = np.where(size > 0, size, 1.0)

    def away(course: np.ndarray) -> float:
        return float(np.linalg.norm((course - states)[:: rollout.steps] / size))

    gone: list[tuple[float, Hop, Walker]] = []
    for hop in list(_every(rollout, best))[:MOST]:
        start = hop.of(best, within)
        value, course = rollout.forward(start.w, start.theta)
        if np.isfinite(value) and rollout.compiled.is_possible(course[:: rollout.steps]):
            walker = walk(start)
            walker.settle(STEPS)
            _, _, value, ended = walker.at
            if away(ended) > BACK * away(course) and value < objective + (WORTH - 1) * abs(objective):
                gone.append((away(ended), hop, walker))
    found = []
    for before, hop, walker in sorted(gone, key=lambda each: -each[0])[:FOUND]:
        walker.settle(MORE_STEPS)
        w, theta, _, ended = walker.at
        if away(ended) > COMING * before:
            found.append((hop, Start(hop.name, w, theta, local=True)))
    return found


def _every(rollout: Rollout, best: Run) -> Iterator[Hop]:
    """All hops."""
    relaxation = rollout.compiled.relaxation
    (low, high), blocks = relaxation.bounds, relaxation.blocks
    names = {column: name for name, block in blocks.items() for column in range(len(low))[block]}
    count = max(1, round(LENGTH * rollout.intervals))
    for column, side in product(range(len(low)), ("lower", "upper")):
        value, near = (low, high)[side == "upper"][column], STAYS * (high - low)[column]
        for where, during in (("first", slice(0, count)), ("last", slice(-count, None))):
            if np.abs(best.w[during, column] - value).max() > near:
                yield Hop(f"{names[column]} {side} {where} {count}", column, during, float(value))
