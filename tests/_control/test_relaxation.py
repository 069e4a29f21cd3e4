"""Relaxed control vectors: their places, their budgets, and the way to schedules and back."""

from typing import Any

import numpy as np
import pytest

from optlearn import models
from optlearn._control.budgets import Budget
from optlearn._control.controls import Continuous, Discrete
from optlearn._control.problem import Problem
from optlearn._control.relaxation import Relaxation
from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule

THREE = Discrete((0.0, 1.0, 2.0))
RATES = Discrete((1.0, 4.0))
DECAY = Continuous(0.0, 0.5)


def relaxation(controls: dict[str, Any], *budgets: Budget) -> Relaxation:
    model = models.curriculum()
    return Relaxation(
        Problem(
            model=model,
            start=model.state(Q11=1.0, Q22=1.0),
            horizon=6.0,
            controls=controls,
            budgets=budgets,
        )
    )


# Discrete controls are given first, yet continuous ones come first in w.
MIXED = {"difficulty": THREE, "learning_rate": RATES, "weight_decay": DECAY}


def test_places_and_bounds() -> None:
    relaxed = relaxation(MIXED)
    assert relaxed.controls == ("weight_decay", "difficulty", "learning_rate")
    assert relaxed.blocks == {
        "weight_decay": slice(0, 1),
        "difficulty": slice(1, 3),
        "learning_rate": slice(3, 4),
    }
    assert relaxed.size == 4
    low, high = relaxed.bounds
    np.testing.assert_array_equal(low, [0, 0, 0, 0])
    np.testing.assert_array_equal(high, [0.5, 1, 1, 1])
    # Only a control with more than two values needs its shares to add up.
    np.testing.assert_array_equal(relaxed.share_sums, [[0, 1, 1, 0]])
    assert relaxation({"learning_rate": RATES}).share_sums.shape == (0, 1)


BUDGETS = {
    "mean of a continuous control": (
        Budget("weight_decay", mean=0.2),
        lambda decay, shares, rate: decay,
        0.2,
    ),
    "mean of a discrete control": (
        Budget("difficulty", mean=0.9),
        lambda decay, shares, rate: shares @ [0.0, 1.0, 2.0],
        0.9,
    ),
    "share of the first value": (
        Budget("difficulty", share={0.0: 0.4}),
        lambda decay, shares, rate: shares[:, 0],
        0.4,
    ),
    "share of the second value": (
        Budget("difficulty", share={1.0: 0.4}),
        lambda decay, shares, rate: shares[:, 1],
        0.4,
    ),
    "share of the last value": (
        Budget("difficulty", share={2.0: 0.3}),
        lambda decay, shares, rate: shares[:, 2],
        0.3,
    ),
    "at most, last of two values": (
        Budget("learning_rate", share={4.0: 0.3}, sense="at most"),
        lambda decay, shares, rate: rate,
        0.3,
    ),
}


@pytest.mark.parametrize("name", BUDGETS)
def test_budget_rows_measure_the_budget(name: str) -> None:
    budget, quantity, target = BUDGETS[name]
    relaxed = relaxation(MIXED, budget)
    rows, targets, equal = relaxed.budget_rows
    assert rows.shape == (1, 4)
    assert equal.tolist() == [budget.sense == "equal"]
    rng = np.random.default_rng(0)
    decay, shares = rng.uniform(0, 0.5, 20), rng.dirichlet(np.ones(3), 20)
    fast = rng.uniform(size=20)
    w = np.column_stack([decay, shares[:, :2], 1 - fast])
    excess = w @ rows[0] - targets[0]
    np.testing.assert_allclose(excess, quantity(decay, shares, fast) - target, atol=1e-14)


def test_shares_of_all_values_give_one_row_less() -> None:
    rows, targets, _ = relaxation(
        MIXED, Budget("difficulty", share={0.0: 0.4, 1.0: 0.35, 2.0: 0.25})
    ).budget_rows
    np.testing.assert_array_equal(rows, [[0, 1, 0, 0], [0, 0, 1, 0]])
    np.testing.assert_array_equal(targets, [0.4, 0.35])


def test_upper_bounds_on_all_values_all_count() -> None:
    rows, targets, equal = relaxation(
        {"learning_rate": RATES}, Budget("learning_rate", share={1.0: 0.6, 4.0: 0.6}, sense="at most")
    ).budget_rows
    # share ≤ 0.6, and 1 − share ≤ 0.6.
    np.testing.assert_array_equal(rows, [[1], [-1]])
    np.testing.assert_allclose(targets, [0.6, -0.4])
    assert not equal.any()


