"""Newton's method for many small minimisations at once, safeguarded: in one variable, and in several."""

from collections.abc import Callable

import numpy as np

_STEPS = 60
_ARMIJO = 1e-4
_SHORTER = 0.25  # a step that does not lower a function enough is taken again, so much shorter
_SHORTEST = 1e-6
_FLAT = 1e-13  # curvatures below this share of the largest count as none
_ROUND_OFF = 1e-15  # of a function, relative to its size
_QUIET = 2  # steps that win no more than round-off, after which there is nothing left to find


def stationary(
    derivatives: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]],
    x: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    precision: float,
    wanted: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Where functions of one variable stop falling inside brackets.

    Args:
        derivatives: x (p,), which functions (p,) → first and second derivatives (p,).
        x: (P,) first trial.
        low: (P,) lower ends of brackets.
        high: (P,) upper ends.
        precision: a step of Newton's method that is shorter than this is the last.
        wanted: (p,) which functions.

    Returns:
        (p,) stationary points, or ends of brackets towards which the functions fall; and (p,) by how much
        they move when a slope is added, per unit of it.
    """
    x, low, high, pending = x.copy(), low.copy(), high.copy(), wanted
    tested_low, tested_high = np.zeros(len(x), bool), np.zeros(len(x), bool)
    yields = np.zeros(len(x))
    for _ in range(_STEPS):
        at = x[pending]
        first, second = derivatives(at, pending)
        rising, falling = pending[first > 0], pending[first < 0]
        high[rising], tested_high[rising] = x[rising], True
        low[falling], tested_low[falling] = x[falling], True
        with np.errstate(divide="ignore", invalid="ignore"):
            newton = np.where(second > 0, at - first / second, np.where(first > 0, -np.inf, np.inf))
        newton = np.where(first == 0, at, newton)
        least, most = low[pending], high[pending]
        trial = np.clip(newton, least, most)
        # An end that was tried already, and lies uphill, is no place to go again.
        again = ((trial <= least) & tested_low[pending]) | ((trial >= most) & tested_high[pending])
        near = np.abs(newton - at) <= precision
        inside = near & (second > 0) & (trial == newton)
        yields[pending] = np.where(inside, -1 / np.where(inside, second, 1.0), 0.0)
        x[pending] = np.where(again & ~near, (least + most) / 2, trial)
        pending = pending[~(near | (most - least <= precision))]
        if len(pending) == 0:
            break
    return x[wanted], yields[wanted]


def lowest_in_box(
    expand: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]],
    x: np.ndarray,
    *,
    reach: float,
    precision: float,
    size: np.ndarray,
) -> np.ndarray:
    """Minimise functions of several variables over the unit box, all variables at once.

    One variable after the other would creep along a valley that no axis follows, as that of a learning rate
    and a batch size that matter by η²/B nearly alone.

    Args:
        expand: x (p, c), which functions (p,) → values (p,), gradients (p, c), Hessians (p, c, c).
        x: (P, c) first trials.
        reach: longest step along an axis of a function's Hessian.
        precision: of x.
        size: (P,) of the functions, which their round-off is a part of.

    Returns:
        (P, c) minimisers, as good as the first trials or better.
    """
    x, pending = x.copy(), np.arange(len(x))
    value, slope, hessian = expand(x, pending)
    share, quiet = np.ones(len(x)), np.zeros(len(x), int)
    for _ in range(_STEPS):
        step = _step(x[pending], slope[pending], hessian[pending], reach)
        moved = np.clip(x[pending] + share[pending, None] * step, 0.0, 1.0) - x[pending]
        promise = -np.einsum("pc,pc->p", slope[pending], moved)
        quiet[pending] += promise <= _ROUND_OFF * size[pending]
        go_on = (np.abs(moved).max(axis=1) > precision * share[pending]) & (quiet[pending] <= _QUIET)
        go_on &= share[pending] > _SHORTEST
        pending, moved, promise = pending[go_on], moved[go_on], promise[go_on]
        if len(pending) == 0:
            break
        trial = x[pending] + moved
        found = expand(trial, pending)
        slack = 10 * _ROUND_OFF * size[pending]
        good = found[0] <= value[pending] - _ARMIJO * promise + slack
        better = pending[good]
        x[better], value[better], slope[better], hessian[better] = (part[good] for part in (trial, *found))
        share[pending] = np.where(good, 1.0, _SHORTER * share[pending])
    return x


def _step(x: np.ndarray, slope: np.ndarray, hessian: np.ndarray, reach: float) -> np.ndarray:
    """(P, c) Newton steps downhill in the variables that are not held by a bound."""
    free = ~(((x <= 0) & (slope > 0)) | ((x >= 1) & (slope < 0)))
    both = free[:, :, None] & free[:, None, :]
    bends, axes = np.linalg.eigh(np.where(both, hessian, np.eye(x.shape[1])))
    along = np.einsum("pca,pc->pa", axes, np.where(free, slope, 0.0))
    # Downhill whatever the sign of the curvature; where there is none, as far as allowed.
    bends = np.maximum(np.abs(bends), np.maximum(_FLAT * np.abs(bends).max(axis=1, keepdims=True), 1e-300))
    return np.asarray(np.einsum("pca,pa->pc", axes, np.clip(-along / bends, -reach, reach)))
