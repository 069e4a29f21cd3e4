"""Quadratic models on bounds and budgets, against an independent solver of quadratic programs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize

from optlearn._control.budgets import BudgetRows
from optlearn._control.solvers.quasi_newton import LowRank, minimise_on_box

SIZE = 12


def random_matrix(rng: np.random.Generator, rank: int = 3) -> tuple[LowRank, np.ndarray]:
    """σ − N C⁻¹ Nᵀ that is positive definite, and the same written out."""
    sigma, N = 2.0, rng.standard_normal((SIZE, rank))
    C = N.T @ N / (0.8 * sigma) + np.diag(rng.uniform(0.1, 1.0, rank))  # eigenvalues of N C⁻¹ Nᵀ below 0.8 σ
    matrix = LowRank(sigma, N, C, np.linalg.inv(C))
    return matrix, sigma * np.eye(SIZE) - N @ np.linalg.solve(C, N.T)


def nearest(y: np.ndarray, budgets: BudgetRows) -> np.ndarray:
    """The nearest point in the unit box with a mean, or at most one."""
    inside = y.clip(0, 1)
    if not budgets.equal[0] and inside.mean() <= budgets.targets[0]:
        return inside
    nu = brentq(lambda nu: (y - nu).clip(0, 1).mean() - budgets.targets[0], -100, 100, xtol=1e-15)
    return (y - nu).clip(0, 1)


def slsqp(B: np.ndarray, slope: np.ndarray, v: np.ndarray, budgets: BudgetRows) -> np.ndarray:
    rows, targets, equal = budgets
    return minimize(
        lambda x: slope @ (x - v) + (x - v) @ B @ (x - v) / 2,
        v,
        jac=lambda x: slope + B @ (x - v),
        bounds=[(0.0, 1.0)] * SIZE,
        constraints=[
            {"type": "eq" if equal[i] else "ineq", "fun": lambda x, i=i: targets[i] - rows[i] @ x}
            for i in range(len(targets))
        ],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    ).x


@pytest.mark.parametrize("equal", [True, False])
@given(seed=st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_it_is_the_minimum(equal: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix, B = random_matrix(rng)
    v, slope = rng.uniform(0.1, 0.9, SIZE), 2 * rng.standard_normal(SIZE)
    row = np.full((1, SIZE), 1 / SIZE)
    budgets = BudgetRows(row, row @ v, np.array([equal]))
    found = minimise_on_box(matrix, slope, v, np.ones(SIZE), budgets, lambda y: nearest(y, budgets))
    assert found is not None
    x, multipliers = found
    expected = slsqp(B, slope, v, budgets)
    np.testing.assert_allclose(x, expected, atol=2e-6)
    # The conditions of optimality themselves, far more accurately.
    gradient = slope + B @ (x - v) + multipliers @ row
    assert np.all(gradient[x <= 0] >= -1e-10)
    assert np.all(gradient[x >= 1] <= 1e-10)
    np.testing.assert_allclose(gradient[(x > 0) & (x < 1)], 0.0, atol=1e-10)
    assert equal or (multipliers[0] >= 0 and (row @ (x - v))[0] <= 1e-12)


def test_a_budget_that_no_entry_is_left_to_meet_has_no_answer() -> None:
    matrix, _ = random_matrix(np.random.default_rng(0))
    budgets = BudgetRows(np.zeros((1, SIZE)), np.ones(1), np.array([True]))
    v = np.full(SIZE, 0.5)
    assert minimise_on_box(matrix, np.ones(SIZE), v, np.ones(SIZE), budgets, lambda y: y.clip(0, 1)) is None
