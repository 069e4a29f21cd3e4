"""Rules for every descent, of one problem or of a lane: when a step is accepted, and when a gap is small.

All of them work on numbers, and on arrays of NumPy or JAX, traced or not.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from optlearn._arrays import Array
from optlearn._control.hamiltonian.newton import ARMIJO

TOLERANCE = 1e-7  # of the Hamiltonian gap, relative
LITTLE = 0.1  # a damped step that gains less than this share of the gap is zigzagging
SMALLEST_STEP = 1e-10  # share of a direction
CURVED = 1e-10  # cosine between a step and the gradient change above which they show positive curvature
ROUND_OFF = 1e-14  # of an objective
FIRST_MOVE = 0.1  # of a control's range, while no curvature is known


def gap_tolerance(objective: Array, relative: Any, xp: ModuleType = np) -> Array:
    """The gap up to which the minimum principle counts as met: a share of the objective, tenfold if small."""
    size = abs(objective)
    # Descents call this all the time, and Python compares two numbers ten times as fast as NumPy.
    lower, upper = (min, max) if isinstance(objective, float) else (xp.minimum, xp.maximum)
    return lower(relative * upper(1.0, size), 10 * relative * size + ROUND_OFF)


def lowers(rise: Array, share: Array, slope: Array) -> Array:
    """Does the objective fall enough (``rise`` < 0) over a share of a direction (Armijo)?"""
    return rise <= ARMIJO * share * slope


def shortened(share: Array, rise: Array, slope: Array, xp: ModuleType = np) -> Array:
    """A smaller share to try next: the minimum of the parabola through value, slope and trial.

    It is kept away from both ends. A rise that is not finite only shows that the share was too large.
    """
    bend = rise - share * slope
    bent = xp.isfinite(rise) & (bend > 0)
    ideal = xp.where(bent, -slope * share / (2 * xp.where(bent, bend, 1.0)), 0.0)
    return share * xp.clip(ideal, 0.1, 0.5)


def compact(
    S: Array, Y: Array, sigma: Any, gram: Callable[[Array, Array], Array], xp: ModuleType = np
) -> tuple[Array, Array]:
    """N (2k, n) and K (2k, 2k) of the limited-memory BFGS matrix B = σ − Nᵀ K⁻¹ N.

    Args:
        S: (k, n) steps.
        Y: (k, n) changes of the gradient over them.
        sigma: σ.
        gram: two such arrays → inner products (k, k) of their rows.
        xp: array namespace.

    References:
        R. H. Byrd, J. Nocedal, R. B. Schnabel, *Representations of quasi-Newton matrices and their use in
        limited memory methods*, Math. Program. 63 (1994).
    """
    products = gram(S, Y)
    L = xp.tril(products, -1)
    K = xp.block([[sigma * gram(S, S), L], [L.T, -xp.diag(xp.diag(products))]])
    return xp.concatenate([sigma * S, Y]), K
