"""Run a JAX function over CasADi expressions, without any XLA compilation.

`trace` records a function written in `jax.numpy` as a jaxpr; the result interprets that jaxpr over
CasADi `SX` symbols, so that one model definition also serves IPOPT and CasADi's integrators.

Inside the interpreter a value is either a plain NumPy array (no symbol has touched it) or a
`_Symbolic`: one dense `SX` column with the entries in C order, and the shape. A whole column costs
one call into CasADi where an array of scalar `SX` objects would cost one call (about 20 µs) per
entry. Entries that only move (indexing, transposing, padding, ...) are never computed with: each
such primitive is run in NumPy on the positions of the entries, and the column is indexed once.

What differs from JAX:

* Derivatives that CasADi takes are those of the arithmetic: custom derivative rules and
  `stop_gradient` are not seen. Trace `jax.grad(fn)` where those rules matter.
* In `where` and `cond` with a symbolic condition both sides are built, but the side not taken
  cannot spoil value or derivative with NaN or inf (CasADi's conditional is not a product).
* `SX` simplifies on the spot: `0 * x` is 0, `x - x` is 0 and `x != x` is False even where x would
  be NaN. `maximum` and `minimum` ignore a NaN operand, as C's `fmax` does.
* All symbolic arithmetic is in double precision, whatever the declared dtype.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import prod
from typing import Any, TypeAlias

import casadi
import jax
import numpy as np

# JAX has no public way to name the user's source line of an equation.
from jax._src import source_info_util
from jax.extend.core import ClosedJaxpr, Literal

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class _Symbolic:
    """An array of expressions: `entries` is a dense, non-empty SX column in C order."""

    entries: Any
    shape: tuple[int, ...]


_Value: TypeAlias = Array | _Symbolic


class UnsupportedPrimitive(TypeError):
    """A JAX operation on symbols that has no form as a CasADi expression."""


def _unsupported(eqn: Any, reason: str) -> UnsupportedPrimitive:
    where = source_info_util.summarize(eqn.source_info)
    return UnsupportedPrimitive(
        f"JAX primitive '{eqn.primitive.name}', from {where}, cannot become a CasADi expression: "
        f"{reason}. Rewrite that line with supported operations, or run this function with XLA."
    )


# --- conversions between arrays and SX ------------------------------------------------------------


def sx_vector(array: Any) -> Any:
    """Column `SX` of shape (array.size, 1) with the entries of `array` in C order.

    `array` is a NumPy object array of SX scalars (plain numbers may be mixed in) or numeric.
    """
    array = np.asarray(array)
    if array.size == 0:
        return casadi.SX(0, 1)
    if array.dtype == object:
        # The outer SX is for arrays holding only numbers, which vertcat would make a DM.
        return casadi.densify(casadi.SX(casadi.vertcat(*array.ravel().tolist())))
    return casadi.SX(array.ravel().astype(np.float64))


def sx_array(entries: Any, shape: tuple[int, ...]) -> Array:
    """NumPy object array of `shape`, filled in C order with the scalars of the column `entries`."""
    array = np.empty(prod(shape), dtype=object)
    # Element-wise filling: NumPy would take a list of SX for a nested sequence.
    for position, entry in enumerate(casadi.densify(entries).elements()):
        array[position] = entry
    return array.reshape(shape)


def _value(leaf: Any, shape: tuple[int, ...], dtype: Any) -> _Value:
    """Check one argument leaf against its declared shape and make it a value."""
    if isinstance(leaf, casadi.SX):
        leaf = sx_array(leaf, (leaf.numel(),) if shape else ())
    array = np.asarray(leaf)
    if array.shape != shape:
        raise ValueError(f"expected an array of shape {shape}, got {array.shape}")
    if array.dtype != object:
        return array.astype(dtype)
    return _Symbolic(sx_vector(array), shape) if array.size else np.zeros(shape, dtype)


def _entries(value: _Value) -> Any:
    return value.entries if isinstance(value, _Symbolic) else sx_vector(value)


def _take(entries: Any, positions: Array) -> Any:
    """The column of `entries` at the (raveled) positions."""
    # vec, because indexing a 1x1 SX with a list gives a row.
    return casadi.vec(entries[positions.ravel().tolist()])


def _positions(shape: tuple[int, ...]) -> Array:
    """The places 0, 1, 2, ... of the entries of an array, in its shape."""
    return np.arange(prod(shape)).reshape(shape)


def _broadcast(value: _Value, shape: tuple[int, ...]) -> Any:
    """Entries of an operand that JAX broadcasts: element-wise primitives may mix sizes 1 and n."""
    if prod(value.shape) in (1, prod(shape)):  # CasADi itself repeats a single entry
        return _entries(value)
    return _take(_entries(value), np.broadcast_to(_positions(value.shape), shape))


def _constant(eqn: Any, value: _Value) -> Array:
    """A value that must be known while tracing, such as an index."""
    if isinstance(value, _Symbolic):
        if not value.entries.is_constant():
            raise _unsupported(eqn, "an index or a loop condition depends on a symbol")
        return np.asarray(casadi.DM(value.entries).full(), np.float64).reshape(value.shape)
    return value


# --- element-wise primitives ----------------------------------------------------------------------


def _truncate(x: Any) -> Any:
    return casadi.sign(x) * casadi.floor(casadi.fabs(x))


def _numpy_divide(x: Array, y: Array) -> Array:
    if np.issubdtype(x.dtype, np.integer):
        safe = np.where(y == 0, 1, y)
        return np.asarray((x - np.fmod(x, safe)) // safe)
    return np.asarray(x / y)


def _finite(x: Any) -> Any:
    return casadi.fabs(x) < np.inf  # NaN compares as False; x - x == 0 would simplify to True


# name -> (NumPy function, or None to evaluate numbers with JAX; CasADi function)
_ELEMENTWISE: dict[str, tuple[Callable[..., Any] | None, Callable[..., Any]]] = {
    "add": (np.add, operator.add),
    "add_any": (np.add, operator.add),
    "sub": (np.subtract, operator.sub),
    "mul": (np.multiply, operator.mul),
    "div": (_numpy_divide, operator.truediv),
    "rem": (np.fmod, casadi.fmod),
    "neg": (np.negative, operator.neg),
    "abs": (np.abs, casadi.fabs),
    "sign": (np.sign, casadi.sign),
    "max": (np.maximum, casadi.fmax),
    "min": (np.minimum, casadi.fmin),
    "clamp": (lambda lo, x, hi: np.minimum(np.maximum(x, lo), hi),
              lambda lo, x, hi: casadi.fmin(casadi.fmax(x, lo), hi)),
    "floor": (np.floor, casadi.floor),
    "ceil": (np.ceil, casadi.ceil),
    "square": (np.square, lambda x: x * x),
    "sqrt": (np.sqrt, casadi.sqrt),
    "rsqrt": (lambda x: 1.0 / np.sqrt(x), lambda x: 1.0 / casadi.sqrt(x)),
    "cbrt": (np.cbrt, lambda x: casadi.sign(x) * casadi.power(casadi.fabs(x), 1.0 / 3.0)),
    "pow": (np.power, casadi.power),
    "exp": (np.exp, casadi.exp),
    "exp2": (np.exp2, lambda x: casadi.exp(np.log(2.0) * x)),
    "expm1": (np.expm1, casadi.expm1),
    "log": (np.log, casadi.log),
    "log1p": (np.log1p, casadi.log1p),
    "logistic": (None, lambda x: 1.0 / (1.0 + casadi.exp(-x))),
    "erf": (None, casadi.erf),
    "erfc": (None, lambda x: 1.0 - casadi.erf(x)),
    "erf_inv": (None, casadi.erfinv),
    "sin": (np.sin, casadi.sin),
    "cos": (np.cos, casadi.cos),
    "tan": (np.tan, casadi.tan),
    "asin": (np.arcsin, casadi.asin),
    "acos": (np.arccos, casadi.acos),
    "atan": (np.arctan, casadi.atan),
    "atan2": (np.arctan2, casadi.atan2),
    "sinh": (np.sinh, casadi.sinh),
    "cosh": (np.cosh, casadi.cosh),
    "tanh": (np.tanh, casadi.tanh),
    "asinh": (np.arcsinh, casadi.asinh),
    "acosh": (np.arccosh, casadi.acosh),
    "atanh": (np.arctanh, casadi.atanh),
    "eq": (np.equal, operator.eq),
    "ne": (np.not_equal, operator.ne),
    "lt": (np.less, operator.lt),
    "le": (np.less_equal, operator.le),
    "gt": (np.greater, operator.gt),
    "ge": (np.greater_equal, operator.ge),
    "and": (np.bitwise_and, casadi.logic_and),
    "or": (np.bitwise_or, casadi.logic_or),
    "not": (np.invert, casadi.logic_not),
    "xor": (np.bitwise_xor, operator.ne),
    "is_finite": (np.isfinite, _finite),
}  # fmt: skip
_LOGIC = frozenset({"and", "or", "not", "xor"})


def _convert(eqn: Any, x: Any) -> Any:
    old, new = eqn.invars[0].aval.dtype, np.dtype(eqn.params["new_dtype"])
    if new == np.bool_:
        return x != 0
    narrows = np.issubdtype(old, np.floating) and np.issubdtype(new, np.integer)
    return _truncate(x) if narrows else x


def _round(eqn: Any, x: Any) -> Any:
    if eqn.params["rounding_method"] == jax.lax.RoundingMethod.TO_NEAREST_EVEN:
        return x - casadi.remainder(x, 1.0)  # C's remainder rounds the quotient half to even
    return casadi.sign(x) * casadi.floor(casadi.fabs(x) + 0.5)


# Element-wise primitives with parameters; casadi.power multiplies out integer powers.
_PARAMETRIC: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "integer_pow": (lambda eqn, x: np.power(x, eqn.params["y"]),
                    lambda eqn, x: casadi.power(x, eqn.params["y"])),
    "convert_element_type": (lambda eqn, x: x.astype(eqn.params["new_dtype"]), _convert),
    "round": (lambda eqn, x: np.rint(x) if eqn.params["rounding_method"] == 1
              else np.sign(x) * np.floor(np.abs(x) + 0.5), _round),
}  # fmt: skip


def _elementwise(eqn: Any, values: Sequence[_Value]) -> _Value:
    """An element-wise primitive of which at least one operand is symbolic."""
    name, out = eqn.primitive.name, eqn.outvars[0].aval
    operands = [_broadcast(value, out.shape) for value in values]
    if name in _PARAMETRIC:
        return _Symbolic(_PARAMETRIC[name][1](eqn, *operands), out.shape)
    if name in _LOGIC and out.dtype != np.bool_:
        raise _unsupported(eqn, "bit operations on symbolic integers have no counterpart")
    result = _ELEMENTWISE[name][1](*operands)
    if name == "div" and np.issubdtype(out.dtype, np.integer):
        result = _truncate(result)
    return _Symbolic(result, out.shape)


def _choose(condition: Any, cases: Sequence[Any]) -> Any:
    """Entries of case 0 where `condition` is 0, of case 1 where it is 1, and so on; clamped."""
    chosen = cases[-1]
    for number in range(len(cases) - 2, -1, -1):
        chosen = casadi.if_else(condition <= number, cases[number], chosen)
    return chosen


def _select_n(eqn: Any, which: _Value, *cases: _Value) -> list[_Value]:
    shape = eqn.outvars[0].aval.shape
    if isinstance(which, _Symbolic):
        condition, *columns = [_broadcast(value, shape) for value in (which, *cases)]
        if len(cases) == 2:  # the common jnp.where: spare the comparison with 0
            return [_Symbolic(casadi.if_else(condition, columns[1], columns[0]), shape)]
        return [_Symbolic(_choose(condition, columns), shape)]
    number = np.broadcast_to(which.astype(np.int64), shape)[None]

    def pick(*positions: Array) -> list[Array]:
        stacked = np.stack([np.broadcast_to(case, shape) for case in positions])
        return [np.take_along_axis(stacked, number, axis=0)[0]]

    return _move(eqn, pick, cases)


# --- primitives that only move entries ------------------------------------------------------------


def _move(eqn: Any, rule: Callable[..., list[Array]], operands: Sequence[_Value]) -> list[_Value]:
    """Run `rule` on the positions of all operands' entries, then fetch the entries themselves.

    A position of -1 stands for a fill value (a gather out of bounds).
    """
    sizes = [prod(operand.shape) for operand in operands]
    starts = np.cumsum([0, *sizes])
    positions = [
        np.arange(start, start + size).reshape(operand.shape)
        for start, size, operand in zip(starts, sizes, operands, strict=False)
    ]
    moved = rule(*positions)
    total = int(starts[-1])
    missing = any((target < 0).any() for target in moved)
    moved = [np.where(target < 0, total, target) for target in moved] if missing else moved
    dtype = eqn.outvars[0].aval.dtype
    if all(isinstance(operand, np.ndarray) for operand in operands):
        flat = np.concatenate([np.ravel(operand) for operand in operands])  # type: ignore[arg-type]
        flat = np.append(flat, _fill_value(eqn, dtype)) if missing else flat
        return [np.asarray(flat[target], dtype) for target in moved]
    parts = [_entries(operand) for operand in operands]
    column = casadi.vertcat(*parts, *([_fill_value(eqn, dtype)] if missing else []))
    return [
        _Symbolic(_take(column, target), target.shape) if target.size else np.zeros(target.shape)
        for target in moved
    ]


def _fill_value(eqn: Any, dtype: Any) -> Any:
    if eqn.params.get("fill_value") is not None:
        return eqn.params["fill_value"]
    if np.issubdtype(dtype, np.integer):
        return (
            np.iinfo(dtype).min if np.issubdtype(dtype, np.signedinteger) else np.iinfo(dtype).max
        )
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
# The entries and their order stay as they are; only the shape may change.
_RESHAPES = frozenset(
    (
        "copy",
        "copy_p",
        "device_put",
        "expand_dims",
        "name",
        "optimization_barrier",
        "reduce_precision",
        "reshape",
        "squeeze",
        "stop_gradient",
    )
)


def _window_starts(shape: Sequence[int], sizes: Sequence[int], starts: Sequence[Any]) -> list[int]:
    """Starts of a window of `sizes`, moved so that the window lies inside `shape`, as XLA does."""
    bounds = zip(starts, shape, sizes, strict=True)
    return [int(np.clip(int(start), 0, whole - size)) for start, whole, size in bounds]


def _dynamic_slice(eqn: Any, operand: _Value, *starts: _Value) -> list[_Value]:
    sizes = eqn.params["slice_sizes"]
    first = _window_starts(operand.shape, sizes, [_constant(eqn, start) for start in starts])
    window = tuple(slice(start, start + size) for start, size in zip(first, sizes, strict=True))
    return _move(eqn, lambda x: [x[window]], [operand])


def _dynamic_update_slice(eqn: Any, operand: _Value, update: _Value, *at: _Value) -> list[_Value]:
    sizes = update.shape
    first = _window_starts(operand.shape, sizes, [_constant(eqn, start) for start in at])
    window = tuple(slice(start, start + size) for start, size in zip(first, sizes, strict=True))

    def overwrite(x: Array, new: Array) -> list[Array]:
        x[window] = new
        return [x]

    return _move(eqn, overwrite, [operand, update])


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
    positions = np.asarray(first.reshape((*batch, *[1] * len(kept))) + offsets)
    if mode == jax.lax.GatherScatterMode.FILL_OR_DROP:
        positions[~inside] = -1
    return positions


def _gather(eqn: Any, operand: _Value, indices: _Value) -> list[_Value]:
    dims, shape = eqn.params["dimension_numbers"], eqn.outvars[0].aval.shape
    positions = _window_positions(
        operand.shape, eqn.params["slice_sizes"], _constant(eqn, indices), dims.start_index_map,
        (*dims.collapsed_slice_dims, *dims.operand_batching_dims),
        list(zip(dims.operand_batching_dims, dims.start_indices_batching_dims, strict=True)),
        eqn.params["mode"],
    )  # fmt: skip
    batch_dims = [dim for dim in range(len(shape)) if dim not in dims.offset_dims]
    order = np.argsort([*batch_dims, *dims.offset_dims])
    return _move(eqn, lambda x: [np.transpose(positions, order)], [operand])


_SCATTER_COMBINE = {"scatter-add": "add", "scatter-mul": "mul", "scatter-min": "min",
                    "scatter-max": "max", "scatter-sub": "sub"}  # fmt: skip


def _scatter(eqn: Any, operand: _Value, indices: _Value, updates: _Value) -> list[_Value]:
    dims = eqn.params["dimension_numbers"]
    dropped = (*dims.inserted_window_dims, *dims.operand_batching_dims)
    kept = [dim for dim in range(len(operand.shape)) if dim not in dropped]
    sizes = [1] * len(operand.shape)
    for dim, update_dim in zip(kept, dims.update_window_dims, strict=True):
        sizes[dim] = updates.shape[update_dim]
    positions = _window_positions(
        operand.shape, sizes, _constant(eqn, indices), dims.scatter_dims_to_operand_dims, dropped,
        list(zip(dims.operand_batching_dims, dims.scatter_indices_batching_dims, strict=True)),
        eqn.params["mode"],
    )  # fmt: skip
    count = len(updates.shape)
    batch_dims = [dim for dim in range(count) if dim not in dims.update_window_dims]
    source = _positions(updates.shape)
    source = np.transpose(source, [*batch_dims, *dims.update_window_dims]).ravel()
    target = positions.ravel()
    source, target = source[target >= 0], target[target >= 0]
    if eqn.primitive.name == "scatter":

        def overwrite(x: Array, new: Array) -> list[Array]:
            x.reshape(-1)[target] = new.ravel()[source]  # where targets repeat, the last one stays
            return [x]

        return _move(eqn, overwrite, [operand, updates])
    numpy_function, sx_function = _ELEMENTWISE[_SCATTER_COMBINE[eqn.primitive.name]]
    if isinstance(operand, np.ndarray) and isinstance(updates, np.ndarray):
        result = operand.copy()
        numpy_function.at(result.reshape(-1), target, updates.ravel()[source])  # type: ignore[union-attr]
        return [result]
    column, new = casadi.SX(_entries(operand)), _entries(updates)
    while target.size:  # each round takes the first update of every entry that still has one
        chosen, first = np.unique(target, return_index=True)
        updated = sx_function(_take(column, chosen), _take(new, source[first]))
        column[chosen.tolist()] = updated
        target, source = np.delete(target, first), np.delete(source, first)
    return [_Symbolic(column, operand.shape)]


# --- reductions and linear algebra ----------------------------------------------------------------


def _combine_rows(combine: Callable[..., Any], entries: Any, rows: int, columns: int) -> Any:
    """Reduce a (rows, columns) array in C order over its rows, in log2(rows) CasADi calls."""
    while rows > 1:
        half = rows // 2
        middle, end = half * columns, 2 * half * columns
        paired = combine(entries[:middle], entries[middle:end])
        entries = casadi.vertcat(paired, entries[end:])
        rows -= half
    return entries


_REDUCTIONS: dict[str, tuple[Any, Callable[..., Any]]] = {
    "reduce_sum": (np.sum, operator.add),
    "reduce_prod": (np.prod, operator.mul),
    "reduce_max": (np.max, casadi.fmax),
    "reduce_min": (np.min, casadi.fmin),
    "reduce_and": (np.all, casadi.logic_and),
    "reduce_or": (np.any, casadi.logic_or),
}


def _reduce(eqn: Any, operand: _Symbolic) -> list[_Value]:
    axes, shape = eqn.params["axes"], eqn.outvars[0].aval.shape
    if eqn.primitive.name in ("reduce_and", "reduce_or") and eqn.outvars[0].aval.dtype != np.bool_:
        raise _unsupported(eqn, "bit operations on symbolic integers have no counterpart")
    positions = _positions(operand.shape)
    rows = np.moveaxis(positions, axes, range(len(axes)))
    combine, columns = _REDUCTIONS[eqn.primitive.name][1], prod(shape)
    ordered = _take(operand.entries, rows)
    return [_Symbolic(_combine_rows(combine, ordered, rows.size // columns, columns), shape)]


_CUMULATIVE: dict[str, tuple[Any, Callable[..., Any]]] = {
    "cumsum": (np.cumsum, operator.add),
    "cumprod": (np.cumprod, operator.mul),
    "cummax": (np.maximum.accumulate, casadi.fmax),
    "cummin": (np.minimum.accumulate, casadi.fmin),
}


def _cumulate(eqn: Any, operand: _Value) -> list[_Value]:
    axis = eqn.params["axis"]
    numpy_function, combine = _CUMULATIVE[eqn.primitive.name]
    flip: Callable[[Array], Array] = (
        partial(np.flip, axis=axis) if eqn.params["reverse"] else np.array
    )
    if isinstance(operand, np.ndarray):
        return [flip(numpy_function(flip(operand), axis=axis))]
    positions = _positions(operand.shape)
    rows = [_take(operand.entries, row) for row in np.moveaxis(flip(positions), axis, 0)]
    for number in range(1, len(rows)):
        rows[number] = combine(rows[number - 1], rows[number])
    # The rows lie behind one another with `axis` in front: find each entry's place there.
    front = (operand.shape[axis], *np.delete(operand.shape, axis))
    places = flip(np.moveaxis(np.arange(positions.size).reshape(front), 0, axis))
    return [_Symbolic(_take(casadi.vertcat(*rows), places), operand.shape)]


def _dot_general(eqn: Any, left: _Value, right: _Value) -> list[_Value]:
    (left_sum, right_sum), (left_batch, right_batch) = eqn.params["dimension_numbers"]
    out = eqn.outvars[0].aval

    def arrange(value: _Value, summed: Sequence[int], batch: Sequence[int]) -> Array:
        """Positions (summed, batch, free), each group of dimensions raveled to one."""
        free = [d for d in range(len(value.shape)) if d not in summed and d not in batch]
        positions = _positions(value.shape)
        positions = np.transpose(positions, (*summed, *batch, *free))
        groups = [prod(value.shape[d] for d in dims) for dims in (summed, batch, free)]
        return positions.reshape(groups)

    left_at, right_at = arrange(left, left_sum, left_batch), arrange(right, right_sum, right_batch)
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        factors = (
            left.ravel()[np.moveaxis(left_at, 0, 2)],
            right.ravel()[np.moveaxis(right_at, 0, 1)],
        )
        return [np.matmul(*factors).reshape(out.shape).astype(out.dtype)]
    if out.size == 0 or left_at.size == 0:
        return [np.zeros(out.shape, out.dtype)]
    grid = (left_at.shape[0], left_at.shape[1], left_at.shape[2], right_at.shape[2])
    # Products with constant zeros vanish here, since SX simplifies 0 * x and 0 + x.
    products = _take(_entries(left), np.broadcast_to(left_at[..., None], grid)) * _take(
        _entries(right), np.broadcast_to(right_at[:, :, None, :], grid)
    )
    return [_Symbolic(_combine_rows(operator.add, products, grid[0], out.size), out.shape)]


def _matrix_entries(value: _Value) -> list[list[Any]]:
    """Columns over the leading (batch) dimensions: result[i][j] holds entry (i, j) of all."""
    positions = np.arange(prod(value.shape)).reshape(-1, *value.shape[-2:])
    column = _entries(value)
    return [
        [_take(column, positions[:, i, j]) for j in range(value.shape[-1])]
        for i in range(value.shape[-2])
    ]


def _from_matrix_entries(rows: list[list[Any]], shape: tuple[int, ...]) -> _Symbolic:
    column = casadi.vertcat(*[entry for row in rows for entry in row])
    batch_last = np.arange(prod(shape)).reshape(shape[-2], shape[-1], -1)
    return _Symbolic(_take(column, np.moveaxis(batch_last, 2, 0)), shape)


def _cholesky(eqn: Any, matrix: _Value) -> list[_Value]:
    a, n = _matrix_entries(matrix), matrix.shape[-1]
    zero = 0.0 * a[0][0]
    factor = [[zero] * n for _ in range(n)]
    for i in range(n):
        for j in range(i + 1):
            rest = a[i][j]  # only the lower triangle is read, as in JAX
            for k in range(j):
                rest = rest - factor[i][k] * factor[j][k]
            factor[i][j] = casadi.sqrt(rest) if i == j else rest / factor[j][j]
    return [_from_matrix_entries(factor, matrix.shape)]


def _triangular_solve(eqn: Any, matrix: _Value, right_side: _Value) -> list[_Value]:
    p = eqn.params
    a, b, n = _matrix_entries(matrix), _matrix_entries(right_side), matrix.shape[-1]
    if not p["left_side"]:  # X A = B is A' X' = B'
        b = [list(row) for row in zip(*b, strict=True)]
    transposed = p["transpose_a"] == p["left_side"]
    if transposed:
        a = [list(row) for row in zip(*a, strict=True)]
    forward = p["lower"] != transposed
    solution: dict[int, list[Any]] = {}
    for i in range(n) if forward else range(n - 1, -1, -1):
        row = b[i]
        for j, known in solution.items():
            row = [entry - a[i][j] * x for entry, x in zip(row, known, strict=True)]
        solution[i] = row if p["unit_diagonal"] else [entry / a[i][i] for entry in row]
    rows = [solution[i] for i in range(n)]
    if not p["left_side"]:
        rows = [list(row) for row in zip(*rows, strict=True)]
    return [_from_matrix_entries(rows, right_side.shape)]


# --- inner functions and loops --------------------------------------------------------------------

_CALLS = frozenset(
    (
        "jit",
        "pjit",
        "closed_call",
        "core_call",
        "core_closed_call",
        "custom_jvp_call",
        "custom_vjp_call",
        "custom_vjp_call_jaxpr",
        "remat",
        "remat2",
        "checkpoint",
    )
)


def _called(eqn: Any) -> Any:
    names = ("jaxpr", "call_jaxpr", "fun_jaxpr")
    return next(eqn.params[name] for name in names if name in eqn.params)


def _row(value: _Value, number: int) -> _Value:
    if isinstance(value, np.ndarray):
        return np.asarray(value[number])
    size = prod(value.shape[1:])
    return _Symbolic(value.entries[number * size : (number + 1) * size], value.shape[1:])


def _stack(rows: list[_Value], aval: Any) -> _Value:
    if all(isinstance(row, np.ndarray) for row in rows):
        return np.array(rows, aval.dtype).reshape(aval.shape)
    return _Symbolic(casadi.vertcat(*[_entries(row) for row in rows]), aval.shape)


def _scan(eqn: Any, *values: _Value) -> list[_Value]:
    p = eqn.params
    split = p["num_consts"] + p["num_carry"]
    consts, carry = list(values[: p["num_consts"]]), list(values[p["num_consts"] : split])
    collected: list[list[_Value]] = [[] for _ in eqn.outvars[p["num_carry"] :]]
    steps = range(p["length"])
    for step in reversed(steps) if p["reverse"] else steps:
        rows = [_row(value, step) for value in values[split:]]
        results = _run(p["jaxpr"], [*consts, *carry, *rows])
        carry = results[: p["num_carry"]]
        for store, result in zip(collected, results[p["num_carry"] :], strict=True):
            store.append(result)
    stores = [store[::-1] for store in collected] if p["reverse"] else collected
    avals = [var.aval for var in eqn.outvars[p["num_carry"] :]]
    return [*carry, *(_stack(store, aval) for store, aval in zip(stores, avals, strict=True))]


def _while(eqn: Any, *values: _Value) -> list[_Value]:
    """Unrolled for as long as the condition is a number; the body may work on symbols."""
    p = eqn.params
    first, second = p["cond_nconsts"], p["cond_nconsts"] + p["body_nconsts"]
    carry = list(values[second:])
    while _constant(eqn, _run(p["cond_jaxpr"], [*values[:first], *carry])[0]).item():
        carry = _run(p["body_jaxpr"], [*values[first:second], *carry])
    return carry


def _cond(eqn: Any, index: _Value, *operands: _Value) -> list[_Value]:
    branches = eqn.params["branches"]
    if isinstance(index, np.ndarray):
        return _run(branches[int(np.clip(index, 0, len(branches) - 1))], operands)
    results = [_run(branch, operands) for branch in branches]
    return [
        _Symbolic(_choose(index.entries, [_entries(case) for case in cases]), var.aval.shape)
        if prod(var.aval.shape) else np.zeros(var.aval.shape, var.aval.dtype)
        for var, cases in zip(eqn.outvars, zip(*results, strict=True), strict=True)
    ]  # fmt: skip


def _linear_solve(eqn: Any, *values: _Value) -> list[_Value]:
    """`lax.custom_linear_solve`: run the user's solver; its factorisation must be supported."""
    lengths = eqn.params["const_lengths"]
    start = lengths.matvec + lengths.vecmat
    stop = start + lengths.solve
    right_sides = values[stop + lengths.transpose_solve :]
    return _run(eqn.params["jaxprs"].solve, [*values[start:stop], *right_sides])


