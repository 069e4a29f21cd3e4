"""CasADi functions on arrays in place: the same numbers as an ordinary call."""

import casadi
import numpy as np
import pytest

from optlearn._engine.tracing.values import Buffered


@pytest.fixture
def function():
    x, y, none = casadi.SX.sym("x", 3, 4), casadi.SX.sym("y", 2), casadi.SX.sym("none", 0)
    return casadi.Function("f", [x, y, none], [casadi.sin(x) * y[0], casadi.sum1(x) + y[1]])


def test_rows_are_the_columns_of_an_ordinary_call(function):
    x, y = np.arange(12.0).reshape(4, 3), np.array([0.3, -2.0])
    expected = [np.array(result).T for result in function(x.T, y, [])]
    for found, wanted in zip(Buffered(function)(x, y, np.zeros(0)), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_results_stay_when_it_is_called_again(function):
    on = Buffered(function)
    first, _ = on(np.ones((4, 3)), np.ones(2), np.zeros(0))
    kept = first.copy()
    on(np.zeros((4, 3)), np.ones(2), np.zeros(0))
    np.testing.assert_array_equal(first, kept)


def test_two_of_one_function_do_not_share_memory(function):
    one, other = Buffered(function), Buffered(function)
    found, _ = one(np.ones((4, 3)), np.ones(2), np.zeros(0))
    other(np.zeros((4, 3)), np.ones(2), np.zeros(0))
    one.evaluate()
    np.testing.assert_array_equal(one.outputs[0], found)


def test_a_wrong_number_of_numbers_is_refused(function):
    with pytest.raises(ValueError, match="reshape"):
        Buffered(function)(np.ones(5), np.ones(2), np.zeros(0))
