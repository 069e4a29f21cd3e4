"""Rates and limits that follow the gradients: AdaGrad-norm, a running mean for clipping, and sign-SGD."""

import jax
import numpy as np
import pytest

import optlearn as ol
from optlearn._errors import SpecificationError
from optlearn.models import adagrad_norm, clipped, committee, sign_sgd, with_memory


def linear(**changes):
    return committee(1, 1, activation="linear", **{"sigma_n": 0.5, "eta": 1.0} | changes)


MODELS = {
    "AdaGrad-norm": (adagrad_norm(linear()), {"squares": 1.0}, 1.0),
    "running clip": (clipped(1.0, averaging=2.0), {"length": 0.5}, 1.0),
    "signs": (sign_sgd(), {}, 0.3),
}
EXPECTED = {
    "AdaGrad-norm": {"Q11": 1.022903081, "M11": 0.956594281, "squares": 4.123942366},
    "running clip": {"Q11": 1.054870173, "M11": 0.950507151, "length": 0.517089791},
    "signs": {"Q11": 0.692496129, "M11": 0.664817340},
}
every_model = pytest.mark.parametrize("name", list(MODELS))


def begin(name):
    model, further, rate = MODELS[name]
    return model, model.state(Q11=0.5, M11=0.1, **further), {"learning_rate": rate}


@every_model
def test_reference_values(name):
    model, start, rate = begin(name)
    found = ol.integrate(model, ol.Schedule.constant(5.0, rate), start=start, record=2)
    found = {entry: found[entry][-1] for entry in EXPECTED[name]}
    assert found == pytest.approx(EXPECTED[name], abs=1e-9)


@every_model
def test_closed_forms_are_the_quadrature(name):
    model, start, rate = begin(name)
    u = model.settings(rate)
    # The residual bends along a slanted line, which tensor grids do not see.
    rule = ol.GaussHermite(8) if name == "AdaGrad-norm" else ol.QuasiMonteCarlo(16)
    closed, integrated = (
        model.layout.flatten(model.drift(start, u, quadrature=chosen)) for chosen in (None, rule)
    )
    np.testing.assert_allclose(closed, integrated, atol=1e-12 if name == "AdaGrad-norm" else 1e-3)


@every_model
def test_adjoints_are_finite_differences(name):
    model, start, rate = begin(name)
    u = model.settings(rate)

    def drift(flat):
        return model.layout.flatten(model.drift(model.layout.unflatten(flat), u))

    flat, step = jax.numpy.asarray(model.layout.flatten(start)), 1e-6
    jacobian = jax.jacrev(drift)(flat)
    for i in range(len(flat)):
        shift = step * jax.numpy.eye(len(flat))[i]
        difference = (drift(flat + shift) - drift(flat - shift)) / (2 * step)
        np.testing.assert_allclose(jacobian[:, i], difference, atol=1e-8)


def agree(name, N, seeds, horizon, mode, slack):
    model, start, rate = begin(name)
    schedule = ol.Schedule.constant(horizon, rate)
    theory = ol.integrate(model, schedule, start=start, record=2)
    runs = ol.simulate(model, schedule, start=start, N=N, seeds=seeds, mode=mode, record=2, error=False)
    for entry in theory.order_parameters:
        values = runs[entry][:, -1]
        error = values.std(ddof=1) / np.sqrt(seeds)
        assert abs(values.mean() - theory[entry][-1]) < 4.5 * error + slack, entry


@every_model
def test_sgd_follows_the_drift(name):
    agree(name, N=300, seeds=64, horizon=1.0, mode="overlaps", slack=0.005)


@pytest.mark.slow
@every_model
@pytest.mark.parametrize("mode", ["overlaps", "weights"])
def test_large_networks_follow_the_drift(name, mode):
    agree(name, N=1000, seeds=40, horizon=5.0, mode=mode, slack=0.002)


def test_signs_of_inputs_are_what_the_model_of_two_slots_describes():
    N, seeds, eta = 300, 64, 0.3
    random = np.random.default_rng(2)
    teacher = random.standard_normal((seeds, N))
    teacher *= np.sqrt(N) / np.linalg.norm(teacher, axis=1, keepdims=True)
    w = np.zeros((seeds, N))
    for _ in range(2 * N):
        x = random.standard_normal((seeds, N))
        residual = np.sum((w - teacher) * x, axis=1) / np.sqrt(N) - 0.5 * random.standard_normal(seeds)
        w = w - eta / np.sqrt(N) * np.sign(residual[:, None] * x)
    model = sign_sgd()
    theory = ol.integrate(model, ol.Schedule.constant(2.0, {"learning_rate": eta}), start=model.state())
    for name, values in (("Q11", w * w), ("M11", w * teacher)):
        values = values.sum(axis=1) / N
        assert abs(values.mean() - theory[name][-1]) < 4.5 * values.std(ddof=1) / 8 + 0.003


def test_a_batch_has_a_share_of_the_squares():
    one, four = (adagrad_norm(committee(2, 2, sigma_n=0.3, batch=B)) for B in (1, 4))
    rates = [float(m.drift(m.start(Q=np.eye(2)), m.settings()).extras["squares"]) for m in (one, four)]
    assert rates[0] == pytest.approx(4 * rates[1], rel=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: adagrad_norm(linear()).start(squares=0.0), "squares must be above 0, got 0"),
        (lambda: adagrad_norm(adagrad_norm(linear())), "model must move by plain SGD"),
        (lambda: with_memory(adagrad_norm(linear()), 1.0), "model must move by plain SGD"),
        (lambda: clipped(averaging=-1.0), "averaging must be at least 0, got -1"),
        (lambda: sign_sgd(eta=-1.0), "eta must be at least 0, got -1"),
        (lambda: sign_sgd().settings({"batch": 2.0}), "batch"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(SpecificationError, match=message):
        make()
