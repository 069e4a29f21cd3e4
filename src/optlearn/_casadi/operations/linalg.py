"""Products, Cholesky factors and triangular solves of symbolic matrices."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from optlearn._casadi.lazy import casadi
from optlearn._casadi.operations.reductions import combine_rows
from optlearn._casadi.operations.values import (
    Array,
    Operation,
    Symbolic,
    Value,
    entries_of,
    positions,
    take,
)


def _dot_general(eqn: Any, left: Value, right: Value) -> list[Value]:
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
    return [Symbolic(combine_rows(operator.add, products, grid[0], out.size), out.shape)]


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
            rest = a[i][j]  # only the lower triangle is read, as in JAX
            for k in range(j):
                rest = rest - factor[i][k] * factor[j][k]
            factor[i][j] = casadi.sqrt(rest) if i == j else rest / factor[j][j]
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
        for j, known in solution.items():
            row = [entry - a[i][j] * x for entry, x in zip(row, known, strict=True)]
        solution[i] = row if p["unit_diagonal"] else [entry / a[i][i] for entry in row]
    rows = [solution[i] for i in range(n)]
    return [_from_matrix_entries(rows if p["left_side"] else _transpose(rows), right_side.shape)]


# With at least one operand symbolic.
OPERATIONS: dict[str, Operation] = {
    "dot_general": _dot_general,
    "cholesky": _cholesky,
    "triangular_solve": _triangular_solve,
}
