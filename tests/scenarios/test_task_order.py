"""Continual learning: forgetting, replay, and the optimal order of two tasks."""

from dataclasses import replace

import numpy as np
import pytest

import optlearn as ol
from optlearn._errors import SpecificationError
from optlearn.scenarios import task_order


@pytest.fixture(scope="module")
def problem():
    return task_order()


@pytest.fixture(scope="module")
def direct(problem):
    return ol.solve(problem, method="direct", starts=1)


@pytest.fixture(scope="module")
def comparison(problem, direct):
    return ol.compare(problem, solution=direct)


def blocked(**arguments):
    """The trajectory under training on the second task alone."""
    problem = task_order(**arguments)
    return ol.evaluate(problem, problem.baselines["blocked"](problem, 10))


def test_the_optimum_is_certified_and_nearly_as_good_as_the_best_mixed_one(direct):
    assert direct.certificate.converged
    assert 0 <= direct.objective - direct.relaxed.objective < 1e-4 * direct.objective


def test_the_optimum_is_below_every_baseline(comparison):
    values = {row.name: row.objective for row in comparison.rows}
    assert comparison.rows[0].name == "optimum"
    assert all(row.budgets_met for row in comparison.rows)
    assert set(values) == {"optimum", "blocked", "alternating", "random", "blocked, then random"}
    for name in ("blocked", "alternating", "random"):
        assert values[name] > 1.4 * values["optimum"]


def test_the_first_task_is_forgotten_while_the_second_is_learned():
    run = blocked()
    assert run["error1"][0] < 1e-3
    assert np.all(np.diff(run["error1"]) > 0)
    assert run["error1"][-1] > 0.07
    assert run["error2"][0] > 0.17
    assert run["error2"][-1] < 0.01


def test_most_is_forgotten_at_an_intermediate_similarity():
    similarities = np.linspace(0, 1, 6)
    forgotten = np.zeros((4, 6))
    for seed, of_start in enumerate(forgotten):
        for i, similarity in enumerate(similarities):
            run = blocked(similarity=float(similarity), alpha_F=10.0, seed=seed)
            of_start[i] = run["error1"].max() - run["error1"][0]
    # It depends on the start (not every one has its maximum inside); the mean over starts is clear.
    mean = forgotten.mean(axis=0)
    assert similarities[np.argmax(mean)] == pytest.approx(0.6)
    assert mean[3] > 1.5 * mean[0]
    assert mean[3] > 20 * mean[-1]
    assert similarities[np.argmax(forgotten[0])] == pytest.approx(0.6)


def test_the_optimum_learns_the_new_task_then_mixes_and_ends_with_the_old_one(direct):
    share = direct.relaxed.schedule["task"]  # of the new task
    focus, mixed, end = np.split(share, [60, 143])  # of 150 intervals
    assert np.all(focus > 0.99)
    assert np.all((mixed[5:] > 0.5) & (mixed[5:] < 0.7))
    assert np.all(end[3:] < 0.01)
    np.testing.assert_array_equal(direct.schedule["task"][-4:], 0)
    # What was forgotten in the first phase is won back in the second, while the new task still improves.
    error1, error2 = direct.trajectory["error1"], direct.trajectory["error2"]
    turn = int(np.argmax(error1))
    assert 0.35 < direct.trajectory.alpha[turn] / 5 < 0.5
    assert error1[-1] < 0.6 * error1[turn]
    assert error2[-1] < 0.6 * error2[turn]


def test_the_error_is_the_mean_over_tasks(direct):
    run = direct.trajectory
    np.testing.assert_allclose(run["error"], (run["error1"] + run["error2"]) / 2, rtol=1e-12)


def test_the_first_task_is_learned_before():
    fresh = task_order(pretraining=0.0, alpha_F=20.0)
    first = ol.evaluate(fresh, ol.Schedule.constant(20.0, {"task": 0.0}), record=2)
    np.testing.assert_allclose(first.states[-1], fresh.model.layout.flatten(task_order().start), rtol=1e-8)
    assert first["error1"][-1] < 0.002 * first["error1"][0]
    # Without it, training in blocks begins with the first task.
    assert fresh.baselines["blocked"](fresh, 10).merged()["task"] == pytest.approx([0, 1])


