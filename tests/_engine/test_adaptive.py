"""Extrapolated steps: their order, and the same numbers as SciPy's integrator."""

import numpy as np
import pytest

import optlearn as ol
from optlearn._engine import casadi
from optlearn._engine.adaptive import extrapolated_step


def one_step(h: float) -> tuple[float, float]:
    """Error of a step of ẋ = −x² from 1, and its own estimate of it."""
    end, error = extrapolated_step(lambda x: -(x**2), 1.0, h)
    return abs(end - 1 / (1 + h)), abs(error)


def test_the_error_falls_with_the_eleventh_power_of_the_step() -> None:
    (coarse, _), (fine, _) = one_step(0.2), one_step(0.1)
    assert 2**10 < coarse / fine < 2**12


@pytest.mark.parametrize("h", [0.05, 0.1, 0.2, 0.4])
def test_a_step_does_not_think_itself_better_than_it_is(h: float) -> None:
    error, estimate = one_step(h)
    assert error <= estimate


@pytest.mark.parametrize("scenario", ["curriculum", "dropout", "denoising", "imbalance"])
def test_it_agrees_with_another_integrator(scenario: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = getattr(ol.scenarios, scenario)()
    grid = np.linspace(0.0, problem.horizon, 31)
    rng = np.random.default_rng(1)
    controls = {}
    for name, control in problem.controls.items():
        low, high = (float(np.min(bound)) for bound in control.bounds)
        values = getattr(control, "values", None) or (low, (low + high) / 2, high)
        controls[name] = rng.choice(values, 30)
    schedule = ol.Schedule(grid, controls)
    courses = []
    for small in (0, casadi.SMALL):  # steps of SciPy's, then extrapolated ones
        monkeypatch.setattr(casadi, "SMALL", small)
        courses.append(ol.evaluate(problem, schedule))
    first, second = courses
    for name in first.values:
        np.testing.assert_allclose(first.values[name], second.values[name], rtol=1e-10, atol=1e-12)


def test_a_state_that_runs_away_is_given_up() -> None:
    class Explosion(ol.System):
        names = ("x",)
        parameters = {"rate": 1.0}  # noqa: RUF012

        def drift(self, x, u):
            return {"x": u["rate"] * x["x"] ** 2}

        def error(self, x, u):
            return x["x"]

    with pytest.raises(ol.UnphysicalStateError, match="x"):
        ol.integrate(Explosion(), ol.Schedule.constant(2.0, {"rate": 1.0}), start={"x": 1.0})
