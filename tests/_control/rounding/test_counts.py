"""Rounding: counts are met exactly, running totals follow the shares, limits are respected."""

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from optlearn._control.budgets import Budget
from optlearn._control.controls import Discrete
from optlearn._control.rounding.counts import (
    check_limits,
    limit_switches,
    nearest_counts,
    repair,
    shortest_phase,
    sum_up,
    switches,
    value_counts,
    whole_numbers,
)
from optlearn._errors import SpecificationError

TWO, THREE = Discrete((0.0, 2.0)), Discrete((0.0, 1.0, 2.0))


def random_shares(intervals: int, n: int, seed: int, spread: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(n, spread), intervals)


def rounded_totals(shares: np.ndarray) -> np.ndarray:
    """Whole numbers near the totals of shares (I, n), with the sum I."""
    edges = np.round(np.concatenate([[0.0], np.cumsum(shares.sum(axis=0))])).astype(int)
    edges[-1] = len(shares)
    return np.diff(edges)


@given(
    intervals=st.integers(1, 60),
    n=st.integers(2, 4),
    seed=st.integers(0, 10_000),
    spread=st.sampled_from([0.1, 1.0, 10.0]),
    dwell=st.integers(1, 8),
)
def test_counts_are_met_exactly(intervals: int, n: int, seed: int, spread: float, dwell: int) -> None:
    shares = random_shares(intervals, n, seed, spread)
    # Any counts, also ones that have nothing to do with the shares.
    counts = np.random.default_rng(seed + 1).multinomial(intervals, np.ones(n) / n)
    for wanted in (counts, rounded_totals(shares)):
        chosen = sum_up(shares, wanted, dwell)
        np.testing.assert_array_equal(np.bincount(chosen, minlength=n), wanted)


@given(intervals=st.integers(4, 40), n=st.integers(3, 5), seed=st.integers(0, 10_000))
def test_counts_of_some_values_are_met_exactly(intervals: int, n: int, seed: int) -> None:
    shares = random_shares(intervals, n, seed, 0.3)
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(intervals, np.ones(n) / n)
    known = rng.uniform(size=n) < 0.6
    chosen = sum_up(shares, np.where(known, counts, -1))
    np.testing.assert_array_equal(np.bincount(chosen, minlength=n)[known], counts[known])


# Known bounds of sum-up rounding: 1/2 for two values, 1/2 + 1/3 + … for more.
BOUNDS = {2: 1 / 2, 3: 1 / 2 + 1 / 3, 4: 1 / 2 + 1 / 3 + 1 / 4}


@given(
    intervals=st.integers(1, 80),
    n=st.integers(2, 4),
    seed=st.integers(0, 10_000),
    spread=st.sampled_from([0.1, 1.0, 10.0]),
)
def test_running_totals_follow_the_shares(intervals: int, n: int, seed: int, spread: float) -> None:
    shares = random_shares(intervals, n, seed, spread)
    chosen = sum_up(shares, np.full(n, -1))
    drift = np.cumsum(shares - np.eye(n)[chosen], axis=0)
    assert np.abs(drift).max() <= BOUNDS[n] + 1e-12
    # With counts, which fix the totals at the end, by at most one interval more.
    chosen = sum_up(shares, rounded_totals(shares))
    drift = np.cumsum(shares - np.eye(n)[chosen], axis=0)
    assert np.abs(drift).max() <= BOUNDS[n] + 1


@given(intervals=st.integers(20, 80), seed=st.integers(0, 10_000), dwell=st.integers(2, 8))
def test_dwell_is_respected_without_counts(intervals: int, seed: int, dwell: int) -> None:
    chosen = sum_up(random_shares(intervals, 3, seed), np.full(3, -1), dwell)
    assert shortest_phase(chosen) >= dwell


def test_pure_shares_stay() -> None:
    levels = np.array([0, 0, 1, 2, 2, 2, 1, 0])
    counts = np.bincount(levels)
    np.testing.assert_array_equal(sum_up(np.eye(3)[levels], counts), levels)


