"""Newton's method for many small minimisations at once, safeguarded: in one variable, and in several.

All of this runs under NumPy and under XLA (``loops``): x (P, …) has one row for each function, and callbacks
receive the indices of their rows.
"""

from collections.abc import Callable
from itertools import combinations
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from optlearn._arrays import Array
from optlearn._control.hamiltonian.loops import repeat, repeat_rows

_STEPS = 60
_BRACKETS = 4  # factor of steps where one bracket follows another
ARMIJO = 1e-4  # share of the promised decrease that a step must achieve
_SHORTER = 0.25  # factor by which a step is shortened if it does not lower a function enough
_SHORTEST = 1e-6
_FLAT = 1e-13  # curvatures below this share of the largest count as zero
_ROUND_OFF = 1e-15  # of a function, relative to its size
_QUIET = 2  # steps in a row that gain no more than round-off before a search ends
_SWEEPS = 7  # sweeps over all pairs of axes; convergence is quadratic


class _Bracketed(NamedTuple):
    """Points x (P,), each in a bracket that began as [left, right] and has shrunk to [low, high]."""

    x: Array
    left: Array
    right: Array
    low: Array
    high: Array
    tested_low: Array
    tested_high: Array
    yields: Array


def stationary(
    derivatives: Callable[[Array, Any], tuple[Array, Array]],
    x: Array,
    bounds: tuple[float, float],
    *,
    reach: Array,
    precision: float,
    xp: ModuleType = np,
) -> tuple[Array, Array]:
    """Local minimisers of functions of one variable, downhill from the first trials.

    Args:
        derivatives: x (p,), which functions → first and second derivatives (p,).
        x: (P,) first trials.
        bounds: bounds of x.
        reach: (P,) half the length of the bracket around a trial. A function that still falls at the end of
            its bracket gets another one there.
        precision: the first Newton step shorter than this is the last.
        xp: array namespace.

    Returns:
        (P,) stationary points, or bounds towards which the functions fall; and (P,) their displacement
        per unit of added slope.
    """
    bottom, top = bounds

    def bracket(x: Array, rows: Any) -> tuple[Array, Array]:
        return xp.maximum(x - reach[rows], bottom), xp.minimum(x + reach[rows], top)

    def step(at: _Bracketed, rows: Any) -> tuple[_Bracketed, Array]:
        x, left, right = at.x, at.left, at.right
        first, second = derivatives(x, rows)
        rising, falling = first > 0, first < 0
        high, tested_high = xp.where(rising, x, at.high), at.tested_high | rising
        low, tested_low = xp.where(falling, x, at.low), at.tested_low | falling
        bent = second > 0
        newton = xp.where(bent, x - first / xp.where(bent, second, 1.0), xp.where(rising, -np.inf, np.inf))
        newton = xp.where(first == 0, x, newton)
        trial = xp.clip(newton, low, high)
        # Do not return to an end that was tried already and lies uphill.
        again = ((trial <= low) & tested_low) | ((trial >= high) & tested_high)
        near = xp.abs(newton - x) <= precision
        inside = near & bent & (trial == newton)
        yields = xp.where(inside, -1 / xp.where(inside, second, 1.0), 0.0)
        x = xp.where(again & ~near, (low + high) / 2, trial)
        over = near | (high - low <= precision)
        # A valley extends beyond its bracket if the coarser grid missed its bottom.
        beyond = over & (((x == left) & (left > bottom)) | ((x == right) & (right < top)))
        if xp is not np or beyond.any():
            new_left, new_right = bracket(x, rows)
            left, right = xp.where(beyond, new_left, left), xp.where(beyond, new_right, right)
            low, high = xp.where(beyond, left, low), xp.where(beyond, right, high)
            tested_low, tested_high = tested_low & ~beyond, tested_high & ~beyond
        return _Bracketed(x, left, right, low, high, tested_low, tested_high, yields), over & ~beyond

    left, right = bracket(x, slice(None))
    untested = xp.zeros(len(x), bool)
    start = _Bracketed(x, left, right, left, right, untested, untested, xp.zeros(len(x)))
    ends = repeat_rows(xp, step, start, _BRACKETS * _STEPS)
    return ends.x, ends.yields


class _Descending(NamedTuple):
    """Points x (P, c), the functions there, and the next trial."""

    x: Array
    value: Array
    slope: Array
    hessian: Array
    trial: Array
    promise: Array
    share: Array
    quiet: Array


def lowest_in_box(
    expand: Callable[[Array, Any], tuple[Array, Array, Array]],
    x: Array,
    *,
    reach: Array,
    precision: float,
    size: Array,
    xp: ModuleType = np,
) -> Array:
    """Minimise functions of several variables over the unit box, all variables at once.

    Optimising one variable after the other would creep along a valley that is not parallel to an axis, such
    as that of a learning rate and a batch size, of which nearly only η²/B matters.

    Args:
        expand: x (p, c), which functions → values (p,), gradients (p, c), Hessians (p, c, c).
        x: (P, c) first trials.
        reach: (P,) longest step along an axis of a function's Hessian.
        precision: of x.
        size: (P,) magnitude of the functions, which sets their round-off.
        xp: array namespace.

    Returns:
        (P, c) minimisers, as good as the first trials or better.
    """

    def step(at: _Descending, rows: Any) -> tuple[_Descending, Array]:
        value, slope, hessian = expand(at.trial, rows)
        round_off = _ROUND_OFF * size[rows]
        good = value <= at.value - ARMIJO * at.promise + 10 * round_off
        x = xp.where(good[:, None], at.trial, at.x)
        value = xp.where(good, value, at.value)
        slope = xp.where(good[:, None], slope, at.slope)
        hessian = xp.where(good[:, None, None], hessian, at.hessian)
        share = xp.where(good, 1.0, _SHORTER * at.share)
        moved, promise = _within(
            x, share[:, None] * _newton(x, slope, hessian, reach[rows, None], xp), slope, xp
        )
        quiet = at.quiet + (promise <= round_off).astype(int)
        go_on = (xp.max(xp.abs(moved), axis=1) > precision * share) & (quiet <= _QUIET) & (share > _SHORTEST)
        return _Descending(x, value, slope, hessian, x + moved, promise, share, quiet), ~go_on

    count, c = x.shape
    none = xp.zeros(count)
    # The first trial is always accepted: anything is lower than infinity.
    start = _Descending(
        x, none + np.inf, xp.zeros((count, c)), xp.zeros((count, c, c)), x, none, none + 1.0, none.astype(int)
    )
    return repeat_rows(xp, step, start, _STEPS + 1).x


