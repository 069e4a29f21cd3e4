"""A known fault of JAX that makes it return wrong numbers, and how to see whether this one has it."""

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import float64


@float64
def wrong_rows(batch: int = 20_000, size: int = 3, activation: str = "tanh") -> int:
    """How many rows of a batched matrix-vector product, summed after an activation, are wrong; 0 is right.

    jax-ml/jax#39103: on CPU, a vmapped matrix-vector product followed by a reduction, under jit, is wrong
    from row 16384 on for some batch sizes. This is what every Gaussian expectation over samples of the local
    fields looks like. JAX 0.10.2 has the fault: 3,616 of 20,000 rows.

    Args:
        batch: rows of the batch.
        size: rows and columns of the matrix.
        activation: "positive", "square" or "tanh".
    """
    apply, apply_jax = {
        "positive": (np.positive, jnp.positive),
        "square": (np.square, jnp.square),
        "tanh": (np.tanh, jnp.tanh),
    }[activation]
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((size, size))
    samples = rng.standard_normal((batch, size))
    rows = jax.jit(lambda A, x: jax.vmap(lambda row: jnp.sum(apply_jax(A @ row)))(x))
    expected = np.sum(apply(samples @ matrix.T), axis=-1)
    return int(np.sum(~np.isclose(rows(matrix, samples), expected, rtol=1e-10, atol=1e-10)))
