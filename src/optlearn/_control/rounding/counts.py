"""From shares to values: how many intervals each value gets, and which ones, within limits."""

from fractions import Fraction

import numpy as np

from optlearn._control.budgets import Budget
from optlearn._control.controls import Control
from optlearn._errors import BudgetError

# Maximum number of combinations of counts tried at a time.
SEARCHED = 2_000_000


def value_counts(name: str, control: Control, budgets: tuple[Budget, ...], intervals: int) -> np.ndarray:
    """(n,) intervals that each value must get; −1 where no budget fixes this.

    Raises:
        SpecificationError: an equal share that ``intervals`` intervals cannot hold exactly.
    """
    counts = np.full(len(control.values), -1)
    for budget in budgets:
        if budget.control != name or not budget.equal:
            continue
        shares = dict(budget.share)
        if budget.mean is not None:
            if len(control.values) != 2:
                continue  # many combinations of values have this mean
            first, last = control.values
            shares = {first: (budget.mean - last) / (first - last)}
        for value, share in shares.items():
            exact_count = share * intervals
            if abs(exact_count - round(exact_count)) > 1e-6:
                below = int(exact_count) / intervals
                raise BudgetError(
                    f"{intervals} intervals cannot hold a share of exactly {share:g} of "
                    f"{name} = {value:g} ({exact_count:g} intervals). Choose a multiple of "
                    f"{Fraction(share).limit_denominator(10_000).denominator} intervals, or a share such as "
                    f"{below:.6g}."
                )
            counts[control.values.index(float(value))] = round(exact_count)
    settled = counts >= 0
    if (~settled).sum() == 1:
        counts[~settled] = intervals - counts[settled].sum()
    return counts


def nearest_counts(
    name: str, control: Control, budgets: tuple[Budget, ...], totals: np.ndarray
) -> np.ndarray:
    """(n,) whole numbers of intervals that meet all budgets, nearest to the totals (n,).

    Raises:
        SpecificationError: no whole numbers meet them.
    """
    n, intervals = len(totals), round(float(totals.sum()))
    constraints = [
        (budget, row, target * intervals)
        for budget in budgets
        if budget.control == name
        for row, target in budget.rows(control)
    ]
    # Relaxed shares meet the budgets, so whole numbers that do so are close, if there are any.
    best, distance, reach = None, np.inf, 1
    while distance > reach and reach <= 2 * intervals and (2 * reach + 2) ** (n - 1) <= SEARCHED:
        steps = np.arange(-reach, reach + 2)
        offsets = np.stack(np.meshgrid(*[steps] * (n - 1), indexing="ij"), axis=-1)
        counts = np.floor(totals[:-1]) + offsets.reshape(-1, n - 1)
        counts = np.column_stack([counts, intervals - counts.sum(axis=1)])
        allowed = np.all((counts >= 0) & (counts <= intervals), axis=1)
        for budget, row, target in constraints:
            allowed &= budget.violation(counts @ row, target) <= 1e-6 * np.abs(row).max()
        if allowed.any():
            counts = counts[allowed]
            distances = np.abs(counts - totals).sum(axis=1)
            best, distance = counts[np.argmin(distances)], float(distances.min())
        reach *= 2
    if best is None:
        raise BudgetError(
            f"{intervals} intervals cannot hold the budgets of {name!r} exactly: no whole numbers "
            f"of intervals at the values {list(control.values)} meet them. Choose another number "
            "of intervals."
        )
    return best.astype(int)


def check_limits(name: str, control: Control, counts: np.ndarray, dwell: int) -> None:
    """Raise if intervals at each value, counts (n,), contradict limits on switches and dwell."""
    needed = int(np.count_nonzero(counts > 0)) - 1
    if control.max_switches is not None and needed > control.max_switches:
        raise BudgetError(
            f"infeasible: the budget of {name!r} needs {needed + 1} different values, but "
            f"max_switches is {control.max_switches}"
        )
    if np.any((counts > 0) & (counts < dwell)):
        raise BudgetError(
            f"infeasible: the budget of {name!r} gives less training time than "
            f"min_dwell = {control.min_dwell:g} to one of its values"
        )


