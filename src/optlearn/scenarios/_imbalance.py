"""Imbalanced groups: when to show the minority, how to weigh it, and how fast to learn."""

from collections.abc import Sequence
from typing import Annotated, Literal, get_args

import numpy as np

import optlearn as ol
from optlearn._arguments import Arguments
from optlearn._control.families import BestOf
from optlearn._schedule import uniform_grid
from optlearn._time_courses import Shape
from optlearn.scenarios._baselines import Baselines, at, constant, rate_baselines
from optlearn.scenarios._catalogue import Example, scenario

Criterion = Literal["mean", "balanced", "worst"]
Controlled = Literal["sampling", "learning_rate", "both", "reweighting"]

# Possible controls: names of the model's parameters.
CONTROLS = {
    "sampling": ("sampling",),
    "learning_rate": ("learning_rate",),
    "both": ("sampling", "learning_rate"),
    "reweighting": ("reweighting",),
}


@scenario(
    citations=("mannelli2024bias", "jain2024bias"),
    variants=({"control": "learning_rate"}, {"control": "both"}, {"control": "reweighting"}),
    example=Example({"sampling": [0.1, 0.7]}, 12),
)
def imbalance(
    share: Annotated[float, (0.05, 0.95, 0.05)] = 0.2,
    variance: Sequence[float] = (1.0, 0.5),
    mean: Sequence[float] = (0.5, 0.5),
    alignment: Annotated[Sequence[float], (-0.4, 0.95, 0.05), (-0.4, 0.95, 0.05)] = (0.5, 0.5),
    similarity: Annotated[float, (-0.5, 1, 0.05)] = 0.5,
    eta: float = 0.5,
    alpha_F: float = 10.0,
    objective: Criterion = "worst",
    control: Controlled = "sampling",
    max_learning_rate: Annotated[float, (0.5, 4, 0.1)] = 1.5,
    fixed_share: bool = False,
    batch: Annotated[float, (1, 10, 1)] = 1.0,
    smoothing: float = 0.005,
) -> "ol.Problem":
    """How to train a classifier that serves both a majority and a minority.

    Control ``sampling``, from 0 to 1, is the probability that a sample is drawn from the minority;
    ``learning_rate`` goes from 0 to ``max_learning_rate``; ``reweighting``, from 0 to 1, is the
    minority's share in the gradient, by weighting its losses, while samples keep their natural
    shares. The network's weights start at zero.

    Args:
        share: the minority's share of the data, above 0 and below 1.
        variance: (2,) variance of the inputs of majority and minority around their centroids.
        mean: (2,) distances of the two centroids from the origin, on opposite sides.
        alignment: (2,) cosine of each group's teacher with the axis of the centroids.
        similarity: cosine of the two teachers.
        eta: learning rate η; if it is controlled, that of the first guess and of a baseline.
        alpha_F: horizon, training steps divided by input dimension.
        objective: final error: "mean" over the natural shares, "balanced" (both groups count equally), or
            "worst" (of the two groups).
        control: "sampling", "learning_rate", "both" of these, or "reweighting".
        max_learning_rate: upper bound of η if it is controlled; the lower one is 0.
        fixed_share: every sample is used once: the mean of ``sampling`` over training is ``share``,
            and only the order of the samples is free.
        batch: fresh samples in each step.
        smoothing: δ that rounds the corner of the worst error, see ``models.imbalance``.
    """
    check = Arguments("imbalance")
    horizon = check.number("alpha_F", alpha_F, 0.0, open_below=True)
    highest = check.number("max_learning_rate", max_learning_rate, 0.0, open_below=True)
    names = CONTROLS[check.one_of("control", control, CONTROLS)]
    check.one_of("objective", objective, get_args(Criterion))
    once = check.flag("fixed_share", fixed_share)
    if once and "sampling" not in names:
        check.fail("fixed_share", fixed_share, "has an effect only if sampling is controlled")
    model = ol.models.imbalance(
        share, variance, mean, alignment, similarity, eta, batch, criterion=objective, smoothing=smoothing
    )
    if "learning_rate" in names and eta > highest:
        check.fail("eta", eta, f"must be at most max_learning_rate = {highest:g}")
    possible = {
        "sampling": ol.Continuous(0.0, 1.0, guess=share),
        "learning_rate": ol.Continuous(0.0, highest, guess=min(eta, highest)),
        "reweighting": ol.Continuous(0.0, 1.0, guess=share),
    }
    return ol.Problem(
        model=model,
        start=model.state(),
        horizon=horizon,
        controls={name: possible[name] for name in names},
        budgets=(ol.Budget("sampling", mean=share),) if once else (),
        intervals=60,
        baselines=_baselines(names, once),
        name="imbalance",
    )


def _baselines(names: Sequence[str], once: bool) -> Baselines:
    if names == ("learning_rate",):
        return rate_baselines()
    shares = _order_baselines() if once else _share_baselines(names[0])
    return {**shares, **rate_baselines(_natural_with_rate)} if "learning_rate" in names else shares


def _share_baselines(control: str) -> Baselines:
    def best_switch(first: float | None, second: float) -> BestOf:
        """One value (None: the natural share) up to the best moment, then another."""

        def family(problem: "ol.Problem", intervals: int, a: float) -> "ol.Schedule":
            values = (_natural(problem) if first is None else first, second)
            return _phase(problem, intervals, control, values, a, problem.horizon)

        return BestOf(family, lambda problem: (0.0, problem.horizon))

    return {
        "natural share": at(control, _natural),
        "half and half": at(control, 0.5),
        "best constant": BestOf(constant(control), (0.0, 1.0)),
        "natural, then half and half": best_switch(None, 0.5),
        "majority, then minority": best_switch(0.0, 1.0),
        "minority, then majority": best_switch(1.0, 0.0),
    }


def _order_baselines() -> Baselines:
    """The same samples in another order."""
    return {
        "shuffled": at("sampling", _natural),
        "minority first": lambda problem, intervals: _window(problem, intervals, 0.0),
        "minority last": lambda problem, intervals: _window(problem, intervals, _majority_time(problem)),
        "best window": BestOf(_window, lambda problem: (0.0, _majority_time(problem))),
    }


def _window(problem: "ol.Problem", intervals: int, a: float) -> "ol.Schedule":
    """The whole minority in one block, from α = a on."""
    end = a + problem.horizon - _majority_time(problem)
    return _phase(problem, intervals, "sampling", (0.0, 1.0), a, end)


def _majority_time(problem: "ol.Problem") -> float:
    return (1 - _natural(problem)) * problem.horizon


def _natural(problem: "ol.Problem") -> float:
    return float(problem.settings["share"])


def _phase(
    problem: "ol.Problem", intervals: int, control: str, values: tuple[float, float], a: float, b: float
) -> "ol.Schedule":
    """The second value from α = a to b, the first one elsewhere.

    An interval that contains a or b gets the mean of both: samples are mixed there, because an optimum on
    this grid cannot switch inside an interval.
    """
    grid = uniform_grid(problem.horizon, intervals)
    inside = np.clip(np.minimum(grid[1:], b) - np.maximum(grid[:-1], a), 0.0, None) / np.diff(grid)
    others = {name: np.full(intervals, limits.start) for name, limits in problem.continuous.items()}
    return ol.Schedule.piecewise(grid, {**others, control: values[0] + (values[1] - values[0]) * inside})


def _natural_with_rate(problem: "ol.Problem", intervals: int, rate: Shape) -> "ol.Schedule":
    share = _natural(problem)
    return ol.Schedule.from_function(
        problem.horizon, {"sampling": lambda alpha: share, "learning_rate": rate}, intervals
    )
