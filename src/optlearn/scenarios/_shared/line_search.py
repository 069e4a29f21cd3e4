"""The minimum of a function of one number."""

from collections.abc import Callable
from math import copysign, sqrt
from sys import float_info

GOLDEN = (3 - sqrt(5)) / 2
# Share of a place within which round-off hides how a smooth function changes about its minimum.
FLAT = sqrt(float_info.epsilon)


def least_between(function: Callable[[float], float], low: float, high: float, accuracy: float) -> float:
    """Where a function is least between ``low`` and ``high``; of several minima it may find any.

    Brent's method: to the lowest point of the parabola through the best three points, or a golden section
    where the parabola leads outside or does not close in. SciPy's ``minimize_scalar`` does the same, but
    takes longer to import than a search needs.

    Args:
        function: to minimise; where it is infinite, it is not least.
        low: one end, which is approached but not tried.
        high: the other end.
        accuracy: of the place.
    """
    start = low + GOLDEN * (high - low)
    best = [(function(start), start)]
    step = before = 0.0
    while True:
        (value, x), middle = best[0], (low + high) / 2
        closest = FLAT * abs(x) + accuracy / 3
        if abs(x - middle) <= 2 * closest - (high - low) / 2:
            return x
        over, under = _lowest_of_parabola(best)
        if abs(before) > closest and abs(over) < abs(under * before / 2) and low < x + over / under < high:
            before, step = step, over / under
            if min(x + step - low, high - x - step) < 2 * closest:
                step = copysign(closest, middle - x)
        else:
            before = (high if x < middle else low) - x
            step = GOLDEN * before
        trial = x + copysign(max(abs(step), closest), step)
        found = function(trial)
        # The minimum lies between the neighbours of the lower of the two points.
        edge = x if found <= value else trial
        if (trial > x) == (found <= value):
            low = edge
        else:
            high = edge
        best = sorted([(found, trial), *best], key=lambda point: point[0])[:3]


def _lowest_of_parabola(points: list[tuple[float, float]]) -> tuple[float, float]:
    """How far it is from the first of three points (value, place): numerator and denominator."""
    if len(points) < 3:
        return 0.0, 0.0
    (value, x), (second_value, second), (third_value, third) = points
    right, left = (x - second) * (value - third_value), (x - third) * (value - second_value)
    return (x - second) * right - (x - third) * left, 2 * (left - right)
