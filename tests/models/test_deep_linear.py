"""Deep linear networks: Saxe's closed forms, matrices against modes, and gradient descent on samples."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import hyp2f1

import optlearn as ol
from optlearn._errors import SpecificationError
from optlearn.models import deep_linear, deep_matrices

MODES, STRENGTHS = np.array([3.0, 1.5]), np.array([0.05, 0.2])


def time_of(b, s, depth):
    """∫ db/(b^(L−1) (s − b^L)), the time at which a layer has the weight b, but for a constant."""
    if depth == 2:
        return np.log(b**2 / (s - b**2)) / (2 * s)
    return b ** (2.0 - depth) / (s * (2 - depth)) * hyp2f1(1, (2 - depth) / depth, 2 / depth, b**depth / s)


def closed_form(time, a, s, depth):
    """Strength of a mode after a time, by inverting its closed form."""
    b, end = a ** (1 / depth), s ** (1 / depth)
    begin = time_of(b, s, depth)
    found = brentq(
        lambda w: time_of(w, s, depth) - begin - time, b, end * (1 - 1e-12), xtol=1e-15, rtol=1e-15
    )
    return found**depth


@pytest.mark.parametrize("depth", [2, 3, 4, 5])
def test_strengths_are_those_of_the_closed_form(depth):
    model = deep_linear(depth, MODES)
    schedule = ol.Schedule.constant(0.8, {"learning_rate": 1.0})
    run = ol.integrate(model, schedule, start=model.start(STRENGTHS), record=5)
    for i in (0, 1):
        expected = [closed_form(t, STRENGTHS[i], MODES[i], depth) for t in run.alpha[1:]]
        np.testing.assert_allclose(run[f"a{i + 1}"][1:], expected, atol=1e-9)
    # And the closed form is the integral that it should be.
    direct = quad(lambda b: 1 / (b ** (depth - 1) * (3 - b**depth)), 0.6, 0.9, epsabs=1e-13)[0]
    assert time_of(0.9, 3.0, depth) - time_of(0.6, 3.0, depth) == pytest.approx(direct, abs=1e-11)


def test_depth_two_is_the_sigmoid_of_saxe():
    model, s, a, t = deep_linear(2, [2.0]), 2.0, 0.01, 1.3
    run = ol.integrate(model, ol.Schedule.constant(t, {"learning_rate": 1.0}), start=model.start(a), record=2)
    grown = np.exp(2 * s * t)
    assert run["a1"][-1] == pytest.approx(s * grown / (grown - 1 + s / a), abs=1e-10)


SETTINGS = {"learning_rate": 0.7, "gain": 1.3, "weight_decay": 0.1}


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_balanced_matrices_are_modes(depth):
    """Layers that are diagonal in the singular vectors of the correlations, under gain and decay."""
    rng = np.random.default_rng(depth)
    left, right = (np.linalg.qr(rng.standard_normal((n, n)))[0] for n in (3, 2))
    correlation = left[:, :2] @ np.diag(MODES) @ right.T
    matrices, modes = deep_matrices(correlation, [2] * (depth - 1)), deep_linear(depth, MODES)
    b = STRENGTHS ** (1 / depth)
    layers = [np.diag(b)] * depth
    layers[0], layers[-1] = layers[0] @ right.T, left[:, :2] @ layers[-1]
    if depth == 1:
        layers = [left[:, :2] @ np.diag(b) @ right.T]
    start = {f"W{i + 1}": layer.ravel() for i, layer in enumerate(layers)}
    schedule = ol.Schedule.constant(1.0, SETTINGS)
    whole = ol.integrate(matrices, schedule, start=start, record=3)
    by_mode = ol.integrate(modes, schedule, start=modes.start(STRENGTHS), record=3)
    np.testing.assert_allclose(whole["error"], by_mode["error"], atol=1e-10)


def test_tasks_show_their_own_modes():
    model = deep_linear(3, [[2.0, 0.0], [0.0, 1.0]], variances=[[1.0, 0.0], [0.0, 1.0]])
    start = model.start([0.5, 0.5])
    first = model.drift(start, model.settings({"task": 0.0}))["weight"]
    assert first[0] > 0
    assert first[1] == 0
    both, second = (model.drift(start, model.settings({"task": t}))["weight"] for t in (0.25, 1.0))
    np.testing.assert_allclose(both, 0.75 * first + 0.25 * second, rtol=1e-12)
    outputs = model.outputs(start, model.settings())
    assert outputs["error"] == pytest.approx((outputs["error1"] + outputs["error2"]) / 2)
    assert outputs["error1"] == pytest.approx((2.0 - 0.5) ** 2 / 2)


def descent(depth, covariances, end=0.5):
    """(seeds, 2) strengths after a step for each of the samples' covariances (steps, seeds, 2, 2)."""
    steps, seeds = covariances.shape[:2]
    W = [np.tile(np.diag(STRENGTHS ** (1 / depth)), (seeds, 1, 1)) for _ in range(depth)]
    for covariance in covariances:
        below = [np.eye(2)]
        for layer in W:
            below.append(layer @ below[-1])
        # Labels are linear in the inputs: a gradient sees the samples through their covariance alone.
        missing = (np.diag(MODES) - below[-1]) @ covariance
        for i in reversed(range(depth)):
            gradient = missing @ np.swapaxes(below[i], -1, -2)
            missing = np.swapaxes(W[i], 1, 2) @ missing
            W[i] = W[i] + end / steps * gradient
    product = W[0]
    for layer in W[1:]:
        product = layer @ product
    return np.diagonal(product, axis1=1, axis2=2)


