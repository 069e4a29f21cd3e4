"""Sums, products, extremes and their cumulative forms."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np

from optlearn._casadi.lazy import casadi, later
from optlearn._casadi.operations.values import (
    Array,
    Operation,
    Symbolic,
    Value,
    positions,
    take,
    unsupported,
)

# name -> (NumPy ufunc, CasADi function)
REDUCTIONS: dict[str, tuple[np.ufunc, Callable[..., Any]]] = {
    "reduce_sum": (np.add, operator.add),
    "reduce_prod": (np.multiply, operator.mul),
    "reduce_max": (np.maximum, later("fmax")),
    "reduce_min": (np.minimum, later("fmin")),
    "reduce_and": (np.bitwise_and, later("logic_and")),
    "reduce_or": (np.bitwise_or, later("logic_or")),
}
CUMULATIVE: dict[str, tuple[np.ufunc, Callable[..., Any]]] = {
    "cumsum": (np.add, operator.add),
    "cumprod": (np.multiply, operator.mul),
    "cummax": (np.maximum, later("fmax")),
    "cummin": (np.minimum, later("fmin")),
}


def combine_rows(combine: Callable[..., Any], entries: Any, rows: int, columns: int) -> Any:
    """Reduce a (rows, columns) array in C order over its rows, in log2(rows) CasADi calls."""
    while rows > 1:
        half = rows // 2
        middle, end = half * columns, 2 * half * columns
        paired = combine(entries[:middle], entries[middle:end])
        entries = casadi.vertcat(paired, entries[end:])
        rows -= half
    return entries


def _reduce(eqn: Any, operand: Symbolic) -> list[Value]:
    axes, out = eqn.params["axes"], eqn.outvars[0].aval
    if eqn.primitive.name in ("reduce_and", "reduce_or") and out.dtype != np.bool_:
        raise unsupported(eqn, "bit operations on symbolic integers have no counterpart")
    rows = np.moveaxis(positions(operand.shape), axes, range(len(axes)))
    combine, columns = REDUCTIONS[eqn.primitive.name][1], prod(out.shape)
    ordered = take(operand.entries, rows)
    return [Symbolic(combine_rows(combine, ordered, rows.size // columns, columns), out.shape)]


def flipped(eqn: Any) -> Callable[[Array], Array]:
    """Turns an array so that its entries accumulate in increasing order, and back."""
    return partial(np.flip, axis=eqn.params["axis"]) if eqn.params["reverse"] else np.asarray


def _cumulate(eqn: Any, operand: Symbolic) -> list[Value]:
    axis, flip = eqn.params["axis"], flipped(eqn)
    combine = CUMULATIVE[eqn.primitive.name][1]
    places = np.moveaxis(flip(positions(operand.shape)), axis, 0)
    rows = [take(operand.entries, row) for row in places]
    for number in range(1, len(rows)):
        rows[number] = combine(rows[number - 1], rows[number])
    # The rows lie behind one another with `axis` in front: find each entry's place there.
    found = flip(np.moveaxis(positions(places.shape), 0, axis))
    return [Symbolic(take(casadi.vertcat(*rows), found), operand.shape)]


# With a symbolic operand.
OPERATIONS: dict[str, Operation] = {
    **dict.fromkeys(REDUCTIONS, _reduce),
    **dict.fromkeys(CUMULATIVE, _cumulate),
}
