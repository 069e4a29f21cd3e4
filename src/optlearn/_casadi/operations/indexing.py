"""Gather, scatter and dynamic slices; the indices must be known while tracing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from optlearn._casadi.lazy import casadi
from optlearn._casadi.operations.elementwise import ELEMENTWISE
from optlearn._casadi.operations.moving import move
from optlearn._casadi.operations.values import (
    Array,
    Operation,
    Symbolic,
    Value,
    constant,
    entries_of,
    positions,
    take,
)


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
    return move(eqn, lambda x: [x[window]], [operand])


def _dynamic_update_slice(eqn: Any, operand: Value, update: Value, *starts: Value) -> list[Value]:
    window = _window(eqn, operand.shape, update.shape, starts)

    def overwrite(x: Array, new: Array) -> list[Array]:
        x[window] = new
        return [x]

    return move(eqn, overwrite, [operand, update])


def _window_positions(
    shape: tuple[int, ...], sizes: Sequence[int], indices: Array, index_map: Sequence[int],
    dropped: Sequence[int], batching: Sequence[tuple[int, int]], mode: Any,
) -> Array:  # fmt: skip
    """Flat positions in an operand of `shape` that a gather or scatter touches.

    Result: (*indices.shape[:-1], *window), the window being the operand dimensions not in
    `dropped`; -1 where a window leaves the operand and `mode` says to drop it.
    """
    batch = indices.shape[:-1]
    start = np.zeros((*batch, len(shape)), np.int64)
    start[..., list(index_map)] = indices
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
    return move(eqn, lambda x: [np.transpose(touched, order)], [operand])


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
        x.reshape(-1)[target] = new.ravel()[source]  # where targets repeat, the last one stays
        return [x]

    return move(eqn, overwrite, [operand, updates])


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
OPERATIONS: dict[str, Operation] = {
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "scatter": _scatter,
    **dict.fromkeys(_COMBINE, _scatter_combine),
}
