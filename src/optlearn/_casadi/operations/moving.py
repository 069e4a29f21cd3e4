"""Primitives that only move entries: each runs in NumPy on the positions of the entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from optlearn._casadi.lazy import casadi
from optlearn._casadi.operations.elementwise import choose
from optlearn._casadi.operations.values import (
    Array,
    Operation,
    Symbolic,
    Value,
    broadcast,
    entries_of,
    take,
)


def move(eqn: Any, operation: Callable[..., list[Array]], operands: Sequence[Value]) -> list[Value]:
    """Run `operation` on the positions of all operands' entries, then fetch the entries themselves.

    A position of -1 stands for a fill value (a gather out of bounds).
    """
    sizes = [prod(operand.shape) for operand in operands]
    starts = np.cumsum([0, *sizes])
    moved = operation(
        *(
            np.arange(start, start + size).reshape(operand.shape)
            for start, size, operand in zip(starts, sizes, operands, strict=False)
        )
    )
    dtype = eqn.outvars[0].aval.dtype
    fill = np.full(1, _fill_value(eqn, dtype), dtype)  # comes last, so that -1 finds it
    if not any(isinstance(operand, Symbolic) for operand in operands):
        flat = np.concatenate([*(np.ravel(operand) for operand in operands), fill])  # type: ignore[arg-type]
        return [flat[target].astype(dtype) for target in moved]
    column = casadi.vertcat(*(entries_of(operand) for operand in operands), float(fill[0]))
    return [
        Symbolic(take(column, target), target.shape) if target.size
        else np.zeros(target.shape, dtype)
        for target in moved
    ]  # fmt: skip


def _fill_value(eqn: Any, dtype: Any) -> Any:
    if eqn.params.get("fill_value") is not None:
        return eqn.params["fill_value"]
    if np.issubdtype(dtype, np.signedinteger):
        return np.iinfo(dtype).min
    if np.issubdtype(dtype, np.unsignedinteger):
        return np.iinfo(dtype).max
    return True if dtype == np.bool_ else np.nan


def _broadcast_in_dim(p: dict[str, Any], x: Array) -> list[Array]:
    shape = [1] * len(p["shape"])
    for size, axis in zip(x.shape, p["broadcast_dimensions"], strict=True):
        shape[axis] = size
    return [np.broadcast_to(x.reshape(shape), p["shape"])]


def _slice(p: dict[str, Any], x: Array) -> list[Array]:
    strides = p["strides"] or (1,) * x.ndim
    bounds = zip(p["start_indices"], p["limit_indices"], strides, strict=True)
    return [x[tuple(slice(*bound) for bound in bounds)]]


def _pad(p: dict[str, Any], x: Array, fill: Array) -> list[Array]:
    config = p["padding_config"]
    spread = [n + max(n - 1, 0) * gap for n, (_, _, gap) in zip(x.shape, config, strict=True)]
    padded = np.full(spread, fill)
    padded[tuple(slice(None, None, gap + 1) for _, _, gap in config)] = x
    width = [(max(low, 0), max(high, 0)) for low, high, _ in config]
    padded = np.pad(padded, width, constant_values=int(fill))
    # Negative padding cuts entries off.
    cut = [slice(max(-low, 0), n - max(-high, 0))
           for n, (low, high, _) in zip(padded.shape, config, strict=True)]  # fmt: skip
    return [padded[tuple(cut)]]


def _split(p: dict[str, Any], x: Array) -> list[Array]:
    return list(np.split(x, np.cumsum(p["sizes"])[:-1], axis=p["axis"]))


_STRUCTURAL: dict[str, Callable[..., list[Array]]] = {
    "broadcast_in_dim": _broadcast_in_dim,
    "concatenate": lambda p, *parts: [np.concatenate(parts, axis=p["dimension"])],
    "pad": _pad,
    "rev": lambda p, x: [np.flip(x, p["dimensions"])],
    "slice": _slice,
    "split": _split,
    "tile": lambda p, x: [np.tile(x, p["reps"])],
    "stack": lambda p, *parts: [np.stack(parts, axis=p["axis"])],
    "transpose": lambda p, x: [np.transpose(x, p["permutation"])],
}


def _structural(eqn: Any, *operands: Value) -> list[Value]:
    return move(eqn, partial(_STRUCTURAL[eqn.primitive.name], eqn.params), operands)


# The entries and their order stay as they are; only the shape may change.
_RESHAPES = (
    "copy", "device_put", "name", "optimization_barrier", "reduce_precision", "reshape", "squeeze",
    "stop_gradient",
)  # fmt: skip


def _reshape(eqn: Any, *operands: Value) -> list[Value]:
    return [
        Symbolic(value.entries, var.aval.shape) if isinstance(value, Symbolic)
        else value.reshape(var.aval.shape)
        for var, value in zip(eqn.outvars, operands, strict=True)
    ]  # fmt: skip


def _select_n(eqn: Any, which: Value, *cases: Value) -> list[Value]:
    shape = eqn.outvars[0].aval.shape
    if isinstance(which, Symbolic):
        condition, *columns = [broadcast(value, shape) for value in (which, *cases)]
        if len(cases) == 2:  # the common jnp.where: spare the comparison with 0
            return [Symbolic(casadi.if_else(condition, columns[1], columns[0]), shape)]
        return [Symbolic(choose(condition, columns), shape)]
    number = np.broadcast_to(np.clip(which.astype(np.int64), 0, len(cases) - 1), shape)[None]

    def pick(*at: Array) -> list[Array]:
        stacked = np.stack([np.broadcast_to(case, shape) for case in at])
        return [np.take_along_axis(stacked, number, axis=0)[0]]

    return move(eqn, pick, cases)


# For numbers and symbols alike.
OPERATIONS: dict[str, Operation] = {
    **dict.fromkeys(_STRUCTURAL, _structural),
    **dict.fromkeys(_RESHAPES, _reshape),
    "select_n": _select_n,
}
