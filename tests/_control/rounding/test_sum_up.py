"""Sum-up rounding: counts are met exactly, running totals follow the shares."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from optlearn._control.rounding.counts import shortest_phase, sum_up, whole_numbers


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
