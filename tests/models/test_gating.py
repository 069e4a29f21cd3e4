"""Gated networks: closed averages against plain quadrature, known limits, and single SGD steps."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from optlearn._engine.functions import pack
from optlearn._engine.tracing.trace import trace
from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule
from optlearn._simulate.run import simulate
from optlearn._theory.expectation import GaussHermite
from optlearn._theory.sample import Fields
from optlearn.models import gating

# Soft gates and small fields, for which Gauss-Hermite in all fields is accurate; label noise enters squared.
SMALL = {"T": [[0.3, 0.0], [0.0, 0.5]], "teacher_gain": 0.8, "teacher_threshold": 0.3, "sigma_n": 0.2}
RULE = GaussHermite(11, 2)
STATE = {"Q": [[0.25, 0.0], [0.0, 0.4]], "M": [[0.12, 0.0], [0.0, 0.2]]}


def closed(model, state):
    """Drift as order parameters, and error, at a state, without compiling."""

    def both(constants, flat):
        model, u = constants
        x = model.layout.unflatten(flat)
        return model.layout.flatten(model.closed_drift(x, u)), model.closed_error(x, u)

    flat = np.asarray(model.layout.flatten(state))
    constants = (model, model.settings())
    drift, error = trace(both, constants, flat).function("both")(pack(constants), flat)
    return model.layout.unflatten(np.array(drift).ravel()), float(error)


def generic(tools, model, state, rule):
    """The same by plain quadrature over all fields."""
    u, flat = model.settings(), np.asarray(model.layout.flatten(state))
    functions = tools.flat_drift(model, rule), tools.flat_error(model, rule)
    drift, error = tools.jit(lambda flat: [function(flat, u) for function in functions])(flat)
    return model.layout.unflatten(np.asarray(drift)), float(error)


@pytest.mark.parametrize(("control", "gate"), [("gain", 0.6), ("threshold", -0.5), ("switch", 0.6)])
def test_the_closed_forms_are_the_quadrature(control, gate, tools):
    model = gating(control=control, gate=gate, **SMALL, eta=0.7, batch=2.0)
    assert model.layout.names == ("Q11", "Q22", "M11", "M22")
    state = model.state(**STATE)
    (drift, error), (plain, plain_error) = closed(model, state), generic(tools, model, state, RULE)
    for name in model.layout.names:
        assert drift[name] == pytest.approx(plain[name], abs=2e-8), name
    assert error == pytest.approx(plain_error, abs=2e-8)


@pytest.mark.slow
def test_with_more_gates_too(tools):
    """Two gates in student and teacher, eight fields: still smaller ones, so that four nodes do."""
    T = np.zeros((4, 4))
    T[:2, :2], T[2:, 2:] = [[0.1, 0.02], [0.02, 0.05]], [[0.7, -0.2], [-0.2, 1.0]]
    model = gating(K=4, M=4, T=T, teacher_gain=0.6, gate=0.5)
    Q, M = np.zeros((4, 4)), np.zeros((4, 4))
    Q[:2, :2], Q[2:, 2:] = [[0.08, 0.02], [0.02, 0.05]], [[0.5, 0.1], [0.1, 0.9]]
    M[:2, :2], M[2:, 2:] = [[0.04, 0.02], [0.01, 0.02]], [[0.2, 0.1], [-0.1, 0.5]]
    state = model.state(Q=Q, M=M)
    assert model.layout.size == 14
    (drift, error), (plain, plain_error) = closed(model, state), generic(tools, model, state, GaussHermite(4))
    for name in model.layout.names:
        assert drift[name] == pytest.approx(plain[name], abs=1e-7), name
    assert error == pytest.approx(plain_error, abs=1e-7)


@pytest.mark.parametrize(("gain", "accuracy"), [(1.0, 3e-8), (2.0, 1e-7), (3.0, 2e-4)])
def test_the_nodes_resolve_gates_of_this_gain(gain, accuracy):
    model = gating(gate=gain, teacher_gain=gain, sigma_n=0.2)
    x = model.state(Q11=1.0, Q22=0.6, M11=0.6, M22=0.5)
    fine = dataclasses.replace(model, nodes=161)
    drifts = [model.layout.flatten(closed(m, x)[0]) for m in (model, fine)]
    np.testing.assert_allclose(*drifts, rtol=0, atol=accuracy)


def test_overlaps_of_gates_with_values_stay_zero(tools):
    model = dataclasses.replace(gating(gate=0.6, **SMALL), untracked=frozenset(), nodes=0)
    drift, _ = generic(tools, model, model.state(**STATE), GaussHermite(5, 2))
    assert max(abs(drift[name]) for name in ("Q12", "M12", "M21")) < 1e-12


def test_without_gain_only_the_values_learn():
    """Half open everywhere: the target's linear part is T/2, the output's M/2."""
    model = gating(gate=0.0, teacher_gain=2.0, eta=0.7)
    drift, _ = closed(model, model.state(Q11=1.0, Q22=0.6, M11=0.6, M22=0.3))
    assert float(drift["Q11"]) == float(drift["M11"]) == 0.0
    assert float(drift["M22"]) == pytest.approx(0.7 * (1 / 2 - 0.3 / 2) / 2, abs=1e-9)


def test_an_open_gate_is_twice_as_fast():
    model = gating(control="switch", gate=0.0, teacher_gain=2.0, eta=0.7)
    drift, _ = closed(model, model.state(Q11=1.0, Q22=0.6, M11=0.6))
    assert float(drift["Q11"]) == float(drift["M11"]) == 0.0
    assert float(drift["M22"]) == pytest.approx(0.7 / 2, abs=1e-9)


def test_a_gate_along_its_value_is_a_gelu(tools):
    coupled = gating(T=[[1.0, 1.0], [1.0, 1.0]], teacher_gain=1.0, gate=1.0)
    assert coupled.closed_drift(coupled.state(), coupled.settings()) is None
    assert coupled.closed_error(coupled.state(), coupled.settings()) is None
    assert {"Q12", "M12", "M21"} <= set(coupled.layout.names)
    field = jnp.array(0.7)
    fields = Fields(jnp.zeros((1, 2)), jnp.full((1, 2), field), jnp.zeros(()))
    loss = tools.jit(lambda fields: coupled.loss(fields, coupled.state(), {}, coupled.settings()))(fields)
    assert float(loss) == pytest.approx(float(jax.nn.gelu(field, approximate=False)) ** 2 / 2)


def test_the_error_uses_the_gate_of_test_time():
    x = {"Q11": 1.0, "Q22": 1.0, "M11": 1.0, "M22": 1.0}
    learned = gating(gate=0.1)
    assert closed(learned, learned.state(**x))[1] == pytest.approx(0.0, abs=1e-7)
    soft = gating(gate=1.5, test_gate=0.1)
    assert closed(soft, soft.state(**x))[1] > 0.01


# One step on fresh data, many times, as in test_imbalance: 4 numbers in 2 modes, |z| < 4, probability of a
# false alarm 5e-4, once for all.
Z = 4.0


@pytest.mark.parametrize(
    ("mode", "N", "seeds"),
    [
        ("weights", 1000, 3000),
        pytest.param("overlaps", 100_000, 20_000, marks=pytest.mark.slow),  # compiles for seconds
    ],
)
def test_the_drift_is_the_mean_of_single_steps(mode, N, seeds):
    model = gating(gate=1.2, teacher_gain=2.0, sigma_n=0.3)
    start = model.state(Q11=0.9, Q22=0.7, M11=0.4, M22=0.5)
    options = {"dtype": "float64"} if mode == "weights" else {}
    found = simulate(
        model,
        Schedule.constant(1 / N, {}),
        start=start,
        N=N,
        seeds=seeds,
        mode=mode,
        record=[1 / N],
        error=False,
        **options,
    )
    change = N * (found.states[:, -1] - np.asarray(model.layout.flatten(start)))
    drift = np.asarray(model.layout.flatten(closed(model, start)[0]))
    z = (change.mean(axis=0) - drift) / (change.std(axis=0) / np.sqrt(seeds))
    assert np.max(np.abs(z)) < Z, z


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"K": 3}, r"gating: K must be even.*, got 3"),
        ({"M": 0}, r"M must be a whole number of at least 2.*, got 0"),
        ({"T": np.eye(3)}, r"T .*2 by 2"),
        ({"teacher_gain": -1.0}, r"teacher_gain must be at least 0.*, got -1.0"),
        ({"teacher_threshold": np.nan}, r"teacher_threshold must be a finite number, got nan"),
        ({"control": "width"}, r"control must be one of gain, switch, threshold.*, got 'width'"),
        ({"gate": -1.0}, r"gate must be at least 0.*, got -1.0"),
        ({"control": "switch", "test_gate": 2.0}, r"test_gate must be from 0 to 1.*, got 2.0"),
        ({"sigma_n": -0.1}, r"sigma_n must be at least 0.*, got -0.1"),
        ({"eta": "fast"}, r"eta must be a finite number.*, got 'fast'"),
        ({"batch": 0.5}, r"batch must be at least 1.*, got 0.5"),
    ],
)
def test_a_wrong_argument_is_named(arguments, message):
    with pytest.raises(SpecificationError, match=message):
        gating(**arguments)


@pytest.mark.parametrize(
    ("control", "changed", "message"),
    [
        ("threshold", {"teacher_gain": -1.0}, "teacher_gain must be at least 0.*, got -1.0"),
        ("threshold", {"gain": -1.0}, "gain must be at least 0.*, got -1.0"),
        ("gain", {"test_gate": -1.0}, "test_gate must be at least 0.*, got -1.0"),
        ("switch", {"gate": 1.5}, "gate must be from 0 to 1.*, got 1.5"),
    ],
)
def test_a_changed_parameter_has_the_limits_of_the_argument(control, changed, message):
    with pytest.raises(SpecificationError, match=message):
        gating(control=control).settings(changed)
    assert gating(control="threshold").settings({"test_gate": -1.0})["test_gate"] == -1.0
