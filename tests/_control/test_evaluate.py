"""Any schedule under a problem: objectives of every kind, free parameters, and bad input."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import simpson

import optlearn as ol
from optlearn import models
from optlearn._control.evaluate import integral
from optlearn._errors import SpecificationError, UnphysicalStateError

# shared/THEORY.md, section 6.
CURRICULUM, ANTI_CURRICULUM, MIXED = 0.155861767207, 0.162820122204, 0.152777477165


def curriculum(objective: ol.Objective | None = None, **options: Any) -> ol.Problem:
    model = models.curriculum()
    controls = options.pop("controls", {"difficulty": ol.Discrete((0.0, 2.0))})
    return ol.Problem(
        model=model,
        start=model.state(Q11=1.0, Q22=1.0),
        horizon=12.0,
        controls=controls,
        objective=objective or ol.Objective(),
        **options,
    )


def phases(*values: float) -> ol.Schedule:
    edges = np.linspace(0, 12, len(values) + 1)
    return ol.Schedule.piecewise(edges, {"difficulty": values})


EASY_HARD = phases(0.0, 2.0)


def test_final_error_of_known_schedules() -> None:
    problem = curriculum()
    assert ol.evaluate(problem, EASY_HARD).objective == pytest.approx(CURRICULUM, abs=2e-12)
    assert ol.evaluate(problem, phases(2.0, 0.0)).objective == pytest.approx(ANTI_CURRICULUM, abs=2e-12)
    mixed = ol.Schedule.mixed([0.0, 12.0], {"difficulty": {0.0: 0.5, 2.0: 0.5}})
    assert ol.evaluate(problem, mixed).objective == pytest.approx(MIXED, abs=2e-12)


def test_trajectory_is_recorded() -> None:
    path = ol.evaluate(curriculum(), EASY_HARD, record=7)
    np.testing.assert_allclose(path.alpha, np.linspace(0, 12, 7))
    assert path["error"][-1] == path.objective
    assert path["Q11"][0] == 1.0
    assert path.info["parameters"] == {}


def average_error(schedule: ol.Schedule, parameters: dict[str, float] | None = None) -> float:
    """Simpson's rule on a dense record, piece by piece between the edges."""
    model = models.curriculum()
    start = model.state(Q11=1.0, Q22=1.0)
    record = np.unique(np.concatenate([np.linspace(0, 12, 2001), schedule.grid]))
    path = ol.integrate(model, schedule, start=start, parameters=parameters, record=record)
    total = 0.0
    for left, right in pairwise(schedule.grid):
        inside = (path.alpha >= left) & (path.alpha <= right)
        total += simpson(path["error"][inside], x=path.alpha[inside])
    return float(total / 12)


def test_average_error() -> None:
    problem = curriculum(ol.Objective(final=0.0, average=1.0))
    found = ol.evaluate(problem, EASY_HARD).objective
    assert found == pytest.approx(average_error(EASY_HARD), abs=1e-8)
    assert abs(found - CURRICULUM) > 0.01


def test_weighted_sum() -> None:
    final, average = 0.3, 1.7
    problem = curriculum(ol.Objective(final=final, average=average))
    wanted = final * CURRICULUM + average * average_error(EASY_HARD)
    assert ol.evaluate(problem, EASY_HARD).objective == pytest.approx(wanted, abs=2e-8)


def test_function_of_the_final_state() -> None:
    objective = ol.Objective(final=0.0, terminal=lambda x, u: x.Q[0, 0] + 2 * x["M11"])
    path = ol.evaluate(curriculum(objective), EASY_HARD)
    wanted = path["Q11"][-1] + 2 * path["M11"][-1]
    assert path.objective == pytest.approx(wanted, abs=1e-12)
    both = replace(objective, final=1.0)
    path = ol.evaluate(curriculum(both), EASY_HARD)
    assert path.objective == pytest.approx(wanted + CURRICULUM, abs=1e-10)


