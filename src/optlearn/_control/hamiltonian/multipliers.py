"""Find the multiplier at which a budget is met: exactly on a box, elsewhere by safeguarded secants."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

Payload = TypeVar("Payload")

_NEWTON_STEPS = 8  # towards a multiplier on a box, before all kinks are put in order
_ROUND_OFF = 1e-15  # of a mean of numbers up to 1


@dataclass(frozen=True)
class Trial(Generic[Payload]):
    """A multiplier, how much it misses its target by, and what was found with it."""

    multiplier: float
    excess: float
    found: Payload


def bracket_multiplier(
    attempt: Callable[[float], tuple[float, Payload]],
    *,
    start: float = 0.0,
    step: float | Callable[[float], float] = 1.0,
    tolerance: float = 1e-13,
    narrow: float = 1e-14,
    at_most: bool = False,
    evaluations: int = 200,
) -> tuple[Trial[Payload], Trial[Payload]]:
    """Two multipliers, as close as possible, between which a falling excess crosses zero.

    Secant steps (Illinois), and bisections where those gain little: the excess may be smooth or jump.

    Args:
        attempt: ν → excess (not rising with ν), and anything to be kept.
        start: where to look first.
        step: how far to go from there, or a function of the excess there that tells it.
        tolerance: size of an excess that counts as zero.
        narrow: width of the bracket, relative to ν, at which to stop.
        at_most: an excess below zero is allowed, with ν = 0.
        evaluations: at most so many.

    Returns:
        Trials with excess ≥ 0 and with excess ≤ 0; one of them is near zero, or they are close.
    """

    def tried(multiplier: float) -> Trial[Payload]:
        return Trial(multiplier, *attempt(multiplier))

    lowest = 0.0 if at_most else -np.inf
    low = high = tried(max(start, lowest))
    step = step(low.excess) if callable(step) else step
    while low.excess < -tolerance and evaluations > 0:
        if low.multiplier == lowest:
            return low, low
        high, low = low, tried(max(low.multiplier - step, lowest))
        step, evaluations = 2 * step, evaluations - 1
    while high.excess > tolerance and evaluations > 0:
        low, high = high, tried(high.multiplier + step)
        step, evaluations = 2 * step, evaluations - 1
    return _close_in(tried, low, high, tolerance, narrow, evaluations)


def _close_in(
    tried: Callable[[float], Trial[Payload]],
    low: Trial[Payload],
    high: Trial[Payload],
    tolerance: float,
    narrow: float,
    evaluations: int,
) -> tuple[Trial[Payload], Trial[Payload]]:
    weight_low, weight_high = low.excess, high.excess
    halve, last = False, 0
    for _ in range(evaluations):
        width = high.multiplier - low.multiplier
        if min(low.excess, -high.excess) <= tolerance or width <= narrow * max(
            abs(low.multiplier), abs(high.multiplier)
        ):
            break
        share = 0.5 if halve else weight_low / (weight_low - weight_high)
        middle = low.multiplier + share * width
        if not low.multiplier < middle < high.multiplier:
            middle = (low.multiplier + high.multiplier) / 2
        new = tried(middle)
        least = min(low.excess, -high.excess)
        # Illinois: an end that stays twice counts half, or secants would keep it for ever.
        side = 1 if new.excess >= 0 else -1
        if side > 0:
            low, weight_low = new, new.excess
            weight_high = weight_high / 2 if side == last else weight_high
        else:
            high, weight_high = new, new.excess
            weight_low = weight_low / 2 if side == last else weight_low
        last = side
        halve = abs(new.excess) > least / 4 and high.multiplier - low.multiplier > width / 2
    return low, high


def multiplier_on_box(y: np.ndarray, row: np.ndarray, target: float, start: float = 0.0) -> float:
    """The ν at which the mean over rows of row·clip(y − ν row, 0, 1) equals the target, y (I, m), row (m,).

    That mean is a falling, piecewise linear function of ν. Newton's method from a ``start`` nearby is on the
    right piece, and then exact, after two or three steps; where it is not, all kinks, in order, give ν. A
    target out of reach gives the ν from which on the mean does not change.
    """
    used = row != 0
    size = np.abs(row).max()
    row, target = row / size, target / size
    a = np.broadcast_to(row[used], (len(y), int(used.sum()))).ravel()
    values, squares = y[:, used].ravel(), a**2
    nu = start * size
    for _ in range(_NEWTON_STEPS):
        moved = values - nu * a
        excess = float(a @ np.minimum(np.maximum(moved, 0.0), 1.0)) - len(y) * target
        slope = float(squares @ ((moved > 0) & (moved < 1)))
        if slope == 0.0:
            break
        nu += excess / slope
        if abs(excess) <= _ROUND_OFF * len(y):
            return float(nu / size)
    return _by_kinks(values, a, len(y) * target) / size


def _by_kinks(y: np.ndarray, a: np.ndarray, target: float) -> float:
    """The ν at which a·clip(y − ν a, 0, 1) equals the target."""
    zero, one = y / a, (y - 1) / a
    kinks = np.concatenate([np.minimum(zero, one), np.maximum(zero, one)])
    order = np.argsort(kinks)
    kinks = kinks[order]
    slopes = np.cumsum(np.concatenate([a**2, -(a**2)])[order])[:-1]
    fallen = np.concatenate([[0.0], np.cumsum(slopes * np.diff(kinks))])
    # What the sum has to fall by, from where every entry is at the end that makes it largest.
    fall = np.clip(np.sum(np.maximum(a, 0)) - target, 0.0, fallen[-1])
    i = int(np.clip(np.searchsorted(fallen, fall, side="right") - 1, 0, len(slopes) - 1))
    beyond = (fall - fallen[i]) / slopes[i] if slopes[i] > 0 else 0.0
    return float(min(kinks[i] + beyond, kinks[i + 1]))


def blend(low: Trial[np.ndarray], high: Trial[np.ndarray]) -> tuple[np.ndarray, float]:
    """The mixture of two trials' finds whose excess is zero, excess being linear in them; and ν."""
    spread = low.excess - high.excess
    share = min(max(low.excess / spread, 0.0), 1.0) if spread > 0 else 0.0
    return (
        low.found + share * (high.found - low.found),
        low.multiplier + share * (high.multiplier - low.multiplier),
    )
