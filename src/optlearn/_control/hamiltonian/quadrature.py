"""The mean over an interval from values at the ends of its steps."""

import numpy as np


def quadrature(steps: int) -> np.ndarray:
    """(steps + 1,) weights for the mean over an interval: Simpson's for even steps, or trapezoid."""
    weights = np.ones(steps + 1)
    if steps % 2 == 0:
        weights[1:-1:2], weights[2:-1:2] = 4.0, 2.0
    else:
        weights[1:-1] = 2.0
    return np.asarray(weights / weights.sum())
