"""Boxes that no state leaves, whatever the controls: proven by bounds on the drift at their sides."""

from itertools import product
from typing import NamedTuple

import numpy as np

from optlearn._control.bound import polynomials as poly
from optlearn._control.bound.polynomial_problem import PolynomialProblem

# Boxes grow by this factor until no state leaves them, so many times at most.
GROWTH, TRIES = 1.1, 60
# The range of each control is cut into so many, so that bounds on the drift are tight.
PARTS = 4
# Speeds through a side, beside those inside, that are round-off.
ROUND_OFF = 1e-12


class Box(NamedTuple):
    """Lowest and highest states (r,), and whether it is proven that none leaves."""

    low: np.ndarray
    high: np.ndarray
    proven: bool


def invariant_box(problem: PolynomialProblem) -> Box:
    """The smallest box, of those tried, that no state leaves; around what was reached if there is none."""
    low, high = problem.reached.min(axis=0), problem.reached.max(axis=0)
    thin = 1e-6 * np.maximum(1.0, np.abs(problem.reached).max(axis=0))
    low, high = np.where(high - low < thin, low - thin, low), np.where(high - low < thin, high + thin, high)
    first = Box(low, high, False)
    for _ in range(TRIES):
        leaves = _leaves(problem, low, high)
        if not np.any(leaves):
            return Box(low, high, True)
        width = (GROWTH - 1) * (high - low)
        low, high = _wider(low, -width * leaves[0]), _wider(high, width * leaves[1])
    return first


def _wider(sides: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Moved, but to 0 first where they would cross it: squares and norms end there."""
    return np.where(sides * (sides + by) < 0, 0.0, sides + by)


def _leaves(problem: PolynomialProblem, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """(2, r) whether a state may leave the box through each of its lower and upper sides.

    Where the state flows, its speed at a side counts; where it goes in steps, where any of them ends.
    """
    n, m = problem.sizes
    found = np.zeros((2, n), dtype=bool)
    cuts = np.linspace(problem.controls[0], problem.controls[1], PARTS + 1)
    for part in product(range(PARTS), repeat=m):
        controls = cuts[list(part), range(m)], cuts[[p + 1 for p in part], range(m)]
        ends = np.concatenate([low, controls[0]]), np.concatenate([high, controls[1]])
        for i, drift in enumerate(problem.drift):
            speed = poly.combined([(2 / (high[i] - low[i]), poly.scaled(drift, *ends))])
            small = ROUND_OFF * sum(map(abs, speed.values()))
            if problem.step:
                place = poly.combined([(problem.step, speed), (1.0, poly.variable(i, n + m))])
                least, most = poly.enclosure(place, n + m)
                least, most = least + 1, most - 1
            else:
                least = poly.enclosure(poly.at(speed, i, -1.0), n + m)[0]
                most = poly.enclosure(poly.at(speed, i, 1.0), n + m)[1]
            found[:, i] |= least < -small, most > small
    return found
