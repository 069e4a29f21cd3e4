"""The continual model is a committee whose training samples come from one task at a time."""

import jax
import numpy as np
import pytest

from optlearn._errors import SpecificationError
from optlearn._theory.expectation import GaussHermite
from optlearn.models import committee, continual

SIMILARITY = 0.3


@pytest.mark.parametrize(
    ("activation", "rule", "largest", "states"),
    [("linear", GaussHermite(4, 2), 1.5, 6), ("erf", GaussHermite(13, 2), 0.1, 3)],
)
def test_closed_forms_are_the_quadrature(activation, rule, largest, states, tools):
    model = continual(2, SIMILARITY, activation=activation, sigma_n=0.3, readout_rate=0.4)
    flat = tools.random_states(model, states, largest)

    @tools.jit
    def both(flat, tasks):
        def one(pair):
            u = {**model.settings(), "task": pair[1]}
            return [
                (f(model)(pair[0], u), f(model, rule)(pair[0], u))
                for f in (tools.flat_drift, tools.flat_error)
            ]

        return jax.lax.map(one, (flat, tasks))

    # The teachers of the erf model have norm 1, which the quadrature resolves to 1e-6 only.
    accuracy = 1e-10 if activation == "linear" else 1e-5
    for closed, generic in both(flat, np.resize([0.0, 0.3, 1.0], states)):
        assert np.max(np.abs(closed - generic)) < accuracy * np.max(np.abs(closed))


def test_a_task_is_a_committee_trained_on_that_share(tools):
    model = continual(3, SIMILARITY, K=2, readout_rate=0.7, sigma_n=0.2)
    shares = {0.0: (1, 0, 0), 1.0: (0, 1, 0), 1.25: (0, 0.75, 0.25), 2.0: (0, 0, 1)}
    plain = committee(2, 3, T=model.overlaps.T, heads=3, sigma_n=0.2, readout_rate=0.7)
    (flat,) = tools.random_states(model, 1)
    drifts = [tools.jit(tools.flat_drift(m)) for m in (model, plain)]
    for task, share in shares.items():
        found = drifts[0](flat, model.settings({"task": task}))
        expected = drifts[1](flat, plain.settings({"task_share": np.array(share, dtype=float)}))
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_samples_of_each_task_have_their_own_rate(tools):
    """The drift is the mean over tasks of drifts at their rates; the quadrature, of what SGD does, agrees."""
    model = continual(2, SIMILARITY, activation="linear", sigma_n=0.3, own_rates=True)
    plain = continual(2, SIMILARITY, activation="linear", sigma_n=0.3)
    rates, share = (0.7, 2.3), 0.3
    u = model.settings({"task": share, "learning_rate1": rates[0], "learning_rate2": rates[1]})
    (flat,) = tools.random_states(model, 1, 1.5)
    found = tools.jit(tools.flat_drift(model))(flat, u)
    alone = [
        tools.jit(tools.flat_drift(plain))(flat, plain.settings({"task": task, "learning_rate": rate}))
        for task, rate in enumerate(rates)
    ]
    np.testing.assert_allclose(found, (1 - share) * alone[0] + share * alone[1], rtol=1e-12, atol=1e-14)
    generic = tools.jit(tools.flat_drift(model, GaussHermite(4, 2)))(flat, u)
    np.testing.assert_allclose(found, generic, rtol=1e-10, atol=1e-12)
    one, other = (tools.jit(tools.flat_error(m))(flat, m.settings()) for m in (model, plain))
    assert one == pytest.approx(other)
    with pytest.raises(SpecificationError, match=r"readout_rate must be None with own_rates.*, got 0.5"):
        continual(readout_rate=0.5, own_rates=True)


def test_only_the_head_of_the_present_task_learns(tools):
    model = continual(2, SIMILARITY)
    (flat,) = tools.random_states(model, 1)
    drift = tools.jit(lambda flat, u: model.closed_drift(model.layout.unflatten(flat), u))
    for task in (0, 1):
        v = np.asarray(drift(flat, model.settings({"task": task})).v)
        assert np.all(v[:, task] != 0)
        np.testing.assert_array_equal(v[:, 1 - task], 0)


def test_heads_follow_the_learning_rate_unless_they_have_their_own(tools):
    own, shared = (continual(K=1, activation="linear", readout_rate=rate) for rate in (0.5, None))
    assert "readout_rate" not in shared.parameters
    assert "task_share" not in shared.parameters
    (flat,) = tools.random_states(shared, 1)

    def readout_drift(model, eta):
        drift = tools.jit(lambda flat, u: model.closed_drift(model.layout.unflatten(flat), u))
        return np.asarray(drift(flat, model.settings({"learning_rate": eta})).v)

    np.testing.assert_allclose(readout_drift(shared, 3.0), 3 * readout_drift(shared, 1.0), rtol=1e-12)
    np.testing.assert_allclose(readout_drift(own, 3.0), readout_drift(own, 1.0), rtol=1e-12)


def test_the_error_is_the_weighted_mean_over_tasks(tools):
    model = continual(2, SIMILARITY, test_share=(0.2, 0.8))
    (flat,) = tools.random_states(model, 1)
    x, u = model.layout.unflatten(flat), model.settings()
    named, error = tools.jit(lambda x, u: (model.observables(x, u), model.error(x, u)))(x, u)
    assert float(named["error1"]) != pytest.approx(float(named["error2"]), rel=1e-3)
    assert 0.2 * named["error1"] + 0.8 * named["error2"] == pytest.approx(float(error), rel=1e-12)


def test_the_student_that_is_one_teacher_errs_on_the_others(tools):
    def errors(similarity):
        model = continual(2, similarity, K=1)
        x = model.state(Q=1.0, M=[[1.0, similarity]], v=1.0)
        named = tools.jit(lambda x, u: model.observables(x, u))(x, model.settings())
        return float(named["error1"]), float(named["error2"])

    assert errors(1.0) == pytest.approx((0, 0), abs=1e-15)
    # ½ E[(g(λ) − g(λ*))²] = (2/π) (arcsin ½ − arcsin(similarity/2)).
    expected = 2 / np.pi * (np.arcsin(0.5) - np.arcsin(0.35))
    assert errors(0.7) == pytest.approx((0, expected), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tasks": 1}, r"continual: tasks must be a whole number of at least 2.*, got 1"),
        ({"tasks": "two"}, r"tasks must be a whole number, got 'two'"),
        ({"similarity": -0.1}, r"similarity must be from 0 to 1.*, got -0.1"),
        ({"K": 0}, r"K must be a whole number of at least 1.*, got 0"),
        ({"readout_rate": -1}, r"readout_rate must be at least 0.*, got -1"),
        ({"activation": "tanh"}, r"activation must be one of erf, linear, relu.*, got 'tanh'"),
        ({"test_share": (0.5, 0.6)}, r"test_share must be 2 probabilities .*got \(0.5, 0.6\)"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(SpecificationError, match=message):
        continual(**arguments)
