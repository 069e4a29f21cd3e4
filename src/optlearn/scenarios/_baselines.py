"""Learning rates, batch sizes and phases: controls and baselines that several scenarios share."""

from collections.abc import Callable, Mapping

import numpy as np

import optlearn as ol
from optlearn import _time_courses as shapes
from optlearn._arguments import Arguments
from optlearn._control.families import BestOf, Bounds, Family
from optlearn._schedule import Schedule, uniform_grid

# Share of training in which a warm-up-stable-decay baseline rises to its plateau.
WARM_UP = 0.05

# (problem, intervals) → schedule, for problems of any horizon and budget.
Baseline = Callable[["ol.Problem", int], Schedule]
Baselines = Mapping[str, Baseline]
# (problem, intervals, control as a function of α) → schedule of all controls of the problem.
WithCourse = Callable[["ol.Problem", int, shapes.Shape], Schedule]


def constant(control: str) -> Family:
    """The same value throughout training; other controls stay at their first guess."""

    def family(problem: "ol.Problem", intervals: int, value: float) -> Schedule:
        others = {name: limits.start for name, limits in problem.continuous.items()}
        return Schedule.constant(problem.horizon, {**others, control: value})

    return family


def at(control: str, value: "float | Callable[[ol.Problem], float]") -> Baseline:
    """One value throughout training, which may depend on the problem."""
    return lambda problem, intervals: constant(control)(
        problem, intervals, value(problem) if callable(value) else value
    )


def along(control: str, course: "Callable[[ol.Problem], shapes.Shape]") -> Baseline:
    """A time course that depends on the problem, for a problem with a single control."""
    return lambda problem, intervals: alone(control)(problem, intervals, course(problem))


def line(control: str) -> Family:
    """A straight line from one value to another."""
    return lambda problem, intervals, first, last: alone(control)(
        problem, intervals, shapes.linear(first, last, problem.horizon)
    )


def alone(control: str) -> WithCourse:
    """The schedule of a problem with a single control."""
    return lambda problem, intervals, course: Schedule.from_function(
        problem.horizon, {control: course}, intervals
    )


def bounds_of(control: str) -> "Callable[[ol.Problem], Bounds]":
    """The lowest and the highest value of a continuous control."""
    return lambda problem: (problem.continuous[control].lower, problem.continuous[control].upper)


def phases(horizon: float, *parts: tuple[float, dict[str, float]]) -> Schedule:
    """A schedule of phases (duration, values), up to the horizon, without empty phases."""
    kept = [(length, values) for length, values in parts if length > 1e-12 * horizon]
    edges = np.concatenate([[0.0], np.cumsum([length for length, _ in kept])])
    edges[-1] = horizon
    return Schedule.piecewise(edges, {name: [values[name] for _, values in kept] for name in kept[0][1]})


def rate_control(check: Arguments, eta: float, highest: float) -> "ol.Continuous":
    """A controlled learning rate from 0 to ``highest``, with the first guess ``eta``."""
    if eta > highest:
        check.fail("eta", eta, f"must be at most max_learning_rate = {highest:g}")
    return ol.Continuous(0.0, highest, guess=float(eta))


def rate_baselines(with_rate: WithCourse | None = None) -> Baselines:
    """Constants and the usual shapes, each with its best parameters.

    Args:
        with_rate: turns a learning rate into a schedule of the problem (default: it is the only control).
    """
    play = with_rate or alone("learning_rate")

    def shaped(shape: Callable[..., shapes.Shape]) -> Family:
        return lambda problem, intervals, *numbers: play(problem, intervals, shape(*numbers, problem.horizon))

    def plateau(peak: float, decay: float, horizon: float) -> shapes.Shape:
        return shapes.warm_up_stable_decay(peak, horizon, WARM_UP, decay)

    return {
        "constant rate": lambda problem, intervals: play(
            problem, intervals, shapes.constant(problem.continuous["learning_rate"].start)
        ),
        "best constant rate": BestOf(shaped(lambda rate, horizon: shapes.constant(rate)), _rates),
        "linear rate": BestOf(shaped(shapes.linear), _rates, _rates),
        "cosine rate": BestOf(shaped(shapes.cosine), _rates, _rates),
        "exponential rate": BestOf(shaped(shapes.exponential), _rates, _rates),
        "warm-up-stable-decay": BestOf(shaped(plateau), _rates, (0.0, 1 - WARM_UP), kinks=plateau_kinks),
    }


def _rates(problem: "ol.Problem") -> Bounds:
    """Admissible rates, above 0, since an exponential never reaches 0."""
    rate = problem.continuous["learning_rate"]
    return max(rate.lower, 1e-3 * rate.upper), rate.upper


def plateau_kinks(intervals: int) -> list[float]:
    """Shares of training at which the decay after a plateau reaches the middle of another interval."""
    return [(k + 0.5) / intervals for k in range(intervals)]


def batch_control(
    check: Arguments, mean_batch: float, max_batch: float, whole_numbers: bool = True
) -> "tuple[float, ol.Continuous]":
    """The mean batch and the control, a real number from 1 to ``max_batch``."""
    largest = check.number("max_batch", max_batch, 1.0, open_below=True)
    mean = check.number("mean_batch", mean_batch, 1.0, open_below=True)
    if not mean < largest:
        check.fail("mean_batch", mean_batch, f"must be above 1 and below max_batch = {largest:g}")
    return mean, ol.Continuous(1.0, largest, guess=mean, whole_numbers=whole_numbers)


def mean_of(problem: "ol.Problem", control: str = "batch") -> float:
    """The mean over training that the problem's budget allows."""
    (mean,) = (budget.mean for budget in problem.budgets if budget.control == control)
    assert mean is not None
    return mean


def linear_growth(problem: "ol.Problem") -> shapes.Shape:
    """The steepest straight line that stays within the bounds and has the right mean."""
    batch, mean = problem.continuous["batch"], mean_of(problem)
    reach = min(mean - batch.lower, batch.upper - mean)
    return shapes.linear(mean - reach, mean + reach, problem.horizon)


def exponential_growth(problem: "ol.Problem", intervals: int, growth: float) -> Schedule:
    """A batch that grows by the factor exp(``growth``), cut at the bounds, with the right mean."""
    from scipy.optimize import brentq

    batch, mean, horizon = problem.continuous["batch"], mean_of(problem), problem.horizon
    grid = uniform_grid(horizon, intervals)
    times = (grid[1:] + grid[:-1]) / (2 * horizon)

    def cut(level: float, time: float | np.ndarray) -> np.ndarray:
        return np.clip(np.exp(level + growth * time), batch.lower, batch.upper)

    def excess(level: float) -> float:
        return float(np.mean(cut(level, times))) - mean

    low, high = np.log(batch.lower) - abs(growth), np.log(batch.upper) + abs(growth)
    # A mean at a bound means, up to round-off, a batch that stays there.
    at_bound = next((level for level, sign in ((low, 1), (high, -1)) if sign * excess(level) >= 0), None)
    level = brentq(excess, low, high, xtol=1e-13) if at_bound is None else at_bound
    return alone("batch")(problem, intervals, lambda alpha: float(cut(level, alpha / horizon)))