def test_running_cost_on_controls() -> None:
    """On an uneven grid: the cost of each value counts by its time."""
    objective = ol.Objective(final=0.0, cost=lambda x, u: u["learning_rate"] ** 2)
    problem = curriculum(objective, controls={"learning_rate": ol.Continuous(0, 5)})
    schedule = ol.Schedule.piecewise([0.0, 1.0, 4.5, 12.0], {"learning_rate": [3.0, 2.0, 1.0]})
    wanted = (1.0 * 9 + 3.5 * 4 + 7.5 * 1) / 12
    assert ol.evaluate(problem, schedule).objective == pytest.approx(wanted, abs=1e-12)


def test_running_cost_of_a_mixture_is_the_mean_cost() -> None:
    objective = ol.Objective(final=0.0, cost=lambda x, u: u["difficulty"] ** 2)
    mixed = ol.Schedule.mixed([0.0, 12.0], {"difficulty": {0.0: 0.25, 2.0: 0.75}})
    found = ol.evaluate(curriculum(objective), mixed).objective
    assert found == pytest.approx(0.75 * 4, abs=1e-12)


def test_running_cost_may_read_the_state() -> None:
    objective = ol.Objective(final=0.0, cost=lambda x, u: x.Q[1, 1])
    path = ol.evaluate(curriculum(objective), EASY_HARD, record=2001)
    half = 1001  # the edge at α = 6
    parts = [slice(0, half), slice(half - 1, None)]
    wanted = sum(simpson(path["Q22"][p], x=path.alpha[p]) for p in parts) / 12
    assert path.objective == pytest.approx(float(wanted), abs=1e-8)


# --- free parameters --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dropout() -> ol.Problem:
    return ol.scenarios.dropout(sigma_n=0.3)


def test_free_parameter_given(dropout: ol.Problem) -> None:
    schedule = ol.Schedule.constant(5.0, {"activation": 0.68})
    path = ol.evaluate(dropout, schedule, parameters={"rescaling": 0.68})
    assert path.objective == pytest.approx(0.036448895717, abs=2e-12)
    assert path.info["parameters"] == {"rescaling": 0.68}
    attached = ol.evaluate(dropout, schedule.with_parameters(rescaling=0.68))
    assert attached.objective == path.objective
    # What the call says counts for more than what the schedule says.
    other = ol.evaluate(dropout, schedule.with_parameters(rescaling=0.1), {"rescaling": 0.68})
    assert other.objective == path.objective


def test_free_parameter_optimised(dropout: ol.Problem) -> None:
    schedule = ol.Schedule.constant(5.0, {"activation": 0.65906})
    path = ol.evaluate(dropout, schedule)
    assert path.objective == pytest.approx(0.0363595799, abs=1e-9)
    assert path.info["parameters"]["rescaling"] == pytest.approx(0.69347, abs=1e-5)
    for shift in (-1e-3, 1e-3):
        beside = {"rescaling": path.info["parameters"]["rescaling"] + shift}
        assert ol.evaluate(dropout, schedule, beside).objective > path.objective


def test_free_parameter_at_its_bound() -> None:
    problem = curriculum(free={"weight_decay": ol.Free(0.0, 1.0, guess=0.5)})
    path = ol.evaluate(problem, EASY_HARD)
    assert path.info["parameters"]["weight_decay"] == 0.0
    assert path.objective == pytest.approx(CURRICULUM, abs=1e-10)


def test_one_of_two_free_parameters_given() -> None:
    free = {"weight_decay": ol.Free(0.0, 1.0), "learning_rate": ol.Free(0.5, 5.0)}
    problem = curriculum(free=free)
    path = ol.evaluate(problem, EASY_HARD, {"weight_decay": 0.1})
    assert path.info["parameters"]["weight_decay"] == 0.1
    best = path.info["parameters"]["learning_rate"]
    for rate in (best - 0.02, best + 0.02):
        beside = ol.evaluate(problem, EASY_HARD, {"weight_decay": 0.1, "learning_rate": rate})
        assert beside.objective > path.objective


def test_other_parameters_can_be_changed_too() -> None:
    model = models.curriculum(weight_decay=0.2)
    wanted = ol.integrate(model, EASY_HARD, start=model.state(Q11=1.0, Q22=1.0))
    found = ol.evaluate(curriculum(), EASY_HARD, {"weight_decay": 0.2})
    assert found.objective == pytest.approx(wanted["error"][-1], abs=1e-12)


