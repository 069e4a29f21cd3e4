"""Programs compiled by XLA say what CasADi expressions say, to round-off.

One small problem with everything in it (free parameter, budget, running cost) is run both ways.
"""

import dataclasses

import casadi
import jax
import numpy as np
import pytest

import optlearn.models as models
from optlearn._control.budgets import Budget
from optlearn._control.compiled import Rollout, compile_problem
from optlearn._control.controls import Continuous, Free
from optlearn._control.evaluate import evaluate
from optlearn._control.hamiltonian.gap import free_gap, hamiltonian_gap
from optlearn._control.hamiltonian.interval import IntervalHamiltonian
from optlearn._control.objective import Objective
from optlearn._control.problem import Problem
from optlearn._control.runs import Start
from optlearn._control.solvers.direct import Direct
from optlearn._control.solvers.greedy import greedy_controls
from optlearn._control.solvers.indirect import Indirect
from optlearn._engine.adaptive import Course, states_along
from optlearn._engine.build import engine_for
from optlearn._engine.casadi import CasadiEngine
from optlearn._engine.expansion import Callback
from optlearn._engine.functions import FlatSystem, pack, system_functions
from optlearn._engine.integrate import integrate
from optlearn._engine.tracing.trace import UnsupportedPrimitive
from optlearn._engine.xla import XlaEngine
from optlearn._engine.xla_kernels import COLUMNS
from optlearn._schedule import Schedule
from optlearn._theory.expectation import GaussHermite

INTERVALS, STEPS = 10, 2


@pytest.fixture(scope="module")
def problem():
    model = models.committee(K=2, M=1, sigma_n=0.3, dropout=True)
    return Problem(
        model=model,
        start=model.state(Q11=0.1, Q22=0.05, M11=0.02),
        horizon=5.0,
        controls={"activation": Continuous(0, 1, guess=0.7)},
        free={"rescaling": Free(0, 1, guess=0.7)},
        budgets=(Budget("activation", mean=0.75),),
        objective=Objective(final=1.0, average=0.2),
    )


@pytest.fixture(scope="module")
def both(problem):
    return compile_problem(problem, "casadi"), compile_problem(problem, "xla")


@pytest.fixture(scope="module")
def controls():
    w = np.random.default_rng(0).uniform(0.3, 1.0, (INTERVALS, 1))
    return w + 0.75 - w.mean(), np.array([0.66])


@pytest.fixture(scope="module")
def rolled(both, controls):
    return tuple(Rollout(compiled, INTERVALS, STEPS).run(*controls) for compiled in both)


def same(first, second, accuracy=1e-12):
    np.testing.assert_allclose(np.array(second), np.array(first), rtol=accuracy, atol=accuracy)


def test_the_size_of_the_rate_decides():
    def made(nodes):
        model = models.committee(K=2, M=1, sigma_n=0.1)
        start = model.state(Q11=0.3, Q22=0.2, M11=0.1)
        rates = {"learning_rate": Continuous(0, 3)}
        rule = GaussHermite(nodes, 3)
        return compile_problem(Problem(model=model, start=start, horizon=1, controls=rates, quadrature=rule))

    assert isinstance(made(3).engine, CasadiEngine)
    assert isinstance(made(14).engine, XlaEngine)


def test_operations_that_casadi_lacks_run_under_xla():
    class Sorting(type(models.committee())):
        def penalty(self, x, u):
            return 0.1 * jax.numpy.sort(x.Q[0])[0]

    made = models.committee(K=2, M=1)
    model = Sorting(**{part.name: getattr(made, part.name) for part in dataclasses.fields(made)})
    problem = Problem(
        model=model,
        start=model.state(Q11=0.3, Q22=0.2, M11=0.1),
        horizon=1.0,
        controls={"learning_rate": Continuous(0, 3)},
        quadrature=GaussHermite(3),
    )
    assert isinstance(compile_problem(problem).engine, XlaEngine)
    with pytest.raises(UnsupportedPrimitive, match="sort"):
        compile_problem(problem, "casadi")


@pytest.mark.parametrize("name", ["objective", "states", "costates", "gradient", "free_gradient"])
def test_sweeps_agree(rolled, name):
    same(*(getattr(result, name) for result in rolled))


def test_the_hamiltonian_and_its_derivatives_agree(both, rolled, controls):
    w, theta = controls
    every = np.arange(INTERVALS)
    casadi, xla = (
        IntervalHamiltonian.along(compiled, result, w, theta, STEPS)
        for compiled, result in zip(both, rolled, strict=True)
    )
    same(casadi.value(w, every), xla.value(w, every))
    for a, b in zip(casadi.expand(w, every), xla.expand(w, every), strict=True):
        same(a, b)
    for a, b in zip(casadi.free(w, theta), xla.free(w, theta), strict=True):
        same(a, b)


