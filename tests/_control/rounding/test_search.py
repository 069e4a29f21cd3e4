"""Local searches: exchanges never worsen and keep counts; phases are found as by trying all."""

from itertools import combinations, pairwise, product
from typing import Any

import numpy as np
import pytest

from optlearn import models
from optlearn._control.budgets import Budget
from optlearn._control.compiled import CompiledProblem, Rollout, compile_problem
from optlearn._control.controls import Continuous, Discrete
from optlearn._control.problem import Problem
from optlearn._control.rounding.counts import shortest_phase, switches
from optlearn._control.rounding.rounded import check_grid, round_controls, whole_schedule
from optlearn._control.rounding.search import exchange, shift
from optlearn._control.solvers.direct import Direct
from optlearn._control.solvers.starts import neutral
from optlearn._errors import SpecificationError

NONE = np.zeros(0)


def curriculum(control: Discrete, *budgets: Budget, weight_decay: float = 0.0) -> Problem:
    model = models.curriculum(weight_decay=weight_decay)
    return Problem(
        model=model,
        start=model.state(Q11=1.0, Q22=1.0),
        horizon=12.0,
        controls={"difficulty": control},
        budgets=budgets,
    )


TWO = (0.0, 2.0)
HALF = Budget("difficulty", share={0.0: 0.5})


def write(levels: np.ndarray) -> np.ndarray:
    return np.eye(2)[levels][:, :-1]


def judges(rollout: Rollout) -> tuple[Any, Any]:
    """The objective of levels of two values, and the first-order cost of each value."""

    def slopes(levels: np.ndarray) -> np.ndarray:
        gradient = rollout.run(write(levels), NONE).gradient
        return np.column_stack([gradient, np.zeros(len(gradient))])

    return lambda levels: rollout.objective(write(levels), NONE), slopes


@pytest.mark.parametrize("seed", range(4))
def test_exchange_never_worsens_and_keeps_counts(seed: int) -> None:
    rollout = Rollout(compile_problem(curriculum(Discrete(TWO), HALF)), 24)
    levels = np.random.default_rng(seed).permutation(np.repeat([0, 1], 12))
    before = rollout.objective(write(levels), NONE)
    found, value = exchange(levels, *judges(rollout), keep_counts=True)
    assert value < before - 1e-4
    assert value == rollout.objective(write(found), NONE)
    np.testing.assert_array_equal(np.bincount(found), [12, 12])
    # No single swap is better than where it stopped, tried or not.
    for i, j in product(np.flatnonzero(found == 0), np.flatnonzero(found == 1)):
        trial = found.copy()
        trial[[i, j]] = found[[j, i]]
        assert rollout.objective(write(trial), NONE) >= value - 1e-7


def test_exchange_finds_the_best_of_all_schedules() -> None:
    """All 924 ways to place 6 easy intervals among 12."""
    rollout = Rollout(compile_problem(curriculum(Discrete(TWO), HALF)), 12, 2)
    values = {}
    for easy in combinations(range(12), 6):
        levels = np.ones(12, dtype=int)
        levels[list(easy)] = 0
        values[easy] = rollout.objective(write(levels), NONE)
    _, found = exchange(np.repeat([0, 1], 6), *judges(rollout), keep_counts=True)
    assert found == pytest.approx(min(values.values()), abs=1e-12)


def test_exchange_without_counts_changes_single_intervals() -> None:
    """Without a budget easy samples alone are best."""
    rollout = Rollout(compile_problem(curriculum(Discrete(TWO))), 24)
    found, _ = exchange(np.repeat([0, 1], 12), *judges(rollout), keep_counts=False)
    np.testing.assert_array_equal(found, 0)


def test_exchange_respects_what_is_admissible() -> None:
    rollout = Rollout(compile_problem(curriculum(Discrete(TWO), HALF)), 24)
    levels = np.repeat([0, 1, 0], [2, 12, 10])
    before = rollout.objective(write(levels), NONE)
    found, value = exchange(
        levels, *judges(rollout), keep_counts=True, admissible=lambda trial: switches(trial) <= 2
    )
    assert switches(found) == 2
    assert value < before


@pytest.mark.parametrize("keep_sum", [True, False])
def test_shift_never_worsens_and_keeps_sum_and_bounds(keep_sum: bool) -> None:
    model = models.autoencoder(trained_skip=False, augmentation=True, noise=0.5)
    problem = Problem(
        model=model,
        start=model.state(**models.FIG3_START, b=models.optimal_skip(0.5, 0.1)),
        horizon=1.2,
        controls={"batch": Continuous(1, 8, whole_numbers=True)},
        budgets=(Budget("batch", mean=3.0),),
    )
    rollout = Rollout(compile_problem(problem), 20)
    w = np.full((20, 1), 3.0)
    before = rollout.objective(w, NONE)
    found, value = shift(rollout, w, NONE, 0, (1.0, 8.0), keep_sum=keep_sum)
    assert value < before - 1e-4
    assert value == rollout.objective(found, NONE)
    assert np.all((found >= 1) & (found <= 8))
    np.testing.assert_array_equal(found, np.round(found))
    if keep_sum:
        assert found.sum() == 60
        for i, j in product(range(20), repeat=2):
            trial = found.copy()
            trial[i] += 1
            trial[j] -= 1
            if trial.min() >= 1 and trial.max() <= 8:
                assert rollout.objective(trial, NONE) >= value - 1e-9
    else:
        # More copies of a sample never hurt, so without a budget all go to the bound.
        assert np.all(found == 8)


def test_whole_schedule_only_where_it_is_asked_for() -> None:
    compiled = compile_problem(curriculum(Discrete(TWO), HALF))
    assert whole_schedule(Rollout(compiled, 12), np.full((12, 1), 0.5), NONE) is None