def limit_switches(chosen: np.ndarray, most: int) -> np.ndarray:
    """Drop the shortest phases one by one until the value changes at most ``most`` times."""
    chosen = chosen.copy()
    while switches(chosen) > most:
        bounds = phase_bounds(chosen)
        shortest = int(np.argmin(np.diff(bounds)))
        left, right = bounds[shortest : shortest + 2]
        chosen[left:right] = chosen[left - 1] if left > 0 else chosen[right]
    return chosen


def repair(chosen: np.ndarray, counts: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """Move edges of phases, cheapest first by ``cost`` (I, n), until all counts are met."""
    chosen = chosen.copy()
    n = cost.shape[1]
    for _ in range(len(chosen)):
        present = np.bincount(chosen, minlength=n)
        surplus = np.where(counts >= 0, present - counts, 0)
        if not surplus.any():
            break
        options = []
        for edge in np.flatnonzero(np.diff(chosen)):
            for i, j in ((edge, edge + 1), (edge + 1, edge)):  # interval i takes the value of j
                if surplus[chosen[i]] > 0 and surplus[chosen[j]] < 0:
                    options.append((cost[i, chosen[j]] - cost[i, chosen[i]], i, chosen[j]))
        if not options:
            break
        _, i, value = min(options)
        chosen[i] = value
    return chosen


def switches(chosen: np.ndarray) -> int:
    """How often the value changes."""
    return int(np.count_nonzero(np.diff(chosen)))


def shortest_phase(chosen: np.ndarray) -> int:
    """Length of the shortest phase, in intervals."""
    return int(np.diff(phase_bounds(chosen)).min())


def phase_bounds(chosen: np.ndarray) -> np.ndarray:
    """Beginnings of phases, and the end of the last one."""
    return np.concatenate([[0], np.flatnonzero(np.diff(chosen)) + 1, [len(chosen)]])


def sum_up(shares: np.ndarray, counts: np.ndarray, dwell: int = 1) -> np.ndarray:
    """(I,) indices of values whose running totals follow the shares (I, n).

    Each interval gets the value that lags furthest behind its cumulative share. A value with a count is not
    used beyond it, so counts are met exactly; a value once chosen is kept for ``dwell`` intervals as long as
    counts allow.
    """
    intervals, n = shares.shape
    caps = np.where(counts >= 0, counts, intervals)
    cumulative = np.cumsum(shares, axis=0)
    chosen = np.zeros(intervals, dtype=int)
    used = np.zeros(n, dtype=int)
    kept = 0
    for i in range(intervals):
        lag = cumulative[i] - used
        # Values that need all remaining intervals take precedence.
        owed = np.where(counts >= 0, counts - used, 0)
        possible = (used < caps) & ((owed > 0) | (owed.sum() < intervals - i))
        best = int(np.argmax(np.where(possible, lag, -np.inf)))
        previous = chosen[i - 1] if i else best
        too_short = kept < dwell or intervals - i < dwell  # the phase before, or the last one
        if best != previous and too_short and possible[previous]:
            best = int(previous)
        kept = kept + 1 if best == previous else 1
        chosen[i] = best
        used[best] += 1
    return chosen


def whole_numbers(values: np.ndarray, bounds: tuple[float, float] = (-np.inf, np.inf)) -> np.ndarray:
    """(I,) whole numbers whose running totals stay within ½ of those of ``values`` (I,).

    Where that needs numbers beyond the whole ``bounds``, other entries compensate, nearest first, so the
    sum is kept.
    """
    totals = np.round(np.cumsum(values) + 1e-9)
    rounded = np.diff(np.concatenate([[0.0], totals]))
    whole = np.clip(rounded, *bounds)
    while (missing := rounded.sum() - whole.sum()) != 0:
        step = np.sign(missing)
        moved = whole + step
        possible = (moved >= bounds[0]) & (moved <= bounds[1])
        if not possible.any():
            break
        whole[np.argmin(np.where(possible, np.abs(moved - values), np.inf))] += step
    return whole