def test_the_gaps_of_the_minimum_principle_agree(both, rolled, controls):
    gaps = [
        (
            hamiltonian_gap(compiled, result, *controls, STEPS)[0],
            free_gap(compiled, result, *controls, STEPS)[0],
        )
        for compiled, result in zip(both, rolled, strict=True)
    ]
    assert min(gaps[0]) > 1e-6
    same(*gaps, 1e-9)


def test_indirect_solutions_agree(both, controls):
    casadi, xla = (
        Indirect().solve(Rollout(compiled, len(controls[0])), Start("guess", *controls)) for compiled in both
    )
    assert xla.outcome.ok
    assert abs(xla.objective - casadi.objective) < 1e-9
    same(casadi.budget_multipliers, xla.budget_multipliers, 1e-6)


@pytest.mark.slow
def test_direct_solutions_agree_and_have_the_same_derivatives(both, controls):
    casadi, xla = (
        Direct().shoot(Rollout(compiled, len(controls[0])), Start("guess", *controls)) for compiled in both
    )
    assert xla.outcome.ok
    assert abs(xla.objective - casadi.objective) < 1e-9
    # Exact derivatives take IPOPT the same way.
    assert xla.iterations == casadi.iterations
    same(casadi.costates, xla.costates, 1e-7)
    same(casadi.theta, xla.theta, 1e-7)


def test_greedy_schedules_agree(both):
    casadi, xla = (greedy_controls(compiled, 4, np.array([0.7])) for compiled in both)
    same(casadi, xla, 1e-6)  # to which the multiplier of the budget is found


def test_columns_beyond_a_block_and_single_ones_agree(both):
    casadi, xla = both
    rng = np.random.default_rng(1)
    x = casadi.start[:, None] * rng.uniform(0.8, 1.2, (len(casadi.start), COLUMNS + 45))
    w, theta = rng.uniform(0.2, 0.9, (1, x.shape[1])), np.array([0.6])
    for a, b in zip(
        casadi.engine.rate(casadi.constants, x, w, theta, 1.0),
        xla.engine.rate(xla.constants, x, w, theta, 1.0),
        strict=True,
    ):
        assert b.shape == a.shape
        same(a, b)
    slope, cost = xla.engine.rate(xla.constants, x[:, 7], w[:, 7], theta, 1.0)
    assert (slope.shape, cost.shape) == ((len(x), 1), (1, 1))
    same(casadi.engine.rate(casadi.constants, x[:, 7], w[:, 7], theta, 1.0)[0], slope)


def test_a_host_in_single_precision_gets_double_precision(both, controls, rolled):
    with jax.enable_x64(False):
        single = Rollout(both[1], INTERVALS, STEPS).run(*controls)
        columns = both[1].engine.rate(both[1].constants, both[1].start, [0.5], controls[1], 1.0)
    same(rolled[0].gradient, single.gradient)
    same(both[0].engine.rate(both[0].constants, both[0].start, [0.5], controls[1], 1.0)[0], columns[0])


def test_steps_on_a_compiled_drift_are_those_of_the_other_executor(problem):
    schedule = Schedule.piecewise([0, 1.2, 5], {"activation": [0.9, 0.6]})
    common = {"start": problem.start, "record": 7, "rtol": 1e-10}
    expected = integrate(problem.model, schedule, backend="casadi", **common)
    found = integrate(problem.model, schedule, backend="xla", **common)
    same(expected.states, found.states, 1e-9)
    same(expected["error"], found["error"], 1e-9)
    objective = evaluate(problem, schedule, {"rescaling": 0.7}).objective
    assert np.isfinite(objective)


def test_a_state_that_is_not_finite_ends_the_steps(problem):
    model = problem.model
    functions = system_functions(FlatSystem(model, ("learning_rate",)), model.settings())
    edges, absurd = np.array([0.0, 5.0]), np.array([[1e200]])
    course = Course(pack(functions.constants), np.full(5, 0.1), edges, absurd, (1e-8, 1e-10))
    states = states_along(engine_for(functions, "xla"), course, edges)
    assert np.all(np.isfinite(states[0]))
    assert np.all(np.isnan(states[1]))


def test_a_callback_does_not_keep_its_arguments():
    # Constants hold the points of a quadrature, megabytes of them, and thousands of results are kept.
    callback = Callback("mean", [2**12, 1], [(1, 1)], lambda c, x: np.mean(c) + x)
    point = [casadi.DM(np.ones(2**12)), casadi.DM(2.0)]
    assert float(callback(*point)) == float(callback(*point)) == 3.0
    assert [len(key) < 100 for key in callback._known] == [True]