# Rules for numeric and symbolic operands alike ...
_RULES: dict[str, Callable[..., list[_Value]]] = {
    "select_n": _select_n,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "scatter": _scatter,
    **dict.fromkeys(_SCATTER_COMBINE, _scatter),
    **dict.fromkeys(_CUMULATIVE, _cumulate),
    "dot_general": _dot_general,
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "custom_linear_solve": _linear_solve,
}
# ... and rules only for when an operand is symbolic.
_SYMBOLIC_RULES: dict[str, Callable[..., list[_Value]]] = {
    **dict.fromkeys(_REDUCTIONS, _reduce),
    "cholesky": _cholesky,
    "triangular_solve": _triangular_solve,
}


# --- the interpreter ------------------------------------------------------------------------------


def _numeric(eqn: Any, values: Sequence[Any]) -> list[_Value]:
    """Evaluate on numbers: in NumPy where that is known, since JAX would compile each primitive."""
    name, params = eqn.primitive.name, eqn.params
    function: Callable[..., Any] | None = _ELEMENTWISE.get(name, (None,))[0]
    if name in _PARAMETRIC:
        function = partial(_PARAMETRIC[name][0], eqn)
    elif name in _REDUCTIONS and prod(values[0].shape):
        function = partial(_REDUCTIONS[name][0], axis=tuple(params["axes"]))
    elif name == "iota":
        return [np.indices(params["shape"], params["dtype"])[params["dimension"]]]
    if function is not None:
        return [np.asarray(function(*values), eqn.outvars[0].aval.dtype)]
    cpu = jax.local_devices(backend="cpu")[0]
    with jax.ensure_compile_time_eval(), jax.enable_x64(True), jax.default_device(cpu):
        results = eqn.primitive.bind(*map(jax.numpy.asarray, values), **params)
    return [np.asarray(r) for r in (results if eqn.primitive.multiple_results else [results])]


