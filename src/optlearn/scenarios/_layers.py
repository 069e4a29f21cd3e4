"""Layers: a learning rate for each layer of a deep network."""

from typing import Annotated

import numpy as np

import optlearn as ol
from optlearn import _time_courses as shapes
from optlearn._arguments import Arguments
from optlearn._control.families import BestOf, Bounds
from optlearn.scenarios._baselines import Baseline, Baselines, rate_baselines, rate_control
from optlearn.scenarios._catalogue import Example, scenario


@scenario(
    citations=("saad1995line", "cui2024high", "bietti2022learning"),
    variants=({"one_rate": True}, {"depth": 4}),
    # With a small initial cosine, four intervals have two optima, before and after the direction is found.
    example=Example(
        {"learning_rate": [1.0, 0.5], "layer2_rate": [0.5, 1.0]},
        4,
        {"alpha_F": 5.0, "depth": 2, "start_cosine": 0.6},
    ),
)
def layers(
    depth: Annotated[int, (2, 4, 1)] = 3,
    frequency: Annotated[float, (0.5, 3, 0.1)] = 1.5,
    sigma_n: Annotated[float, (0, 1, 0.05)] = 0.3,
    width: Annotated[int, (1, 5, 1)] = 3,
    alpha_F: float = 20.0,
    eta: Annotated[float, (0.1, 1, 0.1)] = 1.0,
    max_learning_rate: Annotated[float, (1, 6, 0.5)] = 3.0,
    one_rate: bool = False,
    start_cosine: Annotated[float, (0, 0.9, 0.05)] = 0.1,
    start_norm: float = 1.0,
    start_scale: float = 1.0,
    seed: int = 0,
) -> "ol.Problem":
    """The learning rate of each layer that leaves a deep network with the lowest error.

    A first layer of the large input, tanh layers behind it and a linear output learn sin(ωλ*) of one
    direction. Controls: ``learning_rate`` of the first layer, ``layer2_rate``, … of the others.

    Args:
        depth: layers of weights, from 2 to 4.
        frequency: frequency ω of the wave to be learned.
        sigma_n: standard deviation of the label noise.
        width: units in each hidden layer but the first, which has one.
        alpha_F: horizon, training steps divided by input dimension.
        eta: first guess of all learning rates.
        max_learning_rate: upper bound of each rate.
        one_rate: all layers share one learning rate.
        start_cosine: initial cosine of the first layer with the direction to be found.
        start_norm: squared norm Q11 of the first layer, over N.
        start_scale: standard deviation of the other layers' weights, times the square root of their number of
            inputs.
        seed: seed of the random weights of the other layers.
    """
    check = Arguments("layers")
    depth = check.count("depth", depth, 2, 4)
    highest = check.number("max_learning_rate", max_learning_rate, 0.0, open_below=True)
    rates = None if check.flag("one_rate", one_rate) else np.full(depth - 1, eta)
    model = ol.models.deep(depth, width, frequency=frequency, sigma_n=sigma_n, eta=eta, rates=rates)
    names = ["learning_rate"] if one_rate else [n for n in model.parameters if n.endswith("_rate")]
    return ol.Problem(
        model=model,
        start=random_layers(check, model, start_norm, start_cosine, start_scale, seed),
        horizon=check.number("alpha_F", alpha_F, 0.0, open_below=True),
        controls={name: rate_control(check, eta, highest) for name in names},
        intervals=20,
        baselines=_baselines(one_rate),
        name="layers",
    )


def random_layers(
    check: Arguments, model: "ol.models.Deep", norm: float, cosine: float, scale: float, seed: int
) -> "ol.OrderParameters":
    """A first layer with a given cosine, and random ones behind it."""
    norm = check.number("start_norm", norm, 0.0, open_below=True)
    size = check.number("start_scale", scale, 0.0, open_below=True)
    overlap = check.number("start_cosine", cosine, -1.0, 1.0) * np.sqrt(norm)
    random = np.random.default_rng(check.count("seed", seed, lowest=0))
    weights = {n: size / np.sqrt(s[-1]) * random.standard_normal(s) for n, s in model.trained.items()}
    return model.state(Q11=norm, M11=overlap, **weights)


def rates_of(problem: "ol.Problem") -> Bounds:
    """The lowest and highest learning rate, common to all layers."""
    rate = problem.continuous["learning_rate"]
    return rate.lower, rate.upper


def with_others(problem: "ol.Problem", first: float, others: float) -> dict[str, float]:
    """One value for the rate of the first layer, and one for all others."""
    return {name: first if name == "learning_rate" else others for name in problem.continuous}


def _baselines(one_rate: bool) -> Baselines:
    """Usual shapes of a rate shared by all layers, and two constant rates."""
    apart: dict[str, Baseline] = {
        "best two constants": BestOf(_two_constants, rates_of, rates_of),
    }
    return {**rate_baselines(_common), **({} if one_rate else apart)}


def _common(problem: "ol.Problem", intervals: int, course: shapes.Shape) -> "ol.Schedule":
    courses = dict.fromkeys(problem.continuous, course)
    return ol.Schedule.from_function(problem.horizon, courses, intervals)


def _two_constants(problem: "ol.Problem", intervals: int, first: float, others: float) -> "ol.Schedule":
    return ol.Schedule.constant(problem.horizon, with_others(problem, first, others))
