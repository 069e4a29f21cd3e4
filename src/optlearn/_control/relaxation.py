"""Controls as vectors: continuous values and shares of discrete values.

A discrete control with n values becomes n − 1 shares (the last value has the rest): the drift is
then the mean of the drifts, which is both outer convexification and the physics of drawing samples
at random. All budgets are linear in these vectors.
"""

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array
from optlearn._control.controls import Budget, Continuous
from optlearn._control.problem import Problem
from optlearn._errors import SpecificationError
from optlearn._schedule import Mixture, Schedule, uniform_grid


@dataclass(frozen=True)
class Relaxation:
    """The relaxed control vector w (m,) of a problem, interval by interval.

    First one entry a continuous control, then n − 1 shares a discrete one, in the problem's order.
    """

    problem: Problem

    @cached_property
    def blocks(self) -> dict[str, slice]:
        """Entries of w that belong to each control."""
        found, start = {}, 0
        for name in self.controls:
            control = self.problem.controls[name]
            size = 1 if isinstance(control, Continuous) else len(control.values) - 1
            found[name] = slice(start, start + size)
            start += size
        return found

    @property
    def controls(self) -> tuple[str, ...]:
        """Names, continuous ones first."""
        return (*self.problem.continuous, *self.problem.discrete)

    @property
    def size(self) -> int:
        """m, the length of w."""
        return max(int(block.stop) for block in self.blocks.values())

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """(m,) lower and upper bounds; shares of a discrete control also add up to at most 1."""
        lower, upper = np.zeros(self.size), np.ones(self.size)
        for name, control in self.problem.continuous.items():
            lower[self.blocks[name]], upper[self.blocks[name]] = control.lower, control.upper
        return lower, upper

    @cached_property
    def share_sums(self) -> np.ndarray:
        """(r, m) rows a with a·w ≤ 1: one for each discrete control with more than two values."""
        rows = []
        for name, control in self.problem.discrete.items():
            if len(control.values) > 2:
                row = np.zeros(self.size)
                row[self.blocks[name]] = 1.0
                rows.append(row)
        return np.array(rows).reshape(-1, self.size)

    @cached_property
    def budget_rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows a (b, m), targets t (b,), flags (b,): the mean over training of a·w is t, or ≤ t."""
        rows, targets, equal = [], [], []
        for budget in self.problem.budgets:
            for row, target in self._budget(budget):
                rows.append(row)
                targets.append(target)
                equal.append(budget.sense == "equal")
        return np.array(rows).reshape(-1, self.size), np.array(targets), np.array(equal, dtype=bool)

    def _budget(self, budget: Budget) -> list[tuple[np.ndarray, float]]:
        block = self.blocks[budget.control]
        control = self.problem.controls[budget.control]
        if isinstance(control, Continuous):
            row = np.zeros(self.size)
            row[block] = 1.0
            assert budget.mean is not None
            return [(row, budget.mean)]
        *first, last = control.values
        if budget.mean is not None:
            row = np.zeros(self.size)
            row[block] = np.array(first) - last
            return [(row, budget.mean - last)]
        found = []
        for value, share in budget.share.items():
            row = np.zeros(self.size)
            if float(value) == last:
                if len(budget.share) == len(control.values) and budget.sense == "equal":
                    continue  # the shares of the others settle this one
                row[block] = -1.0
                found.append((row, share - 1.0))
            else:
                row[block.start + first.index(float(value))] = 1.0
                found.append((row, share))
        return found

    # --- w ↔ schedules ---------------------------------------------------------------------------

    def table(self, w: Array, values: dict[str, Array]) -> tuple[Array, Array]:
        """Control vectors (v, c) of all combinations of discrete values, and their shares (v,).

        ``values`` are the discrete controls' values as runtime arrays.
        """
        vectors = [[]]  # type: list[list[Array]]
        shares = [jnp.ones(())]
        for name in self.controls:
            block = self.blocks[name]
            if isinstance(self.problem.controls[name], Continuous):
                vectors = [[*v, w[block.start]] for v in vectors]
                continue
            parts = [w[i] for i in range(block.start, block.stop)]
            parts.append(1 - sum(parts))
            vectors = [[*v, values[name][i]] for v in vectors for i in range(len(parts))]
            shares = [s * part for s in shares for part in parts]
        return jnp.stack([jnp.stack(v) for v in vectors]), jnp.stack(shares)

    @property
    def values(self) -> dict[str, np.ndarray]:
        """Values of the discrete controls."""
        return {name: np.array(c.values) for name, c in self.problem.discrete.items()}

    def vectors(self, schedule: Schedule, intervals: int) -> np.ndarray:
        """(intervals, m) relaxed controls of a schedule, averaged over equal intervals."""
        grid = uniform_grid(self.problem.horizon, intervals)
        return np.asarray(_overlap(grid, schedule.grid) @ self.own_vectors(schedule))

    def own_vectors(self, schedule: Schedule) -> np.ndarray:
        """(J, m) relaxed controls on the schedule's own J intervals."""
        w = np.zeros((schedule.intervals, self.size))
        for name in self.controls:
            control = self.problem.controls[name]
            if isinstance(control, Continuous):
                w[:, self.blocks[name].start] = schedule[name]
            else:
                w[:, self.blocks[name]] = _value_shares(schedule, name, control.values)
        return w

    def schedule(self, w: np.ndarray, parameters: dict[str, float], rounded: bool = False) -> Schedule:
        """The schedule of relaxed controls (intervals, m); ``rounded``: shares are all 0 or 1."""
        grid = uniform_grid(self.problem.horizon, len(w))
        values: dict[str, np.ndarray] = {}
        mixtures: dict[str, Mixture] = {}
        for name in self.problem.controls:
            control, part = self.problem.controls[name], w[:, self.blocks[name]]
            if isinstance(control, Continuous):
                values[name] = part[:, 0].copy()
                continue
            shares = np.clip(np.column_stack([part, 1 - part.sum(axis=1)]), 0.0, 1.0)
            shares = shares / shares.sum(axis=1, keepdims=True)
            if rounded:
                values[name] = np.array(control.values)[np.argmax(shares, axis=1)]
            else:
                mixtures[name] = Mixture(np.array(control.values), shares)
        return Schedule(grid, values, mixtures, parameters)


def _overlap(grid: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(I, J) share of each interval of ``grid`` that lies in each interval of ``other``."""
    left = np.maximum(grid[:-1, None], other[None, :-1])
    right = np.minimum(grid[1:, None], other[None, 1:])
    inside = np.clip(right - left, 0.0, None)
    return np.asarray(inside / inside.sum(axis=1, keepdims=True))


def _value_shares(schedule: Schedule, name: str, values: tuple[float, ...]) -> np.ndarray:
    """(J, n − 1) shares of all but the last value in each interval of the schedule."""
    shares = np.zeros((schedule.intervals, len(values)))
    if name in schedule.mixtures:
        mixture = schedule.mixtures[name]
        for i, value in enumerate(mixture.values):
            shares[:, _position(name, value, values)] += mixture.shares[:, i]
    else:
        for interval, value in enumerate(schedule.values[name]):
            shares[interval, _position(name, value, values)] = 1.0
    return shares[:, :-1]


def _position(name: str, value: float, values: tuple[float, ...]) -> int:
    close = [i for i, v in enumerate(values) if abs(v - value) <= 1e-9 * max(1.0, abs(v))]
    if not close:
        raise SpecificationError(f"{name!r} = {value:g} is not among its values {list(values)}")
    return close[0]
