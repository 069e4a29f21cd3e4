"""Fine-tuning: new layers on top of a first layer that was pretrained on another task."""

from typing import Annotated

import optlearn as ol
from optlearn._arguments import Arguments
from optlearn._control.families import BestOf, Bounds
from optlearn.scenarios._baselines import Baselines, phases, rate_control
from optlearn.scenarios._catalogue import Example, scenario
from optlearn.scenarios._layers import random_layers, rates_of, with_others


@scenario(
    citations=("saad1995line", "cui2024high", "kumar2022fine"),
    example=Example({"learning_rate": [0.2, 1.0], "head_rate": [1.0, 0.5]}, 4, {"alpha_F": 5.0, "depth": 2}),
)
def fine_tuning(
    similarity: Annotated[float, (0, 1, 0.05)] = 0.8,
    sigma_n: Annotated[float, (0, 1, 0.05)] = 0.5,
    frequency: Annotated[float, (0.5, 3, 0.1)] = 1.5,
    alpha_F: float = 10.0,
    eta: Annotated[float, (0.1, 1, 0.1)] = 1.0,
    max_learning_rate: Annotated[float, (1, 6, 0.5)] = 3.0,
    start_norm: float = 1.0,
    start_scale: float = 1.0,
    depth: Annotated[int, (2, 4, 1)] = 3,
    width: Annotated[int, (1, 5, 1)] = 3,
    seed: int = 0,
) -> "ol.Problem":
    """The learning rates of old and new layers that give a fine-tuned network the lowest error.

    The pretrained first layer points in the direction of another task; the layers behind it are new, with
    random weights. Controls: ``learning_rate`` of the first layer, ``head_rate`` of all others.

    Args:
        similarity: cosine of the old task's direction with the new one's.
        sigma_n: standard deviation of the label noise.
        frequency: ω of the wave sin(ωλ*) that is learned.
        alpha_F: horizon, training steps divided by input dimension.
        eta: first guess of both learning rates.
        max_learning_rate: upper bound of each rate.
        start_norm: squared norm Q11 of the first layer, over N.
        start_scale: standard deviation of the new weights, times the root of their inputs' number.
        depth: layers of weights, from 2 to 4.
        width: units in each hidden layer but the first, which has one.
        seed: seed of the new weights; with 2, the new layers have the wrong sign at first.
    """
    check = Arguments("fine_tuning")
    depth = check.count("depth", depth, 2, 4)
    highest = check.number("max_learning_rate", max_learning_rate, 0.0, open_below=True)
    model = ol.models.deep(depth, width, frequency=frequency, sigma_n=sigma_n, eta=eta, head_rate=eta)
    cosine = check.number("similarity", similarity, -1.0, 1.0)
    return ol.Problem(
        model=model,
        start=random_layers(check, model, start_norm, cosine, start_scale, seed),
        horizon=check.number("alpha_F", alpha_F, 0.0, open_below=True),
        controls={name: rate_control(check, eta, highest) for name in ("learning_rate", "head_rate")},
        intervals=20,
        baselines=_baselines(),
        name="fine_tuning",
    )


def _baselines() -> Baselines:
    return {
        "head only": BestOf(lambda problem, n, rate: _constant(problem, 0.0, rate), rates_of),
        "one rate": BestOf(lambda problem, n, rate: _constant(problem, rate, rate), rates_of),
        "best two rates": BestOf(lambda problem, n, *rates: _constant(problem, *rates), rates_of, rates_of),
        "head first, then all": BestOf(_head_first, _early, rates_of),
    }


def _constant(problem: "ol.Problem", first: float, head: float) -> "ol.Schedule":
    return ol.Schedule.constant(problem.horizon, with_others(problem, first, head))


def _head_first(problem: "ol.Problem", intervals: int, a: float, rate: float) -> "ol.Schedule":
    """The head alone up to α = a, then all layers, at one rate."""
    head, both = with_others(problem, 0.0, rate), with_others(problem, rate, rate)
    return phases(problem.horizon, (a, head), (problem.horizon - a, both))


def _early(problem: "ol.Problem") -> Bounds:
    """Times up to a quarter of training; a head has learned all it can long before."""
    return 0.0, problem.horizon / 4
