"""Limits on switches and dwell: do levels (I,), the numbers of values, keep them, and how to mend them."""

import numpy as np

from optlearn._control.controls import Control
from optlearn._errors import BudgetError


def check_limits(name: str, control: Control, counts: np.ndarray, dwell: int) -> None:
    """Raise if intervals at each value, counts (n,), contradict limits on switches and dwell."""
    needed = int(np.count_nonzero(counts > 0)) - 1
    if control.max_switches is not None and needed > control.max_switches:
        raise BudgetError(
            f"infeasible: the budget of {name!r} needs {needed + 1} different values, but "
            f"max_switches is {control.max_switches}"
        )
    if np.count_nonzero((counts > 0) & (counts < dwell)) > 1:
        raise BudgetError(
            f"infeasible: the budget of {name!r} gives less training time than "
            f"min_dwell = {control.min_dwell:g} to more than one value"
        )


def limit_switches(chosen: np.ndarray, most: int) -> np.ndarray:
    """Drop the shortest phases, one by one, until the value changes at most ``most`` times."""
    chosen = chosen.copy()
    while True:
        edges = np.flatnonzero(np.diff(chosen)) + 1
        if len(edges) <= most:
            return chosen
        starts, stops = np.concatenate([[0], edges]), np.concatenate([edges, [len(chosen)]])
        shortest = int(np.argmin(stops - starts))
        left, right = starts[shortest], stops[shortest]
        neighbour = chosen[left - 1] if left > 0 else chosen[right]
        chosen[left:right] = neighbour


def repair(chosen: np.ndarray, counts: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """Move edges of phases, cheapest first by ``cost`` (I, n), until all counts are met."""
    chosen = chosen.copy()
    n = cost.shape[1]
    for _ in range(len(chosen)):
        have = np.bincount(chosen, minlength=n)
        surplus = np.where(counts >= 0, have - counts, 0)
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
    """Length of the shortest phase but the last, in intervals (the last one ends with training)."""
    edges = np.flatnonzero(np.diff(chosen)) + 1
    lengths = np.diff(np.concatenate([[0], edges]))
    return int(lengths.min()) if len(lengths) else len(chosen)
