"""Any dynamics: the contract of a system, its states, and what a slip in it says."""

import jax.numpy as jnp
import numpy as np
import pytest

import optlearn as ol
from optlearn._dynamics.layout import NamedLayout
from optlearn._errors import SpecificationError, UnphysicalStateError


class Relaxation(ol.System):
    """Noisy least squares: the excess error e under a learning rate."""

    names = ("e",)
    parameters = {"learning_rate": 0.5, "sigma2": 0.25}  # noqa: RUF012

    def drift(self, x, u):
        eta = u["learning_rate"]
        return {"e": -2 * eta * x["e"] + eta**2 * (x["e"] + u["sigma2"])}

    def error(self, x, u):
        return x["e"]

    def observables(self, x, u):
        return {"log_error": jnp.log(x["e"])}

    def check(self, x):
        return f"e = {x['e']:.3g}; an excess error cannot be negative" if x["e"] < 0 else None


class Modes(ol.System):
    """Modes that decay each at its own rate."""

    rates: np.ndarray
    names = {"V": 3, "time": None}  # noqa: RUF012
    parameters = {"speed": 1.0}  # noqa: RUF012

    def drift(self, x, u):
        return {"V": -u["speed"] * self.rates * x["V"], "time": jnp.ones(())}

    def error(self, x, u):
        return x["V"].sum()


def problem(**changes):
    given = {
        "model": Relaxation(),
        "start": {"e": 1.0},
        "horizon": 5.0,
        "controls": {"learning_rate": ol.Continuous(0, 1)},
    }
    return ol.Problem(**given | changes)


def test_integrates_as_its_solution_says():
    # Under a constant rate the drift is affine, with the fixed point ησ²/(2 − η).
    found = ol.integrate(Relaxation(), ol.Schedule.constant(3.0, {"learning_rate": 0.8}), start={"e": 1.0})
    fixed = 0.8 * 0.25 / (2 - 0.8)
    expected = fixed + (1 - fixed) * np.exp(-0.8 * (2 - 0.8) * found.alpha)
    np.testing.assert_allclose(found["e"], expected, rtol=1e-10)
    np.testing.assert_allclose(found["log_error"], np.log(expected), atol=1e-10)
    assert found.order_parameters == ("e",)


@pytest.mark.parametrize("backend", ["casadi", "xla"])
def test_vectors_in_the_state(backend):
    model = Modes(rates=np.array([0.5, 1.0, 20.0]))
    found = ol.integrate(
        model, ol.Schedule.constant(2.0, {"speed": 1.5}), start={"V": [1, 2, 3]}, backend=backend
    )
    assert found.order_parameters == ("V1", "V2", "V3", "time")
    np.testing.assert_allclose(found["V2"], 2 * np.exp(-1.5 * found.alpha), rtol=1e-9)
    assert found["time"][-1] == pytest.approx(2.0)


def test_the_optimum_is_the_known_one():
    solution = ol.solve(problem(), intervals=60)
    assert solution.certificate.converged
    # The best rate of all is η = e/(e + σ²): its error obeys de/dα = −e²/(e + σ²).
    e = solution.trajectory.at((solution.schedule.grid[1:] + solution.schedule.grid[:-1]) / 2)["e"]
    np.testing.assert_allclose(solution.schedule["learning_rate"], e / (e + 0.25), atol=1e-4)
    assert solution.objective == pytest.approx(0.0884943, abs=2e-7)


def test_its_numbers_are_runtime_values():
    other = problem(parameters={"sigma2": 0.5})
    assert ol.solve(other, intervals=12).objective > ol.solve(problem(), intervals=12).objective


def test_a_negative_error_is_refused():
    with pytest.raises(UnphysicalStateError, match=r"at the start: e = -1; an excess error cannot"):
        problem(start={"e": -1.0})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start": {"f": 1.0}}, "Relaxation has no state 'f'; it has e"),
        ({"start": 1.0}, "start must be a dictionary of Relaxation's state"),
        ({"start": {"e": [1.0, 2.0]}}, r"start: 'e' must be numbers of shape \(\), got \(2,\)"),
        ({"model": "Relaxation"}, "model must be a System, got 'Relaxation'"),
        ({"controls": {"rate": ol.Continuous(0, 1)}}, "'rate'.*Relaxation has learning_rate, sigma2"),
        ({"parameters": {"sigma": 1.0}}, "Relaxation has no parameter 'sigma'"),
    ],
)
def test_slips_in_a_problem(changes, message):
    with pytest.raises(SpecificationError, match=message):
        problem(**changes)


def subclass(**members):
    return type("Own", (Relaxation,), {"__annotations__": {}, **members})