def _evaluate(eqn: Any, values: list[_Value]) -> list[_Value]:
    name = eqn.primitive.name
    if name in _CALLS:
        return _run(_called(eqn), values)
    if name in _RULES:
        return _RULES[name](eqn, *values)
    if name in _STRUCTURAL:
        return _move(eqn, partial(_STRUCTURAL[name], eqn.params), values)
    if name in _RESHAPES:
        return [
            value.reshape(var.aval.shape) if isinstance(value, np.ndarray)
            else _Symbolic(value.entries, var.aval.shape)
            for var, value in zip(eqn.outvars, values, strict=True)
        ]  # fmt: skip
    if all(isinstance(value, np.ndarray) for value in values):
        return _numeric(eqn, values)
    if any(prod(var.aval.shape) == 0 for var in eqn.outvars):
        return [np.zeros(var.aval.shape, var.aval.dtype) for var in eqn.outvars]
    if name in _ELEMENTWISE or name in _PARAMETRIC:
        return [_elementwise(eqn, values)]
    if name in _SYMBOLIC_RULES:
        return _SYMBOLIC_RULES[name](eqn, *values)
    raise _unsupported(eqn, "it has no rule here")


def _live_equations(jaxpr: Any) -> list[Any]:
    """Equations that the outputs need: jax.grad leaves the unused forward result in the jaxpr."""
    needed = {var for var in jaxpr.outvars if not isinstance(var, Literal)}
    live = []
    for eqn in reversed(jaxpr.eqns):
        if not needed.isdisjoint(eqn.outvars):
            live.append(eqn)
            needed.update(var for var in eqn.invars if not isinstance(var, Literal))
    return live[::-1]


