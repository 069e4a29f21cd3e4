"""Batch sizes that spend a given mean, as baselines of any scenario with the control ``batch``."""

import numpy as np

from optlearn import _time_courses as shapes
from optlearn._arguments import Arguments
from optlearn._control.controls import Continuous
from optlearn._control.problem import Problem
from optlearn._schedule import Schedule, uniform_grid


def batch_control(check: Arguments, mean_batch: float, max_batch: float) -> tuple[float, Continuous]:
    """The mean batch and the control, a real number from 1 to ``max_batch``, of these arguments."""
    largest = check.number("max_batch", max_batch, 1.0, open_below=True)
    mean = check.number("mean_batch", mean_batch, 1.0, open_below=True)
    if not mean < largest:
        check.fail("mean_batch", mean_batch, f"must be above 1 and below max_batch = {largest:g}")
    return mean, Continuous(1.0, largest, guess=mean, whole_numbers=True)


def mean_batch_of(problem: Problem) -> float:
    """The mean batch that the problem's budget allows."""
    (mean,) = (budget.mean for budget in problem.budgets if budget.control == "batch")
    assert mean is not None
    return mean


def linear_growth(problem: Problem) -> shapes.Shape:
    """The steepest straight line that stays within the bounds and has the right mean."""
    batch, mean = problem.continuous["batch"], mean_batch_of(problem)
    reach = min(mean - batch.lower, batch.upper - mean)
    return shapes.linear(mean - reach, mean + reach, problem.horizon)


def exponential_growth(problem: Problem, intervals: int, growth: float) -> shapes.Shape:
    """A batch that grows by the factor exp(``growth``), cut at the bounds, with the right mean."""
    from scipy.optimize import brentq

    batch, mean, horizon = problem.continuous["batch"], mean_batch_of(problem), problem.horizon
    grid = uniform_grid(horizon, intervals)
    times = (grid[1:] + grid[:-1]) / (2 * horizon)

    def cut(level: float, time: float | np.ndarray) -> np.ndarray:
        return np.clip(np.exp(level + growth * time), batch.lower, batch.upper)

    low, high = np.log(batch.lower) - abs(growth), np.log(batch.upper) + abs(growth)
    level = brentq(lambda level: float(np.mean(cut(level, times))) - mean, low, high, xtol=1e-13)
    return lambda alpha: float(cut(level, alpha / horizon))


def batch_alone(problem: Problem, intervals: int, batch: shapes.Shape) -> Schedule:
    """The schedule of a problem that has no other control."""
    return Schedule.from_function(problem.horizon, {"batch": batch}, intervals)
