"""Arithmetic primitives: for numbers in NumPy, and for symbols in CasADi.

Plain numbers are computed in NumPy where possible, since JAX would compile each operation.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, TypeAlias

import jax
import numpy as np

from optlearn._engine.tracing.values import (
    Array,
    Operation,
    Symbolic,
    Value,
    broadcast,
    casadi,
    entries_of,
    positions,
    take,
    unsupported,
)


def _later(name: str) -> Callable[..., Any]:
    """CasADi's function of this name, looked up at the call."""
    return lambda *arguments: getattr(casadi, name)(*arguments)


# --- element by element ---------------------------------------------------------------------------


def _numpy_divide(x: Array, y: Array) -> Array:
    if np.issubdtype(x.dtype, np.integer):
        safe = np.where(y == 0, 1, y)
        return np.asarray((x - np.fmod(x, safe)) // safe)
    return np.asarray(x / y)


def _from_scipy(name: str) -> Callable[[Array], Array]:
    def numbers(x: Array) -> Array:
        import scipy.special  # takes 0.1 s, and is rarely needed for plain numbers

        return np.asarray(getattr(scipy.special, name)(x))

    return numbers


def _truncate(x: Any) -> Any:
    return casadi.sign(x) * casadi.floor(casadi.fabs(x))


_Pair: TypeAlias = tuple[Callable[..., Any], Callable[..., Any]]  # NumPy's function, and CasADi's
# JAX, NumPy and CasADi mostly call the same function by the same name.
_SAME = ("ceil", "cos", "cosh", "exp", "expm1", "floor", "log", "log1p", "sign", "sin", "sinh", "sqrt", "tan",
         "tanh")  # fmt: skip
_INVERSE = ("sin", "cos", "tan", "tan2", "sinh", "cosh", "tanh")  # NumPy has "arcsin", the others "asin"
ELEMENTWISE: dict[str, _Pair] = {
    **{name: (getattr(np, name), _later(name)) for name in _SAME},
    **{f"a{name}": (getattr(np, f"arc{name}"), _later(f"a{name}")) for name in _INVERSE},
    "add": (np.add, operator.add),
    "add_any": (np.add, operator.add),
    "sub": (np.subtract, operator.sub),
    "mul": (np.multiply, operator.mul),
    "div": (_numpy_divide, operator.truediv),
    "rem": (np.fmod, _later("fmod")),
    "neg": (np.negative, operator.neg),
    "abs": (np.abs, _later("fabs")),
    "max": (np.maximum, _later("fmax")),
    "min": (np.minimum, _later("fmin")),
    "clamp": (lambda lo, x, hi: np.minimum(np.maximum(x, lo), hi),
              lambda lo, x, hi: casadi.fmin(casadi.fmax(x, lo), hi)),
    "square": (np.square, lambda x: x * x),
    "rsqrt": (lambda x: 1.0 / np.sqrt(x), lambda x: 1.0 / casadi.sqrt(x)),
    "cbrt": (np.cbrt, lambda x: casadi.sign(x) * casadi.power(casadi.fabs(x), 1.0 / 3.0)),
    "pow": (np.power, _later("power")),
    "exp2": (np.exp2, lambda x: casadi.exp(np.log(2.0) * x)),
    "logistic": (_from_scipy("expit"), lambda x: 1.0 / (1.0 + casadi.exp(-x))),
    "erf": (np.vectorize(math.erf, otypes=[float]), _later("erf")),
    "erfc": (np.vectorize(math.erfc, otypes=[float]), lambda x: 1.0 - casadi.erf(x)),
    "erf_inv": (_from_scipy("erfinv"), _later("erfinv")),
    "eq": (np.equal, operator.eq),
    "ne": (np.not_equal, operator.ne),
    "lt": (np.less, operator.lt),
    "le": (np.less_equal, operator.le),
    "gt": (np.greater, operator.gt),
    "ge": (np.greater_equal, operator.ge),
    "and": (np.bitwise_and, _later("logic_and")),
    "or": (np.bitwise_or, _later("logic_or")),
    "not": (np.invert, _later("logic_not")),
    "xor": (np.bitwise_xor, operator.ne),
    # NaN compares as False; x - x == 0 would simplify to True.
    "is_finite": (np.isfinite, lambda x: casadi.fabs(x) < np.inf),
}  # fmt: skip
_LOGIC = frozenset({"and", "or", "not", "xor"})


def _elementwise_symbols(eqn: Any, *values: Value) -> list[Value]:
    name, out = eqn.primitive.name, eqn.outvars[0].aval
    if name in _LOGIC and out.dtype != np.bool_:
        raise unsupported(eqn, "bit operations on symbolic integers have no counterpart")
    result = ELEMENTWISE[name][1](*[broadcast(value, out.shape) for value in values])
    if name == "div" and np.issubdtype(out.dtype, np.integer):
        result = _truncate(result)
    return [Symbolic(result, out.shape)]


def _convert(eqn: Any, x: Symbolic) -> list[Value]:
    old, new = eqn.invars[0].aval.dtype, np.dtype(eqn.params["new_dtype"])
    if new == np.bool_:
        return [Symbolic(x.entries != 0, x.shape)]
    narrows = np.issubdtype(old, np.floating) and np.issubdtype(new, np.integer)
    return [Symbolic(_truncate(x.entries), x.shape) if narrows else x]


def _round_symbols(eqn: Any, x: Symbolic) -> list[Value]:
    if eqn.params["rounding_method"] != jax.lax.RoundingMethod.TO_NEAREST_EVEN:
        raise unsupported(eqn, "only rounding to even, as in jax.numpy.round, has a form")
    # C's remainder rounds the quotient half to even.
    return [Symbolic(x.entries - casadi.remainder(x.entries, 1.0), x.shape)]


# --- sums, products, extremes and their cumulative forms -------------------------------------------

_OPERATORS = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "and": "and", "or": "or"}
_REDUCTIONS: dict[str, Any] = {f"reduce_{name}": ELEMENTWISE[op] for name, op in _OPERATORS.items()}
_CUMULATIVE: dict[str, Any] = {f"cum{name}": _REDUCTIONS[f"reduce_{name}"] for name in list(_OPERATORS)[:4]}


