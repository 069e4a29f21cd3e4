"""Cubic interpolation on a grid over [−1, 1]^d, in ``jax.numpy``."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array


def nodes(count: int, dimension: int) -> np.ndarray:
    """(count^d, d) nodes of the grid, the last coordinate varying fastest."""
    return np.array(list(product(np.linspace(-1.0, 1.0, count), repeat=dimension))).reshape(-1, dimension)


def interpolate(table: Array, z: Array) -> Array:
    """The value at z (d,) of a table with ``count`` nodes along each of its d axes.

    Cubic through four nodes along each axis, kept between the least and the largest value at the corners of
    the cell: without that limit, errors of cubic interpolation grow from step to step. Points outside take
    the nearest value of the box.
    """
    count = table.shape[0]
    place = (jnp.clip(z, -1.0, 1.0) + 1) / 2 * (count - 1)
    cell = jnp.clip(jnp.floor(place).astype(int), 0, count - 2)
    first = jnp.clip(cell - 1, 0, count - 4)
    t = (place - first.astype(float))[:, None]
    # Lagrange's polynomials through 0, 1, 2, 3.
    weights = jnp.concatenate(
        [
            -(t - 1) * (t - 2) * (t - 3) / 6,
            t * (t - 2) * (t - 3) / 2,
            -t * (t - 1) * (t - 3) / 2,
            t * (t - 1) * (t - 2) / 6,
        ],
        axis=1,
    )
    near = jax.lax.dynamic_slice(table, first, (4,) * table.ndim)
    corners = jax.lax.dynamic_slice(near, cell - first, (2,) * table.ndim)
    value = near
    for row in weights:
        value = jnp.tensordot(row, value, axes=1)
    return jnp.clip(value, corners.min(), corners.max())
