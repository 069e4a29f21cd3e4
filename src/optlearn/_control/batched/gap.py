"""What the minimum principle says is still to be won in lanes: Hamiltonians for the solver's own kernels.

Controls are v in [0, 1]. In shares the Hamiltonian is linear, with the objective's gradient for a slope; over
continuous controls it is averaged along states and costates. ``hamiltonian.gap`` minimises both.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array
from optlearn._control.batched.lanes import Lanes, Structure
from optlearn._control.budgets import BudgetRows
from optlearn._control.hamiltonian.gap import minimise_hamiltonian
from optlearn._control.hamiltonian.interval import Hamiltonian, MeanHamiltonian, on_intervals
from optlearn._control.hamiltonian.loops import dot


class _OfLane(Hamiltonian):
    """What all lanes say of themselves.

    Attributes:
        structure: shared by all lanes.
        lane: one of them.
    """

    xp: ClassVar[ModuleType] = jnp
    structure: Structure
    lane: Lanes

    @property
    def intervals(self) -> int:
        """I."""
        return self.structure.intervals

    @property
    def horizon(self) -> Array:
        """Training time."""
        return self.lane.horizon

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Of v."""
        return np.zeros(self.structure.curved), np.ones(self.structure.curved)

    @property
    def vertices(self) -> Array:
        """(V, m − c) shares of one value each, entirely."""
        return self.structure.vertices

    @property
    def budgets(self) -> BudgetRows:
        """On v."""
        equal = np.array([sense == "equal" for sense in self.structure.budgets], dtype=bool)
        return BudgetRows(self.lane.rows, self.lane.targets, equal)


@dataclass(frozen=True)
class LinearHamiltonian(_OfLane):
    """H̄ in shares.

    Attributes:
        slope: (I, m) of H̄.
    """

    structure: Structure
    lane: Lanes
    slope: Array

    def value(self, w: Array, of: np.ndarray) -> Array:
        """(P,) values at w (P, m), of all intervals in order, once or several times."""
        del of
        table = jnp.asarray(w).reshape(-1, *self.slope.shape) * self.slope[None]
        return jnp.sum(table, axis=-1).reshape(-1)

    def expand(self, w: Array, of: np.ndarray) -> tuple[Array, Array, Array]:
        """Values, slopes, and no curvature."""
        slopes = jnp.tile(self.slope, (len(w) // self.intervals, 1))
        return self.value(w, of), slopes, jnp.zeros((len(w), 0, 0))


@dataclass(frozen=True)
class LaneHamiltonian(_OfLane, MeanHamiltonian):
    """H̄ in continuous controls, the mean along states and costates of a pass."""

    structure: Structure
    lane: Lanes

    def mean(self, w: Array, of: np.ndarray) -> Array:
        """(P,) means at w (P, m), of all intervals in order, once or several times."""
        del of
        return self._over_blocks(self._mean, w)

    def mean_expansion(self, w: Array, of: np.ndarray) -> tuple[Array, Array, Array]:
        """Means, gradients (P, m) and Hessians (P, m, m)."""
        del of

        def expansion(v: Array, x: Array, costate: Array) -> tuple[Array, Array, Array]:
            def slope(v: Array) -> tuple[Array, tuple[Array, Array]]:
                value, gradient = jax.value_and_grad(self._mean)(v, x, costate)
                return gradient, (value, gradient)

            hessian, (value, gradient) = jax.jacfwd(slope, has_aux=True)(v)
            return value, gradient, hessian

        return self._over_blocks(expansion, w)

    def of_rows(self, table: Array, of: np.ndarray) -> Array:
        """A row of the table (I, m) for each of P controls."""
        return jnp.tile(table, (len(of) // self.intervals, 1))

    def _mean(self, v: Array, x: Array, costate: Array) -> Array:
        """On one interval: control v (m,), states and costates (p, n)."""
        w = self.lane.lower + self.lane.width * v

        def at_point(x: Array, costate: Array) -> Array:
            slope, cost = self.structure.rate(self.lane.constants, x, w, jnp.zeros(0), self.length)
            return dot(costate, slope) + cost

        return dot(jax.vmap(at_point)(x, costate), jnp.asarray(self.weights))

    def _over_blocks(self, function: Callable[..., Array], w: Array) -> Any:
        """The function on all intervals, for each block of controls w (blocks · I, m)."""
        blocks = jnp.asarray(w).reshape(-1, self.intervals, w.shape[1])
        over_intervals = jax.vmap(function)
        found = jax.vmap(over_intervals, in_axes=(0, None, None))(blocks, self.states, self.costates)
        return jax.tree.map(lambda part: part.reshape(-1, *part.shape[2:]), found)


def linear_gap(structure: Structure, lane: Lanes, v: Array, gradient: Array) -> tuple[Array, Array]:
    """The gap of shares v (I, m), and the shares that meet the budget towards which the principle sends them.

    Args:
        structure: shared by all lanes.
        lane: one of them.
        v: (I, m) shares that meet the budget.
        gradient: (I, m) of the objective in v.
    """
    slope = gradient * structure.intervals / lane.horizon
    gap, there, _ = minimise_hamiltonian(LinearHamiltonian(structure, lane, slope), v)
    return gap, there


def curved_gap(
    structure: Structure,
    lane: Lanes,
    v: Array,
    gradient: Array,
    states: Array,
    costates: Array,
    *,
    search: bool,
) -> Array:
    """The gap of continuous controls.

    Args:
        structure: shared by all lanes.
        lane: one of them.
        v: (I, m) controls that meet the budget.
        gradient: (I, m) of the objective in v.
        states: (I·s + 1, n) along training.
        costates: (I·s + 1, n) along training.
        search: look for the multipliers of the budgets; or take those of the present controls, which are near
            them where there is little to win, and look for valleys half-way through intervals only.
    """
    along = on_intervals(states, costates, structure.intervals, lane.horizon, structure.exact)
    plain = LaneHamiltonian(**along, tilt=jnp.zeros_like(v), origin=v, structure=structure, lane=lane)
    hamiltonian = plain.tilted(v, gradient)
    start = _multipliers(hamiltonian.budgets, v, gradient * structure.intervals / lane.horizon)
    return minimise_hamiltonian(hamiltonian, v, start, quick=not search, search=search)[0]


def _multipliers(budgets: BudgetRows, v: Array, slope: Array) -> Array:
    """(b,) of the budgets, such that controls v (I, m) between their bounds are stationary."""
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
