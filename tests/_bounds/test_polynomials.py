"""Polynomials, and expressions read as such."""

import casadi
import numpy as np
import pytest

from optlearn._bounds import polynomials as poly
from optlearn._bounds.expressions import Reader


def test_bernstein_encloses_a_polynomial():
    polynomial = {(2, 1): 1.0, (0, 1): -2.0, (1, 0): 0.5, (0, 0): 0.1}
    low, high = poly.enclosure(polynomial, 2)
    a, b = np.meshgrid(np.linspace(-1, 1, 41), np.linspace(-1, 1, 41))
    values = a**2 * b - 2 * b + 0.5 * a + 0.1
    assert low <= values.min()
    assert high >= values.max()
    assert high - low < 2 * (values.max() - values.min())


def test_scaling_substitutes():
    # x² y at x = 2 + z, y = −1 + 3v.
    found = poly.scaled({(2, 1): 1.0}, [1, -4], [3, 2])
    assert found == {(0, 0): -4, (1, 0): -4, (2, 0): -1, (0, 1): 12, (1, 1): 12, (2, 1): 3}


def test_what_cancels_is_gone():
    x, w = casadi.SX.sym("x", 2), casadi.SX.sym("w", 1)
    found = Reader("p", x, w).read(drift=(x[0] + 0.1 * x[1]) ** 3 - x[0] ** 3 - w * x[1] / 3)["drift"][0]
    terms = {(2, 1, 0): 0.3, (1, 2, 0): 0.03, (0, 3, 0): 0.001, (0, 1, 1): -1 / 3}
    assert set(found) == set(terms)
    assert all(found[e] == pytest.approx(value) for e, value in terms.items())


def test_a_root_of_a_control_is_another_control():
    x, w = casadi.SX.sym("x", 1), casadi.SX.sym("w", 1)
    reader = Reader("p", x, w)
    found = reader.read(drift=casadi.sqrt(1 - w) * x + w)
    assert found["drift"] == [{(1, 1): 1.0, (0, 2): -1.0, (0, 0): 1.0}]
    assert reader.changes[0].bounds(0.19, 0.84) == pytest.approx((0.4, 0.9))


def test_a_quotient_by_a_control_is_a_product_with_another():
    x, w = casadi.SX.sym("x", 1), casadi.SX.sym("w", 1)
    reader = Reader("p", x, w)
    assert reader.read(drift=x / w, budgets=w - 3) == {
        "drift": [{(1, 1): 1.0}],
        "budgets": [{(0, -1): 1.0, (0, 0): -3.0}],
    }
    assert reader.changes[0].bounds(2.0, 4.0) == (0.25, 0.5)


def test_what_is_no_polynomial_is_named():
    x, w = casadi.SX.sym("x", 2), casadi.SX.sym("w", 1)
    with pytest.raises(ValueError, match="has a quotient, a square root, an arcsine"):
        Reader("p", x, w).read(drift=casadi.asin(x[0] / casadi.sqrt(1 + x[1])) * w)


def test_a_root_of_what_may_be_negative_is_refused():
    x, w = casadi.SX.sym("x", 1), casadi.SX.sym("w", 1)
    reader = Reader("p", x, w)
    reader.read(drift=casadi.sqrt(w - 1) * x)
    with pytest.raises(ValueError, match="positive numbers"):
        reader.changes[0].bounds(0.5, 2.0)
