"""A JAX that returns wrong numbers must not pass unnoticed.

jax-ml/jax#39103: on CPU, a vmapped matrix-vector product followed by a reduction, under jit, is
wrong from row 16384 on for some batch sizes: 3,616 of 20,000 rows. This is what every Gaussian
expectation over samples of the local fields looks like. JAX 0.10.2 has the fault; 0.10.1 was right
in every float64 case tried, and float64 is the precision of this library. In float32, 0.10.1 too
gets a plain sum, mean or maximum of a 3-column product wrong from row 32768 on, for batches such
as 32769 and 40000.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest


@pytest.mark.parametrize("batch", [16385, 20000, 32769])
@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("activation", ["positive", "square", "tanh"])
def test_batched_matvec_and_reduction(batch, size, activation):
    apply = {"positive": lambda z: +z, "square": lambda z: z**2, "tanh": np.tanh}[activation]
    apply_jax = jnp.tanh if activation == "tanh" else apply
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((size, size))
    samples = rng.standard_normal((batch, size))

    rows = jax.jit(lambda A, x: jax.vmap(lambda row: jnp.sum(apply_jax(A @ row)))(x))

    expected = np.sum(apply(samples @ matrix.T), axis=-1)
    np.testing.assert_allclose(rows(matrix, samples), expected, rtol=1e-10, atol=1e-10)
