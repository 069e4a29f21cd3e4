"""One pass of least squares as a problem: rate, batch size or both, and the usual schedules."""

from collections.abc import Callable, Mapping

from optlearn import _time_courses as shapes
from optlearn._arguments import Arguments
from optlearn._control.budgets import Budget
from optlearn._control.controls import Continuous, Free
from optlearn._control.problem import Baseline, Problem
from optlearn._schedule import Schedule
from optlearn.models._linear import Linear
from optlearn.scenarios._shared.batch_sizes import linear_growth, mean_batch_of
from optlearn.scenarios._shared.best_of_family import best_of, plateau_kinks

CONTROLS = ("learning_rate", "batch", "both")
# Exponents of a power decay that are tried, and shares of training in which a plateau decays.
EXPONENTS, DECAYS = (0.0, 4.0), (0.02, 1.0)


def least_squares(
    check: Arguments,
    model: Linear,
    horizon: float,
    control: str,
    max_rate: float,
    mean_batch: float,
    max_batch: float,
    intervals: int,
) -> Problem:
    """The problem of a scenario ``check.owner``.

    Args:
        check: names the scenario in messages.
        model: what is trained; batches have the size of its ``batch`` unless they are scheduled.
        horizon: α_F.
        control: what is scheduled, one of ``CONTROLS``. With "batch" the learning rate is the best constant.
        max_rate: largest learning rate.
        mean_batch: largest mean of the batch size over training, if it is scheduled.
        max_batch: largest batch size.
        intervals: of the schedule.
    """
    check.one_of("control", control, CONTROLS)
    largest = check.number("max_batch", max_batch, 1.0, open_below=True)
    mean = check.number("mean_batch", mean_batch, 1.0, open_below=True)
    if not mean < largest:
        check.fail("mean_batch", mean_batch, f"must be above 1 and below max_batch = {largest:g}")
    scheduled = ("learning_rate", "batch") if control == "both" else (control,)
    controls = {
        "learning_rate": Continuous(0.0, max_rate, guess=0.4 * max_rate),
        "batch": Continuous(1.0, largest, guess=mean),
    }
    return Problem(
        model=model,
        start=model.start(),
        horizon=horizon,
        controls={name: controls[name] for name in scheduled},
        budgets=(Budget("batch", mean=mean, sense="at most"),) if "batch" in scheduled else (),
        free={}
        if "learning_rate" in scheduled
        else {"learning_rate": Free(0.0, max_rate, guess=0.2 * max_rate)},
        intervals=intervals,
        baselines=_batch_baselines() if control == "batch" else _rate_baselines(control == "both"),
        name=check.owner,
    )


def _rate_baselines(with_batch: bool) -> Mapping[str, Baseline]:
    """Best constant rate; best linear and cosine decays to zero; best plateau and decay; best power decay."""
    return {
        "constant": _best(with_batch, lambda peak, horizon: shapes.constant(peak)),
        "linear": _best(with_batch, lambda peak, horizon: shapes.linear(peak, 0.0, horizon)),
        "cosine": _best(with_batch, lambda peak, horizon: shapes.cosine(peak, 0.0, horizon)),
        "WSD": _best(with_batch, _plateau, DECAYS),
        "power decay": _best(with_batch, shapes.power_decay, EXPONENTS),
    }


def _plateau(peak: float, horizon: float, decay: float) -> shapes.Shape:
    return shapes.warm_up_stable_decay(peak, horizon, 0.0, decay)


def _best(with_batch: bool, shape: Callable[..., shapes.Shape], *more: tuple[float, float]) -> Baseline:
    def baseline(problem: Problem, intervals: int) -> Schedule:
        def schedule(peak: float, *others: float) -> Schedule:
            courses = {"learning_rate": shape(peak, problem.horizon, *others)}
            if with_batch:
                courses["batch"] = shapes.constant(mean_batch_of(problem))
            return Schedule.from_function(problem.horizon, courses, intervals)

        rates = (0.0, problem.continuous["learning_rate"].upper)
        kinks = plateau_kinks(intervals) if shape is _plateau else ()
        return best_of(problem, schedule, rates, *more, kinks=kinks)

    return baseline


def _batch_baselines() -> Mapping[str, Baseline]:
    def with_best_rate(batch: Callable[[Problem], shapes.Shape]) -> Baseline:
        def baseline(problem: Problem, intervals: int) -> Schedule:
            played = Schedule.from_function(problem.horizon, {"batch": batch(problem)}, intervals)
            free = problem.free["learning_rate"]
            return best_of(
                problem, lambda rate: played.with_parameters(learning_rate=rate), (free.lower, free.upper)
            )

        return baseline

    return {
        "constant": with_best_rate(lambda problem: shapes.constant(mean_batch_of(problem))),
        "linear growth": with_best_rate(linear_growth),
    }
