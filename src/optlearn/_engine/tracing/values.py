"""Values inside the interpreter: NumPy arrays, and columns of CasADi expressions with a shape.

``Buffered`` evaluates a finished CasADi function on NumPy arrays in place, where conversions would take as
long as the work itself.

CasADi is loaded when it is first used: batches under XLA run where it is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import jax
import lazy_loader  # type: ignore[import-untyped]
import numpy as np

# JAX has no public way to name the user's source line of an equation.
from jax._src import source_info_util

casadi: Any = lazy_loader.load("casadi")

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Symbolic:
    """An array of expressions: `entries` is a dense, non-empty SX column in C order."""

    entries: Any
    shape: tuple[int, ...]


Value: TypeAlias = Array | Symbolic | jax.Array  # jax.Array: random keys, which only pass through
Operation: TypeAlias = Callable[..., list[Value]]  # from an equation and the values of its inputs


class UnsupportedPrimitive(TypeError):
    """A JAX operation on symbols that has no form as a CasADi expression."""


def unsupported(eqn: Any, reason: str) -> UnsupportedPrimitive:
    """The error to raise for an equation, with the user's line of code."""
    where = source_info_util.summarize(eqn.source_info)
    return UnsupportedPrimitive(
        f"JAX primitive '{eqn.primitive.name}', from {where}, cannot become a CasADi expression: "
        f"{reason}. Rewrite that line with supported operations, or run this function with XLA."
    )


def is_real(eqn: Any) -> bool:
    """Whether an equation has only real inputs and outputs: no complex numbers, no random keys."""
    dtypes = (var.aval.dtype for var in (*eqn.invars, *eqn.outvars))
    return all(isinstance(dtype, np.dtype) and dtype.kind != "c" for dtype in dtypes)


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


def to_value(leaf: Any, shape: tuple[int, ...], dtype: Any) -> Value:
    """Check one argument leaf against its declared shape and make it a value."""
    if isinstance(leaf, casadi.SX):
        leaf = sx_array(leaf, (leaf.numel(),) if shape else ())
    array = np.asarray(leaf)
    if array.shape != shape:
        raise ValueError(f"expected an array of shape {shape}, got {array.shape}")
    if array.dtype != object:
        return array.astype(dtype)
    return Symbolic(sx_vector(array), shape) if array.size else np.zeros(shape, dtype)


def entries_of(value: Value) -> Any:
    """The entries as an SX column, also of numbers."""
    return value.entries if isinstance(value, Symbolic) else sx_vector(value)


def take(entries: Any, at: Array) -> Any:
    """The column of `entries` at the (raveled) positions."""
    # vec, because indexing a 1x1 SX with a list gives a row.
    return casadi.vec(entries[at.ravel().tolist()])


def positions(shape: tuple[int, ...]) -> Array:
    """The places 0, 1, 2, ... of the entries of an array, in its shape."""
    return np.arange(prod(shape)).reshape(shape)


def broadcast(value: Value, shape: tuple[int, ...]) -> Any:
    """Entries of an operand that JAX broadcasts: element-wise primitives may mix sizes 1 and n."""
    if prod(value.shape) in (1, prod(shape)):  # CasADi itself repeats a single entry
        return entries_of(value)
    return take(entries_of(value), np.broadcast_to(positions(value.shape), shape))


def constant(eqn: Any, value: Value) -> Array:
    """A value that must be known while tracing, such as an index."""
    if isinstance(value, Symbolic):
        if not value.entries.is_constant():
            raise unsupported(eqn, "an index or a loop condition depends on a symbol")
        return np.asarray(casadi.DM(value.entries).full(), np.float64).reshape(value.shape)
    return np.asarray(value)


def choose(condition: Any, cases: Sequence[Any]) -> Any:
    """Entries of case 0 where `condition` is 0, of case 1 where it is 1, and so on; clamped."""
    chosen = cases[-1]
    for number in range(len(cases) - 2, -1, -1):
        chosen = casadi.if_else(condition <= number, cases[number], chosen)
    return chosen


# --- numbers ----------------------------------------------------------------------------------------


class Buffered:
    """A function of dense arguments and results, and the memory that it reads and writes.

    CasADi stores matrices by columns, so each array here has a row for each column of its matrix.

    Args:
        function: a ``casadi.Function``.

    Attributes:
        inputs: arguments, (columns, rows) each: write into them.
        outputs: results, (columns, rows) each: what the last evaluation has written.
    """

    def __init__(self, function: Any) -> None:
        # CasADi borrows this memory, so it must live as long as the buffer does.
        self.inputs = [np.zeros(function.size_in(i)[::-1]) for i in range(function.n_in())]
        self.outputs = [np.zeros(function.size_out(i)[::-1]) for i in range(function.n_out())]
        self._buffer, self.evaluate = function.buffer()
        for i, argument in enumerate(self.inputs):
            self._buffer.set_arg(i, argument.data)
        for i, result in enumerate(self.outputs):
            self._buffer.set_res(i, result.data)

    def __call__(self, *arguments: np.ndarray) -> tuple[np.ndarray, ...]:
        """Results for arguments that have the shapes of ``inputs``, or as many numbers."""
        for held, argument in zip(self.inputs, arguments, strict=True):
            held[...] = np.reshape(argument, held.shape)
        self.evaluate()
        return tuple(result.copy() for result in self.outputs)