@pytest.mark.slow
def test_a_rate_of_its_own_wins_more():
    problem = task_order(joint=True)
    assert set(problem.controls) == {"task", "learning_rate"}
    # One rate for all tasks that a step may come from: the relaxed problem is not convex, and what is left
    # to win is seen in the certificate, so that nothing is said to be converged.
    with pytest.warns(ol.NotConvergedWarning, match="hamiltonian_gap"):
        solution = ol.solve(problem, intervals=20, method="direct", starts=1)
    assert len(problem.baselines) == 10
    for name in ("blocked, then random", "best constant rate", "exponential rate"):
        schedule = problem.baselines[name](problem, 20)
        assert solution.objective < ol.evaluate(problem, schedule, record=2).objective
    assert solution.certificate.hamiltonian_gap < 0.05 * solution.objective


@pytest.mark.slow
def test_a_rate_for_each_task_has_a_certificate():
    """Of two tasks with a budget the share enters linearly; one task at a time, switched fast, comes near."""
    given = {"sigma_n": 0.3, "alpha_F": 20.0, "pretraining": 0.0, "eta": 1.5}
    budgets = (ol.Budget("task", mean=0.2, sense="at most"),)
    problem = replace(task_order(**given, own_rates=True), budgets=budgets)
    solution = ol.solve(problem, 30, starts=1)
    assert solution.certificate.converged, solution.certificate.reasons
    assert solution.certificate.hamiltonian_gap < 1e-6 * solution.objective
    assert solution.objective == pytest.approx(0.015965447, rel=1e-6)
    schedule, pieces = solution.schedule, 16
    shares = np.stack([1 - schedule["task"], schedule["task"]], axis=1)
    lengths = np.repeat(shares * np.diff(schedule.grid)[:, None], pieces, axis=0).ravel() / pieces
    rates = np.stack([schedule["learning_rate1"], schedule["learning_rate2"]], axis=1)
    grid = np.append(0.0, np.cumsum(lengths))
    grid[-1] = schedule.horizon
    tasks = np.tile([0.0, 1.0], len(lengths) // 2)
    switched = {"task": tasks, "learning_rate": np.repeat(rates, pieces, axis=0).ravel()}
    one_at_a_time = ol.evaluate(
        task_order(**given, joint=True), ol.Schedule.piecewise(grid, switched), record=2
    )
    assert one_at_a_time.objective == pytest.approx(solution.objective, rel=5e-3)


def test_baselines_of_own_rates_are_admissible():
    problem = task_order(own_rates=True, alpha_F=1.0)
    assert set(problem.controls) == {"task", "learning_rate1", "learning_rate2"}
    for name in ("blocked", "alternating", "random"):
        assert ol.evaluate(problem, problem.baselines[name](problem, 6), record=2).objective < 0.1


def test_three_tasks():
    problem = task_order(tasks=3, K=1, pretraining=5.0, alpha_F=1.0)
    assert problem.discrete["task"].values == (0.0, 1.0, 2.0)
    assert task_order(tasks=3, pretraining=0.0).model.students == 3
    schedules = {name: problem.baselines[name](problem, 6) for name in ("alternating", "blocked", "random")}
    assert schedules["alternating"]["task"] == pytest.approx([1, 2, 0, 1, 2, 0])
    assert schedules["blocked"].merged()["task"] == pytest.approx([1, 2])
    assert schedules["random"]["task"] == pytest.approx([1.0])  # the mean of 0, 1 and 2
    for schedule in schedules.values():
        assert ol.evaluate(problem, schedule, record=2).objective < 0.16


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tasks": 1}, r"tasks must be a whole number of at least 2.*, got 1"),
        ({"similarity": 1.1}, r"similarity must be from 0 to 1.*, got 1.1"),
        ({"pretraining": -1}, r"pretraining must be at least 0.*, got -1"),
        ({"alpha_F": 0}, r"alpha_F must be above 0.*, got 0"),
        ({"joint": 1}, r"joint must be True or False.*, got 1"),
        ({"own_rates": True, "tasks": 3}, r"tasks must be 2 with own_rates, got 3"),
        ({"own_rates": True, "readout_rate": 1}, r"readout_rate must be None with own_rates.*, got 1"),
        ({"joint": True, "eta": 11}, r"eta must be at most max_learning_rate = 10.*, got 11"),
        ({"start_readout": -1}, r"start_readout must be at least 0.*, got -1"),
        ({"K": 0}, r"K must be a whole number of at least 1.*, got 0"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(SpecificationError, match=message):
        task_order(**arguments)
