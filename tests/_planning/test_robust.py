import numpy as np
import pytest

import optlearn as ol
from optlearn._control.weighing import Proximal, Weighing
from optlearn._errors import SpecificationError

TARGETS = {"target": [0.5, 1.0, 1.8]}


def perturbed(schedule, name, low, high, rng):
    """A feasible schedule near, or not so near, another."""
    size = 10.0 ** rng.uniform(-4, 0)
    values = np.clip(schedule[name] + size * rng.standard_normal(schedule.intervals), low, high)
    return ol.Schedule.piecewise(schedule.grid, {name: values})


def test_one_member_and_two_equal_ones_are_the_plain_problem(pull):
    plain = ol.solve(pull, method="direct", starts=1).objective
    for risk in ("mean", "worst", ol.CVaR(0.5)):
        for targets in ([1.0], [1.0, 1.0]):
            problem = ol.robust(pull, {"target": targets}, risk=risk)
            assert ol.solve(problem, method="direct", starts=1).objective == pytest.approx(plain, abs=1e-9)


def test_the_mean_is_below_that_of_every_members_own_optimum(pull):
    problem = ol.robust(pull, TARGETS, weights=[0.5, 0.25, 0.25])
    solution = ol.solve(problem)
    assert solution.certificate.converged
    for target in TARGETS["target"]:
        own = ol.solve(pull.with_parameters(target=target), starts=1)
        mean = ol.evaluate(problem, own.schedule).objective
        each = [
            ol.evaluate(pull.with_parameters(target=t), own.schedule).objective for t in TARGETS["target"]
        ]
        assert mean == pytest.approx(np.dot([0.5, 0.25, 0.25], each), rel=1e-9)
        assert solution.objective <= mean + 1e-9


@pytest.mark.parametrize("method", ["direct", "indirect"])
def test_the_worst_case_is_where_the_weights_say(pull, method):
    problem = ol.robust(pull, TARGETS, risk="worst")
    solution = ol.solve(problem, method=method)
    assert solution.certificate.converged
    each = [
        ol.evaluate(pull.with_parameters(target=t), solution.schedule).objective for t in TARGETS["target"]
    ]
    assert solution.objective == pytest.approx(max(each), abs=1e-9)
    assert sum(solution.weights) == pytest.approx(1)
    # The outer targets are active, the one between them is slack.
    np.testing.assert_allclose(solution.weights, [0.481006, 0.0, 0.518994], atol=1e-5)
    assert each[0] == pytest.approx(each[2], abs=1e-6)
    assert each[1] < each[0] - 0.1
    rng = np.random.default_rng(0)
    won = [
        solution.objective - ol.evaluate(problem, perturbed(solution.schedule, "force", 0, 2, rng)).objective
        for _ in range(10)
    ]
    assert max(won) <= solution.certificate.may_still_be_won + 1e-9


def test_cvar_goes_from_the_mean_to_the_worst(pull):
    found = [
        ol.solve(ol.robust(pull, TARGETS, risk=risk), method="direct", starts=1)
        for risk in ("mean", ol.CVaR(0.2), ol.CVaR(0.5), "worst")
    ]
    objectives = [solution.objective for solution in found]
    assert objectives == sorted(objectives)
    # With three members of equal weight, the worst 80 % are capped at 1/2.4 each.
    assert max(found[1].weights) == pytest.approx(1 / 2.4, abs=1e-6)
    same = ol.robust(pull, TARGETS, risk=ol.CVaR(0.0))
    assert ol.solve(same, method="direct", starts=1).objective == pytest.approx(objectives[0], abs=1e-12)


def test_members_may_differ_in_start_and_be_problems(pull):
    starts = ol.robust(pull, {"start": [{"height": 0.0}, {"height": 0.4}]})
    assert starts.model.layout.names == ("height_1", "height_2")
    np.testing.assert_array_equal(starts.flat_start, [0.0, 0.4])
    problems = [pull, pull.with_parameters(target=1.8)]
    listed, grid = ol.robust(problems), ol.robust(pull, {"target": [1.0, 1.8]})
    schedule = ol.Schedule.constant(2.0, {"force": 0.7})
    assert ol.evaluate(listed, schedule).objective == pytest.approx(ol.evaluate(grid, schedule).objective)
    both = ol.robust(pull, {"target": [1.0, 1.8], "decay": [0.1, 0.3]})
    assert len(both.model.members) == 4
    trajectory = ol.evaluate(grid, schedule)
    assert trajectory["error"][-1] == pytest.approx((trajectory["error_1"] + trajectory["error_2"])[-1] / 2)


def test_draws_have_the_mean_and_the_spread_of_a_fit(pull):
    covariance = np.array([[0.04, 0.01], [0.01, 0.09]])
    found = ol.draws({"target": 1.0, "decay": 0.3}, covariance, count=2001)
    rows = np.array([list(row.values()) for row in found])
    np.testing.assert_allclose(rows.mean(axis=0), [1.0, 0.3], atol=1e-12)
    np.testing.assert_allclose(np.cov(rows.T), covariance, atol=0.01)
    assert len(ol.robust(pull, ol.draws({"target": 1.0}, [[0.01]], 4)).model.members) == 4
    for arguments, message in (
        (({"target": 1.0}, np.eye(2)), "covariance must be a symmetric 1 by 1 matrix"),
        (({"target": 1.0}, [[-1.0]]), "covariance must be positive, got the eigenvalue -1"),
        (({"target": 1.0}, [[1.0]], 0), "count must be a whole number of at least 1, got 0"),
    ):
        with pytest.raises(SpecificationError, match=message):
            ol.draws(*arguments)


