"""The possible improvement of every lane, by the minimum principle and the solver's own kernels.

Controls are v in [0, 1]. In shares the Hamiltonian is linear, with the objective's gradient as its slope; for
continuous controls it is averaged along states and costates. ``hamiltonian.gap`` minimises both.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array
from optlearn._control.budgets import BudgetRows
from optlearn._control.hamiltonian.gap import minimise_hamiltonian
from optlearn._control.hamiltonian.interval import Domain, Hamiltonian, on_intervals
from optlearn._control.hamiltonian.loops import dot
from optlearn._engine.lanes import Lanes, LaneStructure


@dataclass(frozen=True)
class LaneHamiltonian(Hamiltonian):
    """H̄ of one lane; with shares it consists of the linear term only.

    It is evaluated on all intervals in order, once or several times: rows of w are blocks of I.
    """

    structure: LaneStructure
    lane: Lanes

    @classmethod
    def of_shares(cls, structure: LaneStructure, lane: Lanes, v: Array, gradient: Array) -> "LaneHamiltonian":
        """H̄ of shares v (I, m), from the objective's gradient (I, m)."""
        slope, none = gradient * structure.intervals / lane.horizon, jnp.zeros((0, 0, 0))
        return cls(_domain(structure, lane), none, none, np.ones(0), 0.0, slope, v, structure, lane)

    @classmethod
    def along(
        cls, structure: LaneStructure, lane: Lanes, v: Array, gradient: Array, states: Array, costates: Array
    ) -> "LaneHamiltonian":
        """H̄ of continuous controls v (I, m), from states and costates (I·s + 1, n) and gradient (I, m)."""
        points = on_intervals(states, costates, structure.intervals, lane.horizon, structure.exact)
        plain = cls(_domain(structure, lane), *points, jnp.zeros_like(v), v, structure, lane)
        return plain.tilted(v, gradient)

    def mean(self, w: Array, of: np.ndarray) -> Array:
        """(P,) means at w (P, m)."""
        return self._over_blocks(self._mean, w) if self.structure.curved else jnp.zeros(len(of))

    def mean_expansion(self, w: Array, of: np.ndarray) -> tuple[Array, Array, Array]:
        """Means, gradients (P, m) and Hessians (P, m, m)."""
        del of

        def expansion(v: Array, *along: Array) -> tuple[Array, Array, Array]:
            def slope(v: Array) -> tuple[Array, tuple[Array, Array]]:
                value, gradient = jax.value_and_grad(self._mean)(v, *along)
                return gradient, (value, gradient)

            hessian, (value, gradient) = jax.jacfwd(slope, has_aux=True)(v)
            return value, gradient, hessian

        means: tuple[Array, Array, Array] = self._over_blocks(expansion, w)
        return means

    def of_rows(self, table: Array, of: np.ndarray) -> Array:
        """A row of the table (I, m) for each of P controls."""
        return jnp.tile(table, (len(of) // self.intervals, 1))

    def _mean(self, v: Array, x: Array, costate: Array) -> Array:
        """The mean on one interval: control v (m,), states and costates (p, n)."""
        w = self.lane.lower + self.lane.width * v

        def at_point(x: Array, costate: Array) -> Array:
            slope, cost = self.structure.rate(self.lane, x, w, self.length)
            return dot(costate, slope) + cost

        return dot(jax.vmap(at_point)(x, costate), jnp.asarray(self.weights))

    def _over_blocks(self, function: Callable[..., Array], w: Array) -> Any:
        """The function on all intervals, for each block of controls w (blocks · I, m)."""
        blocks = jnp.asarray(w).reshape(-1, self.intervals, w.shape[1])
        over_intervals = jax.vmap(function)
        results = jax.vmap(over_intervals, in_axes=(0, None, None))(blocks, self.states, self.costates)
        return jax.tree.map(lambda part: part.reshape(-1, *part.shape[2:]), results)


def _domain(structure: LaneStructure, lane: Lanes) -> Domain:
    equal = np.array([sense == "equal" for sense in structure.budgets], dtype=bool)
    budgets = BudgetRows(lane.rows, lane.targets, equal)
    lower, upper = np.zeros(structure.curved), np.ones(structure.curved)
    return Domain(lower, upper, structure.vertices, budgets, lane.horizon, xp=jnp)


def linear_gap(structure: LaneStructure, lane: Lanes, v: Array, gradient: Array) -> tuple[Array, Array]:
    """The gap of shares v (I, m), and the shares (I, m) within budget that the minimum principle prefers."""
    return minimise_hamiltonian(LaneHamiltonian.of_shares(structure, lane, v, gradient), v)[:2]


def curved_gap(structure: LaneStructure, lane: Lanes, v: Array, *along: Array, search: bool) -> Array:
    """The gap of continuous controls v (I, m), given gradient, states and costates.

    With a ``search`` for the multipliers of the budgets, it equals the gap of one-by-one solving. Without, it
    uses the multipliers of the present controls, which are close if the possible improvement is small, and
    looks for valleys only at the midpoints of intervals.
    """
    hamiltonian = LaneHamiltonian.along(structure, lane, v, *along)
    slope = along[0] * structure.intervals / lane.horizon
    start = _multipliers(hamiltonian.domain.budgets, v, slope)
    return minimise_hamiltonian(hamiltonian, v, start, quick=not search, search=search)[0]


def _multipliers(budgets: BudgetRows, v: Array, slope: Array) -> Array:
    """(b,) multipliers under which controls v (I, m) between their bounds are stationary."""
    multipliers = []
    for row_of_budget, equal in zip(budgets.rows, budgets.equal, strict=True):
        row = jnp.broadcast_to(row_of_budget, v.shape)
        inside = (v > 1e-9) & (v < 1 - 1e-9) & (row != 0)
        weight = jnp.sum(jnp.where(inside, row**2, 0.0))
        nu = -jnp.sum(jnp.where(inside, slope * row, 0.0)) / jnp.where(weight > 0, weight, 1.0)
        each = jnp.where(row == 0, jnp.nan, -slope / jnp.where(row == 0, 1.0, row))
        nu = jnp.where(weight > 0, nu, jnp.nanmedian(each))
        multipliers.append(nu if equal else jnp.maximum(nu, 0.0))
    return jnp.stack(multipliers) if multipliers else jnp.zeros(0)
