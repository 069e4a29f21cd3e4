import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from optlearn.scenarios._best_of_family import least_between

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
