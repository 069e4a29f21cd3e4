"""Deep networks: what is averaged in closed form against the quadrature of the loss itself."""

import jax
import numpy as np
import pytest

import optlearn as ol
from optlearn._errors import SpecificationError
from optlearn._theory.drift import generic_drift, generic_error


def network(depth, K, **others):
    model = ol.models.deep(depth, 3, K, sigma_n=0.4, eta=0.7, **others)
    random = np.random.default_rng(0)
    weights = {
        name: random.standard_normal(shape) / np.sqrt(shape[-1]) for name, shape in model.trained.items()
    }
    return model, model.state(Q=0.5 * np.eye(K) + 0.1, M=np.full((K, 1), 0.3), **weights)


@pytest.mark.parametrize(("depth", "K"), [(3, 1), pytest.param(4, 2, marks=pytest.mark.slow)])
def test_drift_and_error_are_those_of_the_loss(depth, K):
    model, x = network(depth, K, rates=np.arange(1, depth) / 4, batch=2.0)
    u, quadrature = model.settings(), ol.GaussHermite(24 if K == 1 else 16, 3)
    with jax.enable_x64(True):
        closed = jax.jit(model.closed_drift)(x, u)
        known = jax.jit(generic_drift, static_argnums=3)(model, x, u, quadrature)
        np.testing.assert_allclose(*map(model.layout.flatten, (closed, known)), atol=2e-6 if K == 1 else 1e-4)
        error = jax.jit(generic_error, static_argnums=3)(model, x, u, quadrature)
        assert jax.jit(model.closed_error)(x, u) == pytest.approx(float(error), abs=1e-6 if K == 1 else 1e-4)


def test_one_rate_moves_the_whole_head():
    apart, x = network(3, 1, rates=[0.2, 0.2])
    together, _ = network(3, 1, head_rate=0.2)
    with jax.enable_x64(True):
        first, second = (jax.jit(model.closed_drift)(x, model.settings()) for model in (apart, together))
    for name in apart.trained:
        np.testing.assert_allclose(first.trained[name], second.trained[name], rtol=1e-12)


def test_weights_fit_together():
    shapes = ol.models.deep(4, 5, 2).trained
    assert dict(shapes) == {"layer2": (5, 2), "layer3": (5, 5), "layer4": (5,)}
    assert dict(ol.models.deep(2, 5, 3).trained) == {"layer2": (3,)}
    with pytest.raises(SpecificationError, match="head_rate must be None"):
        ol.models.deep(rates=[1.0, 1.0], head_rate=1.0)
    with pytest.raises(SpecificationError, match="depth must be a whole number of at least 2"):
        ol.models.deep(1)
