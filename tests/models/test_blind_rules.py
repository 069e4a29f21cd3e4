"""Node perturbation and feedback alignment: reference values, closed forms and simulators."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import optlearn as ol
from optlearn._errors import SpecificationError
from optlearn.models import committee, feedback_alignment, node_perturbation

START = {"Q": [[0.5, 0.1], [0.1, 0.4]], "M": [[0.2, 0.05], [0.02, 0.15]], "v": [[0.3], [0.4]]}


def aligned(model, horizon=20, record=2):
    schedule = ol.Schedule.constant(horizon, {"learning_rate": 0.5})
    return ol.integrate(model, schedule, start=model.state(**START), record=record)


def test_feedback_alignment_has_its_reference_values():
    found = aligned(feedback_alignment((0.8, -0.6)))
    expected = {"v1": 1.112401147, "v2": -0.250281822, "error": 0.018214198}
    assert {name: found[name][-1] for name in expected} == pytest.approx(expected, abs=1e-9)
    backprop = aligned(committee(2, 2, heads=1, eta=0.5, readout_rate=0.5))
    assert backprop["error"][-1] == pytest.approx(0.014459630, abs=1e-9)


@pytest.mark.slow
def test_the_rule_is_what_the_closed_form_describes():
    model = feedback_alignment((0.8, -0.6), sigma_n=0.3)
    x, u = model.state(**START), model.settings()
    closed, integrated = model.drift(x, u), model.drift(x, u, quadrature=ol.GaussHermite(14))
    for part in ("Q", "M", "v"):
        np.testing.assert_allclose(getattr(closed, part), getattr(integrated, part), atol=1e-6)


@pytest.mark.slow
def test_node_perturbation_has_its_reference_values():
    model = node_perturbation(perturbation=0.5, eta=0.5)
    schedule = ol.Schedule.constant(10, {"learning_rate": 0.5})
    found = ol.integrate(
        model, schedule, start=model.state(Q11=0.5, M11=0.1), quadrature=ol.GaussHermite(40), record=2
    )
    assert found.order_parameters == ("Q11", "M11")
    assert found["Q11"][-1] == pytest.approx(1.058775686, abs=1e-8)
    assert found["M11"][-1] == pytest.approx(0.916482234, abs=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(("units", "nodes"), [(1, 10), (2, 6)])
def test_little_shaking_is_the_gradient_with_more_spread(units, nodes):
    # 2S + tr S for the spread S of the gradient, hence 3S for one unit. Nodes need not suffice for S itself.
    x = {"Q": [[0.7, 0.2], [0.2, 0.5]], "M": [[0.3], [0.1]]} if units == 2 else {"Q11": 0.7, "M11": 0.3}
    plain, shaken = committee(units, 1), node_perturbation(units, perturbation=1e-4)

    def drifts(model):
        @jax.jit
        def at(rate):
            settings = model.settings({"learning_rate": rate})
            return model.drift(model.state(**x), settings, quadrature=ol.GaussHermite(nodes))

        one, two = at(1.0), at(2.0)
        pull = (4 * one.Q - two.Q) / 2
        return np.asarray(pull), np.asarray(one.Q - pull), np.asarray(one.M)

    pull, spread, towards = drifts(plain)
    expected = pull, 2 * spread + np.trace(spread) * np.eye(units), towards
    for found, known in zip(drifts(shaken), expected, strict=True):
        np.testing.assert_allclose(found, known, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("model", "start", "rule"),
    [
        pytest.param(feedback_alignment((0.8, -0.6)), START, None, id="feedback alignment"),
        pytest.param(
            node_perturbation(), {"Q11": 0.5, "M11": 0.1}, ol.GaussHermite(10), id="node perturbation"
        ),
    ],
)
def test_adjoints_are_finite_differences(model, start, rule):
    @jax.jit
    def drift(flat):
        return model.layout.flatten(
            model.drift(model.layout.unflatten(flat), model.settings(), quadrature=rule)
        )

    flat, step = jnp.asarray(model.layout.flatten(model.state(**start))), 1e-6
    jacobian = jax.jit(jax.jacrev(drift))(flat)
    for i in range(len(flat)):
        shift = step * jnp.eye(len(flat))[i]
        difference = (drift(flat + shift) - drift(flat - shift)) / (2 * step)
        np.testing.assert_allclose(jacobian[:, i], difference, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["overlaps", "weights"])
def test_sgd_follows_the_drift(mode):
    model = node_perturbation(eta=0.5)
    schedule = ol.Schedule.constant(2.0, {"learning_rate": 0.5})
    start = model.state(Q11=0.5, M11=0.1)
    theory = ol.integrate(model, schedule, start=start, record=2, quadrature=ol.GaussHermite(20))
    runs = ol.simulate(model, schedule, start=start, N=400, seeds=64, mode=mode, record=2, error=False)
    for name in ("Q11", "M11"):
        ends = runs[name][:, -1]
        assert abs(ends.mean() - theory[name][-1]) < 4.5 * ends.std(ddof=1) / 8 + 0.003


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: node_perturbation(perturbation=0.0), "perturbation"),
        (lambda: node_perturbation(K=0), "K must be a whole number of at least 1, got 0"),
        (lambda: feedback_alignment(feedback=[[1.0]]), "feedback.*one number for each hidden node"),
        (lambda: feedback_alignment(sigma_n=-1), "sigma_n"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(SpecificationError, match=message):
        make()
