"""Bounds against optima that are known, or found by solvers."""

import warnings
from dataclasses import replace

import casadi
import jax.numpy as jnp
import numpy as np
import pytest

import optlearn as ol
from optlearn._bounds.bound import Bound
from optlearn._bounds.grids import interpolate, nodes
from optlearn._bounds.hjb import Near, Resolution, Sweep, extrapolate
from optlearn._bounds.intervals import lowest
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
    with pytest.raises(ValueError, match=r"(?s)'convex': .* 'hjb': .* moves in \d.* 'sos': .* an arcsine"):
        ol.bound(ol.scenarios.curriculum(), dimensions=1)


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
    with pytest.raises(ValueError, match="not finite in some of their corners"):
        ol.bound(problem, "hjb", times=8)
    # By itself it goes on to sums of squares, which know no root.
    with pytest.raises(ValueError, match=r"'hjb': .* some of their corners\. 'sos': .* polynomial"):
        ol.bound(problem, times=8)


def test_a_grid_finds_the_optimum_and_its_policy():
    problem = least_squares()
    solution = ol.solve(problem)
    found = ol.bound(problem, "hjb", times=6, nodes=16)
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


# --- several wells, grids and budgets -----------------------------------------------------------------


class Wells(ol.System):
    """Noise with several wells in a control, or a narrow one."""

    names = ("e",)
    parameters = {"u": 0.5, "c": 0.7, "narrow": 0.0}  # noqa: RUF012

    def drift(self, x, u):
        many = 1 + 0.5 * jnp.cos(25 * u["u"]) + 0.1 * (u["u"] - u["c"]) ** 2
        one = 1 - jnp.exp(-(((u["u"] - 0.55) / 0.015) ** 2)) + 0.05 * u["u"]
        return {"e": -x["e"] + (1 - u["narrow"]) * many + u["narrow"] * one}

    def error(self, x, u):
        return x["e"]


def wells(**parameters: float) -> ol.Problem:
    u = {"u": ol.Continuous(0, 1)}
    return ol.Problem(
        model=Wells(), start={"e": 1.0}, horizon=2, controls=u, parameters=parameters, intervals=8
    )


def least_constant(problem: ol.Problem) -> float:
    """The best of many constant controls: e ends at exp(−2) + (1 − exp(−2)) noise(u)."""
    u, settings = np.linspace(0, 1, 100_001), problem.settings
    noise = problem.model.drift({"e": 0.0}, {**settings, "u": u})["e"]
    return float(np.exp(-2) + (1 - np.exp(-2)) * np.min(noise))


@pytest.mark.parametrize(
    "parameters",
    [{"c": 0.7}, *(pytest.param(p, marks=pytest.mark.slow) for p in ({"c": 0.31}, {"narrow": 1.0}))],
)
def test_wells_between_points_of_a_grid_are_found_and_proven(parameters):
    problem = wells(**parameters)
    best, solution, found = least_constant(problem), ol.solve(problem), ol.bound(problem, "convex")
    assert solution.certificate.converged
    assert solution.objective == pytest.approx(best, rel=1e-6)
    assert solution.objective * (1 - 1e-7) < found.value <= solution.objective


def test_a_convex_bound_belongs_to_its_grid():
    coarse, fine = averaging(10), averaging(40)
    found, better = ol.bound(coarse), ol.solve(fine)
    assert better.objective < found.lower  # what a finer grid may do
    with pytest.raises(ValueError, match=r"10 equal intervals .* not on 40"):
        found.attach(better)
    # Intervals that are several of the bound's are no finer.
    assert ol.bound(fine).attach(ol.solve(coarse)).certificate.lower_bound < better.objective


def test_a_schedule_below_a_proof_is_of_another_problem():
    with pytest.raises(ValueError, match="of another problem"):
        ol.bound(wells(c=0.7)).attach(ol.solve(wells(c=0.31)))


def test_what_intervals_cannot_prove_is_refused():
    class Rounded(Wells):
        def drift(self, x, u):
            return {"e": -x["e"] + jnp.where(u["u"] > 0.3, 1.0, u["u"])}

    with pytest.raises(ValueError, match="does not support"):
        ol.bound(replace(wells(), model=Rounded()), "convex")


