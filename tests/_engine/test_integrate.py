"""Integration: two executors, edges, mixtures, dense output, reuse of compiled code, failures."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from tests.marks import slow_but

from optlearn._engine import build
from optlearn._engine.integrate import integrate
from optlearn._errors import SpecificationError, UnphysicalStateError
from optlearn._schedule import Schedule
from optlearn._theory.expectation import AutoQuadrature, GaussHermite
from optlearn._theory.model import LearningModel
from optlearn._theory.order import Overlaps
from optlearn.models._autoencoder import FIG3_START, autoencoder
from optlearn.models._committee import committee
from optlearn.models._curriculum import curriculum

EASY_HARD = Schedule.piecewise([0.0, 6.0, 12.0], {"difficulty": [0.0, 2.0]})
CURRICULUM = curriculum()
START = CURRICULUM.state(Q11=1, Q22=1)


def run(schedule=EASY_HARD, model=CURRICULUM, start=START, backend="casadi", **options):
    return integrate(model, schedule, start=start, backend=backend, **options)


def solved_by_scipy(model, schedule, start):
    """Final flat state by SciPy's LSODA on the averaged drift, restarted at every edge."""
    layout = model.layout
    drift = jax.jit(lambda flat, u: layout.flatten(model.drift(layout.unflatten(flat), u)))
    state = np.asarray(layout.flatten(start))
    for i in range(schedule.intervals):
        table = [
            (float(share[i]), model.settings({k: v[i] for k, v in values.items()}))
            for share, values in schedule.variants()
        ]
        found = solve_ivp(
            lambda _, flat, table=table: sum(p * np.asarray(drift(flat, u)) for p, u in table),
            schedule.grid[i : i + 2],
            state,
            method="LSODA",
            rtol=1e-11,
            atol=1e-12,
        )
        state = found.y[:, -1]
    return state


# --- two executors, and a third -------------------------------------------------------------------

PROBLEMS = {
    "curriculum": (CURRICULUM, EASY_HARD, START, 0.155861767207),
    "dropout": (
        committee(sigma_n=0.3, dropout=True, activation_probability=0.68),
        Schedule.piecewise([0, 2, 5], {"activation": [0.68, 0.68]}),
        committee(K=2, M=1).state(),
        0.036448895717,
    ),
    "autoencoder": (
        autoencoder(noise=0.3),
        Schedule.constant(0.8, {}),
        autoencoder().state(**FIG3_START),
        9.5197451671,  # 9.5197451679 for the unrounded start, of which this one has 8 digits
    ),
}


@pytest.mark.parametrize("name", slow_but(["curriculum"], PROBLEMS))
def test_casadi_and_xla_agree(name):
    model, schedule, start, reference = PROBLEMS[name]
    first = run(schedule, model, start, "casadi", record=25)
    second = run(schedule, model, start, "xla", record=25)
    assert first.info["backend"] == "casadi"
    assert second.info["backend"] == "xla"
    assert first.info["quadrature"] == "closed form"
    assert first.order_parameters == model.layout.names
    assert set(first.values) == set(second.values)
    assert first.objective == pytest.approx(reference, abs=1e-10)
    for quantity in first.values:
        np.testing.assert_allclose(second[quantity], first[quantity], rtol=0, atol=1e-10)
        np.testing.assert_allclose(second[quantity][-1], first[quantity][-1], rtol=0, atol=1e-10)
    by_scipy = solved_by_scipy(model, schedule, start)
    np.testing.assert_allclose(first.states[-1], by_scipy, rtol=0, atol=1e-8)


def test_auto_takes_casadi_for_closed_forms():
    assert run(backend="auto", record=2).info["backend"] == "casadi"


def test_unknown_backend():
    with pytest.raises(SpecificationError, match="backend must be one of auto, casadi, xla, got 'gpu'"):
        run(backend="gpu")


# --- schedules ------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["casadi", "xla"])
def test_redundant_edges_change_nothing(backend):
    grid = np.array([0, 1, 2.5, 6, 6.1, 7, 11, 12])
    fine = Schedule.piecewise(grid, {"difficulty": [0, 0, 0, 2, 2, 2, 2]})
    once, split = (run(s, backend=backend, record=25) for s in (EASY_HARD, fine))
    np.testing.assert_allclose(split.states, once.states, rtol=0, atol=1e-12)


def test_parts_of_a_schedule_are_the_parts_of_the_run():
    whole = run()
    first = run(Schedule.constant(6.0, {"difficulty": 0.0}))
    middle = CURRICULUM.layout.unflatten(first.states[-1])
    second = run(Schedule.constant(6.0, {"difficulty": 2.0}), start=middle)
    np.testing.assert_allclose(whole.states[100], first.states[-1], rtol=0, atol=1e-12)
    np.testing.assert_allclose(whole.states[-1], second.states[-1], rtol=0, atol=1e-11)


