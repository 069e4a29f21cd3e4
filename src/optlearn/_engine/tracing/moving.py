"""Primitives that only move entries: slices, gathers, scatters and their like.

Each runs in NumPy on the positions of the entries, and the entries themselves are fetched once. Indices must
be known while tracing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, SupportsIndex

import jax
import numpy as np

from optlearn._engine.tracing.arithmetic import ELEMENTWISE
from optlearn._engine.tracing.values import (
    Array,
    Operation,
    Symbolic,
    Value,
    broadcast,
    casadi,
    choose,
    constant,
    entries_of,
    positions,
    take,
)


def _move(eqn: Any, operation: Callable[..., list[Array]], operands: Sequence[Value]) -> list[Value]:
    """Run `operation` on the positions of all operands' entries, then fetch the entries themselves.

    A position of -1 stands for a fill value (a gather out of bounds).
    """
    ends = np.cumsum([prod(operand.shape) for operand in operands])
    parts = zip(np.split(np.arange(ends[-1]), ends[:-1]), operands, strict=True)
    moved = operation(*(places.reshape(operand.shape) for places, operand in parts))
    dtype = eqn.outvars[0].aval.dtype
    fill = np.full(1, _fill_value(eqn, dtype), dtype)  # comes last, so that -1 finds it
    if not any(isinstance(operand, Symbolic) for operand in operands):
        flat = np.concatenate([*(np.ravel(operand) for operand in operands), fill])  # type: ignore[arg-type]
        return [np.asarray(flat[target], dtype) for target in moved]
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


_STRUCTURAL: dict[str, Callable[..., list[Array]]] = {
    "broadcast_in_dim": _broadcast_in_dim,
    "concatenate": lambda p, *parts: [np.concatenate(parts, axis=p["dimension"])],
    "pad": _pad,
    "rev": lambda p, x: [np.flip(x, p["dimensions"])],
    "slice": _slice,
    "split": lambda p, x: list(np.split(x, np.cumsum(p["sizes"])[:-1], axis=p["axis"])),
    "tile": lambda p, x: [np.tile(x, p["reps"])],
    "stack": lambda p, *parts: [np.stack(parts, axis=p["axis"])],
    "transpose": lambda p, x: [np.transpose(x, p["permutation"])],
}


def _structural(eqn: Any, *operands: Value) -> list[Value]:
    return _move(eqn, partial(_STRUCTURAL[eqn.primitive.name], eqn.params), operands)


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
        return [np.asarray(np.take_along_axis(stacked, number, axis=0)[0])]

    return _move(eqn, pick, cases)


# --- at indices -----------------------------------------------------------------------------------


def _window(
    eqn: Any, shape: Sequence[int], sizes: Sequence[int], starts: Sequence[Value]
) -> tuple[slice, ...]:
    """A window of `sizes`, moved so that it lies inside `shape`, as XLA does."""
    first = [
        int(np.clip(int(constant(eqn, start)), 0, whole - size))
        for start, whole, size in zip(starts, shape, sizes, strict=True)
    ]
    return tuple(slice(start, start + size) for start, size in zip(first, sizes, strict=True))


def _dynamic_slice(eqn: Any, operand: Value, *starts: Value) -> list[Value]:
    window = _window(eqn, operand.shape, eqn.params["slice_sizes"], starts)
    return _move(eqn, lambda x: [x[window]], [operand])


def _dynamic_update_slice(eqn: Any, operand: Value, update: Value, *starts: Value) -> list[Value]:
    window = _window(eqn, operand.shape, update.shape, starts)

    def overwrite(x: Array, new: Array) -> list[Array]:
        x[window] = new
        return [x]

    return _move(eqn, overwrite, [operand, update])


def _window_positions(
    shape: tuple[int, ...], sizes: Sequence[int], indices: Array, index_map: Sequence[SupportsIndex],
    dropped: Sequence[SupportsIndex], batching: Sequence[tuple[int, int]], mode: Any,
) -> Array:  # fmt: skip
    """Flat positions in an operand of `shape` that a gather or scatter touches.

    Result: (*indices.shape[:-1], *window), the window being the operand dimensions not in
    `dropped`; -1 where a window leaves the operand and `mode` says to drop it.
    """
    batch = indices.shape[:-1]
    start = np.zeros((*batch, len(shape)), np.int64)
    start[..., [int(dim) for dim in index_map]] = indices
    for operand_dim, index_dim in batching:
        start[..., operand_dim] = np.indices(batch)[index_dim]
    limit = np.array(shape, np.int64) - np.array(sizes, np.int64)
    inside = np.all((start >= 0) & (start <= limit), axis=-1)
    strides = np.cumprod([1, *shape[:0:-1]])[::-1][: len(shape)]
    first = np.sum(np.clip(start, 0, limit) * strides, axis=-1, dtype=np.int64)
    kept = [dim for dim in range(len(shape)) if dim not in dropped]
    offsets = np.zeros([sizes[dim] for dim in kept], np.int64)
    for axis, dim in enumerate(kept):
        offsets += np.indices(offsets.shape)[axis] * strides[dim]
    touched = np.asarray(first.reshape((*batch, *[1] * len(kept))) + offsets)
    if mode == jax.lax.GatherScatterMode.FILL_OR_DROP:
        touched[~inside] = -1
    return touched


def _gather(eqn: Any, operand: Value, indices: Value) -> list[Value]:
    dims, shape = eqn.params["dimension_numbers"], eqn.outvars[0].aval.shape
    touched = _window_positions(
        operand.shape, eqn.params["slice_sizes"], constant(eqn, indices), dims.start_index_map,
        (*dims.collapsed_slice_dims, *dims.operand_batching_dims),
        list(zip(dims.operand_batching_dims, dims.start_indices_batching_dims, strict=True)),
        eqn.params["mode"],
    )  # fmt: skip
    batch_dims = [dim for dim in range(len(shape)) if dim not in dims.offset_dims]
    order = np.argsort([*batch_dims, *dims.offset_dims])
    return _move(eqn, lambda x: [np.transpose(touched, order)], [operand])


def _scatter_pairs(eqn: Any, operand: Value, indices: Value, updates: Value) -> tuple[Array, Array]:
    """Flat positions in the operand and, for each, that of its update; in order of application."""
    dims = eqn.params["dimension_numbers"]
    dropped = (*dims.inserted_window_dims, *dims.operand_batching_dims)
    kept = [dim for dim in range(len(operand.shape)) if dim not in dropped]
    sizes = [1] * len(operand.shape)
    for dim, update_dim in zip(kept, dims.update_window_dims, strict=True):
        sizes[dim] = updates.shape[update_dim]
    target = _window_positions(
        operand.shape, sizes, constant(eqn, indices), dims.scatter_dims_to_operand_dims, dropped,
        list(zip(dims.operand_batching_dims, dims.scatter_indices_batching_dims, strict=True)),
        eqn.params["mode"],
    ).ravel()  # fmt: skip
    batch_dims = [d for d in range(len(updates.shape)) if d not in dims.update_window_dims]
    source = np.transpose(positions(updates.shape), [*batch_dims, *dims.update_window_dims]).ravel()
    return target[target >= 0], source[target >= 0]


def _scatter(eqn: Any, operand: Value, indices: Value, updates: Value) -> list[Value]:
    target, source = _scatter_pairs(eqn, operand, indices, updates)

    def overwrite(x: Array, new: Array) -> list[Array]:
        x.reshape(-1)[target] = new.ravel()[source]  # where targets repeat, the last one counts
        return [x]

    return _move(eqn, overwrite, [operand, updates])


_COMBINE = {"scatter-add": "add", "scatter-mul": "mul", "scatter-min": "min", "scatter-max": "max",
            "scatter-sub": "sub"}  # fmt: skip


def _scatter_combine(eqn: Any, operand: Value, indices: Value, updates: Value) -> list[Value]:
    target, source = _scatter_pairs(eqn, operand, indices, updates)
    numpy_function, combine = ELEMENTWISE[_COMBINE[eqn.primitive.name]]
    if not isinstance(operand, Symbolic) and not isinstance(updates, Symbolic):
        result = operand.copy()
        numpy_function.at(result.reshape(-1), target, updates.ravel()[source])  # type: ignore[attr-defined]
        return [result]
    column, new = casadi.SX(entries_of(operand)), entries_of(updates)
    while target.size:  # each round takes the first update of every entry that still has one
        chosen, first = np.unique(target, return_index=True)
        column[chosen.tolist()] = combine(take(column, chosen), take(new, source[first]))
        target, source = np.delete(target, first), np.delete(source, first)
    return [Symbolic(column, operand.shape)]


# For numbers and symbols alike.
FOR_ALL: dict[str, Operation] = {
    **dict.fromkeys(_STRUCTURAL, _structural),
    **dict.fromkeys(_RESHAPES, _reshape),
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "scatter": _scatter,
    **dict.fromkeys(_COMBINE, _scatter_combine),
    "select_n": _select_n,
}