def test_no_budgets() -> None:
    rows, targets, equal = relaxation(MIXED).budget_rows
    assert rows.shape == (0, 4)
    assert targets.shape == equal.shape == (0,)


def test_shares_to_schedule_and_back() -> None:
    relaxed = relaxation(MIXED)
    rng = np.random.default_rng(1)
    w = np.column_stack([rng.uniform(0, 0.5, 7), rng.dirichlet(np.ones(3), 7)[:, :2], rng.uniform(size=7)])
    schedule = relaxed.schedule(w, {"test_share": 0.3})
    assert schedule.parameters == {"test_share": 0.3}
    np.testing.assert_allclose(schedule.grid, np.linspace(0, 6, 8))
    np.testing.assert_allclose(schedule["difficulty"], w[:, 2] + 2 * (1 - w[:, 1] - w[:, 2]))
    np.testing.assert_allclose(schedule["learning_rate"], 4 - 3 * w[:, 3])
    np.testing.assert_allclose(relaxed.own_vectors(schedule), w, atol=1e-14)
    np.testing.assert_allclose(relaxed.vectors(schedule, 7), w, atol=1e-14)


def test_values_to_schedule_and_back() -> None:
    relaxed = relaxation(MIXED)
    rng = np.random.default_rng(2)
    levels = rng.integers(0, 3, 9)
    w = np.column_stack([rng.uniform(0, 0.5, 9), np.eye(3)[levels][:, :2], np.arange(9) % 2])
    schedule = relaxed.schedule(w, {}, rounded=True)
    assert not schedule.mixtures
    np.testing.assert_array_equal(schedule["difficulty"], np.array(THREE.values)[levels])
    np.testing.assert_array_equal(schedule["learning_rate"], np.where(w[:, 3] == 1, 1.0, 4.0))
    np.testing.assert_array_equal(relaxed.own_vectors(schedule), w)


def test_other_grids_are_averaged() -> None:
    """Edges at α = 1.5 and 4 on six unit intervals: only those that hold an edge are mixed."""
    relaxed = relaxation({"difficulty": THREE, "weight_decay": DECAY})
    schedule = Schedule.piecewise(
        [0.0, 1.5, 4.0, 6.0], {"difficulty": [0.0, 2.0, 1.0], "weight_decay": [0.1, 0.3, 0.5]}
    )
    found = relaxed.vectors(schedule, 6)
    np.testing.assert_allclose(found[:, 0], [0.1, 0.2, 0.3, 0.3, 0.5, 0.5])
    np.testing.assert_allclose(found[:, 1:], [[1, 0], [0.5, 0], [0, 0], [0, 0], [0, 1], [0, 1]])
    means = relaxed.vectors(schedule, 1)[0]
    np.testing.assert_allclose(means, found.mean(axis=0))


def test_a_mixture_may_name_values_in_another_order() -> None:
    relaxed = relaxation({"difficulty": THREE})
    schedule = Schedule.mixed([0.0, 6.0], {"difficulty": {2.0: 0.3, 0.0: 0.7}})
    np.testing.assert_allclose(relaxed.own_vectors(schedule), [[0.7, 0.0]])


def test_a_value_that_the_control_does_not_have() -> None:
    relaxed = relaxation({"difficulty": THREE})
    with pytest.raises(SpecificationError, match=r"'difficulty' = 1.5 is not among"):
        relaxed.own_vectors(Schedule.constant(6.0, {"difficulty": 1.5}))


def test_table_lists_all_combinations_with_their_shares() -> None:
    relaxed = relaxation(MIXED)
    vectors, shares = relaxed.table(np.array([0.3, 0.2, 0.5, 0.6]), relaxed.values)
    assert relaxed.vector_names == ("difficulty", "learning_rate", "weight_decay")
    found = {tuple(v): float(s) for v, s in zip(np.asarray(vectors), shares, strict=True)}
    wanted = {
        (difficulty, rate, 0.3): a * b
        for difficulty, a in ((0.0, 0.2), (1.0, 0.5), (2.0, 0.3))
        for rate, b in ((1.0, 0.6), (4.0, 0.4))
    }
    assert found == pytest.approx(wanted)
