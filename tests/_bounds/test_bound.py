"""Bounds against optima that are known, or found by solvers."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import optlearn as ol
from optlearn._bounds.grids import interpolate, nodes
from optlearn._bounds.hjb import extrapolate
from optlearn._control.summary import certificate_words


class Relaxation(ol.System):
    """Noisy least squares."""

    names = ("e",)
    parameters = {"learning_rate": 0.5, "sigma2": 0.25}  # noqa: RUF012

    def drift(self, x, u):
        eta, e = u["learning_rate"], x["e"]
        return {"e": -2 * eta * e + eta**2 * (e + u["sigma2"])}

    def error(self, x, u):
        return x["e"]


class Averaging(ol.System):
    """Modes whose noise is divided by the batch size."""

    names = ("a", "b")
    parameters = {"batch": 1.0}  # noqa: RUF012

    def drift(self, x, u):
        return {"a": -2 * x["a"] + 0.5 / u["batch"], "b": -0.4 * x["b"] + 0.02 / u["batch"]}

    def error(self, x, u):
        return x["a"] + x["b"]


def least_squares() -> ol.Problem:
    rate = {"learning_rate": ol.Continuous(0, 1)}
    return ol.Problem(model=Relaxation(), start={"e": 1.0}, horizon=5, controls=rate, intervals=60)


def averaging(intervals: int = 200) -> ol.Problem:
    return ol.Problem(
        model=Averaging(),
        start={"a": 1.0, "b": 1.0},
        horizon=2.0,
        controls={"batch": ol.Continuous(0.1, 50, guess=4.0)},
        budgets=(ol.Budget("batch", mean=4.0),),
        intervals=intervals,
    )


def test_what_is_no_polynomial_is_refused_by_name():
    with pytest.raises(ValueError, match=r"the drift of 'curriculum' must be a polynomial .* an arcsine"):
        ol.bound(ol.scenarios.curriculum(), "sos")


def test_a_drift_that_needs_more_dimensions_is_told_why_no_kind_fits():
    with pytest.raises(ValueError, match=r"(?s)'convex': .* 'hjb': .* moves in 7 .* 'sos': .* an arcsine"):
        ol.bound(ol.scenarios.learning_rate())


def test_a_grid_beyond_the_states_that_the_drift_knows_is_refused():
    class Cosine(ol.System):
        names = ("x",)
        parameters = {"pull": 0.0}  # noqa: RUF012

        def drift(self, x, u):
            return {"x": u["pull"] - x["x"] + 1e-3 * jnp.sqrt(1.05 - x["x"] ** 2)}

        def error(self, x, u):
            return x["x"]

    pull = {"pull": ol.Continuous(-1, 1)}
    problem = ol.Problem(model=Cosine(), start={"x": 0.0}, horizon=10, controls=pull)
    with pytest.raises(ValueError, match="no possible overlaps"):
        ol.bound(problem, "hjb", times=8)


def test_a_grid_finds_the_optimum_and_its_policy():
    problem = least_squares()
    solution = ol.solve(problem)
    found = ol.bound(problem, "hjb")
    assert abs(found.value - solution.objective) <= found.error < 0.02 * solution.objective
    # Far from the noise floor the rate is large, near the end it is small.
    assert found.policy(0.0, {"e": 1.0})["learning_rate"] > 0.6
    assert found.policy(4.9, {"e": 0.1})["learning_rate"] < 0.4
    schedule = found.policy.schedule()
    assert ol.evaluate(problem, schedule).objective == pytest.approx(solution.objective, rel=0.02)
    attached = found.attach(solution).certificate
    assert attached.lower_bound == found.lower
    assert attached.lower_bound_kind == "hjb"


def test_batches_against_additive_noise_are_known_exactly():
    problem = averaging()
    found = ol.bound(problem)
    assert (found.kind, found.proven) == ("convex", True)
    # κ, what the noise at time α costs at the end, integrated over each interval; B ∝ √κ, mean 4.
    edges = np.linspace(0, 2, 201)
    kappa = np.diff(0.25 * np.exp(2 * (edges - 2)) + 0.05 * np.exp(0.4 * (edges - 2)))
    batch = 4 * np.sqrt(kappa) / np.sqrt(kappa).mean()
    exact = np.exp(-4.0) + np.exp(-0.8) + np.sum(kappa / batch)
    assert found.value == pytest.approx(exact, rel=1e-8)
    assert ol.solve(problem).objective == pytest.approx(exact, rel=1e-7)


def test_a_file_keeps_the_bound_and_the_report_tells_it(tmp_path):
    problem = averaging(20)
    solution = ol.bound(problem).attach(ol.solve(problem))
    assert "at best (convex)" in dict(certificate_words(solution))["How good can any schedule be?"]
    kept = ol.load(solution.save(tmp_path / "s.nc"), problem=problem).certificate
    assert kept.lower_bound == solution.certificate.lower_bound
    assert kept.lower_bound_kind == "convex"


def test_curriculum_is_not_convex():
    with pytest.raises(ValueError, match="linear in the state"):
        ol.bound(ol.scenarios.curriculum(), "convex")


def test_a_worst_case_is_refused():
    problem = replace(least_squares(), limits=(ol.Limit(ol.Objective(), 1.0),))
    with pytest.raises(ValueError, match="one mean"):
        ol.bound(problem)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "optimum"), [("curriculum", 0.146841), ("dropout", 0.0340887)])
def test_grids_bracket_the_optima_of_the_paper(name, optimum):
    found = ol.bound(getattr(ol.scenarios, name)())
    assert abs(found.value - optimum) <= found.error < 0.02 * optimum


@pytest.mark.slow
def test_the_bound_decides_between_local_optima():
    """Easy samples at a price, not on a budget: all of them easy, or a curriculum, are both local optima."""
    price = 0.0343
    problem = replace(
        ol.scenarios.curriculum(),
        budgets=(),
        baselines={},
        intervals=60,
        objective=ol.Objective(cost=lambda x, u: price * (0.5 - u["difficulty"] / 2)),
    )
    solution = ol.solve(problem, starts=4, method="indirect")
    assert solution.certificate.starts.spread > 0.005
    found = ol.bound(problem, "hjb", solution=solution)
    worse = solution.objective + solution.certificate.starts.spread
    assert abs(found.value - solution.objective) <= found.error
    assert worse > found.value + 2 * found.error


# --- parts ------------------------------------------------------------------------------------------


def test_cubics_are_interpolated_exactly_inside_and_held_outside():
    grid = nodes(9, 2)
    table = jnp.asarray((grid[:, 0] ** 3 + 2 * grid[:, 0] + grid[:, 1]).reshape(9, 9))
    z = jnp.array([0.31, -0.77])
    assert float(interpolate(table, z)) == pytest.approx(0.31**3 + 0.62 - 0.77, abs=1e-6)
    assert float(interpolate(table, jnp.array([5.0, 1.0]))) == pytest.approx(4.0)


def test_extrapolation_finds_the_limit_of_a_power_law():
    value, error = extrapolate([1 + 0.1 * (2 / 3) ** (2 * i) for i in range(3)])
    assert value == pytest.approx(1.0, abs=1e-12)
    assert error >= 0.1 * (2 / 3) ** 4


def test_values_that_wander_are_not_extrapolated():
    assert extrapolate([1.0, 1.2, 1.1]) == (1.1, pytest.approx(0.2 / 1.5))
