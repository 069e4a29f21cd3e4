"""Polynomials that are not negative on a box, as sums of squares: a semidefinite program, by Clarabel."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from scipy import sparse

from optlearn._control.bound import polynomials as poly
from optlearn._control.bound.polynomials import Exponents, Polynomial
from optlearn._errors import SpecificationError, how_to_install

LARGEST = 80  # rows of a semidefinite matrix, at most


@dataclass(frozen=True)
class _Block:
    """A sum of squares of monomials, times a weight: 1, or 1 − y² of a variable."""

    basis: list[Exponents]
    weight: Polynomial

    @property
    def entries(self) -> int:
        return len(self.basis) * (len(self.basis) + 1) // 2


class Squares:
    """s₀ + Σ (1 − y²) s_y, enough for polynomials of some degree in n states, and in each of m controls."""

    def __init__(self, n: int, in_states: int, in_controls: Sequence[int]) -> None:
        m, states, controls = len(in_controls), -(-in_states // 2), [-(-d // 2) for d in in_controls]
        zero = (0,) * (n + m)

        def basis(of_states: int, of_controls: Sequence[int]) -> list[Exponents]:
            ranges = [range(c + 1) for c in of_controls]
            return [(*e, *c) for e in poly.monomials(n, of_states) for c in product(*ranges)]

        self.blocks = [_Block(basis(states, controls), {zero: 1.0})]
        for i in range(n + m):
            square = tuple(2 * (j == i) for j in range(n + m))
            less = [c - (n + j == i) for j, c in enumerate(controls)]
            if (i < n and states == 0) or min(less, default=0) < 0:
                continue
            self.blocks.append(_Block(basis(states - (i < n), less), {zero: 1.0, square: -1.0}))
        if len(self.blocks[0].basis) > LARGEST:
            raise SpecificationError(
                f"bound: kind='sos' has matrices of at most {LARGEST} rows, and {n} states of this degree "
                f"need {len(self.blocks[0].basis)}; lower degree="
            )
        self.places: dict[Exponents, int] = {}
        self.matrix = self._matrix()

    @property
    def entries(self) -> int:
        """Of all Gram matrices."""
        return sum(block.entries for block in self.blocks)

    def _matrix(self) -> Any:
        """From Gram matrices to coefficients.

        A Gram matrix is its upper triangle, column by column, off the diagonal times √2.
        """
        rows, columns, values, place = [], [], [], 0
        for block in self.blocks:
            for j, b in enumerate(block.basis):
                for a in block.basis[: j + 1]:
                    factor = 1.0 if a == b else 2**0.5
                    for shift, weight in block.weight.items():
                        key = tuple(p + q + s for p, q, s in zip(a, b, shift, strict=True))
                        rows.append(self.places.setdefault(key, len(self.places)))
                        columns.append(place)
                        values.append(factor * weight)
                    place += 1
        return sparse.csc_matrix((values, (rows, columns)), shape=(len(self.places), place))

    def positive(self, grams: np.ndarray) -> np.ndarray:
        """The coefficients of sums of squares, once Gram matrices are made positive."""
        found, first = [], 0
        for block in self.blocks:
            values, vectors = np.linalg.eigh(_full(grams[first : first + block.entries], len(block.basis)))
            found.append(_triangle(vectors * np.maximum(values, 0.0) @ vectors.T))
            first += block.entries
        return np.asarray(self.matrix @ np.concatenate(found))


def largest(
    aim: np.ndarray,
    inequalities: Sequence[tuple[Any, np.ndarray]],
    squares: Squares,
    at_least_zero: np.ndarray,
) -> tuple[np.ndarray, list[float]]:
    """Unknowns with the largest aim·unknowns under polynomial inequalities on the box.

    Args:
        aim: (q,).
        inequalities: matrices (e, q) and constants (e,), of the coefficients of what must not be negative.
        squares: of which the polynomials must be made.
        at_least_zero: positions of unknowns that must not be negative.

    Returns:
        The unknowns, and by how much each inequality may be broken at most: every monomial lies between −1
        and 1 on the box.
    """
    clarabel = _clarabel()
    count, unknowns, entries = len(inequalities), len(aim), squares.entries
    lefts, constants = zip(*inequalities, strict=True)
    rows = len(squares.places)
    total = unknowns + count * entries
    identities = sparse.hstack([-sparse.vstack(lefts), sparse.block_diag([squares.matrix] * count)])
    sign = sparse.csc_matrix(
        (-np.ones(len(at_least_zero)), (np.arange(len(at_least_zero)), at_least_zero)),
        shape=(len(at_least_zero), total),
    )
    grams = sparse.hstack([sparse.csc_matrix((count * entries, unknowns)), -sparse.eye(count * entries)])
    cones: list[Any] = [clarabel.ZeroConeT(count * rows), clarabel.NonnegativeConeT(len(at_least_zero))]
    cones += [clarabel.PSDTriangleConeT(len(block.basis)) for block in squares.blocks] * count
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    solution = clarabel.DefaultSolver(
        sparse.csc_matrix((total, total)),
        np.concatenate([-aim, np.zeros(count * entries)]),
        sparse.vstack([identities, sign, grams]).tocsc(),
        np.concatenate([*constants, np.zeros(len(at_least_zero) + count * entries)]),
        cones,
        settings,
    ).solve()
    x = np.array(solution.x)
    if not np.all(np.isfinite(x)):
        raise SpecificationError("bound: the semidefinite program has no solution; raise degree=")
    found = x[:unknowns]
    found[at_least_zero] = np.maximum(found[at_least_zero], 0.0)
    missing = [
        float(np.abs(left @ found + constant - squares.positive(gram)).sum())
        for left, constant, gram in zip(lefts, constants, x[unknowns:].reshape(count, entries), strict=True)
    ]
    return found, missing


def _clarabel() -> Any:
    try:
        import clarabel
    except ImportError as error:
        advice = how_to_install("bounds")
        raise ModuleNotFoundError(
            f"bound(kind='sos') needs clarabel, which is not installed: {advice}", name="clarabel"
        ) from error
    return clarabel


def _full(triangle: np.ndarray, size: int) -> np.ndarray:
    """The symmetric matrix of an upper triangle, column by column, off the diagonal times √2."""
    found = np.zeros((size, size))
    found[np.tril_indices(size)] = triangle / 2**0.5
    return found + found.T + np.diag((2**0.5 - 2) * np.diag(found))


def _triangle(matrix: np.ndarray) -> np.ndarray:
    """What ``_full`` was made from."""
    scaled = matrix * 2**0.5
    np.fill_diagonal(scaled, np.diag(matrix))
    return np.asarray(scaled[np.tril_indices(len(matrix))])
