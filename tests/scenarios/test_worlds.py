"""Scenarios of rewards, of Adam and of effort: reference values, and what their pages say."""

import numpy as np
import pytest

import optlearn as ol


def cosine(problem, schedule):
    return 1 - ol.evaluate(problem, schedule, record=2).objective


def test_constant_rates_of_rewards():
    problem = ol.scenarios.reinforcement()
    best = ol.baselines(problem)["best constant rate"]
    assert cosine(problem, best) == pytest.approx(0.965043, abs=2e-6)
    at_bound = ol.Schedule.constant(50.0, {"learning_rate": 5.0})
    assert cosine(ol.scenarios.reinforcement(decisions=10), at_bound) == pytest.approx(0.326941, abs=2e-6)


@pytest.mark.slow
def test_optimal_rates_of_rewards():
    solution = ol.solve(ol.scenarios.reinforcement(), 400, starts=1)
    assert solution.certificate.converged
    assert 1 - solution.objective == pytest.approx(0.968597, abs=2e-6)
    longer = ol.solve(ol.scenarios.reinforcement(decisions=10), 40, starts=1)
    assert 1 - longer.objective == pytest.approx(0.326941, abs=2e-6)
    assert np.all(longer.schedule["learning_rate"] > 5 - 1e-3)


@pytest.mark.slow
def test_a_penalty_is_worth_more_than_a_rate():
    with_penalty = ol.solve(ol.scenarios.reinforcement(control="penalty"), 50, starts=1)
    assert with_penalty.objective == pytest.approx(0.0072, abs=2e-4)
    assert with_penalty.schedule["penalty"][-1] == pytest.approx(1.0, abs=1e-3)


@pytest.mark.slow
def test_adam_beats_sgd_where_the_teacher_is_hard_and_loses_where_it_is_easy():
    ends = {
        (b, optimiser): ol.solve(ol.scenarios.adam(1.0, b, N=63, optimiser=optimiser), 10, starts=1)
        for b in (-0.3, 2.0)
        for optimiser in ("adam", "sgd")
    }
    assert ends[-0.3, "adam"].objective < 0.7 * ends[-0.3, "sgd"].objective
    assert ends[2.0, "adam"].objective > 1.3 * ends[2.0, "sgd"].objective
    # Adam's rates fall all along; SGD's rises first where the teacher is easy.
    for b in (-0.3, 2.0):
        assert np.all(np.diff(ends[b, "adam"].schedule["learning_rate"]) < 1e-6)
    rates = ends[2.0, "sgd"].schedule["learning_rate"]
    assert rates.max() > 1.2 * rates[0]


@pytest.mark.filterwarnings("ignore::optlearn.NotConvergedWarning")  # a coarse grid leaves a relaxation gap
def test_strong_tasks_come_first():
    problem = ol.scenarios.learning_effort(control="task")
    solution = ol.solve(problem, 20, starts=1)
    tasks = solution.schedule["task"]
    assert np.all(tasks[:4] == 0)
    orders = {
        name: ol.evaluate(problem, s, record=2).objective for name, s in ol.baselines(problem, 20).items()
    }
    assert orders["strongest first"] < 0.8 * orders["weakest first"]


def test_an_objective_that_is_no_final_error_is_not_called_one():
    """The explorer puts this word beside the number."""
    assert ol.scenarios.adam().objective.called == "final error"
    assert ol.scenarios.learning_effort(control="task").objective.called == "mean error over training"
    for problem in (ol.scenarios.learning_effort(), ol.scenarios.reinforcement()):
        assert problem.objective.called == "objective"
