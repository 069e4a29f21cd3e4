"""From shares, or real numbers, to values whose running totals stay near theirs: sum-up rounding.

States depend on a schedule through integrals over time, so what is near in running totals is near in effect.
"""

import numpy as np


def sum_up(shares: np.ndarray, counts: np.ndarray, dwell: int = 1) -> np.ndarray:
    """(I,) numbers of the values chosen so that their running totals follow the shares (I, n).

    Each interval gets the value that lags furthest behind its cumulative share. A value with a
    count stops when it has it, so counts are met exactly; a value once chosen is kept for ``dwell``
    intervals as long as counts allow.
    """
    intervals, n = shares.shape
    caps = np.where(counts >= 0, counts, intervals)
    wanted = np.cumsum(shares, axis=0)
    chosen = np.zeros(intervals, dtype=int)
    used = np.zeros(n, dtype=int)
    kept = 0
    for i in range(intervals):
        lag = wanted[i] - used
        # Counts that need every interval that is left must not wait.
        owed = np.where(counts >= 0, counts - used, 0)
        possible = (used < caps) & ((owed > 0) | (owed.sum() < intervals - i))
        best = int(np.argmax(np.where(possible, lag, -np.inf)))
        previous = chosen[i - 1] if i else best
        if best != previous and kept < dwell and possible[previous]:
            best = int(previous)
        kept = kept + 1 if best == previous else 1
        chosen[i] = best
        used[best] += 1
    return chosen


def whole_numbers(values: np.ndarray, bounds: tuple[float, float] = (-np.inf, np.inf)) -> np.ndarray:
    """(I,) whole numbers whose running totals stay within ½ of those of ``values`` (I,).

    Where that needs numbers beyond the whole ``bounds``, others make up for them, nearest first: the
    sum is kept.
    """
    totals = np.round(np.cumsum(values) + 1e-9)
    rounded = np.diff(np.concatenate([[0.0], totals]))
    found = np.clip(rounded, *bounds)
    while (missing := rounded.sum() - found.sum()) != 0:
        step = np.sign(missing)
        moved = found + step
        possible = (moved >= bounds[0]) & (moved <= bounds[1])
        if not possible.any():
            break
        found[np.argmin(np.where(possible, np.abs(moved - values), np.inf))] += step
    return found
