"""The proven minimum of a function on a box: interval arithmetic with branch and bound.

An expression is evaluated operation by operation, with an interval for every number: the result contains all
values on the box. Every result is widened by more than its round-off.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import casadi
import numpy as np
from scipy.special import erf

from optlearn._arrays import Float
from optlearn._bounds.expressions import OPERATIONS
from optlearn._errors import SpecificationError

_WIDER = 8 * np.finfo(float).eps  # relative; libraries' functions are accurate to a unit or two
_ROUNDS = 60  # rounds of halving boxes
_BOXES = 200_000  # at a time


class Range(NamedTuple):
    """Numbers between low (P,) and high (P,)."""

    low: Float[np.ndarray, " P"]
    high: Float[np.ndarray, " P"]


def lowest(
    expression: Any,
    variables: Any,
    numbers: Any,
    values: Float[np.ndarray, "R q"],
    box: tuple[Float[np.ndarray, " c"], Float[np.ndarray, " c"]],
    near: Float[np.ndarray, "R c"],
    tolerance: float,
) -> Float[np.ndarray, " R"]:
    """(R,) lower bounds of R functions on a box, each less than ``tolerance`` below the minimum.

    Args:
        expression: CasADi expression of all R functions.
        variables: (c) symbols to minimise over.
        numbers: (q) symbols that distinguish the functions.
        values: (R, q) values of these.
        box: lower and upper bounds (c,) of the variables.
        near: (R, c) likely minimisers.
        tolerance: absolute tolerance.

    Raises:
        SpecificationError: an operation is not supported, or too many boxes may contain the minimum.
    """
    symbols = [casadi.vertcat(variables, numbers)]
    function = casadi.Function("value", symbols, [casadi.densify(expression)])
    gradient = casadi.Function("slope", symbols, [casadi.densify(casadi.gradient(expression, variables))])
    rows = np.arange(len(values))
    upper = _ranges(function, near, near, values)[0].high
    low, high = (np.tile(bound, (len(values), 1)) for bound in box)
    for _ in range(_ROUNDS):
        own = values[rows]
        (here,) = _ranges(function, low, high, own)
        # Slopes of a maximum, or of an absolute value, jump between two values; their range holds both.
        slopes = _ranges(gradient, low, high, own, _JUMPS)
        # Where the function is monotone on a box, its minimum is at an end.
        rises = np.stack([slope.low >= 0 for slope in slopes], axis=1)
        falls = np.stack([slope.high <= 0 for slope in slopes], axis=1)
        low, high = np.where(falls & ~rises, high, low), np.where(rises, low, high)
        middle = (low + high) / 2
        centre = _ranges(function, middle, middle, own)[0]
        np.minimum.at(upper, rows, centre.high)
        # No lower than the steepest slope allows, starting from the middle.
        steepest = np.stack([np.maximum(np.abs(s.low), np.abs(s.high)) for s in slopes], axis=1)
        with np.errstate(invalid="ignore"):
            fall = np.where(high > low, steepest * (high - low) / 2, 0.0).sum(axis=1) * (1 + _WIDER)
        least = np.fmax(here.low, centre.low - fall)
        open_ = ~(least >= upper[rows] - tolerance)
        if not open_.any():
            return upper - tolerance
        rows, low, high = rows[open_], low[open_], high[open_]
        if 2 * len(rows) > _BOXES:
            break
        axis = np.argmax((high - low) / (box[1] - box[0]), axis=1)
        cut = (low + high) / 2
        halved = np.arange(len(axis))
        left, right = high.copy(), low.copy()
        left[halved, axis] = right[halved, axis] = cut[halved, axis]
        rows, low, high = np.tile(rows, 2), np.concatenate([low, right]), np.concatenate([left, high])
    raise SpecificationError(
        "bound: the least Hamiltonian could not be proven by intervals; use 'sos' or 'hjb'"
    )


def _ranges(
    function: Any,
    low: np.ndarray,
    high: np.ndarray,
    values: np.ndarray,
    further: "_Rules" = MappingProxyType({}),
) -> list[Range]:
    """Intervals of all outputs, with variables (P, c) from low to high and numbers (P, q)."""
    rules = {**_RULES, **further}
    low, high = np.concatenate([low, values], axis=1), np.concatenate([high, values], axis=1)
    work: dict[int, Range] = {}
    outputs = [Range(np.zeros(len(low)), np.zeros(len(low)))] * function.numel_out(0)
    with np.errstate(all="ignore"):
        for k in range(function.n_instructions()):
            op = OPERATIONS[function.instruction_id(k)]
            sources, targets = function.instruction_input(k), function.instruction_output(k)
            if op == "output":
                outputs[targets[1]] = work[sources[0]]
            elif op == "input":
                work[targets[0]] = Range(low[:, sources[1]], high[:, sources[1]])
            elif op == "const":
                number = np.full(len(low), function.instruction_constant(k))
                work[targets[0]] = Range(number, number)
            elif op in rules:
                work[targets[0]] = _wider(*rules[op](*(work[i] for i in sources)))
            else:
                raise SpecificationError(
                    f"bound: kind='convex' does not support {op!r}, which the drift or a cost contains"
                )
    return outputs


def _wider(low: np.ndarray, high: np.ndarray) -> Range:
    """The interval widened by more than round-off; NaN becomes any number."""
    low = low - _WIDER * np.abs(low) - np.finfo(float).tiny
    high = high + _WIDER * np.abs(high) + np.finfo(float).tiny
    return Range(np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high))


# --- the range of every operation ------------------------------------------------------------------


def _among(*numbers: np.ndarray) -> Range:
    """The interval from smallest to largest; any number if one of them is NaN."""
    every = np.stack(numbers)
    return Range(every.min(axis=0), every.max(axis=0))


def _product(a: Range, b: Range) -> Range:
    # 0 · ∞ is 0 here: an infinite end stands for finite numbers.
    parts = [np.where((p == 0) | (q == 0), 0.0, p * q) for p in a for q in b]
    return _among(*parts)


def _inverse(a: Range) -> Range:
    through = (a.low <= 0) & (a.high >= 0)
    return Range(np.where(through, -np.inf, 1 / a.high), np.where(through, np.inf, 1 / a.low))


def _square(a: Range) -> Range:
    size = _size(a)
    return Range(size.low**2, size.high**2)


def _size(a: Range) -> Range:
    through = (a.low <= 0) & (a.high >= 0)
    ends = _among(np.abs(a.low), np.abs(a.high))
    return Range(np.where(through, 0.0, ends.low), ends.high)


def _power(a: Range, b: Range) -> Range:
    exponent = b.low[0] if len(b.low) else 1.0
    if not np.all((b.low == exponent) & (b.high == exponent)):
        return _monotone(np.exp)(_product(b, _monotone(np.log)(a)))
    if exponent != int(exponent):
        return _among(np.maximum(a.low, 0.0) ** exponent, a.high**exponent)
    base = a if int(exponent) % 2 else _size(a)
    whole = Range(base.low ** abs(exponent), base.high ** abs(exponent))
    return whole if exponent >= 0 else _inverse(_wider(*whole))


def _monotone(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[Range], Range]:
    """The range of an increasing function."""
    return lambda a: Range(function(a.low), function(a.high))


def _cosine(a: Range) -> Range:
    """The range of a cosine, with −1 and 1 at multiples of π."""
    ends = _among(np.cos(a.low), np.cos(a.high))
    # Slightly wider than the argument, since multiples of π are rounded.
    slack = _WIDER * (1 + np.abs(a.low) + np.abs(a.high))
    first, last = (a.low - slack) / (2 * np.pi), (a.high + slack) / (2 * np.pi)
    top, bottom = np.floor(last) >= np.ceil(first), np.floor(last - 0.5) >= np.ceil(first - 0.5)
    finite = np.isfinite(first) & np.isfinite(last)
    return Range(
        np.where(finite & ~bottom, ends.low - slack, -1.0), np.where(finite & ~top, ends.high + slack, 1.0)
    )


def _sine(a: Range) -> Range:
    return _cosine(Range(*_wider(a.low - np.pi / 2, a.high - np.pi / 2)))


def _less(a: Range, b: Range) -> Range:
    """The range of a < b: low is 1 where it certainly holds, high is 0 where it certainly does not."""
    return Range((a.high < b.low).astype(float), (a.low <= b.high).astype(float))


_Rules = Mapping[str, Callable[..., Range]]
_RULES: _Rules = {
    "assign": lambda a: a,
    "add": lambda a, b: Range(a.low + b.low, a.high + b.high),
    "sub": lambda a, b: Range(a.low - b.high, a.high - b.low),
    "neg": lambda a: Range(-a.high, -a.low),
    "twice": lambda a: Range(2 * a.low, 2 * a.high),
    "mul": _product,
    "sq": _square,
    "inv": _inverse,
    "div": lambda a, b: _product(a, _wider(*_inverse(b))),
    "pow": _power,
    "constpow": _power,
    "fabs": _size,
    "fmin": lambda a, b: Range(np.minimum(a.low, b.low), np.minimum(a.high, b.high)),
    "fmax": lambda a, b: Range(np.maximum(a.low, b.low), np.maximum(a.high, b.high)),
    "cos": _cosine,
    "sin": _sine,
    # Outside the domain of the root there is no value.
    "sqrt": lambda a: Range(np.sqrt(np.maximum(a.low, 0.0)), np.sqrt(a.high)),
    **{
        name: _monotone(function)
        for name, function in {
            "exp": np.exp, "log": np.log, "tanh": np.tanh, "atan": np.arctan, "erf": erf,
            "sinh": np.sinh, "asinh": np.arcsinh, "log1p": np.log1p, "expm1": np.expm1,
        }.items()
    },
}  # fmt: skip
# Slopes do not show the jumps of these functions, so they are supported only in slopes.
_JUMPS: _Rules = {
    "lt": _less,
    "le": _less,
    "not": lambda a: Range(1 - a.high, 1 - a.low),
    "if_else_zero": _product,
    "sign": _monotone(np.sign),
}