@pytest.mark.parametrize("backend", ["casadi", pytest.param("xla", marks=pytest.mark.slow)])
def test_a_mixture_is_the_averaged_drift(backend):
    schedule = Schedule.mixed([0.0, 4.0, 12.0], {"difficulty": {0.0: [0.7, 0.4], 2.0: [0.3, 0.6]}})
    found = run(schedule, backend=backend, record=25)
    by_scipy = solved_by_scipy(CURRICULUM, schedule, START)
    np.testing.assert_allclose(found.states[-1], by_scipy, rtol=0, atol=1e-8)
    # It is not the drift at the mean difficulty.
    mean = Schedule.piecewise([0.0, 4.0, 12.0], {"difficulty": [0.6, 1.2]})
    assert np.max(np.abs(run(mean, record=2).states[-1] - found.states[-1])) > 1e-2


def test_half_easy_half_hard():
    half = Schedule.mixed([0.0, 12.0], {"difficulty": {0.0: 0.5, 2.0: 0.5}})
    assert run(half).objective == pytest.approx(0.152777477165, abs=1e-10)


def test_parameters_replace_defaults():
    other = curriculum(eta=2.0, weight_decay=0.1)
    here = run(parameters={"learning_rate": 2.0, "weight_decay": 0.1})
    there = run(model=other)
    scheduled = Schedule.piecewise(
        EASY_HARD.grid, {**EASY_HARD.values, "learning_rate": [2, 2], "weight_decay": [0.1, 0.1]}
    )
    np.testing.assert_allclose(here.states, there.states, rtol=0, atol=1e-13)
    np.testing.assert_allclose(here.states, run(scheduled).states, rtol=0, atol=1e-11)
    assert abs(here.objective - run().objective) > 1e-3
    with pytest.raises(SpecificationError, match="no parameter 'eta'"):
        run(parameters={"eta": 2.0})


# --- what is recorded -----------------------------------------------------------------------------


def test_record():
    assert len(run().alpha) == 201
    np.testing.assert_allclose(run(record=5).alpha, [0, 3, 6, 9, 12])
    times = [0.0, 0.1, 7.0, 12.0]
    some = run(record=times)
    np.testing.assert_array_equal(some.alpha, times)
    np.testing.assert_allclose(some["Q11"][0], 1)
    np.testing.assert_allclose(some["error"][-1], run()["error"][-1], rtol=0, atol=1e-12)
    only = run(record=[12.0])
    assert only.objective == pytest.approx(some.objective, abs=1e-13)
    late = run(record=[12.0 * (1 + 1e-15)])
    assert late.alpha[-1] == 12.0


@pytest.mark.parametrize(
    "record",
    [1, 0, [], [0.0, 0.0], [2.0, 1.0], [-1.0, 2.0], [0.0, 13.0], [[0.0, 1.0]], [0, np.nan]],
)
def test_wrong_record(record):
    with pytest.raises(SpecificationError, match="record must be "):
        run(record=record)


@pytest.mark.parametrize("backend", ["casadi", pytest.param("xla", marks=pytest.mark.slow)])
def test_dense_output_is_the_run_to_that_time(backend):
    trajectory = run(backend=backend, record=25)
    times = np.array([9.3, 0.0, 2.2, 2.2, 12.0])
    found = trajectory.at(times)
    for i, alpha in enumerate(times):
        if alpha == 0:
            expected = {"Q11": 1.0, "Q22": 1.0, "M11": 0.0}
        else:
            edges = [0.0, alpha] if alpha <= 6 else [0.0, 6.0, alpha]
            shorter = Schedule.piecewise(edges, {"difficulty": [0.0, 2.0][: len(edges) - 1]})
            ended = run(shorter, record=2)
            expected = {name: ended[name][-1] for name in ended.order_parameters}
        for name, value in expected.items():
            assert found[name][i] == pytest.approx(value, abs=1e-9), (name, alpha)
    with pytest.raises(ValueError, match="outside training"):
        trajectory.at(12.1)


def test_observables_are_recorded():
    found = run(record=3)
    cosine = found["M11"] / np.sqrt(2 * found["Q11"])
    np.testing.assert_allclose(found["cosine"], cosine, rtol=1e-12)


# --- nothing is traced twice ----------------------------------------------------------------------

CALLS = []


class Counted(LearningModel):
    def loss(self, fields, x, latent, u):
        output = jnp.sum(jnp.tanh(fields.student))
        return (fields.teacher[0, 0] - output) ** 2 / 2

    def penalty(self, x, u):
        CALLS.append(1)  # called by the drift only
        return u["decay"] * x.Q[0, 0]


def counted(T=1.0, eta=0.5):
    return Counted(students=1, overlaps=Overlaps(T=T), parameters={"learning_rate": eta, "decay": 0.1})


@pytest.mark.parametrize("backend", ["casadi", "xla"])
def test_changed_numbers_trace_nothing_again(backend, monkeypatch):
    # As for a model of this package; one's own code is looked at anew each time, see test_own_code.
    for module in ("system", "own_code"):
        monkeypatch.setattr(f"optlearn._dynamics.{module}.is_own", lambda cls: False)
    monkeypatch.setattr("optlearn._theory.checks.is_own", lambda cls: False)

    def objective(T, eta, horizon, decay):
        model = counted(T, eta)
        return integrate(
            model,
            Schedule.constant(horizon, {"decay": decay}),
            start=model.state(Q11=0.3),
            quadrature=GaussHermite(6),
            backend=backend,
            record=3,
        ).objective

    first = objective(1.0, 0.5, 1.0, 0.1)
    calls = len(CALLS)
    programs = len(build._MADE)
    assert calls > 0
    others = [objective(*o) for o in [(1.2, 0.5, 1, 0.1), (1, 0.4, 1, 0.1), (1, 0.5, 2, 0.3)]]
    assert len(CALLS) == calls
    assert len(build._MADE) == programs
    assert len({first, *others}) == 4  # and yet they were used


