"""Schedules: construction, validation, lookup, mixtures, merging."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optlearn._errors import SpecificationError
from optlearn._schedule import Mixture, Schedule, uniform_grid


def test_constant():
    schedule = Schedule.constant(3.0, {"noise": 0.25, "batch": 4})
    np.testing.assert_array_equal(schedule.grid, [0, 3])
    assert schedule.controls == ("noise", "batch")
    assert (schedule.horizon, schedule.intervals) == (3.0, 1)
    assert schedule["noise"] == 0.25
    assert schedule["batch"].dtype == float


def test_piecewise_at_edges():
    schedule = Schedule.piecewise([0, 1, 3], {"noise": [0.1, 0.2]})
    for alpha, value in [(0, 0.1), (0.99, 0.1), (1, 0.2), (2, 0.2), (3, 0.2)]:
        assert schedule.at(alpha)["noise"] == value, alpha
    np.testing.assert_array_equal(
        schedule.at(np.array([[0.5, 1.0], [1.5, 3.0]]))["noise"], [[0.1, 0.2], [0.2, 0.2]]
    )
    assert schedule.horizon == 3


def test_from_function_samples_midpoints():
    schedule = Schedule.from_function(2.0, {"noise": lambda a: a**2, "batch": np.exp}, intervals=4)
    middles = np.array([0.25, 0.75, 1.25, 1.75])
    np.testing.assert_allclose(schedule.grid, [0, 0.5, 1, 1.5, 2])
    np.testing.assert_allclose(schedule["noise"], middles**2)
    np.testing.assert_allclose(schedule["batch"], np.exp(middles))


def test_mixed_means_and_variants():
    schedule = Schedule.mixed(
        [0, 1, 2],
        {"difficulty": {0.0: [0.25, 1.0], 2.0: [0.75, 0.0]}, "batch": {1.0: 0.5, 3.0: 0.5}},
        {"noise": [0.1, 0.2]},
    )
    assert schedule.controls == ("noise", "difficulty", "batch")
    np.testing.assert_allclose(schedule["difficulty"], [1.5, 0])
    np.testing.assert_allclose(schedule["batch"], [2, 2])
    assert schedule.at(1.0)["difficulty"] == 0
    variants = list(schedule.variants())
    assert len(variants) == 4
    np.testing.assert_allclose(sum(shares for shares, _ in variants), np.ones(2))
    for shares, values in variants:
        np.testing.assert_array_equal(values["noise"], [0.1, 0.2])
        easy = 1 if values["difficulty"][0] == 0 else 0
        np.testing.assert_allclose(shares, 0.5 * np.array([0.25 if easy else 0.75, easy]))
    means = sum(shares * values["difficulty"] for shares, values in variants)
    np.testing.assert_allclose(means, schedule["difficulty"])


def test_variants_of_a_plain_schedule():
    ((shares, values),) = Schedule.piecewise([0, 1, 2], {"noise": [3, 4]}).variants()
    np.testing.assert_array_equal(shares, [1, 1])
    np.testing.assert_array_equal(values["noise"], [3, 4])


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([0.0], "at least two finite edges"),
        ([[0.0, 1.0]], "at least two finite edges"),
        ([0.0, np.nan], "at least two finite edges"),
        ([0.0, np.inf], "at least two finite edges"),
        ([1.0, 2.0], "start at 0 and increase"),
        ([0.0, 1.0, 1.0], "start at 0 and increase"),
        ([0.0, 2.0, 1.0], "start at 0 and increase"),
    ],
)
def test_wrong_edges(edges, message):
    with pytest.raises(SpecificationError, match=message):
        Schedule.piecewise(edges, {})
    with pytest.raises(SpecificationError, match=message):
        Schedule.mixed(edges, {"difficulty": {0.0: 1.0}})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0], r"'noise' has shape \(1,\); 3 edges need 2 values"),
        ([1.0, 2.0, 3.0], r"'noise' has shape \(3,\)"),
        (1.0, r"values\['noise'\] must be a list of numbers, got 1.0"),
        ([1.0, np.nan], "'noise' is nan in interval 1"),
        ([np.inf, 1.0], "'noise' is inf in interval 0"),
    ],
)
def test_wrong_values(values, message):
    with pytest.raises(SpecificationError, match=message):
        Schedule.piecewise([0, 1, 2], {"noise": values})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({0.0: 0.5, 2.0: 0.4}, "'difficulty': shares must be at least 0 and add up to 1"),
        ({0.0: [0.5, 1.5], 2.0: [0.5, -0.5]}, "at least 0 and add up to 1"),
        ({0.0: [0.5, np.nan], 2.0: [0.5, 0.5]}, "at least 0 and add up to 1"),
        ({0.0: [0.5, 0.5, 0.5], 2.0: 0.5}, "one share for each of the 2 intervals"),
        ({np.nan: 0.5, 2.0: 0.5}, "must be a finite number, got nan"),
        ({}, "at least one value"),
    ],
)
def test_wrong_shares(table, message):
    with pytest.raises(SpecificationError, match=message):
        Schedule.mixed([0, 1, 2], {"difficulty": table})


def test_a_control_is_either_mixed_or_not():
    with pytest.raises(SpecificationError, match="'noise' is given both"):
        Schedule.mixed([0, 1], {"noise": {0.0: 1.0}}, {"noise": [0.5]})


@pytest.mark.parametrize("alpha_F", [0.0, -1.0, np.nan, np.inf])
def test_wrong_horizon(alpha_F):
    with pytest.raises(SpecificationError, match="alpha_F"):
        Schedule.from_function(alpha_F, {"noise": float})
    with pytest.raises(SpecificationError):
        Schedule.constant(alpha_F, {"noise": 1.0})


@pytest.mark.parametrize("intervals", [0, -1, 2.5])
def test_wrong_intervals(intervals):
    with pytest.raises(SpecificationError, match="intervals"):
        uniform_grid(1.0, intervals)


class TestArrays:
    def test_are_copies_that_cannot_be_written_to(self):
        edges, values = np.array([0.0, 1.0, 2.0]), np.array([1.0, 2.0])
        schedules = Schedule.piecewise(edges, {"noise": values}), Schedule(edges, {"noise": values})
        edges[1], values[0] = 9.0, 9.0
        for schedule in schedules:
            np.testing.assert_array_equal(schedule.grid, [0, 1, 2])
            np.testing.assert_array_equal(schedule["noise"], [1, 2])
            for array in (schedule.grid, schedule["noise"]):
                with pytest.raises(ValueError, match="read-only"):
                    array[0] = 1.0

    def test_of_a_mixture_too(self):
        values, shares = np.array([0.0, 1.0]), np.array([[0.5, 0.5]])
        mixture = Mixture(values, shares)
        values[0], shares[0, 0] = 9.0, 9.0
        np.testing.assert_array_equal(mixture.values, [0, 1])
        np.testing.assert_array_equal(mixture.shares, [[0.5, 0.5]])
        with pytest.raises(ValueError, match="read-only"):
            mixture.shares[0, 0] = 1.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Schedule(np.array([0.0, 2.0, 1.0]), {"noise": np.ones(2)}), "start at 0 and increase"),
        (lambda: Schedule(np.array([0.0, 1.0]), {"noise": np.ones(2)}), "'noise' has shape"),
        (lambda: Schedule(np.array([0.0, 1.0]), {"noise": np.array([np.nan])}), "'noise' is nan"),
        (lambda: Schedule(np.array([0.0, 1.0]), {3: np.ones(1)}), "must be text, got 3"),
        (
            lambda: Schedule(np.array([0.0, 1.0, 2.0]), {}, {"a": Mixture([0, 1], [[0.5, 0.5]])}),
            "'a' must have one share for each of the 2 intervals, got 1",
        ),
        (lambda: Mixture([0, 1], [[0.5, 0.6]]), "add up to 1 in every interval, got sums from 1.1"),
        (lambda: Mixture([0, 1], [[1.0]]), r"shape \(intervals, 2\)"),
        (lambda: Mixture([np.inf], [[1.0]]), "all finite"),
    ],
)
def test_the_bare_constructor_checks_too(make, message):
    with pytest.raises(SpecificationError, match=message):
        make()


def test_unknown_control():
    with pytest.raises(KeyError, match=r"no control 'batch' in this schedule; it has \['noise'\]"):
        Schedule.constant(1.0, {"noise": 1.0})["batch"]


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 2)), min_size=1),
    st.data(),
)
def test_merged_is_the_same_schedule(rows, data):
    # Few levels, so that neighbours are often equal.
    noise, batch, easy = np.array(rows, float).T
    steps = data.draw(st.lists(st.floats(0.1, 2), min_size=len(rows), max_size=len(rows)))
    grid = np.concatenate([[0.0], np.cumsum(steps)])
    schedule = Schedule.mixed(
        grid,
        {"difficulty": {0.0: easy / 2, 2.0: 1 - easy / 2}},
        {"noise": noise, "batch": batch},
    )
    merged = schedule.merged()
    assert merged.horizon == schedule.horizon
    changes = [a != b for a, b in zip(rows[1:], rows[:-1], strict=True)]
    assert merged.intervals == 1 + sum(changes)
    times = np.concatenate([grid, (grid[1:] + grid[:-1]) / 2, np.linspace(0, grid[-1], 50)])
    for name, course in schedule.at(times).items():
        np.testing.assert_array_equal(merged.at(times)[name], course)
