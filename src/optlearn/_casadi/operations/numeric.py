"""Primitives on plain numbers: in NumPy where that is known, since JAX would compile each one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from optlearn._casadi.operations.elementwise import ELEMENTWISE
from optlearn._casadi.operations.reductions import CUMULATIVE, REDUCTIONS, flipped
from optlearn._casadi.operations.values import Array


def on_numbers(eqn: Any, values: Sequence[Array]) -> list[Any]:
    """Evaluate one equation on real numbers; any primitive will do."""
    operation = _OPERATIONS.get(eqn.primitive.name)
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


def _elementwise(eqn: Any, *values: Array) -> list[Any]:
    return [ELEMENTWISE[eqn.primitive.name][0](*values)]


def _pow(eqn: Any, x: Array, y: Array) -> list[Any]:
    # NumPy refuses negative powers of integers.
    return in_jax(eqn, [x, y]) if x.dtype.kind in "iu" else [np.power(x, y)]


def _round(eqn: Any, x: Array) -> list[Any]:
    to_even = eqn.params["rounding_method"] == jax.lax.RoundingMethod.TO_NEAREST_EVEN
    return [np.rint(x)] if to_even else in_jax(eqn, [x])


def _reduce(eqn: Any, x: Array) -> list[Any]:
    if x.size == 0:  # the maximum of nothing is for JAX to define
        return in_jax(eqn, [x])
    return [REDUCTIONS[eqn.primitive.name][0].reduce(x, axis=tuple(eqn.params["axes"]))]


def _cumulate(eqn: Any, x: Array) -> list[Any]:
    ufunc, flip = CUMULATIVE[eqn.primitive.name][0], flipped(eqn)
    return [flip(ufunc.accumulate(flip(x), axis=eqn.params["axis"]))]


def _dot_general(eqn: Any, left: Array, right: Array) -> list[Any]:
    (left_sum, right_sum), (left_batch, right_batch) = eqn.params["dimension_numbers"]
    of_left = list(range(left.ndim))
    of_right = list(range(left.ndim, left.ndim + right.ndim))
    for i, j in zip((*left_sum, *left_batch), (*right_sum, *right_batch), strict=True):
        of_right[j] = i
    batch = list(left_batch)
    free = [i for i in of_left if i not in left_sum and i not in batch]
    free += [i for i in of_right if i >= left.ndim]
    dtype = eqn.outvars[0].aval.dtype
    return [np.einsum(left, of_left, right, of_right, batch + free, dtype=dtype, casting="unsafe")]


def _sort(eqn: Any, *operands: Array) -> list[Any]:
    axis, keys = eqn.params["dimension"], operands[: eqn.params["num_keys"]]
    order = np.lexsort(keys[::-1], axis=axis)
    return [np.take_along_axis(operand, order, axis) for operand in operands]


_OPERATIONS: dict[str, Callable[..., list[Any]]] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(REDUCTIONS, _reduce),
    **dict.fromkeys(CUMULATIVE, _cumulate),
    "argmax": lambda eqn, x: [np.argmax(x, *eqn.params["axes"])],
    "argmin": lambda eqn, x: [np.argmin(x, *eqn.params["axes"])],
    "convert_element_type": lambda eqn, x: [x],
    "dot_general": _dot_general,
    "integer_pow": lambda eqn, x: [np.power(x, eqn.params["y"])],
    "iota": lambda eqn: [np.indices(eqn.params["shape"])[eqn.params["dimension"]]],
    "pow": _pow,
    "round": _round,
    "sort": _sort,
}
