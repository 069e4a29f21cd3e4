"""A limited-memory quadratic model of the objective, minimised over a feasible set.

With only bounds and budgets, the minimum is found by guessing the active constraints. Given the entries at a
bound and the budgets that are used up, linear equations yield all other entries and the multipliers. A
projected downhill step from there shows which entries should leave their bounds and which others cross one:
the next guess. A guess that confirms itself is the minimum. This is an active-set method, equivalent to a
semismooth Newton method on the optimality conditions. It takes two or three guesses but need not terminate;
then there is no answer.

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
# Stored pairs of steps and gradient changes: usually, and where each pass is a wide quadrature, which makes
# their cost negligible.
MEMORY, LONG_MEMORY = 20, 80
_RECENT = 8  # recent values that a step of the inner method is compared with
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
        """(f, r) solutions for right-hand sides (f, r) of its rows and columns ``free`` (n,), by Woodbury."""
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
    """The x with 0 ≤ x ≤ top within budgets that minimises slope·d + ½ d·B d, d = x − v.

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
        # At the minimum, a projected downhill step leads back to it.
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
        except np.linalg.LinAlgError:  # no free entry is left to meet a budget
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

    def recall(self, curvature: Curvature | None) -> None:
        """Start with the curvature of a similar problem on the same grid."""
        if curvature is not None and all(len(move) == len(self.feasible.top) for move in curvature.moves):
            self.moves, self.changes = list(curvature.moves), list(curvature.changes)

    def learn(self, move: np.ndarray, change: np.ndarray) -> None:
        """Store a step and the change of the gradient over it, if they show positive curvature."""
        length = float(np.linalg.norm(move))
        if move @ change > CURVED * length * np.linalg.norm(change):
            # B does not depend on the length of moves; with length 1, first and last steps are comparable.
            self.moves = [*self.moves[-self.memory + 1 :], move / length]
            self.changes = [*self.changes[-self.memory + 1 :], change / length]
            self.__dict__.pop("_matrix", None)

    def forget(self) -> None:
        """Forget all curvature."""
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

        Projected gradient steps with the Barzilai-Borwein length. These are fast because they may go
        uphill for a while: a step is shortened only if it ends above all recent values. They stop when a
        step would gain less than ``accuracy``.
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