# --- bad input --------------------------------------------------------------------------------------


def test_wrong_horizon() -> None:
    with pytest.raises(SpecificationError, match="the schedule ends at α = 5, the problem at 12"):
        ol.evaluate(curriculum(), ol.Schedule.constant(5.0, {"difficulty": 0.0}))


def test_missing_control() -> None:
    with pytest.raises(SpecificationError, match=r"lacks the control 'difficulty'.*learning_rate"):
        ol.evaluate(curriculum(), ol.Schedule.constant(12.0, {"learning_rate": 1.0}))


def test_unknown_parameter() -> None:
    with pytest.raises(SpecificationError, match=r"unknown parameter 'rescaling'.*weight_decay"):
        ol.evaluate(curriculum(), EASY_HARD, {"rescaling": 0.5})


def test_dynamics_that_run_away() -> None:
    problem = ol.scenarios.dropout()
    with pytest.raises(UnphysicalStateError):
        ol.evaluate(
            problem,
            ol.Schedule.constant(5.0, {"activation": 1.0}),
            {"rescaling": 0.5, "learning_rate": 1e200},
        )


def test_running_costs_are_accurate_on_long_horizons() -> None:
    # A fixed grid of 64 pieces was off by 9.5e-4 here: the error falls within a few units of α.
    problem = ol.scenarios.learning_rate(alpha_F=1000)
    average = replace(problem, objective=ol.Objective(final=0.0, average=1.0))
    schedule = ol.Schedule.constant(1000, {"learning_rate": 1.0})
    dense = ol.integrate(
        problem.model, schedule, start=problem.start, parameters=problem.parameters, record=200_001
    )
    expected = simpson(dense["error"], x=dense.alpha) / 1000
    assert ol.evaluate(average, schedule).objective == pytest.approx(expected, rel=1e-8)


@given(st.floats(0.01, 300.0), st.floats(0.0, 1.0))
def test_integral_of_a_peak_anywhere(sharpness: float, place: float) -> None:
    def peak(t: np.ndarray) -> np.ndarray:
        return 1 / (1 + (sharpness * (t - place)) ** 2)

    exact = (np.arctan(sharpness * (1 - place)) + np.arctan(sharpness * place)) / sharpness
    assert integral(peak, np.linspace(0.0, 1.0, 5)) == pytest.approx(exact, rel=1e-10)


def test_equal_students_stay_equal_however_long() -> None:
    # Without dropout, students that start at zero are the same for ever; round-off used to part them.
    problem = ol.scenarios.dropout(alpha_F=300)
    schedule = ol.Schedule.constant(300, {"activation": 1.0})
    found = ol.evaluate(problem, schedule, {"rescaling": 1.0})
    assert found.objective == pytest.approx(0.0614473, abs=1e-7)
    assert found["Q11"][-1] == pytest.approx(found["Q12"][-1], abs=1e-12)


def test_what_is_not_finite_is_blamed_on_the_function_that_gives_it():
    class Logarithm(ol.System):
        names = ("e",)
        parameters = {"rate": 0.5}  # noqa: RUF012

        def drift(self, x, u):
            return {"e": -u["rate"] * x["e"]}

        def error(self, x, u):
            return jnp.log(x["e"] - 0.5)

    rate = {"rate": ol.Continuous(0.4, 1)}
    problem = ol.Problem(model=Logarithm(), start={"e": 1.0}, horizon=5, controls=rate, intervals=4)
    schedule = ol.Schedule.constant(5, {"rate": 0.5})
    with pytest.raises(ol.UnphysicalStateError, match=r"Logarithm\.error is nan .*e = 0\.49\d+ at α = 1\.4"):
        ol.evaluate(problem, schedule)
    with pytest.raises(ValueError, match=r"not finite for any start .*: Logarithm\.error is nan"):
        ol.solve(problem)
    cost = ol.Objective(final=0.0, cost=lambda x, u: jnp.sqrt(x["e"] - 0.5))
    with pytest.raises(ol.UnphysicalStateError, match=r"Objective\.cost is nan"):
        ol.evaluate(replace(problem, objective=cost), schedule)
