from dataclasses import replace

import numpy as np
import pytest

import optlearn.models as models
from optlearn._control.budgets import Budget
from optlearn._control.compiled import Rollout, compile_problem
from optlearn._control.controls import Continuous
from optlearn._control.objective import Objective
from optlearn._control.problem import Problem
from optlearn._control.runs import Start
from optlearn._control.solvers.direct import Direct
from optlearn._control.solvers.greedy import greedy_controls

# Budgets of a greedy schedule take tens of forward passes: a coarser grid will do.
INTERVALS = 30


@pytest.fixture(scope="module")
def greedy():
    """Greedy controls of a case on a coarse grid, once."""
    found = {}

    def controls(case):
        if case.name not in found:
            theta = np.array(case.parameters)
            found[case.name] = greedy_controls(case.compiled(), INTERVALS, theta), theta
        return found[case.name]

    return controls


def test_greedy_controls_are_feasible(greedy_case, greedy):
    w, _ = greedy(greedy_case)
    relaxation = greedy_case.compiled().relaxation
    lower, upper = relaxation.bounds
    assert w.shape == (INTERVALS, relaxation.size)
    assert np.all((w >= lower - 1e-12) & (w <= upper + 1e-12))
    assert np.all(relaxation.share_sums @ w.T <= 1 + 1e-12)
    rows, targets, equal = relaxation.budget_rows
    missed = rows @ w.mean(axis=0) - targets
    assert np.all(np.where(equal, np.abs(missed), missed) <= 1e-9)


def test_greedy_is_not_better_than_optimal(greedy_case, greedy, indirect_solution):
    w, theta = greedy(greedy_case)
    # All finer grids hold the coarse one, or nearly; four steps, so that integration is no excuse.
    value = Rollout(greedy_case.compiled(), INTERVALS, 4).objective(w, theta)
    best = indirect_solution(greedy_case)
    assert value >= best.objective - best.gap - 1e-6 * max(1, abs(best.objective))


@pytest.mark.parametrize("name", ["dropout, noise 0.3", "denoising, noise 0.3, 100 intervals", "double well"])
def test_every_control_lowers_the_final_cost_fastest(cases, greedy, name):
    case = cases[name]
    problem = case.compiled()
    w, theta = greedy(case)
    _, states = Rollout(problem, INTERVALS).forward(w, theta)
    (lower,), (upper,) = problem.relaxation.bounds
    grid = np.linspace(lower, upper, 2001)
    for x, chosen in zip(states, w, strict=False):
        costate = problem.engine.final_gradient(problem.constants, x, theta)[1]
        trials = np.append(grid, chosen)[None]
        tile = np.ones((1, trials.shape[1]))
        H = problem.engine.hamiltonians.value(
            problem.constants, x[:, None] * tile, trials, theta, 1.0, np.array(costate) * tile
        )
        values = np.array(H).ravel()
        assert values[-1] <= values[:-1].min() + 1e-10 * np.ptp(values)


def test_greedy_is_optimal_for_a_short_time():
    # With one short interval there is no future to sacrifice anything to.
    model = models.curriculum()
    problem = Problem(
        model=model,
        start=model.state(Q11=1.0, Q22=0.1, M11=1.0),
        horizon=1e-3,
        controls={"learning_rate": Continuous(0, 10)},
    )
    made = compile_problem(problem)
    best = Direct().shoot(Rollout(made, 1), Start("large", np.array([[5.0]]), np.zeros(0)))
    assert best.w[0, 0] == pytest.approx(1.7394, abs=1e-3)
    found = greedy_controls(made, 1, np.zeros(0))
    assert found[0, 0] == pytest.approx(best.w[0, 0], rel=1e-3)


def test_greedy_curriculum(cases):
    # Easy samples win more at once, so they come first: as if the future did not exist.
    problem = cases["curriculum"].compiled()
    w = greedy_controls(problem, 240, np.zeros(0))
    assert Rollout(problem, 240).objective(w, np.zeros(0)) == pytest.approx(0.155861767, abs=1e-8)
    assert set(w.ravel()) == {0.0, 1.0}
    assert w.sum() == 120


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_discrete_budget_that_fits_is_met_exactly(cases, weight_decay):
    case = cases["anti-curriculum" if weight_decay else "curriculum"]
    w = greedy_controls(case.compiled(), 40, np.zeros(0))
    assert set(w.ravel()) == {0.0, 1.0}
    assert w.sum() == 20


def test_discrete_budget_that_does_not_fit_costs_one_interval(cases):
    w = greedy_controls(cases["curriculum"].compiled(), 41, np.zeros(0))
    inside = (w > 1e-9) & (w < 1 - 1e-9)
    assert inside.sum() == 1
    assert w.mean() == pytest.approx(0.5, abs=1e-12)


def test_slack_budget_changes_nothing(cases):
    problem = cases["average error"].build()
    controls = [
        greedy_controls(compile_problem(replace(problem, budgets=budgets)), 20, np.zeros(0))
        for budgets in ((), (Budget("learning_rate", mean=9.9, sense="at most"),))
    ]
    np.testing.assert_array_equal(*controls)


def test_control_is_kept_where_nothing_depends_on_it():
    model = models.curriculum()
    problem = Problem(
        model=model,
        start=model.state(Q11=1.0, Q22=1.0),
        horizon=1.0,
        controls={"learning_rate": Continuous(0, 10, guess=2.5)},
        objective=Objective(final=0.0, terminal=_nothing),
    )
    np.testing.assert_array_equal(greedy_controls(compile_problem(problem), 5, np.zeros(0)), 2.5)


def _nothing(x, u):
    return 0.0 * x.Q[0, 0]


def test_steps_refine_the_integration(cases):
    problem = cases["dropout, noise 0.3"].compiled()
    theta = np.array([0.678])
    once, often = (greedy_controls(problem, 20, theta, steps=s) for s in (1, 4))
    np.testing.assert_allclose(once, often, atol=1e-4)
    assert np.abs(once - often).max() > 0
