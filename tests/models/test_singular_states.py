"""Zero weights, perfect alignment: values and derivatives are finite, and both routes agree."""

import jax
import numpy as np
import pytest
from tests.marks import slow_but

from optlearn._theory.expectation import GaussHermite
from optlearn.models import FIG3_OMEGA, autoencoder, committee, curriculum

SOFT = committee(2, 1, T=0.15, sigma_n=0.3, dropout=True, activation_probability=0.7)
RELU = committee(1, 1, activation="relu")
EASY, LINEAR = curriculum(), autoencoder(finite_size=True, sigma=(0.3, 0.5))
HEADS = committee(2, 2, T=0.1, heads=2)
HARD = {"difficulty": 2.0}

ALIGNED = {"Q11": 0.5, "M11": 1.0}

# name: (model, rule, situations: (settings, state))
CASES = {
    "curriculum": (EASY, GaussHermite(36), [({}, {}), (HARD, {}), ({}, ALIGNED), (HARD, ALIGNED)]),
    "dropout": (SOFT, GaussHermite(17, 2), [({}, {}), ({}, {"Q": 0.15, "M": 0.15})]),
    "heads": (HEADS, GaussHermite(9, 2), [({}, {"v": 0.5})]),
    "autoencoder": (
        LINEAR,
        GaussHermite(3),
        [({}, {"b": 0.1}), ({}, {"Q": FIG3_OMEGA, "R": FIG3_OMEGA, "b": 0.1})],
    ),
}


def close(one, other, relative):
    scale = max(1.0, np.abs(one).max())
    np.testing.assert_allclose(one, other, rtol=0, atol=relative * scale)


@pytest.mark.parametrize("case", slow_but(["curriculum"], CASES))
def test_closed_and_generic_agree(case, tools):
    model, rule, situations = CASES[case]

    @tools.jit
    def values_and_slopes(flat, u):
        drifts, errors = ([f(model), f(model, rule)] for f in (tools.flat_drift, tools.flat_error))
        return [(f(flat, u), jax.jacfwd(f)(flat, u)) for f in drifts + errors]

    for overrides, state in situations:
        closed, generic, error, generic_error = values_and_slopes(
            model.layout.flatten(model.state(**state)), model.settings(overrides)
        )
        close(closed[0], generic[0], 1e-10)
        close(closed[1], generic[1], 1e-8)
        assert np.all(np.isfinite(error[1]))
        assert np.all(np.isfinite(generic_error[1]))
        close(error[0], generic_error[0], 1e-9)
        if model is not EASY:  # whose metric jumps: its quadrature has no derivative
            close(error[1], generic_error[1], 1e-8)


def test_misclassification_at_its_ends(tools):
    error, u = tools.flat_error(EASY), EASY.settings()
    assert error(EASY.layout.flatten(EASY.state()), u) == 0.5
    assert error(EASY.layout.flatten(EASY.state(Q11=0.5, M11=1.0)), u) == pytest.approx(0, abs=1e-9)
    against = EASY.layout.flatten(EASY.state(Q11=0.5, M11=-1.0))
    assert error(against, u) == pytest.approx(1, abs=1e-9)


def test_dropout_at_the_ends_of_its_range(tools):
    @tools.jit
    def drifts_and_slopes(flat, p):
        def drift(rule):
            f = tools.flat_drift(SOFT, rule)
            return lambda p: f(flat, SOFT.settings() | {"activation": p})

        return [(f(p), jax.jacfwd(f)(p)) for f in (drift(None), drift(GaussHermite(16, 2)))]

    for state in ({}, {"Q": 0.15, "M": 0.15}):
        flat = SOFT.layout.flatten(SOFT.state(**state))
        for p in (0.0, 1.0):
            (closed, slope), (generic, generic_slope) = drifts_and_slopes(flat, p)
            close(closed, generic, 1e-10)
            close(slope, generic_slope, 1e-8)
            assert p > 0 or np.all(closed == 0)


def test_relu_at_zero_weights(tools):
    flat = RELU.layout.flatten(RELU.state())

    @tools.jit
    def values_and_slopes(flat):
        functions = tools.flat_error(RELU), tools.flat_drift(RELU, GaussHermite(4, 2))
        return [(f(flat, RELU.settings()), jax.jacfwd(f)(flat, RELU.settings())) for f in functions]

    for number in jax.tree.leaves(values_and_slopes(flat)):
        assert np.all(np.isfinite(number))


@pytest.mark.parametrize(
    ("model", "overrides", "expected"),
    [
        (EASY, {}, {"cosine": 0.0}),
        (SOFT, {"activation": 0.6}, {"cosine": 0.0, "correlation": 0.6}),
        (committee(2, 1), {}, {"cosine": 0.0, "correlation": 1.0}),
        (committee(2, 2), {}, {"cosine": 0.0}),
        (LINEAR, {}, {"theta11": 0.0, "theta22": 0.0}),
    ],
)
def test_observables_at_zero_weights(model, overrides, expected):
    u = model.settings(overrides)

    def observe(flat):
        return model.observables(model.layout.unflatten(flat), u)

    zero = model.layout.flatten(model.state())
    assert {name: float(value) for name, value in observe(zero).items()} == expected
    for slope in jax.jacfwd(observe)(zero).values():
        assert np.all(np.isfinite(slope))


def test_observables_elsewhere():
    model = committee(2, 1, T=2.0)
    x = model.state(Q=[[1.0, 0.5], [0.5, 4.0]], M=[[1.0], [0.8]])
    seen = model.observables(x, model.settings())
    assert seen["cosine"] == pytest.approx(1 / np.sqrt(2), rel=1e-14)
    assert seen["correlation"] == pytest.approx((0.5 - 0.8 / 2) / 2, rel=1e-14)
    x = LINEAR.state(Q=FIG3_OMEGA, R=FIG3_OMEGA)
    assert LINEAR.observables(x, {})["theta22"] == pytest.approx(1, rel=1e-14)
    x = EASY.state(Q11=4.0, M11=1.0)
    assert EASY.observables(x, {})["cosine"] == pytest.approx(1 / np.sqrt(8), rel=1e-14)