def test_a_solution_of_an_ensemble_goes_through_a_file(pull, tmp_path):
    problem = ol.robust(pull, {"target": [0.5, 1.8]}, risk="worst")
    solution = ol.solve(problem, method="direct", starts=1)
    loaded = ol.load(solution.save(tmp_path / "worst.nc"), problem=problem)
    assert loaded.weights == solution.weights
    assert loaded.objective == solution.objective
    other = ol.robust(pull, {"target": [0.5, 1.8]}, weights=[0.3, 0.7], risk="worst")
    with pytest.raises(SpecificationError, match=r"weights\[0\] is 0.5 there and 0.3 here"):
        ol.load(tmp_path / "worst.nc", problem=other)


def test_what_is_no_ensemble(pull):
    other = ol.Problem(
        model=pull.model, start={"height": 0.0}, horizon=2.0, controls={"decay": ol.Continuous(0, 1)}
    )
    for arguments, message in (
        (([],), "an ensemble must have at least one member, got none"),
        ((pull, {"target": []}), "over must give at least one member"),
        ((pull, []), "over must give at least one member"),
        (([pull, other],), "all members must have the same controls"),
        ((pull, {"target": [1, 2]}, [0.5, 0.6]), "weights must be 2 numbers of at least 0 that sum to 1"),
        ((pull, {"target": [1, 2]}, [1.0]), "weights must be 2 numbers"),
        ((pull, {"colour": [1, 2]}), "no parameter 'colour'"),
        ((pull, {"force": [1, 2]}), "must name parameters that are not optimised, got 'force'"),
        ((pull, {"target": 1.0}), r"over\['target'\] must be a list, got 1.0"),
        ((pull, {"target": [1.0]}, None, "best"), "risk must be 'mean', 'worst' or a CVaR, got 'best'"),
    ):
        with pytest.raises(SpecificationError, match=message):
            ol.robust(*arguments)
    with pytest.raises(SpecificationError, match="level must be from 0 to 1, got 2"):
        ol.CVaR(2)


def test_weights_are_projected_and_worst():
    weighing = Weighing((0.6, 0.6, 1.0), (2.0,), (False,), (2.0,))
    costs = np.array([3.0, 1.0, 2.0, 2.5])
    np.testing.assert_allclose(weighing.weights(costs), [0.6, 0.0, 0.4, 0.0])
    assert weighing.value(costs) == pytest.approx(2.6)
    assert weighing.excess(costs) == pytest.approx(0.25)
    rng = np.random.default_rng(1)
    for _ in range(20):
        y = rng.standard_normal(4)
        p = weighing.nearest(y)
        assert p[:3].sum() == pytest.approx(1)
        assert np.all(p >= 0)
        assert np.all(p[:3] <= np.array(weighing.caps) + 1e-12)
        trial = weighing.nearest(rng.standard_normal(4))
        # The nearest point makes an obtuse angle with every other one.
        assert (y - p) @ (trial - p) <= 1e-9
    near = Proximal(weighing, p, np.full(4, 0.7))
    slope = [(near.value(costs + h) - near.value(costs - h)) / 2e-6 for h in 1e-6 * np.eye(4)]
    np.testing.assert_allclose(slope, near.weights(costs), atol=1e-6)


@pytest.mark.slow
def test_dropout_over_the_noise_of_labels():
    plain = ol.scenarios.dropout()
    over = {"sigma_n": [0.1, 0.3, 0.5]}
    problem = ol.robust(plain, over, risk="worst")
    solution = ol.solve(problem, starts=2)
    assert solution.certificate.converged
    errors = [solution.trajectory[f"error_{i}"][-1] for i in (1, 2, 3)]
    # More noise is always worse: the noisiest member is active, the others are slack.
    assert np.argmax(errors) == 2
    assert solution.objective == pytest.approx(errors[2], abs=1e-9)
    np.testing.assert_allclose(solution.weights, [0, 0, 1], atol=1e-6)
    rng = np.random.default_rng(0)
    for _ in range(200):
        trial = perturbed(solution.schedule, "activation", 0, 1, rng)
        rescaling = float(np.clip(solution.parameters["rescaling"] + 0.1 * rng.standard_normal(), 0, 1))
        worse = ol.evaluate(problem, trial, {"rescaling": rescaling}, record=2).objective
        assert worse >= solution.objective - solution.certificate.may_still_be_won - 1e-9
    solution.plot()
    mean = ol.solve(ol.robust(plain, over), starts=1)
    for sigma in over["sigma_n"]:
        own = ol.solve(plain.with_parameters(sigma_n=sigma), starts=1)
        there = ol.evaluate(mean.problem, own.schedule, dict(own.parameters), record=2).objective
        assert mean.objective <= there + 1e-9


def test_the_regret_of_planning_for_another_world(pull):
    found = ol.regret(pull, {"target": [0.5, 1.0, 1.8]}, method="direct", starts=1)
    assert found.labels == ("target = 0.5", "target = 1", "target = 1.8")
    np.testing.assert_allclose(np.diag(found.matrix), 0.0)
    assert np.all(found.matrix >= -1e-9)
    assert found.matrix[0, 2] > found.matrix[1, 2] > 0.01
    assert found.plot().get_xlabel() == "applied at"
