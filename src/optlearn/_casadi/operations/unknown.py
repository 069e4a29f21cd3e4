"""Stand-ins for results of unknown operations, for the question which symbols a result depends on."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np

from optlearn._casadi.lazy import casadi
from optlearn._casadi.operations import indexing
from optlearn._casadi.operations.values import (
    Array,
    Symbolic,
    Value,
    entries_of,
    is_real,
    sx_array,
)

Origins = frozenset[int]  # hashes of symbols


class Unknown:
    """Replaces the results of an equation by new symbols, and remembers where they come from.

    Each entry gets a symbol of its own, so that CasADi's simplifications (x - x is 0) never take
    two unknown numbers for the same.
    """

    def __init__(self) -> None:
        self._origins: dict[int, Origins] = {}
        self._kept: list[Any] = []  # a symbol's hash is its address: none may be freed

    def origins(self, value: Value) -> Origins:
        """The symbols that the entries of a value may depend on, those made here traced back."""
        found: set[int] = set()
        for symbol in casadi.symvar(value.entries) if isinstance(value, Symbolic) else ():
            key = symbol.element_hash()
            found |= self._origins.get(key, {key})
        return frozenset(found)

    def __call__(self, eqn: Any, values: list[Value]) -> list[Value]:
        """Results of an equation: every entry may depend on all symbols in all inputs."""
        if eqn.primitive.name in ("dynamic_slice", "gather") and is_real(eqn):
            return [self._read(eqn, *values)]
        sources = self._all(values)
        return [self._new(np.full(v.aval.shape, sources), v.aval.dtype) for v in eqn.outvars]

    def _all(self, values: Iterable[Value]) -> Origins:
        return Origins().union(*map(self.origins, values))

    def _each(self, value: Value) -> Array:
        """The origins of each entry, in an object array."""
        found = np.full(prod(value.shape), Origins())
        for position, entry in enumerate(entries_of(value).elements()):
            found[position] = self.origins(Symbolic(entry, ()))
        return found.reshape(value.shape)

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
        known, missing = zip(*map(_settle, indices), strict=True)
        if eqn.primitive.name == "gather":
            flags = missing[0].any(axis=tuple(range(missing[0].ndim - 1)))
            lines = np.array(eqn.params["dimension_numbers"].start_index_map)[flags]
        else:
            lines = np.flatnonzero(missing)
        smeared = np.bitwise_or.reduce(self._each(operand), axis=tuple(lines), keepdims=True)
        blurred = self._new(np.broadcast_to(smeared, operand.shape), dtype)
        (result,) = indexing.OPERATIONS[eqn.primitive.name](eqn, blurred, *known)
        origins = self._each(result) | self._all(indices)
        return self._new(np.asarray(origins, dtype=object), dtype)  # NumPy unwraps 0-d results


def _settle(index: Value) -> tuple[Array, Array]:
    """The numbers in an index, with 0 where it holds symbols, and flags at these places."""
    entries = sx_array(entries_of(index), index.shape)
    missing = np.vectorize(lambda entry: not entry.is_constant(), otypes=[bool])(entries)
    return np.where(missing, 0, entries).astype(float), missing