def test_an_estimate_above_a_schedule_gets_a_wider_bar():
    estimate = Bound(value=1.0, error=0.01, kind="hjb", assumes="its bar")
    with pytest.warns(UserWarning, match="error bar is widened"):
        assert estimate.beside(0.97).lower == pytest.approx(0.94)
    assert estimate.beside(0.995) is estimate


@pytest.mark.parametrize(
    "pose",
    [
        pytest.param(lambda: budgeted_rate(), marks=pytest.mark.slow),
        pytest.param(
            lambda: ol.scenarios.batch_size(K=1, M=1, alpha_F=4, activation="linear", eta=0.5, mean_batch=3),
            marks=pytest.mark.slow,
        ),
        pytest.param(lambda: ol.scenarios.batch_size(K=1, M=1, alpha_F=4), marks=pytest.mark.slow),
        pytest.param(
            lambda: ol.scenarios.power_law(N=3, recursion=False, control="batch", alpha_F=4),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_estimates_with_budgets_hold_what_is_achieved(pose):
    problem = pose()
    solution = ol.solve(problem)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing has to be made wider
        found = ol.bound(problem, "hjb", solution=solution)
    assert abs(found.value - solution.objective) <= found.error < 0.01 * solution.objective


def budgeted_rate() -> ol.Problem:
    rate = {"learning_rate": ol.Continuous(0, 1)}
    return ol.Problem(
        model=Relaxation(), start={"e": 1.0}, horizon=5, controls=rate, parameters={"sigma2": 0.4},
        budgets=(ol.Budget("learning_rate", mean=0.4),), intervals=60,
    )  # fmt: skip


def test_a_closer_look_finds_wells_between_controls_that_are_tried():
    """On the coarsest grid: what it finds is taken off the estimate, and added to its bar."""
    problem, nothing = wells(narrow=1.0), Near(np.zeros(0), np.zeros(0), np.inf)
    usual, close = (Sweep(problem, Resolution(2, 4), 4, nothing, thorough=t) for t in (False, True))
    best = least_constant(problem)
    assert usual.value(np.zeros(0)) > 0.9 > best + 0.01 > close.value(np.zeros(0))


def test_boxes_hold_the_best_schedule_that_chance_does_not_find():
    """Of wells that random controls miss, e is least under the best constant control, at all times."""
    sweep = Sweep(wells(c=0.7), Resolution(9, 18), 4, Near(np.zeros(0), np.zeros(0), np.inf))
    z = sweep.charts.inverse[-1] @ (np.array([least_constant(wells(c=0.7))]) - sweep.charts.centres[-1])
    assert np.all(np.abs(z) < 1)


@pytest.mark.slow
def test_an_estimate_of_wells_holds_what_is_achieved():
    best, found = least_constant(wells(c=0.7)), ol.bound(wells(c=0.7), "hjb", times=4, nodes=8)
    assert found.lower <= best
    assert abs(found.value - best) <= found.error < 1e-3 * best


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("cos(9*u)*v", 0.0, 1.0),
        ("fabs(u - v) - sqrt(u*v)", 0.0, 1.0),
        ("fmax(sin(7*u), v)**3 / (u + 0.1)", 0.0, 1.0),
        ("(u - 0.4)**4 + exp(-20*v)*tanh(9*(u - v))", 0.0, 1.0),
        ("(u - v)**2 * log(u + 0.01)", 0.0, 1.0),
    ],
)
def test_intervals_prove_the_least_value(text, low, high):
    u, v = casadi.SX.sym("u"), casadi.SX.sym("v")
    names = {n: getattr(casadi, n) for n in ("cos", "sin", "fabs", "fmax", "sqrt", "exp", "tanh", "log")}
    expression = eval(text, {**names, "u": u, "v": v})
    none = np.zeros((1, 0))
    box = np.array([low, low]), np.array([high, high])
    proven = lowest(
        expression, casadi.vertcat(u, v), casadi.SX(0, 1), none, box, np.array([[0.5, 0.5]]), 1e-6
    )
    grid = np.array(np.meshgrid(*[np.linspace(low, high, 401)] * 2)).reshape(2, -1)
    values = np.array(casadi.Function("f", [u, v], [expression])(grid[:1], grid[1:])).ravel()
    assert proven[0] <= values.min()
    assert proven[0] == pytest.approx(values.min(), abs=1e-3)


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
