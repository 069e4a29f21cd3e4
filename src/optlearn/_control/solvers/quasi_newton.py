"""A limited-memory quadratic model of the objective, minimised over a feasible set.

Over bounds and budgets alone the minimum is found by guessing which of them hold exactly.
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
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from optlearn._control.budgets import BudgetRows
from optlearn._control.hamiltonian.newton import ARMIJO
from optlearn._control.runs import Curvature
from optlearn._control.solvers.feasible import FeasibleSet
from optlearn._control.solvers.rules import CURVED, FIRST_MOVE, compact

_GUESSES = 20
_USED_UP = 1e-12  # of a mean of numbers up to 1
# Pairs of steps and gradient changes: usually, and where each pass is a wide quadrature, beside which they
# cost nothing.
MEMORY, LONG_MEMORY = 20, 80
_RECENT = 8  # values that a step of the inner method is compared with
_MODEL_STEPS = 60  # of the projected gradient method that minimises the quadratic model


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


@dataclass
class QuasiNewton:
    """Limited-memory BFGS matrix of the objective, and its minimum over a feasible set.

    Attributes:
        memory: how many steps it remembers.
        multipliers: (b,) of the budgets on the scaled controls, at the last minimum, if they are known.
    """

    feasible: FeasibleSet
    memory: int = MEMORY
    moves: list[np.ndarray] = field(default_factory=list)
    changes: list[np.ndarray] = field(default_factory=list)
    multipliers: np.ndarray | None = None

    def recall(self, known: Curvature | None) -> None:
        """Begin with what is known of a problem like this one, on the same grid."""
        if known is not None and all(len(move) == len(self.feasible.top) for move in known.moves):
            self.moves, self.changes = list(known.moves), list(known.changes)

    def learn(self, move: np.ndarray, change: np.ndarray) -> None:
        """Take in a step and the change of the gradient over it, if they show positive curvature."""
        length = float(np.linalg.norm(move))
        if move @ change > CURVED * length * np.linalg.norm(change):
            # B is the same for moves of any length; of length 1, those of first and last steps compare.
            self.moves = [*self.moves[-self.memory + 1 :], move / length]
            self.changes = [*self.changes[-self.memory + 1 :], change / length]
            self.__dict__.pop("_matrix", None)

    def forget(self) -> None:
        """Start afresh."""
        self.moves, self.changes = [], []
        self.__dict__.pop("_matrix", None)

    @cached_property
    def _matrix(self) -> LowRank:
        """The matrix B itself, (n, n)."""
        S, Y = np.array(self.moves), np.array(self.changes)
        sigma = float(Y[-1] @ Y[-1] / (S[-1] @ Y[-1]))
        N, inner = compact(S, Y, sigma, lambda A, B: A @ B.T)
        return LowRank(sigma, N.T, inner, np.linalg.inv(inner))

    def direction(self, v: np.ndarray, gradient: np.ndarray, accuracy: float) -> np.ndarray:
        """From v to the minimum of gradient·d + ½ d·B d over v + d in the feasible set.

        Projected gradient steps of Barzilai and Borwein's length. These are fast because they may go
        uphill for a while: a step is cut short only if it ends above all recent ones. They stop when
        a step would win less than ``accuracy``.
        """
        if not self.moves:
            length = FIRST_MOVE / max(float(np.abs(gradient).max()), 1e-300)
            return np.asarray(self.feasible.project(v - length * gradient) - v)
        length = 1 / self._matrix.sigma
        within = self.feasible
        if within.only_box:
            minimum = minimise_on_box(self._matrix, gradient, v, within.top, within.budgets, within.project)
            if minimum is not None:
                x, self.multipliers = minimum
                return x - v
        point, slope, value = v, gradient, 0.0
        best, lowest, recent = point, value, [value]
        for _ in range(_MODEL_STEPS):
            step = self.feasible.project(point - length * slope) - point
            fall = -float(slope @ step)
            if fall <= accuracy:
                break
            bent = self._matrix.times(step)
            curvature = float(step @ bent)
            share = 1.0
            if value - fall + curvature / 2 > max(recent) - ARMIJO * fall:
                share = min(1.0, fall / curvature)
            point, slope = point + share * step, slope + share * bent
            value += -share * fall + share**2 * curvature / 2
            recent = [*recent[-_RECENT + 1 :], value]
            if value < lowest:
                best, lowest = point, value
            length = float(step @ step) / curvature if curvature > 0 else 2 * length
        return np.asarray(best - v)
