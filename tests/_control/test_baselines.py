"""The usual shapes, for problems that bring no baselines."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import optlearn as ol
from optlearn._control.baselines import baselines_of
from optlearn._control.compare import broken_limits
from optlearn._control.compiled import Rollout, compile_problem

INTERVALS = 20
SHAPES = ["best constant", "best linear", "best cosine", "best single switch"]


class Relaxation(ol.System):
    names = ("e",)
    parameters = {"rate": 0.5, "noise": 0.25}  # noqa: RUF012

    def drift(self, x, u):
        return {"e": -2 * u["rate"] * x["e"] + u["rate"] ** 2 * (x["e"] + u["noise"])}

    def error(self, x, u):
        return x["e"]


class Tasks(ol.System):
    """Two tasks, of which one is trained at a time; the other is forgotten slowly."""

    names = ("a", "b")
    parameters = {"rate": 0.5, "task": 0.0}  # noqa: RUF012

    def drift(self, x, u):
        share, rate = u["task"], u["rate"]
        return {
            "a": -2 * rate * (1 - share) * x["a"] + 0.2 * rate**2,
            "b": -rate * share * x["b"] + 0.1 * rate**2 * x["b"],
        }

    def error(self, x, u):
        return x["a"] + x["b"]


class Runaway(ol.System):
    """Large rates lower the error, and lead ``q`` to infinity, which it hardly sees: NaN is not > 2."""

    names = ("e", "q")
    parameters = {"rate": 0.5}  # noqa: RUF012

    def drift(self, x, u):
        return {"e": -u["rate"] * x["e"], "q": u["rate"] ** 2 * x["q"] ** 2 - 0.1 * x["q"]}

    def error(self, x, u):
        return x["e"] + jnp.where(x["q"] > 2, 0.3, 0.0)


def relaxation(*budgets, **options):
    rate = {"rate": ol.Continuous(0, 1)}
    return ol.Problem(
        model=Relaxation(), start={"e": 1.0}, horizon=5, controls=rate, budgets=budgets, **options
    )


def tasks(controls, *budgets):
    start = {"a": 1.0, "b": 2.0}
    return ol.Problem(model=Tasks(), start=start, horizon=6, controls=controls, budgets=budgets)


def objectives(problem):
    schedules = ol.baselines(problem, INTERVALS)
    for schedule in schedules.values():
        assert broken_limits(problem, schedule) == []
    return {name: ol.evaluate(problem, each, record=2).objective for name, each in schedules.items()}


def test_each_shape_has_its_best_numbers():
    problem = relaxation()
    found = objectives(problem)
    assert list(found) == SHAPES

    def cost(rate):
        return ol.evaluate(problem, ol.Schedule.constant(5, {"rate": rate}), record=2).objective

    reference = minimize_scalar(cost, bounds=(0, 1), method="bounded", options={"xatol": 1e-3})
    assert found["best constant"] == pytest.approx(reference.fun, rel=1e-6)
    # All others hold the constants; the switch is between two of them, at an edge of the grid.
    assert max(found.values()) == found["best constant"]
    switch = ol.baselines(problem, INTERVALS)["best single switch"]
    assert switch.intervals == 2
    assert switch.grid[1] * INTERVALS / 5 == pytest.approx(round(switch.grid[1] * INTERVALS / 5))


@pytest.mark.parametrize("sense", ["equal", "at most"])
def test_shapes_keep_the_mean_that_a_budget_allows(sense):
    problem = relaxation(ol.Budget("rate", mean=0.3, sense=sense))
    found = objectives(problem)
    assert ol.baselines(problem, INTERVALS)["best constant"]["rate"] == pytest.approx(0.3)
    assert min(found.values()) < found["best constant"]


def test_a_discrete_control_is_constant_or_switches_once():
    free = tasks({"task": ol.Discrete([0, 1])})
    found = ol.baselines(free, INTERVALS)
    assert list(found) == ["best constant", "best single switch"]
    assert found["best constant"].merged().intervals == 1
    costs = {
        (first, edge): ol.evaluate(
            free, ol.Schedule.piecewise([0, edge * 0.3, 6], {"task": [first, 1 - first]}), record=2
        ).objective
        for first in (0.0, 1.0)
        for edge in range(1, INTERVALS)
    }
    assert objectives(free)["best single switch"] == pytest.approx(min(costs.values()), rel=1e-9)


def test_budgets_say_when_to_switch_or_that_values_are_mixed():
    half = tasks({"task": ol.Discrete([0, 1])}, ol.Budget("task", mean=0.5))
    found = ol.baselines(half, INTERVALS)
    assert found["best single switch"].grid[1] == pytest.approx(3.0)
    assert found["best constant"].mixtures["task"].shares[0] == pytest.approx([0.5, 0.5])
    three = tasks({"task": ol.Discrete([0, 0.5, 1])}, ol.Budget("task", share={0.0: 0.3, 0.5: 0.4, 1.0: 0.3}))
    assert list(baselines_of(three)) == ["best constant"]
    stays = tasks({"task": ol.Discrete([0, 1], max_switches=0)})
    assert list(baselines_of(stays)) == ["best constant"]


@pytest.mark.slow
def test_several_controls_have_numbers_of_their_own():
    both = tasks({"rate": ol.Continuous(0, 1), "task": ol.Discrete([0, 1])})
    found = objectives(both)
    assert list(found) == SHAPES
    switch = ol.baselines(both, INTERVALS)["best single switch"]
    assert len(np.unique(switch["rate"])) == len(np.unique(switch["task"])) == 2
    # Here no line is better than the constant, so that they are equal up to round-off.
    assert found["best linear"] == pytest.approx(found["best constant"], rel=1e-9)
    assert found["best single switch"] < 0.2 * found["best constant"]


def test_baselines_of_its_own_come_first():
    mine = {"mine": lambda problem, intervals: ol.Schedule.constant(5, {"rate": 0.2})}
    assert list(baselines_of(relaxation(baselines=mine))) == ["mine"]


def test_what_runs_away_is_left_out_by_name():
    class Growing(ol.System):
        names = ("e",)
        parameters = {"rate": 0.5}  # noqa: RUF012

        def drift(self, x, u):
            return {"e": (1 + u["rate"]) * x["e"] ** 2}

        def error(self, x, u):
            return x["e"]

    rate = {"rate": ol.Continuous(0, 1)}
    problem = ol.Problem(model=Growing(), start={"e": 1.0}, horizon=5, controls=rate)
    with pytest.warns(UserWarning, match="'best .*' is left out: the dynamics run away"):
        assert ol.baselines(problem, 4) == {}


# --- what a comparison calls an optimum -----------------------------------------------------------


def line(problem, intervals):
    """Nearly the best."""
    falling = {"rate": lambda alpha: 0.73 - 0.5 * alpha / problem.horizon}
    return ol.Schedule.from_function(problem.horizon, falling, intervals)


def test_only_what_is_converged_and_not_beaten_is_an_optimum():
    problem = relaxation(intervals=INTERVALS, baselines={"line": line})
    solution = ol.solve(problem)
    good = ol.compare(problem, solution=solution)
    assert good.rows[0].name == "optimum"
    assert good.doubts == ()
    assert good.to_json()["doubts"] == []

    with pytest.warns(ol.NotConvergedWarning):
        stopped = ol.solve(replace(problem, baselines={}), method="direct", max_iterations=1, starts=1)
    stopped = replace(stopped, problem=problem)
    doubtful = ol.compare(problem, solution=stopped)
    assert "optimum" not in doubtful.schedules
    assert doubtful["solution"].objective == stopped.objective
    assert doubtful.rows[-1].solved
    assert "not converged" in doubtful.doubts[0]
    assert "is better by" in doubtful.doubts[1]
    for text in (str(doubtful), doubtful._repr_html_()):
        assert "may not be the optimum" in " ".join(text.split())

    # Converged, as it says itself, and yet beaten.
    claimed = replace(stopped, certificate=replace(stopped.certificate, converged=True, reasons=()))
    beaten = ol.compare(problem, solution=claimed)
    assert beaten["solution"].solved
    assert beaten.doubts[0].startswith("'line' is better by")


@pytest.mark.slow
def test_with_a_goal_schedules_are_compared_over_the_time_that_it_takes():
    problem = relaxation(intervals=INTERVALS, reach=0.12)
    found = ol.compare(problem)
    assert found.solution.problem.horizon < 5
    assert found.rows[0].name == "optimum"
    assert all(s.horizon == found.solution.problem.horizon for s in found.schedules.values())


def test_limits_on_switches_are_limits():
    problem = tasks({"task": ol.Discrete([0, 1], max_switches=1, min_dwell=2.0)})
    often = ol.Schedule.piecewise([0, 1, 2, 6], {"task": [0.0, 1.0, 0.0]})
    assert broken_limits(problem, often) == [
        "task changes 2 times, more than the 1 allowed",
        "task keeps a value for only 1; the minimum is 2",
    ]
    mixed = ol.Schedule.mixed([0, 6], {"task": {0.0: 0.5, 1.0: 0.5}})
    assert "mixed" in broken_limits(problem, mixed)[0]


def test_what_runs_away_is_no_baseline():
    rate = {"rate": ol.Continuous(0, 3, guess=0.3)}
    problem = ol.Problem(model=Runaway(), start={"e": 1.0, "q": 1.0}, horizon=4, controls=rate)
    fast, w = Rollout(compile_problem(problem), 6, 4), np.full((6, 1), 3.0)
    assert np.isnan(fast.objective(w, np.zeros(0)))
    assert np.isnan(fast.many(w[None], np.zeros(0))[0][0])
    assert list(objectives(problem)) == SHAPES  # each is integrated accurately
