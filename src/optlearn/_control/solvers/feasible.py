"""The set of controls and free parameters that meet bounds, shares and budgets."""

from functools import cached_property

import numpy as np

from optlearn._control.budgets import BudgetRows
from optlearn._control.compiled import CompiledProblem
from optlearn._control.hamiltonian.multipliers import project_shares, projection_multiplier
from optlearn._engine.rollout import RolloutResult


class FeasibleSet:
    """Controls and free parameters as one vector v of numbers in [0, 1], and projection on its set.

    v holds (w − lower)/(upper − lower) of all intervals, then the free parameters, scaled likewise and
    by √I, so that its squared Euclidean norm is I times the mean over training of the squared controls
    plus the squared parameters, whatever the number of intervals.
    """

    def __init__(self, compiled: CompiledProblem, intervals: int) -> None:
        relaxation, free = compiled.relaxation, compiled.problem.free.values()
        self.shape = (intervals, relaxation.size)
        low, high = relaxation.bounds
        self._size = intervals * relaxation.size
        self.offset = np.concatenate([np.tile(low, intervals), [f.lower for f in free]])
        self.scale = np.concatenate(
            [np.tile(high - low, intervals), [(f.upper - f.lower) / intervals**0.5 for f in free]]
        )
        self.top = np.concatenate([np.ones(self._size), np.full(len(free), intervals**0.5)])
        rows, targets, self._equal = relaxation.budget_rows
        self._rows = rows * (high - low)
        self._targets = targets - rows @ low
        self._scaled = BudgetRows(self._rows, self._targets, self._equal)
        limited = {name for name, control in compiled.problem.controls.items() if control.sum_limited}
        self._blocks = [relaxation.blocks[name] for name in relaxation.controls if name in limited]
        # Columns of each budget's control, and whether these are shares that add up to 1.
        self._about = [
            (block, name in limited)
            for row in rows
            for name, block in relaxation.blocks.items()
            if row[block].any()
        ]
        self._last = np.zeros(len(targets))

    @property
    def only_box(self) -> bool:
        """Are there only bounds and budgets, and no shares that add up to 1?"""
        return not self._blocks

    @cached_property
    def budgets(self) -> BudgetRows:
        """The budgets on v, rows (b, n)."""
        means = np.tile(self._rows / self.shape[0], self.shape[0])
        rows = np.hstack([means, np.zeros((len(means), len(self.top) - self._size))])
        return self._scaled._replace(rows=rows)

    def join(self, w: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """The vector v of controls (I, m) and free parameters (k,)."""
        return np.asarray((np.concatenate([w.ravel(), theta]) - self.offset) / self.scale)

    def split(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Controls (I, m) and free parameters (k,) of v."""
        values = self.offset + self.scale * v
        return values[: self._size].reshape(self.shape), values[self._size :]

    def nearest(self, w: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The nearest controls (I, m) and free parameters (k,) that meet bounds and budgets."""
        return self.split(self.project(self.join(w, theta)))

    def gradient(self, rolled: RolloutResult) -> np.ndarray:
        """Derivative of the objective with respect to v."""
        return np.asarray(np.concatenate([rolled.gradient.ravel(), rolled.free_gradient]) * self.scale)

    def project(self, v: np.ndarray) -> np.ndarray:
        """The nearest point that meets bounds, sums of shares and budgets.

        The multipliers of the budgets maximise a smooth concave function; they are adjusted one after the
        other until all budgets are met. Budgets on different controls do not interact.
        """
        if len(self._targets) == 0:
            return self._project_intervals(v, np.zeros(self.shape[1]))
        nearest, nu = v, self._last.copy()
        for _ in range(100 if len(nu) > 1 else 1):
            for b in range(len(nu)):
                nearest, nu[b] = self._meet_budget(v, nu, b)
            if np.all(self._scaled.violation(self._means(nearest)) <= 1e-12):
                break
        self._last = nu
        return nearest

    def _meet_budget(self, v: np.ndarray, nu: np.ndarray, b: int) -> tuple[np.ndarray, float]:
        """The nearest point that meets budget b, given the others' multipliers ν (b,); and its multiplier."""
        block, shares = self._about[b]
        others = nu @ self._rows - nu[b] * self._rows[b]
        y = (v[: self._size].reshape(self.shape) - others)[:, block]
        multiplier = projection_multiplier(y, self._rows[b][block], self._targets[b], nu[b], shares=shares)
        multiplier = multiplier if self._equal[b] else max(multiplier, 0.0)
        return self._project_intervals(v, others + multiplier * self._rows[b]), multiplier

    def _means(self, v: np.ndarray) -> np.ndarray:
        return np.asarray(v[: self._size].reshape(self.shape).mean(axis=0))

    def _project_intervals(self, v: np.ndarray, shift: np.ndarray) -> np.ndarray:
        """Nearest point to v − shift on each interval separately, shift (m,)."""
        moved = v.copy()
        moved[: self._size].reshape(self.shape)[...] -= shift
        nearest: np.ndarray = np.clip(moved, 0.0, self.top)
        for block in self._blocks:
            shares = moved[: self._size].reshape(self.shape)[:, block]
            nearest[: self._size].reshape(self.shape)[:, block] = project_shares(shares)
        return nearest