def _combine_rows(combine: Callable[..., Any], entries: Any, rows: int, columns: int) -> Any:
    """Reduce a (rows, columns) array in C order over its rows, in log2(rows) CasADi calls."""
    while rows > 1:
        half = rows // 2
        middle, end = half * columns, 2 * half * columns
        paired = combine(entries[:middle], entries[middle:end])
        entries = casadi.vertcat(paired, entries[end:])
        rows -= half
    return entries


def _reduce_symbols(eqn: Any, operand: Symbolic) -> list[Value]:
    axes, out = eqn.params["axes"], eqn.outvars[0].aval
    if eqn.primitive.name in ("reduce_and", "reduce_or") and out.dtype != np.bool_:
        raise unsupported(eqn, "bit operations on symbolic integers have no counterpart")
    rows = np.moveaxis(positions(operand.shape), axes, range(len(axes)))
    combine, columns = _REDUCTIONS[eqn.primitive.name][1], prod(out.shape)
    ordered = take(operand.entries, rows)
    return [Symbolic(_combine_rows(combine, ordered, rows.size // columns, columns), out.shape)]


def _flipped(eqn: Any) -> Callable[[Array], Array]:
    """Turns an array so that its entries accumulate in increasing order, and back."""
    return partial(np.flip, axis=eqn.params["axis"]) if eqn.params["reverse"] else np.asarray


def _cumulate_symbols(eqn: Any, operand: Symbolic) -> list[Value]:
    axis, flip = eqn.params["axis"], _flipped(eqn)
    combine = _CUMULATIVE[eqn.primitive.name][1]
    places = np.moveaxis(flip(positions(operand.shape)), axis, 0)
    rows = [take(operand.entries, np.asarray(row)) for row in places]
    for number in range(1, len(rows)):
        rows[number] = combine(rows[number - 1], rows[number])
    # The rows are concatenated with `axis` in front: find each entry's position there.
    back = flip(np.moveaxis(positions(places.shape), 0, axis))
    return [Symbolic(take(casadi.vertcat(*rows), back), operand.shape)]


# --- matrices -------------------------------------------------------------------------------------


def _dot_general_symbols(eqn: Any, left: Value, right: Value) -> list[Value]:
    (left_sum, right_sum), (left_batch, right_batch) = eqn.params["dimension_numbers"]
    out = eqn.outvars[0].aval

    def arrange(value: Value, summed: Sequence[int], batch: Sequence[int]) -> Array:
        """Positions (summed, batch, free), each group of dimensions raveled to one."""
        free = [d for d in range(len(value.shape)) if d not in summed and d not in batch]
        groups = [prod(value.shape[d] for d in dims) for dims in (summed, batch, free)]
        return np.transpose(positions(value.shape), (*summed, *batch, *free)).reshape(groups)

    left_at, right_at = arrange(left, left_sum, left_batch), arrange(right, right_sum, right_batch)
    grid = (*left_at.shape, right_at.shape[2])
    # Products with constant zeros vanish here, since SX simplifies 0 * x and 0 + x.
    products = take(entries_of(left), np.broadcast_to(left_at[..., None], grid)) * take(
        entries_of(right), np.broadcast_to(right_at[:, :, None, :], grid)
    )
    return [Symbolic(_combine_rows(operator.add, products, grid[0], out.size), out.shape)]


def _matrix_entries(value: Value) -> list[list[Any]]:
    """Columns over the leading (batch) dimensions: result[i][j] holds entry (i, j) of all."""
    at = positions((prod(value.shape[:-2]), *value.shape[-2:]))
    column = entries_of(value)
    return [[take(column, at[:, i, j]) for j in range(at.shape[2])] for i in range(at.shape[1])]


def _from_matrix_entries(rows: list[list[Any]], shape: tuple[int, ...]) -> Symbolic:
    column = casadi.vertcat(*[entry for row in rows for entry in row])
    batch_last = positions((*shape[-2:], prod(shape[:-2])))
    return Symbolic(take(column, np.moveaxis(batch_last, 2, 0)), shape)


def _transpose(rows: list[list[Any]]) -> list[list[Any]]:
    return [list(row) for row in zip(*rows, strict=True)]


def _cholesky(eqn: Any, matrix: Value) -> list[Value]:
    a, n = _matrix_entries(matrix), matrix.shape[-1]
    zero = 0.0 * a[0][0]
    factor = [[zero] * n for _ in range(n)]
    for i in range(n):
        for j in range(i + 1):
            remainder = a[i][j]  # only the lower triangle is read, as in JAX
            for k in range(j):
                remainder = remainder - factor[i][k] * factor[j][k]
            factor[i][j] = casadi.sqrt(remainder) if i == j else remainder / factor[j][j]
    return [_from_matrix_entries(factor, matrix.shape)]


def _triangular_solve(eqn: Any, matrix: Value, right_side: Value) -> list[Value]:
    p = eqn.params
    a, b, n = _matrix_entries(matrix), _matrix_entries(right_side), matrix.shape[-1]
    if not p["left_side"]:  # X A = B is A' X' = B'
        b = _transpose(b)
    transposed = p["transpose_a"] == p["left_side"]
    if transposed:
        a = _transpose(a)
    forward = p["lower"] != transposed
    solution: dict[int, list[Any]] = {}
    for i in range(n) if forward else range(n - 1, -1, -1):
        row = b[i]
        for j, solved in solution.items():
            row = [entry - a[i][j] * x for entry, x in zip(row, solved, strict=True)]
        solution[i] = row if p["unit_diagonal"] else [entry / a[i][i] for entry in row]
    rows = [solution[i] for i in range(n)]
    return [_from_matrix_entries(rows if p["left_side"] else _transpose(rows), right_side.shape)]


# With at least one operand symbolic.
FOR_SYMBOLS: dict[str, Operation] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise_symbols),
    **dict.fromkeys(_REDUCTIONS, _reduce_symbols),
    **dict.fromkeys(_CUMULATIVE, _cumulate_symbols),
    "cholesky": _cholesky,
    "convert_element_type": _convert,
    "dot_general": _dot_general_symbols,
    # casadi.power multiplies out integer powers.
    "integer_pow": lambda eqn, x: [Symbolic(casadi.power(x.entries, eqn.params["y"]), x.shape)],
    "round": _round_symbols,
    "triangular_solve": _triangular_solve,
}


# --- plain numbers --------------------------------------------------------------------------------


def on_numbers(eqn: Any, values: Sequence[Array | jax.Array]) -> list[Any]:
    """Evaluate one equation on real numbers; any primitive will do."""
    operation = _FOR_NUMBERS.get(eqn.primitive.name)
    if operation is None:
        return in_jax(eqn, values)
    results = operation(eqn, *values)
    avals = [var.aval for var in eqn.outvars]
    return [np.asarray(r, aval.dtype) for r, aval in zip(results, avals, strict=True)]


def in_jax(eqn: Any, values: Sequence[Any]) -> list[Any]:
    """Evaluate one equation with JAX, eagerly and on the CPU."""
    cpu = jax.local_devices(backend="cpu")[0]
    with jax.ensure_compile_time_eval(), jax.enable_x64(True), jax.default_device(cpu):
        results = eqn.primitive.bind(*map(jax.numpy.asarray, values), **eqn.params)
    return [plain(r) for r in (results if eqn.primitive.multiple_results else [results])]


def plain(array: Any) -> Any:
    """The array in NumPy, unless its dtype (a random key's, say) is known to JAX alone."""
    return np.asarray(array) if isinstance(array.dtype, np.dtype) else array


def _round_numbers(eqn: Any, x: Array) -> list[Any]:
    to_even = eqn.params["rounding_method"] == jax.lax.RoundingMethod.TO_NEAREST_EVEN
    return [np.rint(x)] if to_even else in_jax(eqn, [x])


def _reduce_numbers(eqn: Any, x: Array) -> list[Any]:
    if x.size == 0:  # JAX defines the maximum of an empty array
        return in_jax(eqn, [x])
    return [_REDUCTIONS[eqn.primitive.name][0].reduce(x, axis=tuple(eqn.params["axes"]))]


def _cumulate_numbers(eqn: Any, x: Array) -> list[Any]:
    ufunc, flip = _CUMULATIVE[eqn.primitive.name][0], _flipped(eqn)
    return [flip(ufunc.accumulate(flip(x), axis=eqn.params["axis"]))]


def _dot_general_numbers(eqn: Any, left: Array, right: Array) -> list[Any]:
    (left_sum, right_sum), (left_batch, right_batch) = eqn.params["dimension_numbers"]
    left_axes = list(range(left.ndim))
    right_axes = list(range(left.ndim, left.ndim + right.ndim))
    for i, j in zip((*left_sum, *left_batch), (*right_sum, *right_batch), strict=True):
        right_axes[j] = i
    batch = list(left_batch)
    free = [i for i in left_axes if i not in left_sum and i not in batch]
    free += [i for i in right_axes if i >= left.ndim]
    dtype = eqn.outvars[0].aval.dtype
    return [np.einsum(left, left_axes, right, right_axes, batch + free, dtype=dtype, casting="unsafe")]


def _sort_numbers(eqn: Any, *operands: Array) -> list[Any]:
    axis, keys = eqn.params["dimension"], operands[: eqn.params["num_keys"]]
    order = np.lexsort(keys[::-1], axis=axis)
    return [np.take_along_axis(operand, order, axis) for operand in operands]


_FOR_NUMBERS: dict[str, Callable[..., list[Any]]] = {
    **dict.fromkeys(ELEMENTWISE, lambda eqn, *values: [ELEMENTWISE[eqn.primitive.name][0](*values)]),
    **dict.fromkeys(_REDUCTIONS, _reduce_numbers),
    **dict.fromkeys(_CUMULATIVE, _cumulate_numbers),
    "argmax": lambda eqn, x: [np.argmax(x, *eqn.params["axes"])],
    "argmin": lambda eqn, x: [np.argmin(x, *eqn.params["axes"])],
    "convert_element_type": lambda eqn, x: [x],
    "dot_general": _dot_general_numbers,
    "integer_pow": lambda eqn, x: [np.power(x, eqn.params["y"])],
    "iota": lambda eqn: [np.indices(eqn.params["shape"])[eqn.params["dimension"]]],
    # NumPy refuses negative powers of integers.
    "pow": lambda eqn, x, y: in_jax(eqn, [x, y]) if x.dtype.kind in "iu" else [np.power(x, y)],
    "round": _round_numbers,
    "sort": _sort_numbers,
}