def _run(jaxpr: Any, values: Sequence[_Value]) -> list[_Value]:
    """Interpret a (closed) jaxpr on flat values."""
    consts: Sequence[Any] = ()
    if isinstance(jaxpr, ClosedJaxpr):
        jaxpr, consts = jaxpr.jaxpr, [np.asarray(const) for const in jaxpr.consts]
    known: dict[Any, _Value] = dict(zip(jaxpr.constvars, consts, strict=True))
    known.update(zip(jaxpr.invars, values, strict=True))

    def read(var: Any) -> _Value:
        dtype = var.aval.dtype
        return np.asarray(var.val, dtype) if isinstance(var, Literal) else known[var]

    for eqn in _live_equations(jaxpr):
        known.update(zip(eqn.outvars, _evaluate(eqn, [read(v) for v in eqn.invars]), strict=True))
    return [read(var) for var in jaxpr.outvars]


def _inner_jaxprs(params: dict[str, Any]) -> Iterator[Any]:
    for value in params.values():
        for item in value if isinstance(value, tuple) else (value,):
            inner = item.jaxpr if isinstance(item, ClosedJaxpr) else item
            if hasattr(inner, "eqns"):
                yield inner


def _count(jaxpr: Any) -> int:
    """Estimated scalar operations of an (open) jaxpr."""
    total = 0
    for eqn in jaxpr.eqns:
        work = sum(prod(var.aval.shape) for var in eqn.outvars)
        inner = 0 if "update_jaxpr" in eqn.params else sum(map(_count, _inner_jaxprs(eqn.params)))
        if eqn.primitive.name == "dot_general":
            shape = eqn.invars[0].aval.shape
            work *= prod(shape[d] for d in eqn.params["dimension_numbers"][0][0])
        elif eqn.primitive.name in ("cholesky", "triangular_solve"):
            work *= eqn.invars[0].aval.shape[-1]
        total += inner * eqn.params.get("length", 1) if inner else work
    return total


