"""Local search among schedules of admissible values, judged by the exact objective.

A search moves to the first better neighbour again and again. The adjoint gives the first-order effect of
every move, so promising moves are found without trying all; only these are evaluated. Without limits on
switches or dwell, neighbours exchange the values of two intervals and, if none of these is better, of up to
four, ranked by the gradients after every single change (``exchange``); whole numbers move by one (``shift``).
With limits there are few phases, and neighbours have edges of phases moved by any number of intervals, phases
dropped, or phases added at the beginning or the end, in pairs that keep the budget (``search_phases``).
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations, pairwise, product
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from optlearn._control.rounding.counts import limit_switches, phase_bounds, repair, sum_up

if TYPE_CHECKING:
    from optlearn._control.compiled import Rollout
    from optlearn._control.hamiltonian.interval import IntervalHamiltonian

# Functions of levels (I,), the index of a discrete control's value in each interval: their objective, the
# first-order cost (I, n) of each value in each interval, and whether they keep budgets and limits.
Evaluate: TypeAlias = Callable[[np.ndarray], float]
Slopes: TypeAlias = Callable[[np.ndarray], np.ndarray]
Admissible: TypeAlias = Callable[[np.ndarray], bool]

# Exchanges tried before a search gives up, the smallest gain that counts, and the maximum of improvements.
TRIES = 12
GAIN = 1e-13
ROUNDS = 400
# Intervals of each value considered for exchanges.
WIDTH = 10
# Maximum size of a set of changes, number of sets that are extended by one, and sets tried of each size.
TOGETHER = 4
BEAM = 128
TRIES_TOGETHER = 128
# Number of value orders tried, and number of best schedules that a search starts from.
ORDERS = 64
SEARCHED = 4


def _descend(
    start: np.ndarray,
    evaluate: Evaluate,
    neighbours: Callable[[np.ndarray], Iterable[np.ndarray]],
    rounds: int = ROUNDS,
) -> tuple[np.ndarray, float]:
    """A schedule that no neighbour improves, and its objective."""
    schedule, best = start, evaluate(start)
    for _ in range(rounds):
        for trial in neighbours(schedule):
            value = evaluate(trial)
            if value < best - GAIN:
                schedule, best = trial, value
                break
        else:
            break
    return schedule, best


# --- exchanges of two intervals -------------------------------------------------------------------


def exchange(
    levels: np.ndarray,
    evaluate: Evaluate,
    slopes: Slopes,
    *,
    keep_counts: bool,
    admissible: Admissible = lambda levels: True,
    curved: int = 0,
    enough: float = -np.inf,
) -> tuple[np.ndarray, float]:
    """Levels (I,) that no tried exchange improves, and their objective.

    Args:
        levels: (I,) to start from.
        evaluate: levels → objective.
        slopes: levels → (I, n) first-order cost of each value in each interval.
        keep_counts: only swap intervals (true), or also change single ones.
        admissible: whether levels keep budgets and limits.
        curved: how often changes of several intervals may be ranked by curvature, which takes a gradient
            for every single change.
        enough: objective below which the ranking by curvature is skipped.
    """
    left = curved

    def neighbours(now: np.ndarray) -> Iterator[np.ndarray]:
        nonlocal left
        cost = slopes(now)
        yield from filter(admissible, _exchanges(now, cost, keep_counts))
        if left > 0 and evaluate(now) > enough:
            left -= 1
            yield from _changes_together(now, cost, evaluate, slopes, admissible)

    return _descend(levels, evaluate, neighbours)


def _exchanges(levels: np.ndarray, cost: np.ndarray, keep_counts: bool) -> Iterator[np.ndarray]:
    """The most promising neighbours, sorted by their first-order change."""
    n = cost.shape[1]
    change = cost - np.take_along_axis(cost, levels[:, None], axis=1)
    edges = phase_bounds(levels)[1:-1]
    # Swaps of intervals next to a phase's edge move two switching times at once.
    beside = np.isin(np.arange(len(levels)), [edges - 1, edges])
    ranked: list[tuple[float, tuple[int, ...], tuple[int, ...]]] = []
    for a, b in combinations(range(n), 2):
        # Intervals at a that would gain most from b, and the reverse.
        gaining = [_lowest(np.where(levels == v, change[:, u], np.inf)) for v, u in ((a, b), (b, a))]
        at_edges = [np.flatnonzero(beside & (levels == v)).tolist() for v in (a, b)]
        for ups, downs in (gaining, at_edges):
            ranked += [(change[i, b] + change[j, a], (i, j), (b, a)) for i in ups for j in downs]
    if not keep_counts:
        for i, level in enumerate(levels):
            b = int(np.argmin(np.where(np.arange(n) == level, np.inf, change[i])))
            ranked.append((change[i, b], (i,), (b,)))
    ranked.sort(key=lambda move: move[0])
    for _, places, values in ranked[:TRIES]:
        trial = levels.copy()
        trial[list(places)] = values
        yield trial


def _changes_together(
    levels: np.ndarray, cost: np.ndarray, evaluate: Evaluate, slopes: Slopes, admissible: Admissible
) -> Iterator[np.ndarray]:
    """The best change of one to four intervals among those favoured by a quadratic model.

    The effect of a single change is exact, and the interaction of two follows from how one changes the slope
    of the other. This detects moving a switch, whose two changes cancel to first order.
    """
    every, n = np.arange(len(levels)), cost.shape[1]
    changes = [(i, v) for i in every for v in range(n) if v != levels[i]]
    places, values = (np.array(part) for part in zip(*changes, strict=True))
    alone, slope = np.empty(len(changes)), np.empty((len(changes), len(changes)))

    def of_changes(cost: np.ndarray) -> np.ndarray:
        return cost[places, values] - cost[places, levels[places]]

    now, first = evaluate(levels), of_changes(cost)
    for k, (i, v) in enumerate(changes):
        trial = levels.copy()
        trial[i] = v
        alone[k], slope[k] = evaluate(trial) - now, of_changes(slopes(trial)) - first
    # Not twice in one interval, and no change under which the dynamics diverge.
    alone[~np.isfinite(alone)] = np.inf
    beside = (slope + slope.T) / 2
    beside[~np.isfinite(beside) | (places[:, None] == places)] = np.inf
    sets, worth = np.arange(len(changes))[:, None], alone
    tried: list[np.ndarray] = []
    for size in range(1, TOGETHER + 1):
        trials = np.tile(levels, (min(len(sets), TRIES_TOGETHER), 1))
        for trial, members in zip(trials, sets[np.argsort(worth)], strict=False):
            trial[places[members]] = values[members]
        tried += [trial for trial in trials if admissible(trial)]
        if size % 2 == 0:
            # The model is less reliable for larger sets: small sets come first.
            yield from sorted(tried, key=evaluate)[:1]
        best = np.argsort(worth)[:BEAM]
        longer = worth[best, None] + alone + beside[sets[best]].sum(axis=1)  # (BEAM, changes)
        # Generate every set once, with sorted members.
        longer[sets[best].max(axis=1)[:, None] >= np.arange(len(changes))] = np.inf
        rows, members = np.nonzero(np.isfinite(longer))
        sets, worth = np.column_stack([sets[best[rows]], members]), longer[rows, members]


def _lowest(values: np.ndarray) -> list[int]:
    """Indices of the few lowest finite values."""
    return [int(i) for i in np.argsort(values)[:WIDTH] if np.isfinite(values[i])]


# --- whole numbers --------------------------------------------------------------------------------

# The predicted change of a move, and the intervals that it changes by how much.
_Move: TypeAlias = tuple[float, list[tuple[int, float]]]


def shift(
    rollout: "Rollout",
    w: np.ndarray,
    theta: np.ndarray,
    column: int,
    bounds: tuple[float, float],
    *,
    keep_sum: bool,
) -> tuple[np.ndarray, float]:
    """Improve whole numbers in one column of w (I, m) by steps of one, in pairs to keep the sum.

    A step of one may be large, so its effect on an interval is computed from the Hamiltonian, not its slope.
    """
    from optlearn._control.hamiltonian.interval import IntervalHamiltonian  # batches do not need CasADi

    def neighbours(w: np.ndarray) -> Iterator[np.ndarray]:
        rolled = rollout.run(w, theta)
        along = IntervalHamiltonian.along(rollout.compiled, rolled, w, theta, rollout.steps)
        up, down = (_changes(along, w, column, amount, bounds) for amount in (1.0, -1.0))
        ups, downs = _lowest(up), _lowest(down)
        moves: list[_Move] = [(up[i] + down[j], [(i, 1.0), (j, -1.0)]) for i in ups for j in downs if i != j]
        if not keep_sum:
            moves += [(up[i], [(i, 1.0)]) for i in ups]
            moves += [(down[j], [(j, -1.0)]) for j in downs]
        moves.sort(key=lambda move: move[0])
        for chosen in [*_together(moves), *([move] for move in moves[:TRIES])]:
            trial = w.copy()
            for place, amount in (change for _, changes in chosen for change in changes):
                trial[place, column] += amount
            yield trial

    return _descend(w, lambda w: rollout.objective(w, theta), neighbours)


def _together(moves: list[_Move]) -> list[list[_Move]]:
    """Promising moves of different intervals, all at once; then half of them, and so on."""
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
    """(I,) change of the Hamiltonian if a column of w (I, m) changes; infinite beyond bounds."""
    changed, every = w.copy(), np.arange(len(w))
    changed[:, column] = np.clip(w[:, column] + amount, *bounds)
    by = along.value(changed, every) - along.value(w, every)
    return np.where(changed[:, column] == w[:, column], np.inf, by)


# --- few phases -----------------------------------------------------------------------------------


def search_phases(
    starts: list[np.ndarray], evaluate: Evaluate, slopes: Slopes, admissible: Admissible
) -> np.ndarray | None:
    """The best levels (I,) reached from the best of the admissible starts; None if there are none.

    Functions of levels are as in ``exchange``.
    """
    distinct = {levels.tobytes(): levels for levels in starts if admissible(levels)}
    if not distinct:
        return None
    objectives: dict[bytes, float] = {}

    def remembered(levels: np.ndarray) -> float:
        key = levels.tobytes()
        if key not in objectives:
            objectives[key] = evaluate(levels)
        return objectives[key]

    def neighbours(levels: np.ndarray) -> Iterable[np.ndarray]:
        return filter(admissible, _moved_phases(levels, slopes(levels)))

    best = sorted(distinct.values(), key=remembered)[:SEARCHED]
    ends = [_descend(levels, remembered, neighbours, sys.maxsize) for levels in best]
    return min(ends, key=lambda end: end[1])[0]


def _moved_phases(levels: np.ndarray, cost: np.ndarray) -> Iterator[np.ndarray]:
    """Levels after one move, or after two of equal length that keep the counts; sorted to first order."""
    I, n = cost.shape  # noqa: E741
    bounds = phase_bounds(levels)
    phases = np.diff(bounds)
    sums = np.concatenate([np.zeros((1, n)), np.cumsum(cost, axis=0)])
    now = np.concatenate([[0.0], np.cumsum(cost[np.arange(I), levels])])
    ranked: list[tuple[float, tuple[tuple[int, int, int], ...]]] = []
    for length in {int(length) for length in phases} | {2**i for i in range(int(np.log2(I)) + 1)}:
        moves: list[tuple[int, int, int]] = []  # intervals from, to, and the value that they get
        for i, edge in enumerate(bounds[1:-1].tolist()):
            if length <= phases[i]:
                moves.append((edge - length, edge, int(levels[edge])))
            if length <= phases[i + 1]:
                moves.append((edge, edge + length, int(levels[edge - 1])))
        if length < I:
            moves += [(0, length, value) for value in range(n) if value != levels[0]]
            moves += [(I - length, I, value) for value in range(n) if value != levels[-1]]
        gains = [sums[b, v] - sums[a, v] - now[b] + now[a] for a, b, v in moves]
        ranked += [(g, (move,)) for g, move in zip(gains, moves, strict=True)]
        ranked += [
            (gains[i] + gains[j], (moves[i], moves[j]))
            for i, j in combinations(range(len(moves)), 2)
            if moves[i][1] <= moves[j][0] or moves[j][1] <= moves[i][0]
        ]
    for _, chosen in sorted(ranked):
        trial = levels.copy()
        for a, b, value in chosen:
            trial[a:b] = value
        yield trial


def first_schedules(
    shares: np.ndarray, counts: np.ndarray, cost: np.ndarray, dwell: int, most: int | None
) -> list[np.ndarray]:
    """Initial levels (I,): constants, rounded shares (I, n) with fewer and fewer phases, and all orders.

    Without counts from a budget, limits may allow only the constants among these.

    Args:
        shares: (I, n) relaxed shares.
        counts: (n,) intervals of each value.
        cost: (I, n) first-order cost of each value, by which edges are moved to meet counts.
        dwell: minimum number of intervals that a value is kept.
        most: maximum number of switches.
    """
    n = shares.shape[1]
    rounded = [sum_up(shares, counts), sum_up(shares, counts, dwell)]
    lengths = range(int(np.count_nonzero(counts)) - 1, (4 if most is None else min(most, 6)) + 1)
    schedules = [np.full(len(shares), level) for level in range(n)] + rounded
    schedules += [
        repair(limit_switches(levels, length), counts, cost) for levels in rounded for length in lengths
    ]
    for length in lengths:
        if n * (n - 1) ** length > ORDERS:
            break
        for order in product(range(n), repeat=length + 1):
            if all(a != b for a, b in pairwise(order)):
                schedules += _in_order(np.array(order), counts)
    return schedules


def _in_order(order: np.ndarray, counts: np.ndarray) -> list[np.ndarray]:
    """Levels with phases of the values in ``order``, equally long for each value; empty if one is missing."""
    times = np.bincount(order, minlength=len(counts))
    if np.any((times > 0) != (counts > 0)):
        return []
    lengths = counts[order] // times[order]
    for value in np.flatnonzero(times):
        lengths[np.flatnonzero(order == value)[-1]] += counts[value] % times[value]
    return [np.repeat(order, lengths)]
