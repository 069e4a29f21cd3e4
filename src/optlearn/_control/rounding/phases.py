"""Switching times: search among schedules with few phases, judged by the exact objective.

With limits on switches or dwell, the neighbours of a schedule are those with edges of phases moved by
any number of intervals, phases dropped, or phases added at the beginning or the end. Phases are few, so
such moves can be tried in pairs, which keep the budget.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise, product

import numpy as np

from optlearn._control.compiled import Rollout
from optlearn._control.rounding.counts import limit_switches, repair, sum_up
from optlearn._control.rounding.exchange import GAIN, Admissible

# Orders of values that are tried, and how many of the best are searched.
ORDERS = 64
SEARCHED = 4

Evaluate = Callable[[np.ndarray], float]
Slopes = Callable[[np.ndarray], np.ndarray]
_Move = tuple[int, int, int]  # intervals from, to, and the value that they get


def first_schedules(
    shares: np.ndarray, counts: np.ndarray, cost: np.ndarray, dwell: int, most: int | None
) -> list[np.ndarray]:
    """Levels (I,) to start from: rounded shares (I, n) with fewer and fewer phases, and all orders.

    Args:
        shares: (I, n) relaxed shares.
        counts: (n,) intervals of each value.
        cost: (I, n) first-order cost of each value, by which edges are moved to meet counts.
        dwell: intervals that a value is kept.
        most: switches at most.
    """
    n = shares.shape[1]
    rounded = [sum_up(shares, counts), sum_up(shares, counts, dwell)]
    lengths = range(int(np.count_nonzero(counts)) - 1, (4 if most is None else min(most, 6)) + 1)
    schedules = rounded + [
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
    """Levels with phases of the values in ``order``, equally long for each value; none if it lacks one."""
    times = np.bincount(order, minlength=len(counts))
    if np.any((times > 0) != (counts > 0)):
        return []
    lengths = counts[order] // times[order]
    for value in np.flatnonzero(times):
        lengths[np.flatnonzero(order == value)[-1]] += counts[value] % times[value]
    return [np.repeat(order, lengths)]


def search_phases(
    rollout: Rollout,
    theta: np.ndarray,
    starts: list[np.ndarray],
    write: Callable[[np.ndarray], np.ndarray],
    slopes: Slopes,
    admissible: Admissible,
) -> tuple[np.ndarray, float] | None:
    """The best levels (I,) reached from the best of the admissible starts; None if there are none.

    Args:
        rollout: evaluates the objective.
        theta: (k,) free parameters.
        starts: levels (I,).
        write: levels → w (I, m).
        slopes: gradient (I, m) → (I, n) first-order cost of each level in each interval.
        admissible: whether levels respect budgets and limits.
    """
    distinct = {levels.tobytes(): levels for levels in starts if admissible(levels)}
    if not distinct:
        return None
    known: dict[bytes, float] = {}

    def evaluate(levels: np.ndarray) -> float:
        key = levels.tobytes()
        if key not in known:
            known[key] = rollout.objective(write(levels), theta)
        return known[key]

    best = sorted(distinct.values(), key=evaluate)[:SEARCHED]
    ends = [_descend(rollout, theta, levels, write, slopes, admissible, evaluate) for levels in best]
    return min(ends, key=lambda end: end[1])


def _descend(
    rollout: Rollout,
    theta: np.ndarray,
    levels: np.ndarray,
    write: Callable[[np.ndarray], np.ndarray],
    slopes: Slopes,
    admissible: Admissible,
    evaluate: Evaluate,
) -> tuple[np.ndarray, float]:
    best = evaluate(levels)
    while True:
        cost = slopes(rollout.run(write(levels), theta).gradient)
        for trial in _neighbours(levels, cost):
            if admissible(trial) and evaluate(trial) < best - GAIN:
                levels, best = trial, evaluate(trial)
                break
        else:
            return levels, best


def _neighbours(levels: np.ndarray, cost: np.ndarray) -> Iterator[np.ndarray]:
    """Levels after one move, or after two of equal length that keep the counts; by first order."""
    I, n = cost.shape  # noqa: E741
    edges = np.flatnonzero(np.diff(levels)) + 1
    bounds = np.concatenate([[0], edges, [I]])
    phases = np.diff(bounds)
    sums = np.concatenate([np.zeros((1, n)), np.cumsum(cost, axis=0)])
    now = np.concatenate([[0.0], np.cumsum(cost[np.arange(I), levels])])
    lengths = {int(length) for length in phases} | {2**i for i in range(int(np.log2(I)) + 1)}
    ranked: list[tuple[float, tuple[_Move, ...]]] = []
    for length in lengths:
        moves: list[_Move] = []
        for i, edge in enumerate(edges):
            if length <= phases[i]:
                moves.append((int(edge) - length, int(edge), int(levels[edge])))
            if length <= phases[i + 1]:
                moves.append((int(edge), int(edge) + length, int(levels[edge - 1])))
        if length < I:
            moves += [(0, length, value) for value in range(n) if value != levels[0]]
            moves += [(I - length, I, value) for value in range(n) if value != levels[-1]]
        gains = [sums[b, v] - sums[a, v] - now[b] + now[a] for a, b, v in moves]
        ranked += [(g, (move,)) for g, move in zip(gains, moves, strict=True)]
        ranked += [
            (gains[i] + gains[j], (moves[i], moves[j]))
            for i in range(len(moves))
            for j in range(i + 1, len(moves))
            if moves[i][1] <= moves[j][0] or moves[j][1] <= moves[i][0]
        ]
    for _, chosen in sorted(ranked):
        trial = levels.copy()
        for a, b, value in chosen:
            trial[a:b] = value
        yield trial