# --- the public object ----------------------------------------------------------------------------


@dataclass(frozen=True)
class TracedFunction:
    """A JAX function recorded for fixed shapes; make one with `trace`.

    `inputs` holds one pytree of `jax.ShapeDtypeStruct` per argument, `outputs` that of the result.
    """

    jaxpr: ClosedJaxpr
    inputs: tuple[Any, ...]
    outputs: Any

    @cached_property
    def size(self) -> int:
        """Estimated number of scalar operations, found without CasADi.

        Elements of all results (a dot product counts each multiplication, a scan each step); a
        `while` loop counts as one step.
        """
        return _count(self.jaxpr.jaxpr)

    def expressions(self, *args: Any) -> Any:
        """Interpret the function on symbols.

        Each argument has the structure of its example; a leaf is a NumPy object array of SX
        scalars of the example's shape (or an SX column for a leaf of one dimension or none), or a
        numeric array, which is then a constant. The result has the structure of the function's
        result, with object arrays (0-d for scalars). A result that no symbol reaches stays a
        numeric array. Only numeric leaves can serve as indices.
        """
        if len(args) != len(self.inputs):
            raise ValueError(f"expected {len(self.inputs)} arguments, got {len(args)}")
        values: list[_Value] = []
        for number, (arg, example) in enumerate(zip(args, self.inputs, strict=True)):
            expected: Any = jax.tree.structure(example)
            if expected != jax.tree.structure(arg):
                raise ValueError(f"argument {number}: expected the structure {expected}")
            for leaf, spec in zip(jax.tree.leaves(arg), jax.tree.leaves(example), strict=True):
                values.append(_value(leaf, spec.shape, spec.dtype))
        # NumPy must stay as silent on 1/0 and log(0) of constants as JAX is.
        with np.errstate(all="ignore"):
            results = _run(self.jaxpr, values)
        arrays = [
            sx_array(result.entries, result.shape) if isinstance(result, _Symbolic) else result
            for result in results
        ]
        return jax.tree.unflatten(jax.tree.structure(self.outputs), arrays)

    def function(self, name: str = "f", options: dict[str, Any] | None = None) -> Any:
        """`casadi.Function` with one column per argument and one column per output.

        An argument's column (n, 1) holds its leaves, in pytree order, each raveled in C order; an
        argument without leaves is a (0, 1) input. A function that returns a plain tuple has one
        output per item of it, any other function has one. `options` go to `casadi.Function`.
        """
        columns = [
            casadi.SX.sym(f"x{number}", _total_size(example), 1)
            for number, example in enumerate(self.inputs)
        ]
        pairs = zip(columns, self.inputs, strict=True)
        result = self.expressions(*[_unpack(column, example) for column, example in pairs])
        items = result if type(result) is tuple else (result,)
        outputs = [_pack(item) for item in items]
        return casadi.Function(name, columns, casadi.cse(outputs) if outputs else [], options or {})


