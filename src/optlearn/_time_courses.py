"""Named shapes of a control over training: functions of α for any horizon.

Each returns a function that ``Schedule.from_function`` can sample. ``horizon`` is α_F; values are
in the units of the control.
"""

from collections.abc import Callable

import numpy as np

from optlearn._errors import SpecificationError

Shape = Callable[[float], float]


def constant(value: float) -> Shape:
    """The same value throughout."""
    return lambda alpha: float(value)


def linear(first: float, last: float, horizon: float) -> Shape:
    """A straight line from ``first`` at α = 0 to ``last`` at the horizon."""
    _check_horizon("linear", horizon)
    return lambda alpha: float(first + (last - first) * alpha / horizon)


def cosine(first: float, last: float, horizon: float) -> Shape:
    """Half a period of a cosine: flat at both ends."""
    _check_horizon("cosine", horizon)
    return lambda alpha: float(last + (first - last) * (1 + np.cos(np.pi * alpha / horizon)) / 2)


def exponential(first: float, last: float, horizon: float) -> Shape:
    """A constant relative rate of change; both values must be above 0."""
    _check_horizon("exponential", horizon)
    if not (first > 0 and last > 0):
        raise SpecificationError(f"exponential(first={first!r}, last={last!r}): both values must be above 0")
    return lambda alpha: float(first * (last / first) ** (alpha / horizon))


def warm_up_stable_decay(
    peak: float,
    horizon: float,
    warm_up: float = 0.1,
    decay: float = 0.2,
    first: float = 0.0,
    last: float = 0.0,
) -> Shape:
    """Linear rise to ``peak``, a plateau, linear fall to ``last``.

    Args:
        peak: value of the plateau.
        horizon: α_F.
        warm_up: share of training spent on the rise.
        decay: share of training spent on the fall; together with ``warm_up`` at most 1.
        first: value at α = 0.
        last: value at the horizon.
    """
    _check_horizon("warm_up_stable_decay", horizon)
    if not (warm_up >= 0 and decay >= 0 and warm_up + decay <= 1 + 1e-12):
        raise SpecificationError(
            f"warm_up_stable_decay(warm_up={warm_up!r}, decay={decay!r}): shares of training, each "
            "at least 0 and together at most 1"
        )

    def shape(alpha: float) -> float:
        time = alpha / horizon
        if time < warm_up:
            return float(first + (peak - first) * time / warm_up)
        if time > 1 - decay:
            return float(last + (peak - last) * (1 - time) / decay)
        return float(peak)

    return shape


def power_decay(peak: float, horizon: float, exponent: float) -> Shape:
    """A fall to zero like ``peak`` · (1 − α/α_F)^``exponent``."""
    _check_horizon("power_decay", horizon)
    if not exponent >= 0:
        raise SpecificationError(f"power_decay(exponent={exponent!r}): a number of at least 0")
    return lambda alpha: float(peak * max(1 - alpha / horizon, 0.0) ** exponent)


def two_switch(first: float, second: float, third: float, a: float, b: float) -> Shape:
    """``first`` up to α = a, ``second`` up to α = b, then ``third``."""
    if not 0 <= a <= b:
        raise SpecificationError(f"two_switch(a={a!r}, b={b!r}): training times with 0 ≤ a ≤ b")
    return lambda alpha: float(first if alpha < a else second if alpha < b else third)


def _check_horizon(shape: str, horizon: float) -> None:
    if not (np.isfinite(horizon) and horizon > 0):
        raise SpecificationError(f"{shape}(horizon={horizon!r}): a finite training time above 0")
