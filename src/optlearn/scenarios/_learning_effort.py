"""Effort while a deep linear network learns: when to spend a gain, and in which order to learn tasks."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import numpy as np

import optlearn as ol
from optlearn._arguments import Arguments
from optlearn._control.families import BestOf
from optlearn.scenarios._baselines import Baselines, at, bounds_of, constant, line, phases
from optlearn.scenarios._catalogue import Example, scenario

if TYPE_CHECKING:
    from optlearn._arrays import Array, Settings

Scheduled = Literal["gain", "task"]


@scenario(
    citations=("carrasco2024metalearning", "saxe2014exact"),
    main=("depth", "price", "alpha_F", "control"),
    example=Example({"gain": [1.5, 1.2]}, 8, {"alpha_F": 4.0}, methods=("direct", "indirect")),
    variants=({"control": "task"},),
)
def learning_effort(
    depth: Annotated[int, (1, 5, 1)] = 2,
    price: Annotated[float, (0.02, 1, 0.02)] = 0.2,
    alpha_F: Annotated[float, (2, 20, 1)] = 8.0,
    control: Scheduled = "gain",
    strongest: Annotated[float, (0.5, 3, 0.1)] = 1.0,
    weakest: Annotated[float, (0.1, 1, 0.1)] = 0.5,
    strength: Annotated[float, (0.01, 0.3, 0.01)] = 0.05,
    max_gain: Annotated[float, (1.5, 5, 0.5)] = 3.0,
) -> "ol.Problem":
    """When to spend effort while a deep linear network learns, and which task comes first.

    The network learns two modes by gradient flow. Control ``gain``, from 1 to ``max_gain``: it multiplies the
    output, which makes the error smaller and learning faster, and costs ``price`` times (gain − 1)²; error
    and cost are averaged over training. Or ``control="task"``: each mode is a task of its own, one is trained
    at a time, and the error of both is averaged over training.

    Args:
        depth: number of layers L.
        price: price β of effort.
        alpha_F: horizon, in units of time at a rate of 1.
        control: "gain" or "task".
        strongest: correlation of the first mode.
        weakest: correlation of the second mode.
        strength: initial strength of both modes.
        max_gain: largest gain.
    """
    check = Arguments("learning_effort")
    modes = np.array(
        [
            check.number(name, s, 0.0, open_below=True)
            for name, s in (("strongest", strongest), ("weakest", weakest))
        ]
    )
    chosen = check.one_of("control", control, get_args(Scheduled))
    begin = check.number("strength", strength, 0.0, open_below=True)
    cost = check.number("price", price, 0.0, open_below=True)
    highest = check.number("max_gain", max_gain, 1.0, open_below=True)
    layers = check.count("depth", depth, 1)
    controls: dict[str, Any]
    if chosen == "task":
        model = ol.models.deep_linear(layers, np.diag(modes), variances=np.eye(2))
        controls, objective = {"task": ol.Discrete((0, 1))}, ol.Objective.average_error()
        baselines = _orders()
    else:
        model = ol.models.deep_linear(layers, modes)
        # A parameter, so that problems with different prices differ only in numbers.
        model = replace(model, parameters={**model.parameters, "price": cost})
        controls = {"gain": ol.Continuous(1.0, highest, guess=1 + (highest - 1) / 4)}
        objective, baselines = ol.Objective(final=0.0, average=1.0, cost=effort), _gains()
    return ol.Problem(
        model=model,
        start=model.start(begin),
        horizon=check.number("alpha_F", alpha_F, 0.0, open_below=True),
        controls=controls,
        objective=objective,
        intervals=60,
        baselines=baselines,
        name="learning_effort",
    )


def effort(x: Any, u: "Settings") -> "Array":
    """A running cost: the price of a gain above 1."""
    return u["price"] * (u["gain"] - 1) ** 2


def _gains() -> Baselines:
    bounds = bounds_of("gain")
    return {
        "no effort": at("gain", 1.0),
        "best constant effort": BestOf(constant("gain"), bounds),
        "linear effort": BestOf(line("gain"), bounds, bounds),
    }


def _orders() -> Baselines:
    """One task after the other, switching at the best moment, and both in turn."""

    def order(first: int) -> BestOf:
        def family(problem: "ol.Problem", intervals: int, share: float) -> "ol.Schedule":
            length = share * problem.horizon
            tasks = ({"task": float(first)}, {"task": float(1 - first)})
            return phases(problem.horizon, (length, tasks[0]), (problem.horizon - length, tasks[1]))

        return BestOf(family, (0.0, 1.0))

    def in_turn(problem: "ol.Problem", intervals: int) -> "ol.Schedule":
        return ol.Schedule.piecewise(
            np.linspace(0, problem.horizon, intervals + 1), {"task": np.arange(intervals) % 2.0}
        )

    return {"strongest first": order(0), "weakest first": order(1), "in turn": in_turn}
