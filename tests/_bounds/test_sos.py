"""Proofs by sums of squares, on problems of the library, against what solvers find."""

from dataclasses import replace

import numpy as np
import pytest
from tests._bounds.test_bound import least_squares

import optlearn as ol
from optlearn._arrays import float64
from optlearn._bounds.polynomial_problem import invariant_box, polynomial_problem
from optlearn._bounds.sos import _chain, _flow

pytest.importorskip("clarabel")

ONE_OF_EACH = {"Q": [[0.25]], "R": [[0.12]], "Omega": [[0.947]]}


def linear_students() -> ol.Problem:
    return ol.scenarios.learning_rate(
        activation="linear", sigma_n=0.3, alpha_F=5.0, eta=0.3, max_learning_rate=0.5
    )


def modes(N: int, **arguments) -> ol.Problem:
    return ol.scenarios.power_law(N=N, alpha_F=5.0, max_rate=0.6, **arguments)


def copies() -> ol.Problem:
    return ol.scenarios.denoising_batch(start=ONE_OF_EACH)


# At least so large a share of the optimum is proven, with polynomials of so small a degree.
@pytest.mark.parametrize(
    ("problem", "degree", "pieces", "share"),
    [
        (least_squares, 4, 8, 0.998),
        (linear_students, 6, 12, 0.99),
        (lambda: modes(3, recursion=False), 4, 6, 0.995),
        (lambda: modes(3), 2, 4, 0.2),
        (copies, 2, 4, 0.98),
    ],
    ids=["noisy least squares", "linear students", "two modes", "two modes in steps", "autoencoder"],
)
def test_a_proof_lies_just_below_the_optimum(problem, degree, pieces, share):
    optimum = ol.solve(problem(), starts=1).objective
    found = ol.bound(problem(), "sos", degree=degree, pieces=pieces)
    assert (found.kind, found.proven, found.error) == ("sos", True, 0)
    assert share * optimum < found.lower < optimum


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "degree", "pieces", "share"),
    [
        (linear_students, 8, 16, 0.999),
        (lambda: modes(3, recursion=False), 4, 8, 0.999),
        (lambda: modes(7, recursion=False), 4, 8, 0.995),
        (copies, 3, 8, 0.9999),
    ],
    ids=["linear students", "two modes", "three modes", "autoencoder"],
)
def test_proofs_of_higher_degree_are_within_a_percent(problem, degree, pieces, share):
    optimum = ol.solve(problem(), starts=1).objective
    assert share * optimum < ol.bound(problem(), "sos", degree=degree, pieces=pieces).lower < optimum


def test_the_certificate_says_what_was_proven():
    problem = least_squares()
    found = ol.bound(problem, "sos", degree=2, pieces=4)
    certificate = found.attach(ol.solve(problem, starts=1)).certificate
    assert (certificate.lower_bound, certificate.lower_bound_kind) == (found.value, "sos")


class Decays(ol.System):
    """Six numbers that decay at rates of their own."""

    names = {"x": 6}  # noqa: RUF012
    parameters = {"rate": 0.3}  # noqa: RUF012

    def drift(self, x, u):
        return {"x": -u["rate"] * np.arange(1.0, 7.0) * x["x"] + 0.1 * u["rate"] ** 2}

    def error(self, x, u):
        return (x["x"] ** 2).sum()


def test_what_would_take_gigabytes_is_refused():
    rate = {"rate": ol.Continuous(0, 1)}
    problem = ol.Problem(model=Decays(), start={"x": np.ones(6)}, horizon=1, controls=rate)
    with pytest.raises(ValueError, match=r"no kind fits .* at most 60,000 entries .*; lower pieces= or deg"):
        ol.bound(problem)


def test_degree_and_size_are_checked():
    with pytest.raises(ValueError, match="degree must be at least 2, that of the final cost, got 1"):
        ol.bound(copies(), "sos", degree=1)
    with pytest.raises(ValueError, match=r"at most \d+ rows, and 4 states of this degree need"):
        ol.bound(modes(15, recursion=False), "sos", degree=8)


def test_a_free_parameter_is_refused_by_name():
    with pytest.raises(ValueError, match="no free parameters, got rescaling"):
        ol.bound(ol.scenarios.dropout(), "sos")


def test_intervals_that_cut_steps_are_an_assumption():
    found = ol.bound(replace(modes(3), intervals=7, baselines={}), "sos", degree=1, pieces=2)
    assert "whole steps" in found.assumes
    assert not found.proven


def test_states_that_no_cost_sees_are_left_out():
    found = float64(polynomial_problem)(linear_students())
    assert found.names == ["Q11 + 2 Q12 + Q22 − 2 M11 − 2 M12 − 2 M21 − 2 M22"]
    # d(excess)/dα = −4η (excess + 2) + 4η² (excess + 2 + σ²), the excess being less than its error by T = 2.
    terms = {e: round(float(value), 9) for e, value in found.drift[0].items()}
    assert terms == {(1, 1): -4.0, (0, 1): -8.0, (1, 2): 4.0, (0, 2): 8.36}


def test_signs_that_do_not_matter_and_inverse_controls_are_left_out():
    found = float64(polynomial_problem)(copies())
    assert found.names == ["Q11", "R11²"]
    assert found.controls.ravel() == pytest.approx([1 / 50, 1])
    # A mean of 5 copies, written with the inverse of their number.
    assert found.excess == [{(0, 0, -1): 1.0, (0, 0, 0): -5.0}]


def test_a_box_of_excess_risks_ends_at_zero():
    found = invariant_box(float64(polynomial_problem)(modes(3, recursion=False)))
    assert found.proven
    assert found.low.tolist() == [0.0, 0.0]


def test_time_in_bernsteins_form():
    """Coefficients of V = τ³ on a piece: its derivative, and its differences in steps, are exact."""
    cube = np.array([0.0, 0.0, 0.0, 1.0])
    tau = np.linspace(0, 1, 5)
    basis = np.stack([(1 - tau) ** 3, 3 * tau * (1 - tau) ** 2, 3 * tau**2 * (1 - tau), tau**3], axis=1)
    flow = _flow(2.0)
    assert basis @ flow.slopes @ cube == pytest.approx(3 * tau**2 / 2)
    chain = _chain(4, 0.5)  # four steps of length ½: starts at τ from 0 to 3/4
    starts = 0.75 * tau
    assert basis @ chain.stays @ cube == pytest.approx((starts + 0.25) ** 3)
    assert basis @ chain.slopes @ cube == pytest.approx(((starts + 0.25) ** 3 - starts**3) / 0.5)
