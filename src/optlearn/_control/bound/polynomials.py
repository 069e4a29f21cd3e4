"""Polynomials on the box [−1, 1]^k: exponents → coefficients."""

from collections.abc import Iterator, Mapping
from itertools import product
from math import comb
from typing import Any, TypeAlias

import casadi
import numpy as np

from optlearn._errors import SpecificationError

Exponents: TypeAlias = tuple[int, ...]
Polynomial: TypeAlias = Mapping[Exponents, float]

HIGHEST = 8  # degree in one variable, at most


def monomials(variables: int, degree: int) -> list[Exponents]:
    """All exponents up to a total degree."""
    return [e for e in product(range(degree + 1), repeat=variables) if sum(e) <= degree]


def from_expression(expression: Any, variables: list[Any], what: str) -> Polynomial:
    """The polynomial that a CasADi expression is in its variables.

    Raises:
        SpecificationError: it is none.
    """
    return {exponents: value for exponents, value in _taylor(expression, variables, what) if value != 0}


def _taylor(expression: Any, variables: list[Any], what: str) -> Iterator[tuple[Exponents, float]]:
    """Coefficients about 0: derivatives vanish identically from some order on, or it is no polynomial."""
    if not variables:
        yield (), float(casadi.evalf(expression))
        return
    first, *rest = variables
    factor = 1.0
    for order in range(HIGHEST + 2):
        if expression.nnz() == 0 or expression.is_zero():
            return
        if order > HIGHEST:
            raise SpecificationError(
                f"bound: {what} is no polynomial of the state and the controls; use kind='hjb'"
            )
        at_zero = casadi.simplify(casadi.substitute(expression, first, 0))
        for exponents, value in _taylor(at_zero, rest, what):
            yield (order, *exponents), value / factor
        expression = casadi.simplify(casadi.jacobian(expression, first))
        factor *= order + 1


def degree(polynomial: Polynomial) -> int:
    """Total degree."""
    return max((sum(exponents) for exponents in polynomial), default=0)


def times(one: Polynomial, other: Polynomial) -> dict[Exponents, float]:
    """The product."""
    found: dict[Exponents, float] = {}
    for a, x in one.items():
        for b, y in other.items():
            key = tuple(i + j for i, j in zip(a, b, strict=True))
            found[key] = found.get(key, 0.0) + x * y
    return found


def derivative(exponents: Exponents, variable: int) -> Polynomial:
    """Of a monomial."""
    if exponents[variable] == 0:
        return {}
    lower = tuple(e - (i == variable) for i, e in enumerate(exponents))
    return {lower: float(exponents[variable])}


def at(polynomial: Polynomial, variable: int, value: float) -> dict[Exponents, float]:
    """With one variable held at a value; it keeps its place, with exponent 0."""
    found: dict[Exponents, float] = {}
    for exponents, coefficient in polynomial.items():
        key = tuple(0 if i == variable else e for i, e in enumerate(exponents))
        found[key] = found.get(key, 0.0) + coefficient * value ** exponents[variable]
    return found


def enclosure(polynomial: Polynomial, variables: int) -> tuple[float, float]:
    """Numbers between which it lies on the box: the least and largest coefficient in Bernstein's form."""
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
    """(d + 1, d + 1) from powers of z in [−1, 1] to Bernstein's polynomials of degree d."""
    found = np.zeros((degree + 1, degree + 1))
    for power in range(degree + 1):
        # z^p = (2s − 1)^p in s = (z + 1)/2.
        for j in range(power + 1):
            share = comb(power, j) * 2.0**j * (-1.0) ** (power - j)
            for i in range(j, degree + 1):
                found[i, power] += share * comb(i, j) / comb(degree, j)
    return found
