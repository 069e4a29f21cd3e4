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
from optlearn._control.budgets import BudgetRows, budget_rows
from optlearn._control.problem import Problem
from optlearn._schedule import Mixture, Schedule, uniform_grid


@dataclass(frozen=True)
class Relaxation:
    """The relaxed control vector w (m,) of a problem in each interval.

    Continuous controls come first, then those that become shares, each in the problem's order.
    """

    problem: Problem

    @cached_property
    def blocks(self) -> dict[str, slice]:
        """Entries of w that belong to each control."""
        sizes = [self.problem.controls[name].size for name in self.controls]
        stops = np.cumsum(sizes).tolist()
        return {n: slice(e - s, e) for n, s, e in zip(self.controls, sizes, stops, strict=True)}

    @cached_property
    def controls(self) -> tuple[str, ...]:
        """Names of controls; those that become shares come last."""
        controls = self.problem.controls
        return tuple(sorted(controls, key=lambda name: controls[name].needs_rounding))

    @property
    def vector_names(self) -> tuple[str, ...]:
        """Names in the order of control vectors, the same for every schedule of these controls."""
        return tuple(sorted(self.controls))

    @property
    def size(self) -> int:
        """m, the length of w."""
        return max(int(block.stop) for block in self.blocks.values())

    @property
    def curved(self) -> int:
        """Number of leading entries that are not shares: the drift need not be linear in them."""
        return sum(control.size for control in self.problem.continuous.values())

    @cached_property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """(m,) lower and upper bounds; shares of a discrete control also add up to at most 1."""
        both = [self.problem.controls[name].bounds for name in self.controls]
        return np.concatenate([low for low, _ in both]), np.concatenate([high for _, high in both])

    @cached_property
    def neutral(self) -> np.ndarray:
        """(m,) neutral controls: guesses, and equal shares."""
        return np.concatenate([self.problem.controls[name].neutral for name in self.controls])

    @cached_property
    def share_sums(self) -> np.ndarray:
        """(r, m) rows a with a·w ≤ 1: one for each discrete control with more than two values."""
        limited = [name for name in self.controls if self.problem.controls[name].sum_limited]
        rows = np.zeros((len(limited), self.size))
        for row, name in zip(rows, limited, strict=True):
            row[self.blocks[name]] = 1.0
        return rows

    @cached_property
    def budget_rows(self) -> BudgetRows:
        """The budgets on w."""
        return budget_rows(self.problem.mean_budgets, self.problem.controls, self.blocks)

    # --- w ↔ schedules ---------------------------------------------------------------------------

    def table(self, w: Array, values: dict[str, Array]) -> tuple[Array, Array]:
        """Control vectors (v, c) of all combinations of discrete values, and their shares (v,).

        ``values`` are the discrete controls' values as runtime arrays. Entries are in the order of
        ``vector_names``.
        """
        vectors = [[]]  # type: list[list[Array]]
        shares = [jnp.ones(())]
        for name in self.controls:
            block = self.blocks[name]
            columns = [w[i] for i in range(block.start, block.stop)]
            options = self.problem.controls[name].options(columns, values.get(name, ()))
            vectors = [[*v, value] for v in vectors for value, _ in options]
            if len(options) > 1:  # a single value has the whole share
                shares = [s * share for s in shares for _, share in options]
        order = [self.controls.index(name) for name in self.vector_names]
        return jnp.stack([jnp.stack([v[i] for i in order]) for v in vectors]), jnp.stack(shares)

    @property
    def values(self) -> dict[str, np.ndarray]:
        """Values of the discrete controls."""
        return {name: np.array(control.values) for name, control in self.problem.discrete.items()}

    def vectors(self, schedule: Schedule, intervals: int) -> np.ndarray:
        """(intervals, m) relaxed controls of a schedule, averaged over equal intervals."""
        grid, other = uniform_grid(self.problem.horizon, intervals), schedule.grid
        left = np.maximum(grid[:-1, None], other[None, :-1])
        right = np.minimum(grid[1:, None], other[None, 1:])
        inside = np.clip(right - left, 0.0, None)  # (I, J) overlaps of the intervals
        return np.asarray((inside / inside.sum(axis=1, keepdims=True)) @ self.own_vectors(schedule))

    def own_vectors(self, schedule: Schedule) -> np.ndarray:
        """(J, m) relaxed controls on the schedule's own J intervals."""
        return np.hstack([self.problem.controls[name].encode(name, schedule) for name in self.controls])

    def schedule(self, w: np.ndarray, parameters: dict[str, float], rounded: bool = False) -> Schedule:
        """The schedule of relaxed controls (intervals, m); ``rounded``: shares are all 0 or 1."""
        grid = uniform_grid(self.problem.horizon, len(w))
        controls = self.problem.controls.items()
        decoded = {name: control.decode(w[:, self.blocks[name]], rounded) for name, control in controls}
        mixtures = {name: values for name, values in decoded.items() if isinstance(values, Mixture)}
        values = {name: values for name, values in decoded.items() if not isinstance(values, Mixture)}
        return Schedule(grid, values, mixtures, parameters)
