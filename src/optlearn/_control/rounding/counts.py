"""How many intervals each value of a control gets, so that budgets are met exactly."""

from fractions import Fraction

import numpy as np

from optlearn._control.budgets import Budget
from optlearn._control.controls import Control
from optlearn._errors import BudgetError

# Combinations of counts that are tried at a time, at most.
SEARCHED = 2_000_000


def value_counts(name: str, control: Control, budgets: tuple[Budget, ...], intervals: int) -> np.ndarray:
    """(n,) intervals that each value must get; −1 where no budget says exactly.

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
            wanted = share * intervals
            if abs(wanted - round(wanted)) > 1e-6:
                below = int(wanted) / intervals
                raise BudgetError(
                    f"{intervals} intervals cannot hold a share of exactly {share:g} of "
                    f"{name} = {value:g} ({wanted:g} intervals). Choose a multiple of "
                    f"{_denominator(share)} intervals, or a share such as {below:.6g}."
                )
            counts[control.values.index(float(value))] = round(wanted)
    known = counts >= 0
    if (~known).sum() == 1:
        counts[~known] = intervals - counts[known].sum()
    return counts


def nearest_counts(
    name: str,
    control: Control,
    budgets: tuple[Budget, ...],
    totals: np.ndarray,
) -> np.ndarray:
    """(n,) whole numbers of intervals that meet all budgets, nearest to the totals (n,).

    Raises:
        SpecificationError: no whole numbers do.
    """
    n, intervals = len(totals), round(float(totals.sum()))
    constraints = [
        (budget, row, target * intervals)
        for budget in budgets
        if budget.control == name
        for row, target in budget.rows(control)
    ]
    # Relaxed shares meet the budgets, so whole numbers that do are near, if there are any.
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


def _denominator(share: float) -> int:
    return Fraction(share).limit_denominator(10_000).denominator
