import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import optlearn as ol
from optlearn._control.families import BestOf, least_between
from optlearn._control.problem import first_guess

FUNCTIONS = {
    "parabola": (lambda x: (x - 0.3) ** 2, 0.0, 1.0),
    "smooth": (np.cos, 1.0, 6.0),
    "steep on one side": (lambda x: x**3 - np.log(x), 1e-3, 7.0),
    "kink": (lambda x: abs(x - 0.7), 0.0, 1.0),
    "at the lower end": (lambda x: x, 0.0, 1.0),
    "at the upper end": (lambda x: -x, 0.0, 1.0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_minimum_and_number_of_trials_are_those_of_scipy(name):
    function, low, high = FUNCTIONS[name]
    tried = []

    def counted(x):
        tried.append(x)
        return float(function(x))

    found = least_between(counted, low, high, 1e-8)
    reference = minimize_scalar(function, bounds=(low, high), method="bounded", options={"xatol": 1e-8})
    # Near a smooth minimum round-off decides: half of all digits are right.
    assert found == pytest.approx(reference.x, abs=1e-7)
    assert len(tried) <= reference.nfev + 1
    assert all(low < x < high for x in tried)


def test_what_is_infinite_is_not_least():
    found = least_between(lambda x: np.inf if x < 0.5 else (x - 0.6) ** 2, 0.0, 1.0, 1e-8)
    assert found == pytest.approx(0.6, abs=1e-7)


def test_a_first_guess_is_searched_for_roughly_and_a_baseline_accurately():
    problem = ol.scenarios.selection(alpha_F=5.0)
    baseline = problem.baselines["best constant"]
    trials = []
    monitored = BestOf(lambda *arguments: trials.append(1) or baseline.family(*arguments), *baseline.bounds)
    (accurate,) = set(monitored(problem, 8)["threshold"])
    spent = len(trials)
    (rough,) = set(first_guess(monitored, problem, 8)["threshold"])
    assert len(trials) - spent < spent
    assert 1e-8 < abs(rough - accurate) < 0.02


def test_a_baseline_of_two_arguments_is_a_first_guess_as_it_is():
    problem = ol.scenarios.selection(alpha_F=5.0)
    schedule = first_guess(
        lambda problem, intervals: ol.Schedule.constant(5.0, {"threshold": 1.0}), problem, 8
    )
    assert schedule.horizon == 5.0
