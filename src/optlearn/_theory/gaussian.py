"""Square roots of Gram matrices that stay differentiable where the matrix is singular."""

import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array
from optlearn._theory.order import OrderParameters, Overlaps

# Added under every square root. The derivative of a Cholesky factor is infinite at a singular Gram
# matrix (zero weights, perfect alignment); with this, expectations and their gradients are finite
# and off by about this much (round-off adds about 1e-9 to gradients).
JITTER = 1e-13


def gram_matrix(x: OrderParameters, overlaps: Overlaps) -> Array:
    """(…, n, n) Gram matrices of students, teachers and centroids, n = K + M + C."""
    T, S, Omega = (jnp.asarray(part) for part in (overlaps.T, overlaps.S, overlaps.Omega))
    M, R = (jnp.swapaxes(jnp.asarray(part), -1, -2) for part in (x.M, x.R))
    return jnp.concatenate(
        [
            jnp.concatenate([x.Q, x.M, x.R], axis=-1),
            jnp.concatenate([M, T, S], axis=-1),
            jnp.concatenate([R, jnp.swapaxes(S, -1, -2), Omega], axis=-1),
        ],
        axis=-2,
    )


def partial_cholesky(gram: Array, pivots: tuple[int, ...], jitter: float = JITTER) -> Array:
    """(n, r) factor F such that the Gaussian vector is F ξ plus a part independent of its pivots.

    The first pivot entry depends on ξ₀ alone, the second on ξ₀ and ξ₁, and so on. With all n
    entries as pivots, F Fᵀ is the Gram matrix. ``jitter=0`` gives exact zeros for zero vectors,
    without gradients.
    """
    factor = jnp.zeros((gram.shape[0], 0), gram.dtype)
    for pivot in pivots:
        column = gram[:, pivot] - factor @ factor[pivot]
        # Round-off may leave a square just below zero; it must not take its derivative away (and at
        # zero itself jnp.maximum would halve it).
        square = jnp.where(column[pivot] > -jitter / 2, column[pivot], 0.0) + jitter
        if jitter == 0.0:
            # A pivot at round-off level belongs to the span of those before it.
            present = square > 1e-14 * jnp.maximum(gram[pivot, pivot], 1e-300)
            inverse = jnp.where(present, 1 / jnp.sqrt(jnp.where(present, square, 1.0)), 0.0)
        else:
            inverse = 1 / jnp.sqrt(square)
        column = column * inverse
        # The pivot's own entry keeps the jitter; later columns must not reach back to earlier
        # pivots.
        column = column.at[pivot].set(square * inverse)
        done = np.array(pivots[: factor.shape[1]], dtype=int)
        column = column.at[done].set(0.0)
        factor = jnp.concatenate([factor, column[:, None]], axis=1)
    return factor
