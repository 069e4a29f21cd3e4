"""The set of controls of one lane, v (I, m) in [0, 1], that meet bounds, shares and the budgets."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from optlearn._arrays import Array
from optlearn._engine.lanes import Lanes, LaneStructure

# Halvings of a bracket: below a rounding error of its ends.
HALVINGS = 54


def project(structure: LaneStructure, lane: Lanes, y: Array) -> Array:
    """The nearest controls (I, m) to any numbers y (I, m)."""
    curved = structure.curved

    def inside(y: Array) -> Array:
        if not structure.sum_limited:
            return jnp.clip(y, 0.0, 1.0)
        return jnp.concatenate([jnp.clip(y[:, :curved], 0.0, 1.0), _shares(y[:, curved:])], axis=1)

    # No two budgets are of the same control, so each has its own price, whatever the others are.
    moved = y
    for sense, row, target in zip(structure.budgets, lane.rows, lane.targets, strict=True):
        # Beyond these every entry is at the end that makes the mean largest, or smallest.
        largest = jnp.max(jnp.abs(row))
        reach = (jnp.max(jnp.abs(y)) + 1) * 2 / jnp.min(jnp.where(row == 0, largest, jnp.abs(row)))

        def excess(nu: Array, row: Array = row, target: Array = target) -> Array:
            return jnp.sum(inside(y - nu * row[None]) * row[None]) - structure.intervals * target

        nu = sum(crossing(excess, -reach, reach)) / 2
        moved = moved - (nu if sense == "equal" else jnp.maximum(nu, 0.0)) * row[None]
    return inside(moved)


def crossing(excess: Callable[[Array], Array], low: Array, high: Array) -> tuple[Array, Array]:
    """A bracket in which a falling excess crosses 0, halved until it is as narrow as can be."""

    def halve(_: Array, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = (low + high) / 2
        above = excess(middle) > 0
        return jnp.where(above, middle, low), jnp.where(above, high, middle)

    return jax.lax.fori_loop(0, HALVINGS, halve, (low, high))


def _shares(y: Array) -> Array:
    """Nearest rows (I, s) with entries ≥ 0 that add up to at most 1."""
    inside = jnp.clip(y, 0.0, None)
    ordered = -jnp.sort(-y, axis=1)
    excess = (jnp.cumsum(ordered, axis=1) - 1) / jnp.arange(1, y.shape[1] + 1)[None]
    kept = jnp.sum(ordered > excess, axis=1, keepdims=True)
    level = jnp.take_along_axis(excess, kept - 1, axis=1)
    over = inside.sum(axis=1, keepdims=True) > 1
    return jnp.where(over, jnp.clip(y - level, 0.0, None), inside)
