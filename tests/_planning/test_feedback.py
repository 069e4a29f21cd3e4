import numpy as np
import pytest

import optlearn as ol
from optlearn._errors import SpecificationError


def test_feedback_answers_as_planning_again_does(pull):
    """The second variation: gains are the derivative of the optimal control in the state."""
    solved = ol.solve(pull, method="direct", starts=1)
    law = solved.feedback()
    assert law.gains.shape == (10, 1, 1)
    for at in (0.0, 1.0):
        there = solved.trajectory.at(at)["height"]
        slopes = []
        for size in (1e-3, -1e-3):
            again = solved.replan(at=at, state={"height": there + size}, method="direct")
            slopes.append(again.schedule["force"][0])
        assert law.gains[round(at / 0.2), 0, 0] == pytest.approx((slopes[0] - slopes[1]) / 2e-3, rel=1e-4)
        assert law(at, {"height": there})["force"] == pytest.approx(solved.schedule.at(at)["force"])
        # Corrections stop at the bounds.
        assert law(at, np.array([there + 100.0]))["force"] == 0.0
        assert law(at, np.array([there - 100.0]))["force"] == 2.0


def test_feedback_of_a_committee():
    problem = ol.scenarios.learning_rate(K=1, M=1, sigma_n=0.3, alpha_F=5.0)
    solved = ol.solve(problem, intervals=10, method="direct", starts=1)
    law = solved.feedback()
    interval = 5
    at = solved.schedule.grid[interval]
    state = np.array([float(v) for v in solved.trajectory.at(at).values()])
    step = np.array([1e-4, -1e-4])
    higher, lower = (
        solved.replan(at=at, state=state + s, method="direct").schedule["learning_rate"][0]
        for s in (step, -step)
    )
    assert law.gains[interval, 0] @ step == pytest.approx((higher - lower) / 2, rel=1e-3)


def test_where_there_is_no_linear_feedback(pull):
    discrete = ol.Problem(
        model=pull.model, start={"height": 0.0}, horizon=1, controls={"force": ol.Discrete([0, 1])}
    )
    with pytest.raises(SpecificationError, match="continuous controls, and this problem has none"):
        ol.solve(discrete, intervals=4, starts=1).feedback()
    tied = ol.Problem(
        model=pull.model,
        start={"height": 0.0},
        horizon=1,
        controls={"force": ol.Continuous(0, 1)},
        budgets=(ol.Budget("force", mean=0.5),),
    )
    with pytest.raises(SpecificationError, match="would break the budget of 'force'"):
        ol.solve(tied, intervals=4, starts=1).feedback()
    law = ol.solve(pull, method="direct", starts=1).feedback()
    with pytest.raises(SpecificationError, match="alpha must be a training time from 0 to 2, got 3"):
        law(3.0, {"height": 0.0})
    with pytest.raises(SpecificationError, match="feedback: alpha must be a finite number, got 'a'"):
        law("a", {"height": 0.0})
    with pytest.raises(SpecificationError, match="feedback: state must give all of height; it lacks height"):
        law(1.0, {})
    with pytest.raises(SpecificationError, match="feedback: state must be 1 finite numbers"):
        law(1.0, np.ones(7))
