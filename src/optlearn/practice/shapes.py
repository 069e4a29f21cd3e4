"""Simple shapes built into training code, and the one nearest to a schedule."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from optlearn._arrays import Float
from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule

LEAST_DECAY, MOST_POWER = 1e-3, 10.0


class Form(NamedTuple):
    """A shape's parameter besides peak and end: name, usual value and bounds."""

    name: str
    usual: float
    bounds: tuple[float, float]


@dataclass(frozen=True)
class Shape:
    """The fall of a rate from its peak (1) to its end (0), over a share of training from 0 to 1.

    Attributes:
        fall: (share, form) → (…) from 1 to 0; ``form`` is the shape's own parameter, if it has one.
        form: that parameter, or None.
    """

    fall: Callable[[np.ndarray, float], np.ndarray]
    form: Form | None = None


SHAPES: Mapping[str, Shape] = MappingProxyType(
    {
        "linear": Shape(lambda x, _: 1 - x),
        "cosine": Shape(lambda x, _: (1 + np.cos(np.pi * x)) / 2),
        "power": Shape(lambda x, n: (1 - x) ** n, Form("power", 1.5, (0.05, MOST_POWER))),
        # Warm-up, stable, decay: linear over the last share.
        "wsd": Shape(lambda x, d: np.minimum(1.0, (1 - x) / d), Form("decay_share", 0.3, (LEAST_DECAY, 1.0))),
    }
)


@dataclass(frozen=True)
class Simplified:
    """A schedule of a simple shape that replaces another schedule.

    Attributes:
        schedule: the new schedule, on the grid of the replaced one.
        shape: name of the shape.
        settings: its parameters: ``peak``, ``end``, and ``power`` or ``decay_share`` (of the time after the
            peak).
        distance: root mean square difference of the control, as a share of its peak.
        cost: increase of the loss; None if no loss was given.
    """

    schedule: Schedule
    shape: str
    settings: Mapping[str, float]
    distance: float
    cost: float | None


def fall(shape: str, share: Float[np.ndarray, " n"], form: float | None = None) -> Float[np.ndarray, " n"]:
    """How a shape falls, from 1 at share 0 to 0 at share 1 of training."""
    if shape not in SHAPES:
        raise SpecificationError(f"shape must be one of {', '.join(SHAPES)}, got {shape!r}")
    if form is None:
        usual = SHAPES[shape].form
        form = 0.0 if usual is None else usual.usual
    return SHAPES[shape].fall(np.asarray(share, dtype=float), form)


def nearest_shape(
    schedule: Schedule, shape: str, control: str, loss: Callable[[Schedule], float] | None
) -> Simplified:
    """See ``Schedule.nearest``."""
    fall(shape, np.zeros(1))
    if control not in schedule.controls:
        raise SpecificationError(
            f"nearest: control must be one of {', '.join(schedule.controls)}, got {control!r}"
        )
    values, grid = np.asarray(schedule[control]), schedule.grid
    peak = float(values.max())
    first = int(np.flatnonzero(values >= peak * (1 - 1e-6))[0])  # a warm-up before it is kept
    middles = ((grid[1:] + grid[:-1]) / 2)[first:]
    share = (middles - grid[first]) / (grid[-1] - grid[first])
    weights = np.diff(grid)[first:] / (grid[-1] - grid[first])
    form = SHAPES[shape].form
    # Peak and end as shares of the schedule's own peak, which neither may exceed, and the form.
    size = 2 if form is None else 3
    highest = np.array([1.0, 1.0, np.inf])[:size]

    def course(numbers: np.ndarray) -> np.ndarray:
        top, end = peak * np.abs(numbers[:2])
        number = None if form is None else np.clip(numbers[2], *form.bounds)
        return end + (top - end) * fall(shape, share, number)

    def whole(numbers: np.ndarray) -> Schedule:
        both = np.append(values[:first], course(numbers))
        return Schedule.piecewise(grid, {**schedule.values, control: both})

    def distance(numbers: np.ndarray) -> float:
        return float(np.sqrt(weights @ (course(numbers) - values[first:]) ** 2) / max(peak, 1e-300))

    forms = [0.0] if form is None else [form.usual, form.usual / 3, min(3 * form.usual, form.bounds[1])]
    starts = [np.array([1.0, 0.05, start][:size]) for start in forms]
    searches = [minimize(distance, s, method="Nelder-Mead", options={"maxiter": 600}) for s in starts]
    best = min(searches, key=lambda search: search.fun).x
    cost = None
    if loss is not None:
        by_loss = minimize(
            lambda numbers: loss(whole(np.minimum(np.abs(numbers), highest))),
            best,
            method="Nelder-Mead",
            options={"maxiter": 60, "xatol": 1e-3, "fatol": 1e-7},
        )
        best = np.minimum(np.abs(by_loss.x), highest)
        cost = float(loss(whole(best)) - loss(schedule))
    settings = {"peak": float(peak * abs(best[0])), "end": float(peak * abs(best[1]))}
    if form is not None:
        settings[form.name] = float(np.clip(best[2], *form.bounds))
    return Simplified(whole(best), shape, settings, distance(best), cost)
