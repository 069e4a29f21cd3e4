"""Local search among schedules that keep a budget: exchanges judged by the exact objective.

The adjoint gives the first-order effect of giving any interval another value, so the promising
exchanges are found without trying them all; each is then tried.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from optlearn._control.compiled import Rollout
    from optlearn._control.hamiltonian.interval import IntervalHamiltonian

Admissible = Callable[[np.ndarray], bool]
# What it promises to change, and by how much which intervals.
_Move = tuple[float, list[tuple[int, float]]]

# Exchanges tried before a search gives up, the least gain that counts, and improvements at most.
TRIES = 12
GAIN = 1e-13
ROUNDS = 400
# Intervals of each value that are looked at for exchanges.
WIDTH = 10


def exchange(
    rollout: "Rollout",
    w: np.ndarray,
    theta: np.ndarray,
    levels: np.ndarray,
    write: Callable[[np.ndarray, np.ndarray], np.ndarray],
    slopes: Callable[[np.ndarray], np.ndarray],
    *,
    keep_counts: bool,
    admissible: Admissible = lambda levels: True,
    rounds: int = ROUNDS,
) -> tuple[np.ndarray, float]:
    """Improve the levels (I,) of one control until no tried exchange helps.

    Args:
        rollout: evaluates the objective.
        w: (I, m) relaxed controls, of which this control's columns are rewritten.
        theta: (k,) free parameters.
        levels: (I,) whole numbers: the number of the value of a discrete control in each interval.
        write: (w, levels) → w with this control's columns.
        slopes: gradient (I, m) → (I, n) first-order cost of each level in each interval.
        keep_counts: only swap intervals (true), or also change single ones.
        admissible: whether levels respect limits on switches and dwell.
        rounds: improvements at most.

    Returns:
        The levels and their objective.
    """
    best = rollout.objective(write(w, levels), theta)
    for _ in range(rounds):
        cost = slopes(rollout.run(write(w, levels), theta).gradient)
        for trial in _candidates(levels, cost, keep_counts):
            if not admissible(trial):
                continue
            value = rollout.objective(write(w, trial), theta)
            if value < best - GAIN:
                levels, best = trial, value
                break
        else:
            break
    return levels, best


def _candidates(levels: np.ndarray, cost: np.ndarray, keep_counts: bool) -> Iterator[np.ndarray]:
    """The most promising neighbours, best first-order change first."""
    now = np.take_along_axis(cost, levels[:, None], axis=1)[:, 0]
    change = cost - now[:, None]
    exchanges: list[tuple[float, tuple[int, ...], tuple[int, ...]]] = []
    n = cost.shape[1]
    for a in range(n):
        for b in range(a + 1, n):
            # Intervals at a that would gain most by b, and the reverse.
            ups = _lowest(np.where(levels == a, change[:, b], np.inf), WIDTH)
            downs = _lowest(np.where(levels == b, change[:, a], np.inf), WIDTH)
            exchanges += [(change[i, b] + change[j, a], (i, j), (b, a)) for i in ups for j in downs]
            exchanges += _edge_swaps(levels, change, a, b)
    if not keep_counts:
        for i in range(len(levels)):
            b = int(np.argmin(np.where(np.arange(n) == levels[i], np.inf, change[i])))
            exchanges.append((change[i, b], (i,), (b,)))
    exchanges.sort(key=lambda item: item[0])
    for _, places, values in exchanges[:TRIES]:
        trial = levels.copy()
        trial[list(places)] = values
        yield trial


def _edge_swaps(
    levels: np.ndarray, change: np.ndarray, a: int, b: int
) -> list[tuple[float, tuple[int, ...], tuple[int, ...]]]:
    """Swaps of intervals next to a phase's edge: they move two switching times at once."""
    edges = np.flatnonzero(np.diff(levels))
    beside = np.unique(np.concatenate([edges, edges + 1])) if len(edges) else edges
    ups = [int(i) for i in beside if levels[i] == a]
    downs = [int(i) for i in beside if levels[i] == b]
    return [(change[i, b] + change[j, a], (i, j), (b, a)) for i in ups for j in downs]


def _lowest(values: np.ndarray, count: int) -> list[int]:
    order = np.argsort(values)[:count]
    return [int(i) for i in order if np.isfinite(values[i])]


def shift(
    rollout: "Rollout",
    w: np.ndarray,
    theta: np.ndarray,
    column: int,
    bounds: tuple[float, float],
    *,
    keep_sum: bool,
    rounds: int = ROUNDS,
) -> tuple[np.ndarray, float]:
    """Improve whole numbers in one column of w (I, m) by steps of one, in pairs to keep the sum.

    A step of one may be long: what it changes on an interval is told by the Hamiltonian there, not its slope.
    """
    from optlearn._control.hamiltonian.interval import IntervalHamiltonian  # batches need no CasADi

    best = rollout.objective(w, theta)
    for _ in range(rounds):
        rolled = rollout.run(w, theta)
        along = IntervalHamiltonian.along(rollout.compiled, rolled, w, theta, rollout.steps)
        up, down = (_changes(along, w, column, amount, bounds) for amount in (1.0, -1.0))
        ups, downs = _lowest(up, WIDTH), _lowest(down, WIDTH)
        moves: list[_Move] = [(up[i] + down[j], [(i, 1.0), (j, -1.0)]) for i in ups for j in downs if i != j]
        if not keep_sum:
            moves += [(up[i], [(i, 1.0)]) for i in ups]
            moves += [(down[j], [(j, -1.0)]) for j in downs]
        moves = sorted(moves, key=lambda move: move[0])
        for chosen in [*_together(moves), *([move] for move in moves[:TRIES])]:
            trial = w.copy()
            for place, amount in (change for _, changes in chosen for change in changes):
                trial[place, column] += amount
            value = rollout.objective(trial, theta)
            if value < best - GAIN:
                w, best = trial, value
                break
        else:
            break
    return w, best


def _together(moves: list[_Move]) -> list[list[_Move]]:
    """Promising moves of different intervals at once: all of them, the better half, and so on."""
    taken: list[_Move] = []
    for promise, changes in moves:
        used = {place for _, others in taken for place, _ in others}
        if promise < 0 and not used & {place for place, _ in changes}:
            taken.append((promise, changes))
    sizes = [len(taken) >> k for k in range(len(taken).bit_length())]
    return [taken[:size] for size in sizes if size > 1]


def _changes(
    along: "IntervalHamiltonian", w: np.ndarray, column: int, amount: float, bounds: tuple[float, float]
) -> np.ndarray:
    """(I,) what the Hamiltonian changes by if w (I, m) does in a column; infinite beyond bounds."""
    changed, every = w.copy(), np.arange(len(w))
    changed[:, column] = np.clip(w[:, column] + amount, *bounds)
    by = along.value(changed, every) - along.value(w, every)
    return np.where(changed[:, column] == w[:, column], np.inf, by)