def _total_size(tree: Any) -> int:
    return sum(prod(leaf.shape) for leaf in jax.tree.leaves(tree))


def _unpack(column: Any, example: Any) -> Any:
    """Cut a column into the pytree of object arrays that `example` describes."""
    leaves, structure = jax.tree.flatten(example)
    stops = np.cumsum([0, *(prod(leaf.shape) for leaf in leaves)]).tolist()
    arrays = [
        sx_array(column[start:stop], leaf.shape)
        for leaf, start, stop in zip(leaves, stops[:-1], stops[1:], strict=True)
    ]
    return jax.tree.unflatten(structure, arrays)


def _pack(tree: Any) -> Any:
    return casadi.vertcat(casadi.SX(0, 1), *[sx_vector(leaf) for leaf in jax.tree.leaves(tree)])


def _specification(leaf: Any) -> jax.ShapeDtypeStruct:
    """Shape and dtype of an example leaf; all floating-point numbers count as float64."""
    dtype = np.dtype(leaf.dtype) if hasattr(leaf, "dtype") else np.asarray(leaf).dtype
    shape = tuple(leaf.shape) if hasattr(leaf, "shape") else np.shape(leaf)
    return jax.ShapeDtypeStruct(shape, np.float64 if np.issubdtype(dtype, np.floating) else dtype)