def test_functions_that_differ_are_not_confused():
    class Counted(LearningModel):  # same name, other loss
        def loss(self, fields, x, latent, u):
            return (fields.teacher[0, 0] - jnp.sum(jnp.sin(fields.student))) ** 2 / 2

    other = Counted(students=1, overlaps=Overlaps(T=1.0), parameters={"learning_rate": 0.5, "decay": 0.0})
    ends = [
        integrate(
            model,
            Schedule.constant(1.0, {"decay": 0.0}),
            start=model.state(Q11=0.3),
            quadrature=GaussHermite(6),
            backend="casadi",
            record=2,
        ).objective
        for model in (counted(), other)
    ]
    assert abs(ends[0] - ends[1]) > 1e-3


# --- quadrature -----------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["casadi", "xla"])
def test_quadrature_meets_the_closed_form(backend):
    model = committee(K=1, M=1, T=0.3, sigma_n=0.2)
    start, schedule = model.state(Q11=0.1), Schedule.piecewise([0, 1, 2], {"batch": [1, 4]})
    exact = run(schedule, model, start, record=3)
    found = run(schedule, model, start, backend, record=3, quadrature=GaussHermite(14, 3))
    # As close as the integrator's default tolerance for quadratures.
    np.testing.assert_allclose(found.states, exact.states, rtol=0, atol=1e-7)
    np.testing.assert_allclose(found["error"], exact["error"], rtol=0, atol=1e-7)
    assert "GaussHermite(nodes=14" in found.info["quadrature"]


@pytest.mark.slow
def test_an_accuracy_instead_of_a_rule():
    model = counted()
    rough, fine = (
        run(Schedule.constant(1.0, {}), model, model.state(Q11=0.3), quadrature=rule, record=2)
        for rule in (AutoQuadrature(1e-2), GaussHermite(16))
    )
    assert rough.info["quadrature_error"] <= 1e-2
    np.testing.assert_allclose(rough.states, fine.states, rtol=0, atol=1e-2)
    assert not np.allclose(rough.states[-1], fine.states[-1], rtol=0, atol=1e-12)


# --- failures -------------------------------------------------------------------------------------


def test_absurd_learning_rate():
    model = committee(activation="linear")
    with pytest.raises(
        UnphysicalStateError,
        match=r"unphysical state at α = [\d.]+: Q11 = \S+; .*smaller learning rate",
    ):
        run(Schedule.constant(50.0, {"learning_rate": 50.0}), model, model.state())


def test_dynamics_too_fast_to_follow_are_given_up(monkeypatch):
    monkeypatch.setattr("optlearn._engine.adaptive.MAX_STEPS", 200)
    with pytest.raises(UnphysicalStateError, match=r"at α = \S+: Q11 = nan"):
        run(Schedule.constant(5.0, {"learning_rate": 1e6}))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"Q11": -1.0, "Q22": 1.0}, "at the start: Q11 = -1"),
        ({"Q11": 1.0, "Q22": 1.0, "M11": 1.5}, r"at the start: M11 = 1.5; .* Q11·T11 = 2"),
    ],
)
def test_unphysical_start(values, message):
    with pytest.raises(UnphysicalStateError, match=message):
        run(start=CURRICULUM.state(**values))


def test_gram_matrix_not_positive():
    model = committee()
    start = model.state(Q=np.eye(2), Q12=-0.5, M=[[0.8], [0.8]])
    with pytest.raises(UnphysicalStateError, match=r"at the start.*negative eigenvalue"):
        run(Schedule.constant(1.0, {}), model, start)


# --- float64 here, float32 there ------------------------------------------------------------------

HOST = """
import jax, jax.numpy as jnp, numpy as np
assert not jax.config.jax_enable_x64
from optlearn.models._curriculum import curriculum
from optlearn._engine.integrate import integrate
from optlearn._schedule import Schedule
model = curriculum()
start = model.state(Q11=1, Q22=1)
schedule = Schedule.piecewise([0, 6, 12], {"difficulty": [0, 2]})
for backend in ("casadi", "xla"):
    found = integrate(model, schedule, start=start, backend=backend, record=3)
    assert found["Q11"].dtype == np.float64
    assert abs(found.objective - 0.155861767207) < 1e-10, found.objective
assert model.drift(start, model.settings()).Q.dtype == np.float64
assert jnp.ones(3).dtype == jnp.float32
assert not jax.config.jax_enable_x64
print("float32 again")
"""


def test_a_host_application_keeps_float32():
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", HOST],
        capture_output=True,
        text=True,
        env=environment,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "float32 again"
