"""Horizons, integrals and totals: what depends on how long training lasts."""

import pickle
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import optlearn as ol
from optlearn._control.compiled import compile_problem
from optlearn._control.free_horizon import stretched


class Cart(ol.System):
    """A cart that is pushed."""

    names = ("place", "speed")
    parameters = {"push": 0.0}  # noqa: RUF012

    def drift(self, x, u):
        return {"place": x["speed"], "speed": u["push"]}

    def error(self, x, u):
        return x["place"]


class Decay(ol.System):
    """An error that falls at the pace of a rate, and rises by its noise."""

    names = ("e",)
    parameters = {"rate": 0.5}  # noqa: RUF012

    def drift(self, x, u):
        return {"e": -u["rate"] * x["e"]}

    def error(self, x, u):
        return x["e"]


class Tumour(ol.System):
    """Ledzewicz and Schättler, Optim. Control Appl. Meth. 29 (2008) 41."""

    names = ("tumour", "vessels")
    parameters = {"dose": 0.0}  # noqa: RUF012

    def drift(self, x, u):
        p, q = x["tumour"], x["vessels"]
        return {
            "tumour": -0.084 * p * jnp.log(p / q),
            "vessels": q * (5.85 - 0.02 - 0.00873 * p ** (2 / 3) - 0.15 * u["dose"]),
        }

    def error(self, x, u):
        return x["tumour"]


VOLUME = ((5.85 - 0.02) / 0.00873) ** 1.5 / 2


def tumour(**changes):
    options = {
        "model": Tumour(),
        "start": {"tumour": VOLUME, "vessels": VOLUME / 2},
        "horizon": ol.Free(0.1, 3.0),
        "controls": {"dose": ol.Continuous(0, 75)},
        "budgets": (ol.Budget("dose", total=15.0, sense="at most"),),
    }
    return ol.Problem(**{**options, **changes})


def hurry(**changes):
    """To rest at 0, as cheaply as possible: time and effort both cost."""
    options = {
        "model": Cart(),
        "start": {"place": 1.0, "speed": 0.0},
        "horizon": ol.Free(0.2, 10.0),
        "controls": {"push": ol.Continuous(-20, 20)},
        "objective": ol.Objective(final=0.0, integral=lambda x, u: 3.0 + u["push"] ** 2),
        "limits": tuple(
            ol.Limit(ol.Objective(final=0.0, terminal=lambda x, u, name=name: x[name]), equals=0.0)
            for name in ("place", "speed")
        ),
        "intervals": 20,
    }
    return ol.Problem(**{**options, **changes})


def test_time_and_effort_have_a_closed_form() -> None:
    # Effort on I intervals is 12 / (T³ (1 − I⁻²)); with 3 T it is least at T⁴ = 12 / (1 − I⁻²).
    solution = ol.solve(hurry(), starts=2)
    best = (12 / (1 - 20**-2)) ** 0.25
    assert solution.certificate.converged, solution.certificate.reasons
    assert solution.problem.horizon == pytest.approx(best, rel=1e-5)
    assert solution.schedule.horizon == solution.problem.horizon == solution.trajectory.alpha[-1]
    assert solution.costates.alpha[-1] == pytest.approx(solution.problem.horizon)
    assert solution.objective == pytest.approx(3 * best + 12 / (1 - 20**-2) / best**3, rel=1e-8)
    assert ol.evaluate(hurry(), solution.schedule).objective == pytest.approx(solution.objective, rel=1e-10)
    assert "best training time" in solution.notes[-1]


@pytest.mark.slow
def test_the_tumour_problem() -> None:
    solution = ol.solve(tumour(intervals=400), starts=2)
    assert solution.certificate.converged, solution.certificate.reasons
    assert solution.objective == pytest.approx(7571.67, rel=2e-6)
    assert solution.problem.horizon == pytest.approx(1.196, abs=2e-3)
    assert np.diff(solution.schedule.grid) @ solution.schedule["dose"] <= 15 * (1 + 1e-6)


def test_a_total_follows_the_horizon() -> None:
    free = ol.solve(tumour(intervals=20), starts=1)
    assert free.certificate.converged
    # The same at that horizon, where the total is a mean.
    given = ol.solve(replace(tumour(intervals=20), horizon=free.problem.horizon), starts=1)
    assert given.objective == pytest.approx(free.objective, rel=1e-6)
    assert given.problem.mean_budgets[0].mean == pytest.approx(15 / free.problem.horizon)
    for other in (0.99, 1.01):
        near = ol.solve(replace(tumour(intervals=20), horizon=other * free.problem.horizon), starts=1)
        assert near.objective > free.objective


