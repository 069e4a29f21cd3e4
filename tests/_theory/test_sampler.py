"""The pivoted square root of a Gram matrix, regular and singular."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optlearn._theory.order import OverlapLayout, Overlaps, gram_matrix
from optlearn._theory.sampler import JITTER, partial_cholesky

FACTOR_SLOPES = jax.jit(jax.jacfwd(lambda gram: partial_cholesky(gram, (0, 1, 2))))


@st.composite
def grams(draw):
    """G = A Aᵀ of rank 0 to n, some rows of A zero or equal, scales from 0.01 to 10."""
    n, rank = draw(st.sampled_from([1, 3, 4])), draw(st.integers(0, 4))
    A = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).normal(size=(n, rank))
    A *= draw(st.sampled_from([0.1, 1.0, 3.0]))
    for row in draw(st.sets(st.integers(0, n - 1))):
        A[row] = draw(st.sampled_from([0.0, 1.0, -2.0])) * A[0]
    return A @ A.T


@settings(max_examples=40)
@given(grams(), st.randoms(use_true_random=False), st.sampled_from([JITTER, 0.0]))
def test_all_pivots_give_the_gram_matrix(gram, random, jitter):
    n = len(gram)
    pivots = tuple(random.sample(range(n), n))
    factor = np.asarray(partial_cholesky(jnp.asarray(gram), pivots, jitter))
    assert factor.shape == (n, n)
    scale = max(1.0, np.abs(gram).max())
    np.testing.assert_allclose(factor @ factor.T, gram, rtol=0, atol=1e-11 * scale)
    # In the order of the pivots the factor is lower triangular, exactly.
    assert not np.any(np.triu(factor[list(pivots)], 1))


@settings(max_examples=40)
@given(grams(), st.data())
def test_some_pivots_leave_an_independent_remainder(gram, data):
    n = len(gram)
    pivots = tuple(data.draw(st.permutations(range(n))))[: data.draw(st.integers(0, n))]
    factor = np.asarray(partial_cholesky(jnp.asarray(gram), pivots))
    assert factor.shape == (n, len(pivots))
    rest = gram - factor @ factor.T
    scale = max(1.0, np.abs(gram).max())
    # Nothing of the pivots is left, and what is left is a covariance.
    np.testing.assert_allclose(rest[list(pivots)], 0, atol=1e-7 * scale)
    assert np.linalg.eigvalsh(rest)[0] > -1e-7 * scale


def test_first_pivot_depends_on_the_first_coordinate_alone():
    gram = jnp.array([[2.0, 0.3, 0.5], [0.3, 1.0, -0.2], [0.5, -0.2, 3.0]])
    factor = partial_cholesky(gram, (2, 0))
    np.testing.assert_allclose(factor[2], [np.sqrt(3), 0], rtol=1e-12)
    np.testing.assert_allclose(factor[0, 0], 0.5 / np.sqrt(3), rtol=1e-12)
    np.testing.assert_allclose(factor[0, 1], np.sqrt(2 - 0.25 / 3), rtol=1e-12)


def test_without_jitter_zero_vectors_have_exactly_zero_rows():
    gram = np.zeros((4, 4))
    gram[np.ix_([1, 3], [1, 3])] = [[1.0, 0.4], [0.4, 2.0]]
    factor = np.asarray(partial_cholesky(jnp.asarray(gram), (0, 1, 2, 3), jitter=0.0))
    assert not np.any(factor[[0, 2]])
    np.testing.assert_allclose(factor @ factor.T, gram, rtol=0, atol=1e-15)


def test_without_jitter_a_repeated_vector_adds_no_noise():
    gram = np.outer([1.0, 2.0, -0.5], [1.0, 2.0, -0.5])
    factor = np.asarray(partial_cholesky(jnp.asarray(gram), (0, 1, 2), jitter=0.0))
    assert not np.any(factor[:, 1:])


@pytest.mark.parametrize(
    "gram",
    [np.zeros((3, 3)), np.ones((3, 3)), np.diag([1.0, 0.0, 2.0]), np.outer([1, -2, 0], [1, -2, 0])],
    ids=["zero", "aligned", "one-zero", "parallel"],
)
def test_gradients_are_finite_where_the_matrix_is_singular(gram):
    jacobian = FACTOR_SLOPES(jnp.asarray(gram, float))
    assert np.all(np.isfinite(jacobian))


@pytest.mark.parametrize("gram", [np.zeros((2, 2)), np.ones((2, 2)), np.array([[2, 0.3], [0.3, 1]])])
def test_expectations_have_the_right_gradient_even_there(gram):
    # E[x₀² x₁²] = G₀₀ G₁₁ + 2 G₀₁² by quadrature through the factor; the promise is about 1e-9.
    nodes, weights = np.polynomial.hermite_e.hermegauss(5)
    xi = np.stack(np.meshgrid(nodes, nodes), -1).reshape(-1, 2)
    w = np.outer(weights, weights).ravel() / (2 * np.pi)

    def moment(g):
        x = jnp.asarray(xi) @ partial_cholesky(g, (0, 1)).T
        return jnp.asarray(w) @ (x[:, 0] ** 2 * x[:, 1] ** 2)

    exact = jax.grad(lambda g: g[0, 0] * g[1, 1] + (g[0, 1] + g[1, 0]) ** 2 / 2)
    found = jax.jit(jax.grad(moment))(jnp.asarray(gram, float))
    symmetric = (found + found.T) / 2
    np.testing.assert_allclose(symmetric, exact(jnp.asarray(gram, float)), rtol=0, atol=1e-7)


def test_gram_matrix_of_weight_vectors():
    vectors = np.random.default_rng(0).normal(size=(50, 5))
    G = vectors.T @ vectors / 50
    x = OverlapLayout(2, 1, 2).state(Q=G[:2, :2], M=G[:2, 2:3], R=G[:2, 3:])
    overlaps = Overlaps(T=G[2:3, 2:3], S=G[2:3, 3:], Omega=G[3:, 3:])
    np.testing.assert_array_equal(gram_matrix(x, overlaps), G)
