"""How many intervals each value gets."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optlearn._control.budgets import Budget
from optlearn._control.controls import Discrete
from optlearn._control.rounding.counts import nearest_counts, value_counts
from optlearn._errors import SpecificationError

TWO, THREE = Discrete((0.0, 2.0)), Discrete((0.0, 1.0, 2.0))


def test_value_counts() -> None:
    half = (Budget("d", share={0.0: 0.5}),)
    np.testing.assert_array_equal(value_counts("d", TWO, half, 240), [120, 120])
    np.testing.assert_array_equal(value_counts("d", THREE, half, 240), [120, -1, -1])
    np.testing.assert_array_equal(value_counts("other", TWO, half, 240), [-1, -1])
    third = (Budget("d", share={2.0: 1 / 3}),)
    np.testing.assert_array_equal(value_counts("d", TWO, third, 60), [40, 20])
    np.testing.assert_array_equal(value_counts("d", TWO, (Budget("d", mean=0.5),), 60), [45, 15])
    at_most = (Budget("d", share={0.0: 0.5}, sense="at most"),)
    np.testing.assert_array_equal(value_counts("d", TWO, at_most, 7), [-1, -1])


@pytest.mark.parametrize(
    ("budget", "intervals", "message"),
    [
        (Budget("d", share={0.0: 0.5}), 241, "241 intervals cannot hold.*0.5.*multiple of 2 "),
        (Budget("d", share={2.0: 1 / 3}), 100, "100 intervals cannot hold.*multiple of 3 "),
        (Budget("d", mean=0.5), 30, "30 intervals cannot hold.*multiple of 4 "),
    ],
)
def test_a_grid_that_cannot_hold_the_budget(budget: Budget, intervals: int, message: str) -> None:
    with pytest.raises(SpecificationError, match=message):
        value_counts("d", TWO, (budget,), intervals)


@given(seed=st.integers(0, 1000), sense=st.sampled_from(["equal", "at most"]))
def test_nearest_counts_are_the_nearest(seed: int, sense: str) -> None:
    """Against all possible counts."""
    rng = np.random.default_rng(seed)
    intervals = 12
    totals = intervals * rng.dirichlet(np.ones(3))
    mean = float(rng.integers(1, 24)) / intervals
    budgets = (Budget("d", mean=mean, sense=sense),)
    found = nearest_counts("d", THREE, budgets, totals)

    def allowed(counts: np.ndarray) -> bool:
        excess = counts @ THREE.values / intervals - mean
        return counts.sum() == intervals and (abs(excess) < 1e-9 or (sense == "at most" and excess < 0))

    options = [np.array(c) for c in product(range(intervals + 1), repeat=3) if allowed(np.array(c))]
    assert allowed(found)
    nearest = min(np.abs(c - totals).sum() for c in options)
    assert np.abs(found - totals).sum() == pytest.approx(nearest, abs=1e-9)


def test_upper_bounds_are_not_exceeded_by_rounding() -> None:
    budget = (Budget("d", share={0.0: 0.31}, sense="at most"),)
    found = nearest_counts("d", TWO, budget, np.array([3.1, 6.9]))
    np.testing.assert_array_equal(found, [3, 7])


def test_no_counts_meet_the_budgets() -> None:
    both = (Budget("d", share={0.0: 0.35, 2.0: 0.65}, sense="at most"),)
    with pytest.raises(SpecificationError, match="10 intervals cannot hold the budgets of 'd'"):
        nearest_counts("d", TWO, both, np.array([5.0, 5.0]))
    mean = (Budget("d", mean=0.55),)
    with pytest.raises(SpecificationError, match="cannot hold the budgets"):
        nearest_counts("d", THREE, mean, np.array([3.0, 4.0, 3.0]))
