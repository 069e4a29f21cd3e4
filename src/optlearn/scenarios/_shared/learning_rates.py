"""Learning rates that people use, as baselines of any scenario with the control ``learning_rate``."""

from collections.abc import Callable, Mapping

from optlearn import _time_courses as shapes
from optlearn._control.problem import Baseline, Problem
from optlearn._schedule import Schedule
from optlearn.scenarios._shared.best_of_family import best_of, plateau_kinks

# Share of training in which a warm-up-stable-decay baseline rises to its plateau.
WARM_UP = 0.05

# (problem, intervals, learning rate as a function of α) → schedule of all controls of the problem.
WithRate = Callable[[Problem, int, shapes.Shape], Schedule]
_Ends = Callable[[float, float, float], shapes.Shape]


def rate_alone(problem: Problem, intervals: int, rate: shapes.Shape) -> Schedule:
    """The schedule of a problem that has no other control."""
    return Schedule.from_function(problem.horizon, {"learning_rate": rate}, intervals)


def rate_baselines(with_rate: WithRate = rate_alone) -> Mapping[str, Baseline]:
    """Constants and the usual shapes, each with its best parameters.

    Args:
        with_rate: how a learning rate becomes a schedule of the problem.
    """
    return {
        "constant rate": lambda problem, intervals: with_rate(
            problem, intervals, shapes.constant(problem.continuous["learning_rate"].start)
        ),
        "best constant rate": _best_constant(with_rate),
        "linear rate": _best_ends(with_rate, shapes.linear),
        "cosine rate": _best_ends(with_rate, shapes.cosine),
        "exponential rate": _best_ends(with_rate, shapes.exponential),
        "warm-up-stable-decay": _best_plateau(with_rate),
    }


def _best_constant(with_rate: WithRate) -> Baseline:
    def baseline(problem: Problem, intervals: int) -> Schedule:
        def family(rate: float) -> Schedule:
            return with_rate(problem, intervals, shapes.constant(rate))

        return best_of(problem, family, _rates(problem))

    return baseline


def _best_ends(with_rate: WithRate, shape: _Ends) -> Baseline:
    """The best schedule that goes from one rate to another along a given shape."""

    def baseline(problem: Problem, intervals: int) -> Schedule:
        def family(first: float, last: float) -> Schedule:
            return with_rate(problem, intervals, shape(first, last, problem.horizon))

        return best_of(problem, family, _rates(problem), _rates(problem))

    return baseline


def _best_plateau(with_rate: WithRate) -> Baseline:
    def baseline(problem: Problem, intervals: int) -> Schedule:
        def family(peak: float, decay: float) -> Schedule:
            shape = shapes.warm_up_stable_decay(peak, problem.horizon, WARM_UP, decay)
            return with_rate(problem, intervals, shape)

        kinks = plateau_kinks(intervals)
        return best_of(problem, family, _rates(problem), (0.0, 1 - WARM_UP), kinks=kinks)

    return baseline


def _rates(problem: Problem) -> tuple[float, float]:
    """Admissible rates; above 0, since an exponential never gets there."""
    rate = problem.continuous["learning_rate"]
    return max(rate.lower, 1e-3 * rate.upper), rate.upper