def flow(depth, end=0.5):
    model, schedule = deep_linear(depth, MODES), ol.Schedule.constant(end, {"learning_rate": 1.0})
    run = ol.integrate(model, schedule, start=model.start(STRENGTHS), record=2)
    return np.array([run["a1"][-1], run["a2"][-1]])


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_gradient_descent_tends_to_the_flow(depth):
    """On all data, extrapolated: what is of first and second order in the step drops out."""
    whole = np.eye(2)[None, None]
    h, half, quarter = (descent(depth, np.repeat(whole, steps, axis=0))[0] for steps in (100, 200, 400))
    exact = flow(depth)
    np.testing.assert_allclose((8 * quarter - 6 * half + h) / 3, exact, atol=2e-6)
    # Without it descent is behind by about 1 %: the extrapolation is not what makes them agree.
    assert 1e-3 < np.max(np.abs(h - exact)) < 2e-2


@pytest.mark.parametrize("depth", [2, 3])
def test_sgd_follows_the_flow(depth):
    """On fresh samples, batches of 32: what is of first order in the rate is extrapolated away."""
    rng, seeds = np.random.default_rng(depth), 1500

    def samples(steps):
        x = rng.standard_normal((steps, seeds, 2, 32))
        return x @ np.swapaxes(x, -1, -2) / 32

    coarse, fine = (descent(depth, samples(steps)) for steps in (100, 200))
    error = np.sqrt((4 * fine.var(axis=0, ddof=1) + coarse.var(axis=0, ddof=1)) / seeds)
    z = (2 * fine.mean(axis=0) - coarse.mean(axis=0) - flow(depth)) / error
    assert np.max(np.abs(z)) < 4
    assert np.max(error) < 2.5e-3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: deep_linear(0), "depth"),
        (lambda: deep_linear(2, [[[1.0]]]), "modes must be a number for each mode"),
        (lambda: deep_linear(2, [1.0, 1.0], variances=[1.0, 0.0]), "variances must be above 0 where"),
        (lambda: deep_linear(2, [1.0]).start(-1.0), "strength"),
        (lambda: deep_matrices([1.0]), "correlation must be a matrix"),
        (
            lambda: deep_matrices(np.eye(2), covariance=np.zeros((2, 2))),
            "covariance must be positive definite",
        ),
    ],
)
def test_bad_input_names_the_argument(make, message):
    with pytest.raises(SpecificationError, match=message):
        make()
