"""Budgets: rows, violations, and what is said of schedules that break them."""

import numpy as np
import pytest

from optlearn._control.budgets import Budget, budget_rows
from optlearn._control.controls import Continuous, Control, Discrete
from optlearn._schedule import Schedule

EASY_OR_HARD = Discrete((0.0, 2.0))
HALF = Budget("difficulty", share={0.0: 0.5})


def error(budget: Budget, control: Control, w: np.ndarray) -> float:
    blocks = {budget.control: slice(0, control.size)}
    return budget_rows([budget], {budget.control: control}, blocks).error(w)


def test_error_is_zero_for_exact_shares() -> None:
    rng = np.random.default_rng(0)
    for intervals in (2, 14, 98, 240):
        w = rng.permutation(np.repeat([0.0, 1.0], intervals // 2))[:, None]
        assert error(HALF, EASY_OR_HARD, w) == 0.0
    assert error(HALF, EASY_OR_HARD, np.ones((10, 1))) == pytest.approx(0.5)


def test_an_upper_bound_counts_excess_only() -> None:
    at_most = Budget("difficulty", share={0.0: 0.5}, sense="at most")
    assert error(at_most, EASY_OR_HARD, np.zeros((10, 1))) == 0.0
    assert error(at_most, EASY_OR_HARD, np.full((10, 1), 0.75)) == pytest.approx(0.25)
    np.testing.assert_allclose(at_most.violation(np.array([0.2, 0.7]), 0.5), [0.0, 0.2])
    np.testing.assert_allclose(HALF.violation(np.array([0.2, 0.7]), 0.5), [0.3, 0.2])


def test_no_budgets_no_error() -> None:
    rows = budget_rows([], {"noise": Continuous(0, 1)}, {"noise": slice(0, 1)})
    assert rows.rows.shape == (0, 1)
    assert rows.error(np.full((10, 1), 0.3)) == 0.0


def test_shares_of_all_values_give_one_row_less() -> None:
    budget = Budget("difficulty", share={2.0: 0.25, 0.0: 0.75})
    rows, targets, equal = budget_rows([budget], {"difficulty": EASY_OR_HARD}, {"difficulty": slice(0, 1)})
    np.testing.assert_array_equal(rows, [[1.0]])
    np.testing.assert_array_equal(targets, [0.75])
    assert equal.all()


def test_what_a_schedule_breaks() -> None:
    half = Schedule.piecewise([0.0, 1.0, 7.0, 12.0], {"difficulty": [0.0, 2.0, 0.0]})
    assert HALF.broken(half) == []
    assert HALF.broken(Schedule.mixed([0.0, 12.0], {"difficulty": {0.0: 0.5, 2.0: 0.5}})) == []
    less = Schedule.piecewise([0.0, 1.0, 10.0, 12.0], {"difficulty": [0.0, 2.0, 0.0]})
    assert HALF.broken(less) == ["share of difficulty = 0 is 0.25, the budget 0.5"]
    assert Budget("difficulty", share={0.0: 0.5}, sense="at most").broken(less) == []
    assert Budget("difficulty", mean=1.0, sense="at most").broken(less) == [
        "mean difficulty is 1.5, the budget at most 1"
    ]
