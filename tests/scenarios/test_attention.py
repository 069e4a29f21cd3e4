"""The attention scenario: its optimum, found and checked in several ways, and its three controls."""

from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import minimize

import optlearn as ol
from optlearn import scenarios
from optlearn._control.compiled import Rollout, compile_problem
from optlearn._control.solvers.direct import Direct
from optlearn._control.solvers.indirect import Indirect
from optlearn._control.solvers.starts import neutral
from optlearn._engine.xla import XlaEngine
from optlearn._errors import SpecificationError, UnphysicalStateError
from optlearn._theory.expectation import AutoQuadrature

INTERVALS = 8


@pytest.fixture(scope="module")
def problem():
    return scenarios.attention()


@pytest.fixture(scope="module")
def solution(problem):
    return ol.solve(problem, intervals=INTERVALS, starts=1)


@pytest.fixture(scope="module")
def compiled(problem):
    return compile_problem(problem)


@pytest.mark.slow
def test_the_solution_is_certified_and_says_that_sweeps_alone_found_it(solution, compiled):
    assert isinstance(compiled.engine, XlaEngine)
    assert solution.certificate.converged, solution.certificate.reasons
    assert solution.certificate.hamiltonian_gap < 1e-6
    assert {run.solver for run in solution.runs} == {"indirect"}  # a direct run would take too long


@pytest.mark.slow
def test_attention_is_sharp_first_and_ends_at_the_temperature_of_the_test(solution):
    beta = solution.schedule["temperature"]
    assert beta[0] > 2
    assert 0.8 < beta[-1] < 1.2
    assert 0 < np.argmax(beta) < INTERVALS / 2  # sharper still at first, then softer to the end
    assert np.all(np.diff(beta[np.argmax(beta) :]) < 0)


@pytest.mark.slow
def test_the_optimum_is_below_every_baseline(problem, solution):
    schedules = ol.baselines(problem, INTERVALS)
    assert set(schedules) == {"temperature of the teacher", "best constant", "best line"}
    objectives = {name: ol.evaluate(problem, s, record=2).objective for name, s in schedules.items()}
    assert solution.objective < 0.99 * min(objectives.values())
    assert objectives["best line"] < objectives["best constant"] < objectives["temperature of the teacher"]


@pytest.mark.slow
def test_the_gradient_of_a_sweep_is_that_of_finite_differences(compiled):
    rng = np.random.default_rng(0)
    w, none = rng.uniform(0.5, 3.0, (INTERVALS, 1)), np.zeros(0)
    rollout = Rollout(compiled, INTERVALS, 2)
    gradient = rollout.run(w, none).gradient
    step = 1e-5
    for interval in (0, 3, INTERVALS - 1):
        shift = step * (np.arange(INTERVALS) == interval)[:, None]
        up, down = (rollout.objective(w + sign * shift, none) for sign in (1, -1))
        assert gradient[interval, 0] == pytest.approx((up - down) / (2 * step), rel=1e-6, abs=1e-10)


@pytest.mark.slow
def test_a_general_minimiser_finds_the_same_optimum_from_other_starts(compiled, solution):
    rollout = Rollout(compiled, INTERVALS, 2)

    def cost(w):
        rolled = rollout.run(w[:, None], np.zeros(0))
        return rolled.objective, rolled.gradient[:, 0]

    bounds = [(0.0, 5.0)] * INTERVALS
    ends = [
        minimize(cost, np.full(INTERVALS, level), jac=True, method="L-BFGS-B", bounds=bounds, tol=1e-11)
        for level in (0.6, 3.0)
    ]
    ours = rollout.objective(solution.schedule["temperature"][:, None], np.zeros(0))
    for end in ends:
        assert abs(end.fun - ours) < 1e-7
        np.testing.assert_allclose(end.x, solution.schedule["temperature"], atol=0.02)


@pytest.mark.slow
def test_direct_and_indirect_agree(compiled):
    start = neutral(compiled, INTERVALS // 2)  # second derivatives of a step take a second each
    rollout = Rollout(compiled, len(start.w), 2)
    indirect, direct = Indirect().solve(rollout, start), Direct().shoot(rollout, start)
    assert direct.outcome.ok
    assert abs(direct.objective - indirect.objective) < 1e-7


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::optlearn._errors.AccuracyWarning")  # few points: a smaller problem
@pytest.mark.parametrize("control", ["token_mask", "head_mask"])
def test_the_best_order_of_masked_samples_is_that_of_all_orders(control):
    problem = scenarios.attention(control=control, points=512)
    with pytest.warns(ol.NotConvergedWarning, match="quadrature_error"):  # the order does not depend on it
        solution = ol.solve(problem, intervals=6, starts=1)
    assert solution.outcome.ok
    rollout = Rollout(compile_problem(problem), 6, solution.options["steps"])
    orders = [np.isin(np.arange(6), places).astype(float) for places in combinations(range(6), 3)]
    objectives = [rollout.objective(order[:, None], np.zeros(0)) for order in orders]
    best = int(np.argmin(objectives))
    np.testing.assert_allclose(solution.schedule["mask"], orders[best], atol=1e-6)
    on_these_steps = solution.objective + solution.certificate.integration_error
    assert on_these_steps == pytest.approx(objectives[best], rel=1e-9)


def test_without_a_budget_there_are_other_baselines():
    problem = scenarios.attention(control="token_mask", masked_share=None)
    assert problem.budgets == ()
    assert set(problem.baselines) == {"mask off", "mask on", "best line"}


def test_the_reduced_integrals_need_no_rule(problem):
    assert problem.quadrature is None
    assert scenarios.attention(tied=True).quadrature is not None
    assert scenarios.attention(tokens=3).quadrature == AutoQuadrature(accuracy=0.1, points=8192)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"control": "heat"}, "control must be one of temperature, token_mask, head_mask"),
        ({"control": "token_mask", "tokens": 2}, "at least 3 where tokens are masked"),
        ({"control": "head_mask", "heads": 1}, "at least 2 where heads are masked"),
        ({"control": "head_mask", "masked_share": 1.5}, r"masked_share must be from 0 to 1.*, got 1.5"),
        ({"alpha_F": 0.0}, r"alpha_F must be above 0.*, got 0.0"),
        ({"max_temperature": 1.0}, r"max_temperature must be above 1.*, got 1.0"),
        ({"start_norm": 0.0}, "start_norm must be above 0, got 0.0"),
        ({"start_overlap": 0.9}, "start_overlap must be from -0.547723 to 0.547723, got 0.9"),
        ({"accuracy": 0.0}, "accuracy must be .*, got 0.0"),
        ({"points": 100}, "points must be .* at least 256, got 100"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises((SpecificationError, UnphysicalStateError), match=message):
        scenarios.attention(**arguments)
