"""The minimum of a quadratic model over bounds and budgets, by guessing which of them hold exactly.

Once it is known which entries are at a bound, and which budgets are used up, linear equations give all others
and the multipliers. A projected step downhill from there tells which entries should leave their bounds, and
which others cross one: the next guess. A guess that confirms itself is the minimum (an active set method,
which is a semismooth Newton method on the conditions of optimality). It takes two guesses or three, but
nothing says that it must end; where it does not, there is no answer.

References:
    M. Hintermüller, K. Ito, K. Kunisch, *The primal-dual active set strategy as a semismooth Newton method*,
    SIAM J. Optim. 13 (2002).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from optlearn._control.budgets import BudgetRows

_GUESSES = 20
_USED_UP = 1e-12  # of a mean of numbers up to 1


class LowRank(NamedTuple):
    """A positive definite matrix σ − N C⁻¹ Nᵀ.

    Attributes:
        sigma: σ.
        N: (n, k).
        C: (k, k).
        inverse: (k, k) of C.
    """

    sigma: float
    N: np.ndarray
    C: np.ndarray
    inverse: np.ndarray

    def times(self, d: np.ndarray) -> np.ndarray:
        """The product with d (n,)."""
        return np.asarray(self.sigma * d - self.N @ (self.inverse @ (self.N.T @ d)))

    def solved(self, free: np.ndarray, right: np.ndarray) -> np.ndarray:
        """(f, r) what its rows and columns ``free`` (n,) turn into the right sides (f, r), by Woodbury."""
        N = self.N[free]
        inner = np.linalg.solve(self.sigma * self.C - N.T @ N, N.T @ right)
        return np.asarray((right + N @ inner) / self.sigma)


def minimise_on_box(
    matrix: LowRank,
    slope: np.ndarray,
    v: np.ndarray,
    top: np.ndarray,
    budgets: BudgetRows,
    project: Callable[[np.ndarray], np.ndarray],
) -> tuple[np.ndarray, np.ndarray] | None:
    """The x with 0 ≤ x ≤ top within budgets at which slope·d + ½ d·B d is least, d = x − v.

    Args:
        matrix: B.
        slope: (n,) derivative at v.
        v: (n,) where d = 0.
        top: (n,) upper bounds.
        budgets: rows (b, n) on x.
        project: the nearest point (n,) within bounds and budgets.

    Returns:
        The minimum (n,) and multipliers (b,) of the budgets, or None if they were not found.
    """
    d, multipliers, before = np.zeros(len(v)), np.zeros(len(budgets.targets)), None
    for _ in range(_GUESSES):
        # At the minimum, a step downhill leads back to it.
        guess = project(v + d - (slope + matrix.times(d)) / matrix.sigma)
        low, high = guess <= 0.0, guess >= top
        used = budgets.equal | (budgets.rows @ guess >= budgets.targets - _USED_UP)
        guesses = np.concatenate([low, high, used])
        if before is not None and np.array_equal(guesses, before):
            return np.clip(v + d, 0.0, top), multipliers
        before, free = guesses, ~(low | high)
        d = np.where(free, 0.0, np.where(high, top, 0.0) - v)
        A = budgets.rows[used]
        right = np.column_stack([-(slope + matrix.times(d))[free], A[:, free].T])
        try:
            solved = matrix.solved(free, right)
            room = budgets.targets[used] - A @ (v + d)
            nu = np.linalg.solve(A[:, free] @ solved[:, 1:], A[:, free] @ solved[:, 0] - room)
        except np.linalg.LinAlgError:  # no entry is left to meet a budget with
            return None
        d[free] = solved[:, 0] - solved[:, 1:] @ nu
        multipliers = np.zeros(len(used))
        multipliers[used] = nu
    return None