# --- limits on switches and dwell, against all schedules --------------------------------------------


def all_phases(intervals: int, n: int, most: int) -> Any:
    """Levels with at most ``most`` switches."""
    for count in range(most + 1):
        for edges in combinations(range(1, intervals), count):
            lengths = np.diff([0, *edges, intervals])
            for order in product(range(n), repeat=count + 1):
                if all(a != b for a, b in pairwise(order)):
                    yield np.repeat(order, lengths)


def best_of_all(
    compiled: CompiledProblem, rollout: Rollout, n: int, most: int, dwell: int, counts: list[int]
) -> float:
    found = [
        rollout.objective(np.eye(n)[levels][:, :-1], NONE)
        for levels in all_phases(rollout.intervals, n, most)
        if shortest_phase(levels) >= dwell and np.bincount(levels, minlength=n).tolist() == counts
    ]
    return min(found)


@pytest.mark.parametrize(
    ("most", "dwell", "weight_decay"),
    [
        (1, 0.0, 0.0),
        (1, 0.0, 0.1),
        (2, 0.0, 0.0),
        (3, 0.0, 0.0),
        (4, 0.0, 0.03),
        (None, 1.5, 0.0),
        (3, 2.0, 0.03),
        (None, 4.0, 0.0),
    ],
)
def test_limits_give_the_best_of_all_schedules(most: int | None, dwell: float, weight_decay: float) -> None:
    control = Discrete(TWO, min_dwell=dwell, max_switches=most)
    compiled = compile_problem(curriculum(control, HALF, weight_decay=weight_decay))
    rollout = Rollout(compiled, 24)
    relaxed = np.linspace(0.2, 0.8, 24)[:, None]
    rounded = round_controls(rollout, relaxed, NONE)
    levels = (rounded.w[:, 0] == 0).astype(int)
    assert set(np.unique(rounded.w)) <= {0.0, 1.0}
    assert most is None or switches(levels) <= most
    assert shortest_phase(levels) >= dwell / 0.5
    np.testing.assert_array_equal(np.bincount(levels), [12, 12])
    wanted = best_of_all(compiled, rollout, 2, most or 4, max(1, int(dwell / 0.5)), [12, 12])
    assert rounded.objective <= wanted + 1e-12


def test_three_values_and_two_switches_give_the_best_of_all_schedules() -> None:
    control = Discrete((0.0, 1.0, 2.0), max_switches=2)
    budget = Budget("difficulty", share={0.0: 0.5, 1.0: 0.25})
    compiled = compile_problem(curriculum(control, budget))
    rollout = Rollout(compiled, 16)
    rounded = round_controls(rollout, np.full((16, 2), [0.5, 0.25]), NONE)
    wanted = best_of_all(compiled, rollout, 3, 2, 1, [8, 4, 4])
    assert rounded.objective == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("most", [0, 1])
def test_limits_without_a_budget(most) -> None:
    compiled = compile_problem(curriculum(Discrete(TWO, max_switches=most)))
    rollout = Rollout(compiled, 16)
    rounded = round_controls(rollout, np.full((16, 1), 0.5), NONE)
    np.testing.assert_array_equal(rounded.w, 1.0)  # easy throughout


def test_limits_that_nothing_can_meet() -> None:
    compiled = compile_problem(curriculum(Discrete(TWO, max_switches=0), HALF))
    with pytest.raises(SpecificationError, match="max_switches is 0"):
        check_grid(compiled, 24)
    compiled = compile_problem(curriculum(Discrete(TWO, min_dwell=7.0), HALF))
    with pytest.raises(SpecificationError, match="min_dwell = 7"):
        check_grid(compiled, 24)
    compiled = compile_problem(curriculum(Discrete(TWO, min_dwell=15.0)))
    with pytest.raises(SpecificationError, match="min_dwell = 15 of 'difficulty' is more than"):
        check_grid(compiled, 24)


# --- rounding keeps budgets of every kind -----------------------------------------------------------

THREE = (0.0, 1.0, 2.0)


@pytest.mark.parametrize(
    ("values", "budget"),
    [
        (TWO, Budget("difficulty", share={0.0: 0.31}, sense="at most")),
        (TWO, Budget("difficulty", share={0.0: 0.7, 2.0: 0.62}, sense="at most")),
        (TWO, Budget("difficulty", mean=1.5)),
        (THREE, Budget("difficulty", mean=1.25)),
        (THREE, Budget("difficulty", share={0.0: 0.25})),
        (THREE, Budget("difficulty", share={2.0: 0.75})),
        (THREE, Budget("difficulty", share={0.0: 0.3, 1.0: 0.3}, sense="at most")),
    ],
)
def test_rounding_and_polish_keep_the_budget(values: tuple[float, ...], budget: Budget) -> None:
    """Easy samples alone would be best, so a search that forgets the budget is seen."""
    compiled = compile_problem(curriculum(Discrete(values), budget))
    check_grid(compiled, 24)
    rollout = Rollout(compiled, 24)
    start = neutral(compiled, 24)
    relaxed = Direct().shoot(Rollout(compiled, len(start.w)), start)
    rounded = round_controls(rollout, relaxed.w, NONE)
    assert np.all((rounded.w == 0) | (rounded.w == 1))
    rows, targets, equal = compiled.relaxation.budget_rows
    excess = rows @ rounded.w.mean(axis=0) - targets
    assert np.all(excess <= 1e-12)
    assert np.all(np.abs(excess[equal]) <= 1e-12)
    # The grid costs little: 24 intervals, one of which may have to be harder than it would be.
    assert relaxed.objective - 1e-9 <= rounded.objective <= relaxed.objective + 2e-3