def test_slips_in_a_system():
    with pytest.raises(SpecificationError, match=r"Own.names must be a tuple"):
        subclass(names="e")()
    with pytest.raises(SpecificationError, match=r"Own.parameters must map names"):
        subclass(parameters=["learning_rate"])()
    schedule = ol.Schedule.constant(1.0, {"learning_rate": 0.5})
    for members, message in (
        ({"drift": lambda self, x, u: {"f": x["e"]}}, r"keys \['e'\], got \['f'\]"),
        ({"drift": lambda self, x, u: x["e"]}, "Own: a state, and the drift of one, must be a dictionary"),
        ({"error": lambda self, x, u: None}, "Own.error must return one number, got None"),
        ({"error": lambda self, x, u: jnp.ones(2)}, r"Own.error must return one number, .* \(2,\)"),
    ):
        with pytest.raises(SpecificationError, match=message):
            ol.integrate(subclass(**members)(), schedule, start={"e": 1.0})


def test_a_system_needs_a_drift():
    class Still(ol.System):
        names = ("e",)

        def error(self, x, u):
            return x["e"]

    with pytest.raises(SpecificationError, match="Still must define drift"):
        Still()


def test_layout_round_trip():
    layout = NamedLayout.of("Own", {"V": 2, "m": None})
    flat = np.arange(12.0).reshape(4, 3)
    state = layout.unflatten(flat)
    assert state["V"].shape == (4, 2)
    np.testing.assert_array_equal(layout.flatten(state), flat)
    assert not layout.nonnegative.any()


class Modes3(ol.System):
    """Modes that relax to a noise floor, each at its own rate: as an ODE, or exactly."""

    rates: np.ndarray
    names = {"e": 3}  # noqa: RUF012
    parameters = {"learning_rate": 0.5, "sigma2": 0.25}  # noqa: RUF012

    def error(self, x, u):
        return x["e"].sum()


class ModesByDrift(Modes3):
    """The differential equation."""

    def drift(self, x, u):
        eta = u["learning_rate"]
        return {"e": -2 * eta * self.rates * (x["e"] - eta * u["sigma2"] / 2)}


class ModesExactly(Modes3):
    """Its solution."""

    def advance(self, x, u, length):
        eta = u["learning_rate"]
        floor = eta * u["sigma2"] / 2
        return {"e": floor + (x["e"] - floor) * jnp.exp(-2 * eta * self.rates * length)}


def modes(kind, rates=(0.05, 1.0, 3.0), **changes):
    given = {
        "model": kind(rates=np.array(rates)),
        "start": {"e": 1.0},
        "horizon": 10.0,
        "controls": {"learning_rate": ol.Continuous(0.01, 1)},
        "intervals": 20,
    }
    return ol.Problem(**given | changes)


OBJECTIVES = {
    "final": ol.Objective(),
    "average": ol.Objective(final=0.0, average=1.0),
    "both": ol.Objective(final=0.3, average=0.7),
}


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=list(OBJECTIVES))
def test_an_exact_advance_is_the_ode(objective):
    schedule = ol.Schedule.piecewise([0, 1, 4, 10], {"learning_rate": [0.9, 0.2, 0.4]})
    integrated, exact = (
        ol.evaluate(modes(kind, objective=objective), schedule) for kind in (ModesByDrift, ModesExactly)
    )
    np.testing.assert_allclose(exact.states, integrated.states, atol=1e-11)
    assert exact.objective == pytest.approx(integrated.objective, abs=1e-10)


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=list(OBJECTIVES))
@pytest.mark.parametrize("method", ["auto", "direct", "indirect"])
def test_optima_under_an_exact_advance_are_those_of_the_ode(objective, method):
    integrated, exact = (
        ol.solve(modes(kind, objective=objective), method=method) for kind in (ModesByDrift, ModesExactly)
    )
    assert exact.certificate.converged
    assert exact.objective == pytest.approx(integrated.objective, abs=2e-8)
    # Costates are derivatives of the same objective, at the ends of the intervals.
    every = (len(integrated.costates.alpha) - 1) // 20
    np.testing.assert_allclose(
        exact.costates.states, integrated.costates.states[::every], rtol=2e-3, atol=2e-5
    )


def test_stiff_modes_need_no_small_steps():
    solution = ol.solve(modes(ModesExactly, rates=(0.05, 1.0, 50_000.0)))
    assert solution.certificate.converged
    assert abs(solution.certificate.integration_error) < 1e-12
    assert np.all(np.diff(solution.schedule["learning_rate"]) < 1e-6)  # the floor is reached at once: fall


def test_greedy_and_discrete_controls_with_an_exact_advance():
    discrete = modes(ModesExactly, controls={"learning_rate": ol.Discrete((0.05, 0.8))})
    solution = ol.solve(discrete)
    assert set(solution.schedule["learning_rate"]) <= {0.05, 0.8}
    constant = min(
        ol.evaluate(discrete, ol.Schedule.constant(10, {"learning_rate": v})).objective for v in (0.05, 0.8)
    )
    assert solution.objective <= constant + 1e-12
    greedy = ol.solve(modes(ModesExactly), method="greedy")
    assert greedy.objective >= ol.solve(modes(ModesExactly)).objective - 1e-10
