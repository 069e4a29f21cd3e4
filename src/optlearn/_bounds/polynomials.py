"""Polynomials as dictionaries: exponents → coefficients. Exponents of nonzero variables may be negative."""

from collections.abc import Iterable, Mapping
from itertools import product
from math import comb
from typing import TypeAlias

import numpy as np

Exponents: TypeAlias = tuple[int, ...]
Polynomial: TypeAlias = Mapping[Exponents, float]

# Coefficients below this share of the terms that cancel in them are round-off.
ROUND_OFF = 1e-13


def monomials(variables: int, degree: int) -> list[Exponents]:
    """All exponents up to a total degree."""
    if variables == 0:
        return [()]
    return [(e, *others) for e in range(degree + 1) for others in monomials(variables - 1, degree - e)]


def variable(index: int, variables: int) -> Polynomial:
    """One variable itself."""
    return {tuple(int(i == index) for i in range(variables)): 1.0}


def constant(value: float, variables: int) -> Polynomial:
    """A number."""
    return {(0,) * variables: value} if value else {}


def degree(polynomial: Polynomial, variables: slice = slice(None)) -> int:
    """Total degree in some of the variables."""
    return max((sum(exponents[variables]) for exponents in polynomial), default=0)


def combined(parts: Iterable[tuple[float, Polynomial]]) -> dict[Exponents, float]:
    """A linear combination of polynomials; cancellation leaves no round-off behind."""
    total: dict[Exponents, float] = {}
    sizes: dict[Exponents, float] = {}
    for factor, polynomial in parts:
        for exponents, value in polynomial.items():
            total[exponents] = total.get(exponents, 0.0) + factor * value
            sizes[exponents] = sizes.get(exponents, 0.0) + abs(factor * value)
    return {e: value for e, value in total.items() if abs(value) > ROUND_OFF * sizes[e]}


def times(left: Polynomial, right: Polynomial) -> dict[Exponents, float]:
    """The product."""
    return combined(
        (x, {tuple(map(int.__add__, a, b)): y for b, y in right.items()}) for a, x in left.items()
    )


def power(polynomial: Polynomial, exponent: int, variables: int) -> Polynomial:
    """A non-negative whole power."""
    powered = constant(1.0, variables)
    for _ in range(exponent):
        powered = times(powered, polynomial)
    return powered


def derivative(polynomial: Polynomial, variable: int) -> dict[Exponents, float]:
    """The derivative with respect to one variable."""
    return {
        tuple(e - (i == variable) for i, e in enumerate(exponents)): value * exponents[variable]
        for exponents, value in polynomial.items()
        if exponents[variable]
    }


def at(polynomial: Polynomial, variable: int, value: float) -> dict[Exponents, float]:
    """The polynomial with one variable fixed at a value; the variable stays, with exponent 0."""
    return combined(
        (value ** exponents[variable], {(*exponents[:variable], 0, *exponents[variable + 1 :]): coefficient})
        for exponents, coefficient in polynomial.items()
    )


def scaled(polynomial: Polynomial, low: Iterable[float], high: Iterable[float]) -> dict[Exponents, float]:
    """The polynomial in z of [−1, 1], where each variable is (low + high)/2 + z (high − low)/2."""
    substituted = dict(polynomial)
    for i, (least, most) in enumerate(zip(low, high, strict=True)):
        middle, half = (least + most) / 2, (most - least) / 2
        substituted = combined(
            (value * comb(e[i], k) * middle ** (e[i] - k) * half**k, {(*e[:i], k, *e[i + 1 :]): 1.0})
            for e, value in substituted.items()
            for k in range(e[i] + 1)
        )
    return substituted


def enclosure(polynomial: Polynomial, variables: int) -> tuple[float, float]:
    """Lower and upper bounds on [−1, 1]^k: the smallest and largest Bernstein coefficients."""
    if not polynomial:
        return 0.0, 0.0
    degrees = [max(e[i] for e in polynomial) for i in range(variables)]
    table = np.zeros([d + 1 for d in degrees])
    for exponents, value in polynomial.items():
        table[exponents] += value
    for axis, d in enumerate(degrees):
        table = np.moveaxis(np.tensordot(_bernstein(d), table, axes=(1, axis)), 0, axis)
    return float(table.min()), float(table.max())


def _bernstein(degree: int) -> np.ndarray:
    """(d + 1, d + 1) matrix from powers of z in [−1, 1] to Bernstein polynomials of degree d."""
    matrix = np.zeros((degree + 1, degree + 1))
    for power, i in product(range(degree + 1), repeat=2):
        # z^p = (2s − 1)^p in s = (z + 1)/2.
        matrix[i, power] = sum(
            comb(power, j) * 2.0**j * (-1.0) ** (power - j) * comb(i, j) / comb(degree, j)
            for j in range(min(power, i) + 1)
        )
    return matrix
