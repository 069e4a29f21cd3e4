"""Multipliers at which budgets are met: exact for projections, elsewhere by safeguarded secants.

Both run under NumPy and under XLA (``loops``); ``attempt`` may then be traced.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from optlearn._arrays import Array
from optlearn._control.hamiltonian.loops import dot, pick, repeat

Payload = TypeVar("Payload")

_NEWTON_STEPS = 8  # for the multiplier of a projection, before every second step halves its bracket
_HALVINGS = 60
_ROUND_OFF = 1e-15  # of a mean of numbers up to 1


class Trial(NamedTuple, Generic[Payload]):
    """A multiplier, its excess over the target, and the result found with it.

    Attributes:
        multiplier: ν.
        excess: excess over the target.
        found: result with this multiplier.
        fall: decrease of the excess per unit of ν; 0: unknown.
    """

    multiplier: float
    excess: float
    found: Payload
    fall: float = 0.0


class _Search(NamedTuple, Generic[Payload]):
    """A bracket of up to two trials, and the next trial.

    Attributes:
        next: multiplier to try next.
        low: the last trial with an excess ≥ 0.
        high: the last one with an excess < 0.
        has_low: does ``low`` exist?
        has_high: does ``high`` exist?
        weight_low: excess of the lower end as weighted in secants.
        weight_high: excess of the upper end as weighted in secants.
        step: step from the only end, while there is only one.
        side: end that the last trial inside the bracket replaced: 1 lower, −1 upper, 0 none yet.
    """

    next: Any
    low: Trial[Payload]
    high: Trial[Payload]
    has_low: Any
    has_high: Any
    weight_low: Any
    weight_high: Any
    step: Any
    side: Any


def bracket_multiplier(
    attempt: Callable[[float], tuple[Any, ...]],
    *,
    start: float = 0.0,
    step: float = 1.0,
    tolerance: float = 1e-13,
    narrow: float = 1e-14,
    at_most: bool = False,
    evaluations: int = 200,
    nothing: Any = None,
    xp: ModuleType = np,
) -> tuple[Trial[Any], Trial[Any]]:
    """Two multipliers, as close as possible, between which a falling excess crosses zero.

    Secant steps (Illinois), and bisections where these gain little: the excess may be smooth or jump.

    Args:
        attempt: ν → excess (not rising with ν), any result to keep, and the excess's rate of decrease if
            known.
        start: first trial.
        step: first step from there, unless the rate of decrease is known.
        tolerance: size of an excess that counts as zero.
        narrow: width of the bracket, relative to ν, at which to stop.
        at_most: an excess below zero is allowed, with ν = 0.
        evaluations: maximum number of evaluations.
        nothing: placeholder result before the first trial; XLA needs its shape.
        xp: array namespace.

    Returns:
        Trials with excess ≥ 0 and ≤ 0; either one excess is near zero, or the trials are close.
    """
    lowest = pick(at_most, 0.0, -np.inf)

    def look(search: _Search[Any]) -> tuple[_Search[Any], Any]:
        new: Trial[Any] = Trial(search.next, *attempt(search.next))
        above = new.excess >= 0
        below = pick(above, False, True)
        low, high = pick(above, new, search.low), pick(above, search.high, new)
        has_low, has_high = search.has_low | above, search.has_high | below
        bracketed, closing = has_low & has_high, search.has_low & search.has_high

        # With one end only, step outwards, slightly further than Newton's step, to end on the other side.
        use_newton = (new.fall > 0) & pick(search.has_low | search.has_high, False, True)
        newton = 1.1 * abs(new.excess) / pick(new.fall > 0, new.fall, 1.0)
        step = pick(use_newton, newton, search.step)
        outwards = pick(above, new.multiplier + step, _larger(new.multiplier - step, lowest))

        # Illinois: an end that stays twice is weighted by half, or secants would keep it for ever.
        side = pick(closing, pick(above, 1, -1), 0)
        stayed = pick(closing & (side == search.side), 0.5, 1.0)
        weight_low = pick(closing & below, stayed * search.weight_low, low.excess)
        weight_high = pick(closing & above, stayed * search.weight_high, high.excess)
        width, least = high.multiplier - low.multiplier, _smaller(low.excess, -high.excess)
        old_width = search.high.multiplier - search.low.multiplier
        old_least = _smaller(search.low.excess, -search.high.excess)
        slow = closing & (abs(new.excess) > old_least / 4) & (width > old_width / 2)
        spread = weight_low - weight_high
        share = pick(slow, 0.5, weight_low / pick(spread > 0, spread, 1.0))
        middle = low.multiplier + share * width
        inside = (low.multiplier < middle) & (middle < high.multiplier)
        middle = pick(inside, middle, (low.multiplier + high.multiplier) / 2)

        size = _larger(abs(low.multiplier), abs(high.multiplier))
        close = bracketed & ((least <= tolerance) | (width <= narrow * size))
        # No multiplier below the lowest one is allowed.
        ended = close | (abs(new.excess) <= tolerance) | (below & (new.multiplier == lowest))
        search = _Search(
            pick(bracketed, middle, outwards), low, high, has_low, has_high, weight_low, weight_high,
            2 * step, side,
        )  # fmt: skip
        return search, ended

    none: Trial[Any] = Trial(np.nan, np.nan, nothing)
    begin: _Search[Any] = _Search(_larger(start, lowest), none, none, False, False, np.nan, np.nan, step, 0)
    last = repeat(xp, look, begin, evaluations + 1)
    low, high = last.low, last.high
    return pick(last.has_low, low, high), pick(last.has_high, high, low)


def _larger(a: Any, b: Any) -> Any:
    return pick(a > b, a, b)


def _smaller(a: Any, b: Any) -> Any:
    return pick(a < b, a, b)


def blend(low: Trial[Any], high: Trial[Any]) -> tuple[Any, Any]:
    """The mixture of two trials' results with zero excess, the excess being linear in them; and ν."""
    spread = low.excess - high.excess
    share = pick(spread > 0, low.excess / pick(spread > 0, spread, 1.0), 0.0)
    share = _smaller(_larger(share, 0.0), 1.0)
    return (
        low.found + share * (high.found - low.found),
        low.multiplier + share * (high.multiplier - low.multiplier),
    )


