"""Latents: enumerated values and their probabilities, differentiable at the edges."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optlearn._theory.sample import Latents


def test_single():
    latents = Latents.single(difficulty=2.0, pair=np.array([1.0, 3.0]))
    np.testing.assert_array_equal(latents.probabilities, [1])
    np.testing.assert_array_equal(latents.values["difficulty"], [2])
    np.testing.assert_array_equal(latents.values["pair"], [[1, 3]])


@settings(max_examples=40)
@given(st.sampled_from([1, 2, 4]), st.floats(0, 1))
def test_masks_are_independent_switches(count, p):
    latents = Latents.masks("mask", count, p)
    table, probabilities = np.asarray(latents.values["mask"]), np.asarray(latents.probabilities)
    assert table.shape == (2**count, count)
    assert len(np.unique(table, axis=0)) == 2**count
    np.testing.assert_allclose(probabilities.sum(), 1, rtol=0, atol=1e-14)
    by_hand = np.prod(np.where(table == 1, p, 1 - p), axis=1)
    np.testing.assert_allclose(probabilities, by_hand, rtol=1e-13, atol=1e-300)
    np.testing.assert_allclose(probabilities @ table, np.full(count, p), rtol=0, atol=1e-14)


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_mask_probabilities_have_derivatives_at_the_edges(p):
    def mean_product(p):
        latents = Latents.masks("mask", 3, p)
        return latents.probabilities @ jnp.prod(latents.values["mask"], axis=1)

    # E[r₁ r₂ r₃] = p³.
    slope = jax.grad(mean_product)
    np.testing.assert_allclose(jax.jit(slope)(p), 3 * p**2, atol=1e-14)
    np.testing.assert_allclose(jax.jit(jax.grad(slope))(p), 6 * p, atol=1e-14)
    every = jax.jit(jax.jacfwd(lambda p: Latents.masks("mask", 3, p).probabilities))(p)
    assert np.all(np.isfinite(every))
    np.testing.assert_allclose(np.sum(every), 0, atol=1e-14)


def test_product_is_independent():
    first = Latents.choice([0.2, 0.8], task=np.array([5, 7]))
    second = Latents.masks("mask", 2, 0.3)
    both = first.times(second)
    assert both.values["task"].shape == (8,)
    assert both.values["mask"].shape == (8, 2)
    rows = {
        (int(task), *map(float, mask)): float(p)
        for task, mask, p in zip(both.values["task"], both.values["mask"], both.probabilities, strict=True)
    }
    assert len(rows) == 8
    assert rows[(5, 0.0, 1.0)] == pytest.approx(0.2 * 0.7 * 0.3)
    assert rows[(7, 1.0, 1.0)] == pytest.approx(0.8 * 0.3 * 0.3)
    assert sum(rows.values()) == pytest.approx(1)


def test_clusters_of_several_slots():
    latents = Latents.clusters((2, 0, 3))
    np.testing.assert_array_equal(
        latents.values["cluster"],
        [[0, 0, 0], [0, 0, 1], [0, 0, 2], [1, 0, 0], [1, 0, 1], [1, 0, 2]],
    )
    np.testing.assert_allclose(latents.probabilities, np.full(6, 1 / 6))


def test_clusters_with_probabilities():
    table = np.array([[0.1, 0.2, 0.0], [0.3, 0.15, 0.25]])
    for given_as in (table, table.ravel()):
        latents = Latents.clusters((2, 3), given_as)
        where = np.all(np.asarray(latents.values["cluster"]) == [1, 2], axis=1)
        np.testing.assert_array_equal(latents.probabilities[where], [0.25])
