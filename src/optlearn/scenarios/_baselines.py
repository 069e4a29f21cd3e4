"""Learning rates, batch sizes and phases: controls and baselines that several scenarios share."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

import optlearn as ol
from optlearn import _time_courses as shapes
from optlearn._arguments import Arguments
from optlearn._schedule import Schedule, uniform_grid
from optlearn.scenarios._best_of_family import BestOf, Family

if TYPE_CHECKING:
    from optlearn._control.problem import Baseline

# Share of training in which a warm-up-stable-decay baseline rises to its plateau.
WARM_UP = 0.05

# (problem, intervals, control as a function of α) → schedule of all controls of the problem.
WithCourse = Callable[["ol.Problem", int, shapes.Shape], Schedule]

# --- families of one control ----------------------------------------------------------------


def constant(control: str) -> Family:
    """The same value throughout training."""
    return lambda problem, intervals, value: Schedule.constant(problem.horizon, {control: value})


def line(control: str) -> Family:
    """A straight line from one value to another."""
    return lambda problem, intervals, first, last: alone(control)(
        problem, intervals, shapes.linear(first, last, problem.horizon)
    )


def alone(control: str) -> WithCourse:
    """The schedule of a problem that has no other control."""
    return lambda problem, intervals, course: Schedule.from_function(
        problem.horizon, {control: course}, intervals
    )


def bounds_of(control: str) -> "Callable[[ol.Problem], tuple[float, float]]":
    """The lowest and the highest value of a continuous control."""

    def bounds(problem: "ol.Problem") -> tuple[float, float]:
        return problem.continuous[control].lower, problem.continuous[control].upper

    return bounds


def phases(horizon: float, *parts: tuple[float, dict[str, float]]) -> Schedule:
    """A schedule of phases (duration, values), up to the horizon; empty phases are left out."""
    kept = [(length, values) for length, values in parts if length > 1e-12 * horizon]
    edges = np.concatenate([[0.0], np.cumsum([length for length, _ in kept])])
    edges[-1] = horizon
    names: Sequence[str] = tuple(kept[0][1])
    return Schedule.piecewise(edges, {n: [values[n] for _, values in kept] for n in names})


# --- learning rates -------------------------------------------------------------------------


def rate_control(check: Arguments, eta: float, highest: float) -> "ol.Continuous":
    """A learning rate from 0 to ``highest`` that is controlled, with the first guess ``eta``."""
    if eta > highest:
        check.fail("eta", eta, f"must be at most max_learning_rate = {highest:g}")
    return ol.Continuous(0.0, highest, guess=float(eta))


def rate_baselines(with_rate: WithCourse | None = None) -> "Mapping[str, Baseline]":
    """Constants and the usual shapes, each with its best parameters.

    Args:
        with_rate: how a learning rate becomes a schedule of the problem (default: it is the only control).
    """
    play = with_rate or alone("learning_rate")

    def best_between(shape: Callable[[float, float, float], shapes.Shape]) -> BestOf:
        """The best schedule that goes from one rate to another along a given shape."""
        return BestOf(
            lambda problem, intervals, first, last: play(
                problem, intervals, shape(first, last, problem.horizon)
            ),
            _rates,
            _rates,
        )

    def plateau(problem: "ol.Problem", intervals: int, peak: float, decay: float) -> Schedule:
        course = shapes.warm_up_stable_decay(peak, problem.horizon, WARM_UP, decay)
        return play(problem, intervals, course)

    return {
        "constant rate": lambda problem, intervals: play(
            problem, intervals, shapes.constant(problem.continuous["learning_rate"].start)
        ),
        "best constant rate": BestOf(
            lambda problem, intervals, rate: play(problem, intervals, shapes.constant(rate)), _rates
        ),
        "linear rate": best_between(shapes.linear),
        "cosine rate": best_between(shapes.cosine),
        "exponential rate": best_between(shapes.exponential),
        "warm-up-stable-decay": BestOf(plateau, _rates, (0.0, 1 - WARM_UP), kinks=plateau_kinks),
    }


def _rates(problem: "ol.Problem") -> tuple[float, float]:
    """Admissible rates; above 0, since an exponential never gets there."""
    rate = problem.continuous["learning_rate"]
    return max(rate.lower, 1e-3 * rate.upper), rate.upper


def plateau_kinks(intervals: int) -> list[float]:
    """Shares of training at which the decay after a plateau reaches the middle of one more interval."""
    return [(k + 0.5) / intervals for k in range(intervals)]


# --- batch sizes that spend a given mean ----------------------------------------------------


def batch_control(
    check: Arguments, mean_batch: float, max_batch: float, whole_numbers: bool = True
) -> "tuple[float, ol.Continuous]":
    """The mean batch and the control, a real number from 1 to ``max_batch``, of these arguments."""
    largest = check.number("max_batch", max_batch, 1.0, open_below=True)
    mean = check.number("mean_batch", mean_batch, 1.0, open_below=True)
    if not mean < largest:
        check.fail("mean_batch", mean_batch, f"must be above 1 and below max_batch = {largest:g}")
    return mean, ol.Continuous(1.0, largest, guess=mean, whole_numbers=whole_numbers)


def mean_batch_of(problem: "ol.Problem") -> float:
    """The mean batch that the problem's budget allows."""
    (mean,) = (budget.mean for budget in problem.budgets if budget.control == "batch")
    assert mean is not None
    return mean


def linear_growth(problem: "ol.Problem") -> shapes.Shape:
    """The steepest straight line that stays within the bounds and has the right mean."""
    batch, mean = problem.continuous["batch"], mean_batch_of(problem)
    reach = min(mean - batch.lower, batch.upper - mean)
    return shapes.linear(mean - reach, mean + reach, problem.horizon)


def exponential_growth(problem: "ol.Problem", intervals: int, growth: float) -> Schedule:
    """A batch that grows by the factor exp(``growth``), cut at the bounds, with the right mean."""
    from scipy.optimize import brentq

    batch, mean, horizon = problem.continuous["batch"], mean_batch_of(problem), problem.horizon
    grid = uniform_grid(horizon, intervals)
    times = (grid[1:] + grid[:-1]) / (2 * horizon)

    def cut(level: float, time: float | np.ndarray) -> np.ndarray:
        return np.clip(np.exp(level + growth * time), batch.lower, batch.upper)

    low, high = np.log(batch.lower) - abs(growth), np.log(batch.upper) + abs(growth)
    level = brentq(lambda level: float(np.mean(cut(level, times))) - mean, low, high, xtol=1e-13)
    return alone("batch")(problem, intervals, lambda alpha: float(cut(level, alpha / horizon)))