@given(seed=st.integers(0, 10_000), n=st.integers(2, 4), most=st.integers(0, 6))
def test_limit_switches(seed: int, n: int, most: int) -> None:
    chosen = np.random.default_rng(seed).integers(0, n, 30)
    limited = limit_switches(chosen, most)
    assert switches(limited) <= most
    assert set(limited) <= set(chosen)
    if switches(chosen) <= most:
        np.testing.assert_array_equal(limited, chosen)


def test_limit_switches_drops_the_shortest_phases() -> None:
    chosen = np.array([0] * 5 + [1] * 1 + [0] * 4 + [1] * 6 + [0] * 2)
    np.testing.assert_array_equal(limit_switches(chosen, 2), [0] * 10 + [1] * 6 + [0] * 2)
    np.testing.assert_array_equal(limit_switches(chosen, 1), [0] * 10 + [1] * 8)


@given(seed=st.integers(0, 10_000), n=st.integers(2, 3))
def test_repair_meets_the_counts_by_moving_edges(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    before = limit_switches(rng.integers(0, n, 40), 5)
    assume(len(set(before)) == n)
    counts = rng.multinomial(40 - 3 * n, np.ones(n) / n) + 3
    # With two values edges always help; with three, values in need may not be neighbours.
    after = repair(before, counts, rng.normal(size=(40, n)))
    assert switches(after) <= switches(before)
    missing = np.abs(np.bincount(after, minlength=n) - counts).sum()
    assert missing <= np.abs(np.bincount(before, minlength=n) - counts).sum()
    if n == 2:
        assert missing == 0


def test_repair_moves_the_cheapest_edge() -> None:
    cost = np.zeros((6, 2))
    cost[1, 1], cost[4, 1] = 5.0, 1.0  # interval 1 is dear at value 1, interval 4 is cheap
    found = repair(np.array([0, 0, 1, 1, 0, 0]), np.array([3, 3]), cost)
    np.testing.assert_array_equal(found, [0, 0, 1, 1, 1, 0])


@given(seed=st.integers(0, 10_000), intervals=st.integers(1, 60))
def test_whole_numbers_keep_the_running_totals(seed: int, intervals: int) -> None:
    values = np.random.default_rng(seed).uniform(1, 9, intervals)
    found = whole_numbers(values)
    np.testing.assert_array_equal(found, np.round(found))
    assert np.abs(np.cumsum(found) - np.cumsum(values)).max() <= 0.5 + 1e-6
    # Each is one of the two neighbours, so whole bounds are kept.
    assert np.all((found >= np.floor(values)) & (found <= np.ceil(values)))


def test_whole_numbers_keep_a_whole_sum() -> None:
    values = np.random.default_rng(0).uniform(1, 9, 120)
    values *= 600 / values.sum()
    assert whole_numbers(values).sum() == 600


@given(seed=st.integers(0, 10_000))
def test_whole_numbers_within_bounds_keep_the_sum(seed: int) -> None:
    values = np.random.default_rng(seed).uniform(1.5, 4.5, 30)
    found = whole_numbers(values, (2.0, 4.0))
    assert found.min() >= 2
    assert found.max() <= 4
    assert found.sum() == whole_numbers(values).sum()


# --- counts from budgets ----------------------------------------------------------------------------


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


def test_limits_that_contradict_the_counts() -> None:
    half = np.array([5, 5])
    with pytest.raises(SpecificationError, match="needs 2 different values, but max_switches is 0"):
        check_limits("d", Discrete((0.0, 2.0), max_switches=0), half, 1)
    with pytest.raises(SpecificationError, match="less training time than min_dwell = 3"):
        check_limits("d", Discrete((0.0, 2.0), min_dwell=3.0), half, 6)
    check_limits("d", Discrete((0.0, 2.0), max_switches=0), np.array([10, 0]), 1)
    check_limits("d", Discrete((0.0, 2.0), min_dwell=3.0), np.array([7, 3]), 6)  # the short one last


def test_phases() -> None:
    assert switches(np.array([0, 0, 1, 1, 0])) == 2
    assert switches(np.array([1, 1])) == 0
    # The last phase ends with training: its length does not count.
    assert shortest_phase(np.array([0, 0, 0, 1, 1, 0])) == 2
    assert shortest_phase(np.array([0, 0, 0])) == 3