def trace(fn: Callable[..., Any], *examples: Any) -> TracedFunction:
    """Record `fn` for arguments shaped like `examples`.

    Examples are pytrees of arrays, `jax.ShapeDtypeStruct`s or Python numbers; only shape and dtype
    are used, and floating-point leaves are taken as float64.
    """
    with jax.enable_x64(True):
        inputs = tuple(jax.tree.map(_specification, example) for example in examples)
        jaxpr, outputs = jax.make_jaxpr(fn, return_shape=True)(*inputs)
    return TracedFunction(jaxpr, inputs, outputs)


def dependencies(fn: Callable[..., Any], *examples: Any) -> Any:
    """Which entries of the first argument the result of `fn` depends on.

    Returns a pytree of boolean arrays with the structure and shapes of the first argument. The
    answer is structural: an entry counts if it appears in the simplified expression, whatever its
    derivative (`sign(x)` depends on x, `0 * x` does not). Integer and boolean examples given by
    value in the other arguments count as constants, so that they may be indices.
    """
    traced = trace(fn, *examples)

    def symbols(spec: jax.ShapeDtypeStruct, example: Any = None) -> Array:
        if isinstance(example, (int, np.ndarray, np.generic, jax.Array)) and not np.issubdtype(
            spec.dtype, np.floating
        ):
            return np.asarray(example)
        return sx_array(casadi.SX.sym("x", prod(spec.shape), 1), spec.shape)

    first = jax.tree.map(symbols, traced.inputs[0])
    others = [
        jax.tree.map(symbols, inputs, example)
        for inputs, example in zip(traced.inputs[1:], examples[1:], strict=True)
    ]
    column = _pack(traced.expressions(first, *others))
    # symvar, since Jacobian sparsity would not see a dependence through a step function.
    used = {symbol.element_hash() for symbol in casadi.symvar(column)}

    def appears(array: Array) -> Array:
        flags = [symbol.element_hash() in used for symbol in array.ravel()]
        return np.array(flags, bool).reshape(array.shape)

    return jax.tree.map(appears, first)
