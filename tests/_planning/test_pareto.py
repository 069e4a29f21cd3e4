from dataclasses import replace

import numpy as np
import pytest

import optlearn as ol
from optlearn._errors import SpecificationError

GROUPS = ({"target": 0.5}, {"target": 1.5})


@pytest.fixture
def reaching(pull):
    """The final error alone, and a target out of reach."""
    return replace(pull, objective=ol.Objective(), parameters={"target": 5.0})


@pytest.mark.parametrize("method", ["direct", "indirect"])
def test_a_front_is_monotone_and_known_by_hand(reaching, method):
    """Distance from the target against the mean force: what a mean force reaches is known."""
    goals = {"error": None, "force": ol.Objective.price(batch="force")}
    front = ol.pareto(reaching, goals, points=4, method=method, starts=1)
    error, force = front.values["error"], front.values["force"]
    assert np.all(np.diff(error) > 0)
    assert np.all(np.diff(force) < 0)
    assert all(solution.certificate.converged for solution in front.solutions)
    np.testing.assert_allclose(force, [2.0, 4 / 3, 2 / 3, 0.02], rtol=1e-5)
    # It decays by itself, so force counts most at the end: full force for the last part T f/2 of training.
    for e, f in zip(error[:3], force[:3], strict=True):
        height = 2 / 0.3 * (1 - np.exp(-0.3 * f))
        # Ten intervals hold no switch exactly: the optimum on the grid is a little worse.
        assert (5 - height) ** 2 <= e + 1e-6
        assert e == pytest.approx((5 - height) ** 2, rel=2e-3)


def test_a_limit_holds_and_its_weight_is_the_slope_of_the_front(reaching):
    def at(most):
        problem = replace(reaching, limits=(ol.Limit(ol.Objective.under({"target": 0.5}), most),))
        return ol.solve(problem, method="direct", starts=1)

    middle = at(0.1)
    assert middle.certificate.converged
    assert ol.Objective.under({"target": 0.5}).tests == ((1.0, (("target", 0.5),)),)
    slope = (at(0.101).objective - at(0.099).objective) / 0.002
    assert middle.weights[1] == pytest.approx(-slope, rel=1e-3)
    height = middle.trajectory["height"][-1]
    assert (height - 0.5) ** 2 == pytest.approx(0.1, abs=1e-7)


def test_the_worst_of_several_tests_and_the_gap_between_two(reaching):
    tests = [ol.Objective.under(group) for group in GROUPS]
    worst = ol.solve(ol.worst_of(reaching, tests), method="direct", starts=1)
    # Half way between both targets.
    assert worst.trajectory["height"][-1] == pytest.approx(1.0, abs=1e-6)
    assert worst.objective == pytest.approx(0.25, abs=1e-6)
    np.testing.assert_allclose(worst.weights, [0.5, 0.5], atol=1e-6)
    mean = replace(reaching, objective=ol.Objective.under(*GROUPS, weights=[0.9, 0.1]))
    assert ol.solve(mean, starts=1).trajectory["height"][-1] == pytest.approx(0.6, abs=1e-4)
    goals = {"error": None, "gap": ol.Objective.gap(*GROUPS)}
    front = ol.pareto(reaching, goals, points=3, method="direct", starts=1)
    # The gap of (h − 0.5)² and (h − 1.5)² is |2h − 2|.
    heights = [solution.trajectory["height"][-1] for solution in front.solutions]
    np.testing.assert_allclose(front.values["gap"], np.abs(2 * np.array(heights) - 2), atol=1e-6)
    highest = 2 / 0.3 * (1 - np.exp(-0.6))
    np.testing.assert_allclose(heights, 1 + (highest - 1) * np.array([1, 0.5, 0.01]), atol=1e-4)


def offset(x, u):
    """So that no objective is 0, of which nothing is a small share."""
    return 0.1


def test_an_average_over_training_may_be_limited(reaching):
    near = reaching.with_parameters(target=0.5)
    goals = {
        "final": ol.Objective(tests={"target": 2.0}, terminal=offset),
        "on the way": ol.Objective.average_error(),
    }
    front = ol.pareto(near, goals, points=3, method="direct")
    on_the_way = [
        ol.evaluate(replace(near, objective=ol.Objective.average_error()), solution.schedule).objective
        for solution in front.solutions
    ]
    np.testing.assert_allclose(front.values["on the way"], on_the_way, rtol=1e-7)
    assert np.all(np.diff(front.values["final"]) > 0)


def test_what_is_no_front(reaching):
    samples = ol.Objective.price(batch="force")
    for goals, message in (
        ({"error": None}, "objectives must be two, got 1"),
        ({"error": None, "size": "samples"}, r"objectives\['size'\] must be an Objective, a list or None"),
        ({"error": None, "none": []}, r"objectives must be of ol.Objective, got \[\]"),
    ):
        with pytest.raises(SpecificationError, match=message):
            ol.pareto(reaching, goals)
    with pytest.raises(SpecificationError, match="must be a whole number of at least 2"):
        ol.pareto(reaching, {"error": None, "force": samples}, points=1)
    with pytest.raises(SpecificationError, match="must be in conflict, got two with a common minimum"):
        ol.pareto(reaching, {"error": None, "same": None}, points=3, method="direct", starts=1)
    with pytest.raises(SpecificationError, match="Pull has no parameter 'colour'"):
        replace(reaching, objective=ol.Objective.under({"colour": 1.0}))
    for tests in (3, [{"target": 1.0}], {"target": "far"}):
        with pytest.raises(SpecificationError, match="tests must be a mapping of settings, or pairs"):
            ol.Objective(tests=tests)
    with pytest.raises(SpecificationError, match="has no limit of its own"):
        replace(reaching, limits=(ol.Limit(samples, 1.0),))


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["batch_size", "imbalance"])
def test_fronts_of_scenarios_are_monotone_from_two_starts(scenario):
    if scenario == "batch_size":
        problem = replace(ol.scenarios.batch_size(K=1, M=1, alpha_F=5.0), budgets=())
        goals = {"error": None, "samples": ol.Objective.price()}
    else:
        problem = ol.scenarios.imbalance(objective="mean")
        goals = {
            "majority": ol.Objective.under({"test_share": 0.0}),
            "minority": ol.Objective.under({"test_share": 1.0}),
        }
    front = ol.pareto(problem, goals, points=6, intervals=12)
    first, second = front.values.values()
    assert np.all(np.diff(first) > -1e-9)
    assert np.all(np.diff(second) < 0)
    for solution in front.solutions:
        assert solution.certificate.converged
        assert solution.certificate.starts.tried >= 2