def test_the_end_of_the_range_is_said(tmp_path) -> None:
    problem = ol.Problem(
        model=Decay(), start={"e": 1.0}, horizon=ol.Free(0.5, 2.0), intervals=4,
        controls={"rate": ol.Continuous(0, 1)},
    )  # fmt: skip
    solution = ol.solve(problem, starts=1)
    assert solution.problem.horizon == pytest.approx(2.0, rel=1e-6)
    assert "an end of that range" in solution.notes[-1]
    assert solution.objective == pytest.approx(np.exp(-2), rel=1e-6)
    solution.save(tmp_path / "s.nc")
    assert ol.load(tmp_path / "s.nc", problem=solution.problem).objective == solution.objective


def test_integrals_and_averages() -> None:
    problem = ol.Problem(
        model=Decay(), start={"e": 1.0}, horizon=4.0, intervals=4, controls={"rate": ol.Continuous(0, 1)}
    )
    schedule = ol.Schedule.constant(4.0, {"rate": 1.0})
    area = 1 - np.exp(-4.0)

    def under(**parts):
        return ol.evaluate(replace(problem, objective=ol.Objective(final=0.0, **parts)), schedule).objective

    assert under(integral=lambda x, u: x["e"]) == pytest.approx(area, rel=1e-10)
    assert under(cost=lambda x, u: x["e"]) == pytest.approx(area / 4, rel=1e-10)
    both = under(average=1.0, cost=lambda x, u: x["e"], integral=lambda x, u: x["e"])
    assert both == pytest.approx(1.5 * area, rel=1e-10)


def test_integrals_are_counted_in_the_state_where_they_must_be() -> None:
    problem = ol.Problem(
        model=Decay(), start={"e": 1.0}, horizon=2.0, intervals=4, controls={"rate": ol.Continuous(0, 1)},
        objective=ol.Objective(final=0.0, average=1.0, integral=lambda x, u: u["rate"] ** 2),
        paths=(ol.Path(lambda x, u: x["e"], at_least=0.3, name="left"),),
    )  # fmt: skip
    schedule = ol.Schedule.constant(2.0, {"rate": 0.5})
    worst = ol.robust(problem, over={"start": [{"e": 1.0}, {"e": 2.0}]}, risk="worst")
    expected = 2 * (1 - np.exp(-1.0)) + 0.5
    assert ol.evaluate(worst, schedule).objective == pytest.approx(expected, rel=1e-9)


def test_gradients_of_a_stretched_problem() -> None:
    problem = stretched(tumour(intervals=5))
    from optlearn._control.compiled import Rollout

    rollout = Rollout(compile_problem(problem), 5, 4)
    w, theta, step = np.linspace(5.0, 20.0, 5)[:, None], np.array([1.3]), 1e-4
    rolled = rollout.run(w, theta)
    numeric = (rollout.objective(w, theta + step) - rollout.objective(w, theta - step)) / (2 * step)
    assert rolled.free_gradient[0] == pytest.approx(numeric, rel=1e-6)
    spent = rollout.costs(w, theta)[-1]
    assert spent == pytest.approx(w.mean() * 1.3, rel=1e-12)


def test_a_free_horizon_is_kept_by_copies() -> None:
    problem = tumour()
    again = pickle.loads(pickle.dumps(replace(problem, intervals=7).horizon))
    assert again.range == problem.free_horizon == ol.Free(0.1, 3.0)
    assert replace(problem, horizon=3.0).free_horizon is None
    assert problem.at_horizon(1.0).horizon == 1.0


def test_compare_takes_the_horizon_that_was_found() -> None:
    solution = ol.solve(hurry(), starts=1)
    table = ol.compare(
        hurry(), {"mine": ol.Schedule.constant(solution.problem.horizon, {"push": 0.0})}, solution
    )
    assert {row.name for row in table.rows} >= {"optimum", "mine"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"horizon": ol.Free(0.0, 2.0)}, "horizon must be above 0"),
        ({"controls": {"dose": ol.Discrete((0, 75), min_dwell=0.1)}}, "min_dwell"),
        ({"budgets": (ol.Budget("dose", total=-1.0),)}, "infeasible budget: total dose"),
        ({"budgets": (ol.Budget("dose", total=500.0),)}, "infeasible budget: total dose"),
    ],
)
def test_what_cannot_be_free(changes, message) -> None:
    with pytest.raises(ol.SpecificationError, match=message):
        tumour(**changes)


def test_a_budget_is_one_thing() -> None:
    with pytest.raises(ol.SpecificationError, match="one of mean, share"):
        ol.Budget("dose", mean=1.0, total=2.0)


def test_a_schedule_must_end_within_the_range() -> None:
    with pytest.raises(ol.SpecificationError, match=r"from 0\.1 to 3"):
        ol.evaluate(tumour(), ol.Schedule.constant(5.0, {"dose": 1.0}))


def test_batches_refuse_a_free_horizon() -> None:
    from optlearn._control.batched.stack import stack

    with pytest.raises(ol.SpecificationError, match="a free horizon"):
        stack([tumour(budgets=())])