def _newton(x: Array, slope: Array, hessian: Array, reach: Array, xp: ModuleType) -> Array:
    """(P, c) downhill Newton steps in the variables that no bound holds."""
    free = ~(((x <= 0) & (slope > 0)) | ((x >= 1) & (slope < 0)))
    step = xp.zeros_like(x)
    for _ in range(x.shape[1]):
        both = free[:, :, None] & free[:, None, :]
        bends, axes = eigen(xp.where(both, hessian, np.eye(x.shape[1])[None]), xp)
        along = xp.sum(axes * xp.where(free, slope, 0.0)[:, :, None], axis=1)
        # Downhill whatever the sign of the curvature; without curvature, as far as allowed.
        bends = xp.abs(bends)
        bends = xp.maximum(bends, xp.maximum(_FLAT * xp.max(bends, axis=1, keepdims=True), 1e-300))
        step = xp.sum(axes * xp.clip(-along / bends, -reach, reach)[:, None, :], axis=2)
        # A valley may lead out of the box although its side falls into it. Then fix this variable, since the
        # others' part of the step need not lead downhill.
        out = free & (((x <= 0) & (step < 0)) | ((x >= 1) & (step > 0)))
        if xp is np and not out.any():
            break
        free = free & ~out
    return step


def _within(x: Array, step: Array, slope: Array, xp: ModuleType) -> tuple[Array, Array]:
    """(P, c) the part of each step inside the box, and the decrease (P,) that it promises.

    A step that leaves the box is clipped; in an oblique valley this may lead up the side of the valley. Where
    it gains more, the step is instead followed only as far as the first bound.
    """
    moved = xp.clip(x + step, 0.0, 1.0) - x
    promise = -xp.sum(slope * moved, axis=1)
    beyond = (x + step < 0) | (x + step > 1)
    if xp is np and not beyond.any():
        return moved, promise
    room = xp.where(step > 0, 1.0 - x, -x)
    shares = xp.where(beyond, room / xp.where(beyond, step, 1.0), 1.0)
    first = xp.min(shares, axis=1, keepdims=True)
    along = xp.where(beyond & (shares <= first), room, first * step)
    followed = -xp.sum(slope * along, axis=1)
    better = followed > promise
    return xp.where(better[:, None], along, moved), xp.where(better, followed, promise)


def eigen(matrices: Array, xp: ModuleType = np) -> tuple[Array, Array]:
    """Eigenvalues (P, c), in no order, and eigenvectors (P, c, c), as columns, of small symmetric matrices.

    Jacobi rotations are the same few operations on all P matrices, while under XLA a library function would
    be called for each matrix. For c = 2, one rotation suffices.
    """
    c = matrices.shape[1]
    entries = [[matrices[:, i, j] for j in range(c)] for i in range(c)]
    axes = [[xp.zeros(len(matrices)) + float(i == j) for j in range(c)] for i in range(c)]

    def sweep(state: Any) -> tuple[Any, Any]:
        a, v = ([list(row) for row in table] for table in state)
        for p, q in combinations(range(c), 2):
            # A tangent of at most 1 in size, which makes a[p][q] vanish.
            turn = a[p][q] != 0
            ratio = (a[q][q] - a[p][p]) / (2 * xp.where(turn, a[p][q], 1.0))
            tangent = xp.where(ratio < 0, -1.0, 1.0) / (xp.abs(ratio) + xp.sqrt(1 + ratio * ratio))
            tangent = xp.where(turn, tangent, 0.0)
            cosine = 1 / xp.sqrt(1 + tangent * tangent)
            sine = tangent * cosine
            a[p][p], a[q][q] = a[p][p] - tangent * a[p][q], a[q][q] + tangent * a[p][q]
            a[p][q] = a[q][p] = xp.zeros_like(tangent)
            for i in set(range(c)) - {p, q}:
                a[i][p], a[i][q] = cosine * a[i][p] - sine * a[i][q], sine * a[i][p] + cosine * a[i][q]
                a[p][i], a[q][i] = a[i][p], a[i][q]
            for i in range(c):
                v[i][p], v[i][q] = cosine * v[i][p] - sine * v[i][q], sine * v[i][p] + cosine * v[i][q]
        return (a, v), False

    with np.errstate(over="ignore"):
        if c == 2:
            (entries, axes), _ = sweep((entries, axes))
        else:
            entries, axes = repeat(xp, sweep, (entries, axes), _SWEEPS)
    values = xp.stack([entries[i][i] for i in range(c)], axis=1)
    return values, xp.stack([xp.stack(row, axis=1) for row in axes], axis=1)
