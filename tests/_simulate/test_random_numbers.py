"""The random numbers have the distributions that they should have."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from optlearn._simulate.normals import (
    as_normal,
    as_share,
    box_muller,
    chi_square,
    input_noise,
    make_keys,
    symmetric_uniforms,
)

KEY = make_keys(3, 1)[0]
# Kolmogorov-Smirnov; seeds are fixed, so this is passed once for all.
LOWEST_P = 1e-3


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_input_noise(rows, dtype):
    N = 40_001
    pairs, last = jax.random.split(KEY)
    vectors = np.array(input_noise(pairs, last, rows, N, dtype))
    assert vectors.shape == (rows, N)
    assert vectors.dtype == dtype
    assert stats.kstest(vectors.ravel().astype(float), "norm").pvalue > LOWEST_P
    # Also of squares and products, to see any dependence between vectors and between halves.
    for row in range(rows):
        x = vectors[row].astype(float)
        assert stats.kstest(x**2, stats.chi2(1).cdf).pvalue > LOWEST_P
        halves = x[: N // 2], x[N // 2 : 2 * (N // 2)]
        assert abs(np.corrcoef(*halves)[0, 1]) < 4.5 / np.sqrt(N // 2)
        assert abs(np.corrcoef(*np.square(halves))[0, 1]) < 4.5 / np.sqrt(N // 2)
    correlation = np.corrcoef(vectors.astype(float)) if rows > 1 else np.eye(1)
    assert np.abs(correlation - np.eye(rows)).max() < 4.5 / np.sqrt(N)


def test_box_muller_at_the_ends_of_its_range():
    top = 0xFFFFFFFF
    words = [angle << 32 | radius for angle in (0, top, 1 << 31, 1 << 29) for radius in (0, 1, top)]
    numbers = np.array(box_muller(jnp.array(words, dtype=jnp.uint64)))
    assert np.all(np.isfinite(numbers))
    np.testing.assert_allclose(np.abs(numbers).max(), 6.66, atol=0.01)
    # On a circle whose radius the low word gives: √(−2 ln 2⁻³²), also to float32.
    radius = np.hypot(*numbers.astype(float)).reshape(4, 3)
    np.testing.assert_allclose(radius[:, 0], np.sqrt(64 * np.log(2)), rtol=3e-7)
    np.testing.assert_allclose(radius[:, 2], 0, atol=1e-3)


def test_box_muller_fills_the_circle():
    words = jax.random.bits(KEY, (40_000,), dtype=jnp.uint64)
    angle = np.arctan2(*np.array(box_muller(words), dtype=float))
    assert stats.kstest(angle, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > LOWEST_P


@pytest.mark.parametrize("degrees", [1.0, 2.0, 3.0, 7.0, 100.0, 30_000.0])
def test_chi_square(degrees):
    numbers = np.asarray(chi_square(KEY, jnp.asarray([[degrees]]), (100, 300))).ravel()
    assert stats.kstest(numbers, stats.chi2(degrees).cdf).pvalue > LOWEST_P


def test_float64_numbers():
    uniforms = symmetric_uniforms(KEY, (100, 300))
    share, normal = (np.asarray(f(uniforms)).ravel() for f in (as_share, as_normal))
    assert stats.kstest(share, "uniform").pvalue > LOWEST_P
    assert stats.kstest(normal, "norm").pvalue > LOWEST_P
    assert np.all((share > 0) & (share < 1))
