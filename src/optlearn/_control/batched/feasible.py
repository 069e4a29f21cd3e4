"""The set of controls of one lane, v (I, m) in [0, 1], that meet bounds, shares and the budgets."""

import jax.numpy as jnp

from optlearn._arrays import Array
from optlearn._control.hamiltonian.multipliers import project_shares, projection_multiplier
from optlearn._engine.lanes import Lanes, LaneStructure


def project(structure: LaneStructure, lane: Lanes, y: Array) -> Array:
    """The nearest controls (I, m) to any numbers y (I, m)."""
    # No two budgets are of the same control, so each has its own price, whatever the others are.
    moved, shares = y, structure.sum_limited
    for sense, row, target in zip(structure.budgets, lane.rows, lane.targets, strict=True):
        nu = projection_multiplier(y, row, target, shares=shares, xp=jnp)
        moved = moved - (nu if sense == "equal" else jnp.maximum(nu, 0.0)) * row[None]
    return project_shares(moved, jnp) if shares else jnp.clip(moved, 0.0, 1.0)
