"""Which entries of an argument a function reads, asked of its expressions.

Results of operations that have no form as an expression are new symbols that remember where they come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any

import jax
import numpy as np

from optlearn._engine.tracing import moving
from optlearn._engine.tracing.trace import interpret, trace
from optlearn._engine.tracing.values import Array, Symbolic, Value, casadi, entries_of, is_real, sx_array

_Origins = frozenset[int]  # hashes of symbols


def dependencies(fn: Callable[..., Any], *examples: Any) -> Any:
    """Which entries of the first argument the result of `fn` depends on.

    Returns a pytree of boolean arrays with the structure and shapes of the first argument. The
    answer is structural: an entry counts if it appears in the simplified expression, whatever its
    derivative (`sign(x)` depends on x, `0 * x` does not). It is never too small: the result of an
    operation that has no form as an expression (a sort, an entry at an unknown index) depends on
    everything that enters it. Integer and boolean examples given by value in the other arguments
    count as constants, so that they may be indices.
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
    unknown = _Unknown()
    results = interpret(traced, (first, *others), fallback=unknown)
    # Symbols, since Jacobian sparsity would not see a dependence through a step function.
    used = set[int]().union(*map(unknown.origins, results))

    def appears(array: Array) -> Array:
        flags = [symbol.element_hash() in used for symbol in array.ravel()]
        return np.array(flags, bool).reshape(array.shape)

    return jax.tree.map(appears, first)


class _Unknown:
    """Replaces the results of an equation by new symbols, and remembers where they come from.

    Each entry gets a symbol of its own, so that CasADi's simplifications (x - x is 0) never take
    two unknown numbers for the same.
    """

    def __init__(self) -> None:
        self._origins: dict[int, _Origins] = {}
        self._kept: list[Any] = []  # a symbol's hash is its address: none may be freed

    def origins(self, value: Value) -> _Origins:
        """The symbols that the entries of a value may depend on, those made here traced back."""
        sources: set[int] = set()
        for symbol in casadi.symvar(value.entries) if isinstance(value, Symbolic) else ():
            key = symbol.element_hash()
            sources |= self._origins.get(key, {key})
        return frozenset(sources)

    def __call__(self, eqn: Any, values: list[Value]) -> list[Value]:
        """Results of an equation: every entry may depend on all symbols in all inputs."""
        if eqn.primitive.name in ("dynamic_slice", "gather") and is_real(eqn):
            return [self._read(eqn, *values)]
        sources = self._all(values)
        return [self._new(np.full(v.aval.shape, sources), v.aval.dtype) for v in eqn.outvars]

    def _all(self, values: Iterable[Value]) -> _Origins:
        return _Origins().union(*map(self.origins, values))

    def _each(self, value: Value) -> Array:
        """The origins of each entry, in an object array."""
        origins = np.full(prod(value.shape), _Origins())
        for position, entry in enumerate(entries_of(value).elements()):
            origins[position] = self.origins(Symbolic(entry, ()))
        return origins.reshape(value.shape)

    def _new(self, origins: Array, dtype: Any) -> Value:
        """One new symbol for each entry of an object array of origins."""
        if origins.size == 0:
            return np.zeros(origins.shape, dtype)
        column = casadi.SX.sym("unknown", origins.size)
        symbols = sx_array(column, (origins.size,))
        for symbol, sources in zip(symbols, origins.ravel(), strict=True):
            self._origins[symbol.element_hash()] = sources
        self._kept.append(column)
        return Symbolic(column, origins.shape)

    def _read(self, eqn: Any, operand: Value, *indices: Value) -> Value:
        """Entries read at an unknown place: they may be any along the axes of unknown index.

        Where each entry of such an axis stands for all of the axis, index 0 is as good as any.
        """
        dtype = eqn.outvars[0].aval.dtype
        settled, missing = zip(*map(_settle, indices), strict=True)
        if eqn.primitive.name == "gather":
            flags = missing[0].any(axis=tuple(range(missing[0].ndim - 1)))
            lines = np.array(eqn.params["dimension_numbers"].start_index_map)[flags]
        else:
            lines = np.flatnonzero(missing)
        smeared = np.bitwise_or.reduce(self._each(operand), axis=tuple(lines), keepdims=True)
        blurred = self._new(np.broadcast_to(smeared, operand.shape), dtype)
        (result,) = moving.FOR_ALL[eqn.primitive.name](eqn, blurred, *settled)
        origins = self._each(result) | self._all(indices)
        return self._new(np.asarray(origins, dtype=object), dtype)  # NumPy unwraps 0-d results


def _settle(index: Value) -> tuple[Array, Array]:
    """The numbers in an index, with 0 where it holds symbols, and flags at these places."""
    entries = sx_array(entries_of(index), index.shape)
    missing = np.vectorize(lambda entry: not entry.is_constant(), otypes=[bool])(entries)
    return np.where(missing, 0, entries).astype(float), missing
