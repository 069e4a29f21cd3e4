"""Compiled programs over columns of numbers, and along chains of steps."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, float64, quick_jit
from optlearn._engine.tracing.values import casadi

# Maximum number of steps, and of columns, in one call of a compiled program. Columns are also evaluated one
# by one, in tables padded with zeros: small tables cost less.
BLOCK = 256
COLUMNS = 32
# Maximum number of programs compiled, and columns computed, in parallel: XLA sums one quadrature on one core.
THREADS = 8


class _Compiled:
    """A function that is compiled once for arguments of given shapes, now or in the background."""

    def __init__(self, function: Callable[..., Any], shapes: Any) -> None:
        self._function, self._shapes = function, shapes
        self._compiled: Future[Any] | None = None

    def compile_ahead(self) -> None:
        """Begin to compile in the background."""
        if self._compiled is None:
            self._compiled = _threads().submit(self._compile)

    @property
    def compiled(self) -> Any:
        """The program."""
        if self._compiled is None:
            self._compiled = Future()
            self._compiled.set_result(self._compile())
        return self._compiled.result()

    @float64
    def _compile(self) -> Any:
        shapes = jax.tree.map(
            lambda shape: jax.ShapeDtypeStruct(shape, float), self._shapes, is_leaf=_is_shape
        )
        return quick_jit(self._function).lower(jax.ShapeDtypeStruct((), np.int64), *shapes).compile()


class Columns(_Compiled):
    """A function of vectors, mapped over columns.

    Args:
        function: vectors → array, or a tuple of arrays, of one dimension or none.
        lengths: lengths of its arguments.
        shared: a flag for each argument: the same for all columns.
        split: conversion of the first argument, done once for all columns.
    """

    def __init__(
        self, function: Callable[..., Any], lengths: list[int], shared: list[bool], split: Callable[..., Any]
    ) -> None:
        self._shared = shared

        def block(count: Array, constants: Array, *others: Array) -> list[Array]:
            arguments = split(constants), *others

            def one(i: Array) -> list[Array]:
                result = function(*(v if same else v[i] for v, same in zip(arguments, shared, strict=True)))
                return _vectors(result if isinstance(result, tuple) else (result,))

            def body(i: Array, tables: list[Array]) -> list[Array]:
                return [table.at[i].set(part) for table, part in zip(tables, one(i), strict=True)]

            shapes = jax.eval_shape(one, count)
            return jax.lax.fori_loop(0, count, body, [jnp.zeros((COLUMNS, *shape.shape)) for shape in shapes])

        super().__init__(
            block, [(n,) if same else (COLUMNS, n) for n, same in zip(lengths, shared, strict=True)]
        )

    def __call__(self, *arguments: Any) -> Any:
        """Results with one column for every column of the arguments."""
        rows = [_as_rows(value) for value in arguments]
        total = max(len(r) for r, same in zip(rows, self._shared, strict=True) if not same)
        program = self.compiled
        size = min(COLUMNS, -(-total // _workers()))

        @float64
        def piece(first: int) -> list[np.ndarray]:
            count = min(size, total - first)
            columns = [
                r[0]
                if same
                else _padded(r[first : first + count] if len(r) > 1 else r.repeat(count, 0), COLUMNS)
                for r, same in zip(rows, self._shared, strict=True)
            ]
            return [np.asarray(part)[:count].T for part in program(np.int64(count), *columns)]

        starts = range(0, total, size)
        pieces = _threads().map(piece, starts) if len(starts) > 1 else map(piece, starts)
        results = tuple(casadi.DM(np.concatenate(parts, axis=1)) for parts in zip(*pieces, strict=True))
        return results if len(results) > 1 else results[0]


class Chain(_Compiled):
    """A function (carry, *row, *shared) → carry, results, applied along rows.

    Args:
        function: function of vectors; the results are a tuple of vectors or numbers.
        lengths: lengths of its arguments.
        rows: number of arguments after the carry that are rows of tables.
        split: conversion of the first argument after these, done once for all rows.
    """

    def __init__(
        self,
        function: Callable[..., tuple[Array, tuple[Array, ...]]],
        lengths: list[int],
        rows: int,
        split: Callable[..., Any],
    ) -> None:
        def block(count: Array, carry: Array, tables: list[Array], arguments: list[Array]) -> Any:
            shared = split(arguments[0]), *arguments[1:]

            def one(carry: Array, i: Array) -> tuple[Array, list[Array]]:
                end, results = function(carry, *(table[i] for table in tables), *shared)
                return end, _vectors(results)

            def body(i: Array, state: tuple[Array, list[Array]]) -> tuple[Array, list[Array]]:
                carry, results = one(state[0], i)
                return carry, [t.at[i].set(part) for t, part in zip(state[1], results, strict=True)]

            _, shapes = jax.eval_shape(one, carry, count)
            none = [jnp.zeros((BLOCK, *shape.shape)) for shape in shapes]
            return jax.lax.fori_loop(0, count, body, (carry, none))

        carry, *rest = lengths
        super().__init__(block, [(carry,), [(BLOCK, n) for n in rest[:rows]], [(n,) for n in rest[rows:]]])

    @float64
    def __call__(
        self, carry: np.ndarray, tables: Sequence[np.ndarray], shared: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, ...]:
        """Results (S, size) along the S rows of ``tables``."""
        total, pieces = len(tables[0]), []
        for first in range(0, total, BLOCK):
            count = min(BLOCK, total - first)
            rows = [_padded(table[first : first + count], BLOCK) for table in tables]
            carry, results = self.compiled(np.int64(count), carry, rows, list(shared))
            pieces.append([np.asarray(part)[:count] for part in results])
        return tuple(np.concatenate(parts) for parts in zip(*pieces, strict=True))


def _workers() -> int:
    return min(THREADS, os.cpu_count() or 1)


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_workers(), "optlearn")


def _vectors(results: Sequence[Array]) -> list[Array]:
    return [jnp.atleast_1d(part) for part in results]


def _is_shape(value: Any) -> bool:
    return isinstance(value, tuple)


def _as_rows(value: Any) -> np.ndarray:
    """(P, n) from n numbers or a matrix of columns (n, P)."""
    array = np.asarray(value, dtype=float)
    return array.reshape(1, -1) if array.ndim < 2 else np.ascontiguousarray(array.T)


def _padded(rows: np.ndarray, count: int) -> np.ndarray:
    return np.concatenate([rows, np.zeros((count - len(rows), rows.shape[1]))])