def project_shares(y: Array, xp: ModuleType = np) -> Array:
    """Nearest rows (I, s) with entries ≥ 0 that add up to at most 1."""
    inside = xp.clip(y, 0.0, None)
    over = xp.sum(inside, axis=1, keepdims=True) > 1
    if xp is np and not over.any():
        return inside
    ordered = -xp.sort(-y, axis=1)
    excess = (xp.cumsum(ordered, axis=1) - 1) / np.arange(1.0, y.shape[1] + 1)[None]
    kept = xp.sum(ordered > excess, axis=1, keepdims=True)
    level = xp.take_along_axis(excess, kept - 1, axis=1)
    return xp.where(over, xp.clip(y - level, 0.0, None), inside)


def projection_multiplier(
    y: Array, row: Array, target: Any, start: Any = 0.0, *, shares: bool = False, xp: ModuleType = np
) -> Any:
    """The ν at which the mean over rows of row·P(y − ν row) equals the target, y (I, m), row (m,).

    P is the nearest point in the unit box or, with ``shares``, among entries ≥ 0 that add up to at most 1.
    The mean is a falling, piecewise linear function of ν. From a ``start`` nearby, Newton's method is on the
    right piece, and hence exact, after two or three steps; otherwise its bracket is halved from time to time.
    For a target out of reach, the mean at the returned ν is as near to it as possible.
    """
    count = len(y)
    size = xp.max(xp.abs(row))
    row, target = row / size, target / size
    # Beyond these, every entry is at the bound that makes the mean largest or smallest.
    smallest = xp.min(xp.where(row == 0, 1.0, xp.abs(row)))
    reach = 2 * (xp.max(xp.abs(y)) + 1) / smallest
    a = xp.broadcast_to(row, y.shape)
    if not shares:
        a, y = a.ravel(), y.ravel()
    squares = a * a

    def mean(nu: Any) -> tuple[Any, Any]:
        """The sum that must equal count · target, and its rate of decrease."""
        moved = y - nu * a
        if not shares:
            free = (moved > 0) & (moved < 1)
            return dot(a, xp.minimum(xp.maximum(moved, 0.0), 1.0)), dot(squares, free.astype(float))
        x = project_shares(moved, xp)
        free = (x > 0).astype(float)
        # In a full row, the common part of all entries cancels.
        full = xp.sum(xp.maximum(moved, 0.0), axis=1) > 1
        common = xp.sum(a * free, axis=1) ** 2 / xp.maximum(xp.sum(free, axis=1), 1.0)
        return xp.sum(a * x), xp.sum(squares * free) - xp.sum(xp.where(full, common, 0.0))

    def newton(state: Any) -> tuple[Any, Any]:
        nu, low, high, done = state
        reached, fall = mean(nu)
        excess = reached - count * target
        low, high = pick(excess > 0, nu, low), pick(excess > 0, high, nu)
        falls = fall > 0
        ahead = nu + pick(falls, excess / pick(falls, fall, 1.0), 0.0)
        met = abs(excess) <= _ROUND_OFF * count
        middle = (low + high) / 2
        usable = falls & (ahead > low) & (ahead < high) & ((done < _NEWTON_STEPS) | (done % 2 == 0))
        following = pick(met | usable, ahead, middle)
        return (following, low, high, done + 1), met | ~((low < middle) & (middle < high))

    begin = (start * size, -reach, reach, 0)
    return repeat(xp, newton, begin, _NEWTON_STEPS + 2 * _HALVINGS)[0] / size
