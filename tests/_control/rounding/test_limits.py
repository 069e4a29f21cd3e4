"""Limits on switches and dwell."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from optlearn._control.controls import Discrete
from optlearn._control.rounding.counts import check_limits, limit_switches, repair, shortest_phase, switches
from optlearn._errors import SpecificationError


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


def test_limits_that_contradict_the_counts() -> None:
    half = np.array([5, 5])
    with pytest.raises(SpecificationError, match="needs 2 different values, but max_switches is 0"):
        check_limits("d", Discrete((0.0, 2.0), max_switches=0), half, 1)
    with pytest.raises(SpecificationError, match="less training time than min_dwell = 3"):
        check_limits("d", Discrete((0.0, 2.0), min_dwell=3.0), half, 6)
    check_limits("d", Discrete((0.0, 2.0), max_switches=0), np.array([10, 0]), 1)
    with pytest.raises(SpecificationError, match="less training time than min_dwell = 3"):
        check_limits("d", Discrete((0.0, 2.0), min_dwell=3.0), np.array([7, 3]), 6)  # nor at the end


def test_phases() -> None:
    assert switches(np.array([0, 0, 1, 1, 0])) == 2
    assert switches(np.array([1, 1])) == 0
    assert shortest_phase(np.array([0, 0, 0, 1, 1])) == 2
    assert shortest_phase(np.array([0, 0, 0, 1, 1, 0])) == 1  # the last one counts too
    assert shortest_phase(np.array([0, 0, 0])) == 3
