"""What must hold all along training: state bounds, bounds that read controls, and what they cost."""

import warnings
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

import optlearn as ol
from optlearn._control.compiled import Rollout, compile_problem, weighing_on
from optlearn._control.weighing import Fixed, Penalised

KEPT = 1e-5  # share of a limit


class Cart(ol.System):
    names = ("place", "speed")
    parameters = {"push": 0.0, "drag": 0.0}  # noqa: RUF012

    def drift(self, x, u):
        return {"place": x["speed"], "speed": u["push"] - u["drag"] * x["speed"] ** 3}

    def error(self, x, u):
        return u["push"] ** 2 / 2


def ends(**values: float) -> tuple[ol.Limit, ...]:
    def final(name: str) -> ol.Objective:
        return ol.Objective(final=0.0, terminal=lambda x, u: x[name])

    return tuple(ol.Limit(final(name), equals=value) for name, value in values.items())


def bryson_denham(*paths: ol.Path, **changes) -> ol.Problem:
    """From (0, 1) to (0, −1) in a unit of time with the least effort."""
    given = {
        "model": Cart(),
        "start": {"place": 0.0, "speed": 1.0},
        "horizon": 1.0,
        "controls": {"push": ol.Continuous(-30.0, 30.0)},
        "objective": ol.Objective.average_error(),
        "limits": ends(place=0.0, speed=-1.0),
        "paths": paths,
        "intervals": 40,
    }
    return ol.Problem(**{**given, **changes})


def to_rest(*paths: ol.Path, **changes) -> ol.Problem:
    """From 1 to 0, at rest at both ends."""
    given = {"start": {"place": 1.0, "speed": 0.0}, "limits": ends(place=0.0, speed=0.0)}
    return bryson_denham(*paths, **{**given, **changes})


@contextmanager
def quiet():
    """Without warnings of what has not converged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ol.NotConvergedWarning)
        yield


# --- known answers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "intervals", "optimum", "price"),
    [
        # Bryson and Denham: 4/(9 l) with an arc on the limit, 2 + 6 (1 − 4 l)² where it is touched once.
        pytest.param(1 / 9, 400, 4.0, 36.0, marks=pytest.mark.slow),
        pytest.param(1 / 12, 400, 16 / 3, 64.0, marks=pytest.mark.slow),
        (1 / 5, 100, 2.24, 9.6),
    ],
)
def test_bryson_and_denham(limit, intervals, optimum, price) -> None:
    found = ol.solve(bryson_denham(ol.Path("place", at_most=limit), intervals=intervals))
    assert found.certificate.converged
    assert found.certificate.path_error <= KEPT
    assert found.objective == pytest.approx(optimum, abs=1e-4, rel=5e-5)
    assert found.trajectory["place"].max() == pytest.approx(limit, rel=1e-4)
    assert found.weights[-1] == pytest.approx(price, rel=2e-3)


def test_an_arc_on_a_limit_agrees_with_a_quadratic_program() -> None:
    intervals, limit = 24, 0.13
    h, places = 1 / intervals, np.arange(1, 2 * intervals + 1) / (2 * intervals)
    # Place and speed at the middle and the end of every interval, linear in the pushes.
    since = np.clip(places[:, None] - h * np.arange(intervals), 0.0, None)
    place = (since**2 - np.clip(since - h, 0.0, None) ** 2) / 2
    result = minimize(
        lambda u: (h * u @ u / 2, h * u),
        np.full(intervals, -2.0),
        jac=True,
        method="SLSQP",
        constraints=[
            {"type": "eq", "fun": lambda u: [1 + place[-1] @ u, 2 + h * u.sum()]},
            {"type": "ineq", "fun": lambda u: limit - places - place @ u, "jac": lambda u: -place},
        ],
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert result.success
    problem = bryson_denham(ol.Path("place", at_most=limit), intervals=intervals)
    with quiet():  # between these points the limit is broken a little
        found = ol.solve(problem, starts=1, steps=2)
    assert found.objective == pytest.approx(result.fun, rel=1e-6)
    np.testing.assert_allclose(found.schedule["push"], result.x, atol=1e-3)


def test_the_least_speed_has_an_arc_of_its_own() -> None:
    # u falls linearly to 0 over τ = 3/2 (1 − 1/V), where the speed is −V; by hand the effort is 4 V²/(3 τ).
    found = ol.solve(to_rest(ol.Path("speed", at_least=-1.2), intervals=160), starts=2)
    assert found.certificate.converged
    assert found.objective == pytest.approx(7.68, rel=3e-4)
    assert found.trajectory["speed"].min() == pytest.approx(-1.2, rel=1e-5)
    on_the_arc = np.abs(found.schedule["push"][48:112])
    assert on_the_arc.max() < 1e-3


@pytest.mark.parametrize("method", ["direct", pytest.param("indirect", marks=pytest.mark.slow)])
def test_a_bound_of_the_control_as_a_path_is_that_bound(method) -> None:
    both = ol.Path(lambda x, u: u["push"], at_most=5.0, at_least=-5.0, name="pushed")
    wanted = ol.solve(to_rest(controls={"push": ol.Continuous(-5.0, 5.0)}, intervals=20), starts=1)
    found = ol.solve(to_rest(both, intervals=20), starts=1, method=method)
    assert found.certificate.converged
    assert found.objective == pytest.approx(wanted.objective, rel=1e-6)


@pytest.mark.slow
def test_passes_find_the_same_arc() -> None:
    problem = bryson_denham(ol.Path("place", at_most=1 / 7), intervals=20)
    with quiet():
        direct, indirect = (ol.solve(problem, starts=1, steps=2, method=m) for m in ("direct", "indirect"))
    assert indirect.objective == pytest.approx(direct.objective, rel=1e-4)
    assert indirect.weights[-1] == pytest.approx(direct.weights[-1], rel=1e-2)


# --- derivatives ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["casadi", pytest.param("xla", marks=pytest.mark.slow)])
def test_gradients_of_what_is_weighed_along_the_way(backend) -> None:
    problem = bryson_denham(
        ol.Path(lambda x, u: x["place"] * u["push"] + u["drag"] * x["speed"] ** 2, at_most=1.0),
        ol.Path("speed", at_most=2.0, at_least=-2.0),
        free={"drag": ol.Free(0.0, 1.0)},
    )
    rollout = Rollout(compile_problem(problem, backend), 5, 2)
    rng = np.random.default_rng(3)
    w, theta = rng.standard_normal((5, 1)), np.array([0.3])
    weighing = weighing_on(rollout)
    # Three points in an interval of what reads the control, two of each side of the other.
    assert weighing.size == 3 + 5 * (3 + 2 * 2)
    rollout = rollout.weighted(Fixed(rng.standard_normal(weighing.size)))
    rolled, step = rollout.run(w, theta), 1e-6
    assert rolled.objective == pytest.approx(rollout.objective(w, theta))
    for i in range(5):
        change = step * np.eye(5)[:, i : i + 1]
        slope = (rollout.objective(w + change, theta) - rollout.objective(w - change, theta)) / (2 * step)
        assert rolled.gradient[i, 0] == pytest.approx(slope, rel=1e-6, abs=1e-8)
    slope = (rollout.objective(w, theta + step) - rollout.objective(w, theta - step)) / (2 * step)
    assert rolled.free_gradient[0] == pytest.approx(slope, rel=1e-6)


def test_a_price_on_broken_limits_has_a_gradient() -> None:
    problem = bryson_denham(ol.Path("place", at_most=0.1), limits=(ol.Limit(ol.Objective(), at_most=-1.0),))
    rollout = Rollout(compile_problem(problem), 4, 1)
    weighing = weighing_on(rollout)
    priced = Penalised(weighing, np.arange(1.0, 6.0))
    costs, step = np.array([0.3, 2.0, 0.05, 0.2, 0.3, 0.01]), 1e-6
    slopes = [(priced.value(costs + d) - priced.value(costs - d)) / (2 * step) for d in step * np.eye(6)]
    np.testing.assert_allclose(priced.weights(costs), slopes, atol=1e-8)
    assert priced.value(costs) > weighing.value(costs)


# --- evidence ---------------------------------------------------------------------------------------------


def test_what_is_broken_between_the_points_of_the_grid_is_told_or_mended() -> None:
    problem = bryson_denham(ol.Path("place", at_most=1 / 9), intervals=8)
    with pytest.warns(ol.NotConvergedWarning, match="a path is broken by .* only at the ends of steps"):
        coarse = ol.solve(problem, starts=1, steps=1)
    assert coarse.certificate.path_error > 1e-3
    assert coarse.trajectory.at(coarse.certificate.path_at)["place"] == pytest.approx(
        (1 + coarse.certificate.path_error) / 9, rel=1e-9
    )
    fine = ol.solve(problem, starts=1)
    assert fine.certificate.converged
    assert fine.certificate.path_error <= KEPT
    assert fine.options["steps"] > 2
    assert "path limit" in fine.summary()


@pytest.mark.slow
def test_a_path_out_of_reach_is_told() -> None:
    problem = to_rest(ol.Path("speed", at_least=-0.9), intervals=10)
    with pytest.warns(ol.NotConvergedWarning, match="that keeps this limit and all paths") as warned:
        ol.solve(problem, starts=1)
    assert "more starts" not in str(warned[0].message)  # which would not help


def test_pure_values_keep_a_path() -> None:
    class Tank(ol.System):
        names = ("level",)
        parameters = {"valve": 0.0}  # noqa: RUF012

        def drift(self, x, u):
            return {"level": u["valve"] - 0.5 * x["level"]}

        def error(self, x, u):
            return 1 - x["level"]

    problem = ol.Problem(
        model=Tank(),
        start={"level": 0.0},
        horizon=4.0,
        controls={"valve": ol.Discrete((0.0, 1.0))},
        objective=ol.Objective.average_error(),
        paths=(ol.Path("level", at_most=0.8),),
        intervals=20,
    )
    with pytest.warns(ol.NotConvergedWarning, match="the optimum mixes values"):
        found = ol.solve(problem, starts=1)
    assert set(found.schedule["valve"]) == {0.0, 1.0}
    assert found.certificate.path_error <= KEPT
    assert found.certificate.mixed_gap < 1e-5
    # On the limit a share of 0.4 holds the level. Whole intervals cannot; the simplest rule fills if it can.
    level, valve = 0.0, []
    for _ in range(20):
        filled = level * np.exp(-0.1) + 2 * (1 - np.exp(-0.1))
        valve.append(float(filled <= 0.8))
        level = filled if valve[-1] else level * np.exp(-0.1)
    rule = ol.evaluate(problem, ol.Schedule.piecewise(found.schedule.grid, {"valve": valve}))
    assert found.relaxed.objective < found.objective <= rule.objective + 1e-9


# --- everything around a solve ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def solved() -> ol.Solution:
    return ol.solve(bryson_denham(ol.Path("place", at_most=1 / 9)), starts=1)


def test_a_path_in_a_file(solved, tmp_path) -> None:
    solved.save(tmp_path / "s.nc")
    loaded = ol.load(tmp_path / "s.nc")
    assert loaded.certificate == solved.certificate
    assert loaded.weights == pytest.approx(solved.weights)
    loaded.plot()  # whose problem is not in the file
    with pytest.raises(ol.SpecificationError, match="place at most"):
        ol.load(tmp_path / "s.nc", problem=bryson_denham(ol.Path("place", at_most=0.2)))


def test_a_figure_has_a_line_at_the_limit(solved) -> None:
    drawn = {axes.get_ylabel(): axes for axes in solved.plot().axes}
    line = drawn["place"].get_lines()[-1]
    np.testing.assert_allclose(line.get_ydata(), 1 / 9)
    assert line.get_label() == "at most 0.111111"


def test_schedules_that_break_a_path_or_a_limit_are_marked(solved) -> None:
    still = ol.Schedule.constant(1.0, {"push": 0.0})
    comparison = ol.compare(solved.problem, {"still": still}, solution=solved)
    assert comparison["optimum"].budgets_met
    note = comparison["still"].note
    assert "place is 1 at α = 1, at most 0.111111 is allowed" in note
    assert "1 at the end; it must be exactly -1" in note
    assert not comparison["still"].budgets_met


def test_the_rest_of_training_keeps_the_path(solved) -> None:
    rest = solved.replan(at=0.4)
    assert rest.certificate.converged
    assert rest.objective == pytest.approx(solved.objective / 2, rel=2e-3)  # effort is spent at both ends
    with pytest.raises(ol.SpecificationError, match=r"it is 0\.3 at the start"):
        solved.replan(at=0.4, state={"place": 0.3, "speed": 0.0})
    with pytest.raises(ol.SpecificationError, match="feedback would break place at most"):
        solved.feedback()


@pytest.mark.slow
def test_a_bound_without_the_path_is_a_bound_with_it() -> None:
    plain = bryson_denham(limits=(), objective=ol.Objective(final=0.0, terminal=lambda x, u: x["speed"]))
    limited = replace(plain, paths=(ol.Path("speed", at_least=-3.0),), intervals=10)
    value = ol.bound(limited, "hjb", times=2, nodes=4).value
    assert value == ol.bound(plain, "hjb", times=2, nodes=4).value
    assert value == pytest.approx(1 - 30, rel=1e-6)
    assert ol.solve(limited, starts=1).objective == pytest.approx(-3.0, rel=1e-4)


def test_what_a_path_limits_is_in_the_trajectory() -> None:
    problem = bryson_denham(ol.Path(lambda x, u: x["place"] ** 2, at_most=4.0, name="squared"))
    run = ol.evaluate(problem, ol.Schedule.constant(1.0, {"push": 0.5}))
    np.testing.assert_allclose(run["squared"], run["place"] ** 2)


def test_a_batch_refuses_paths() -> None:
    with pytest.raises(ol.SpecificationError, match="limits or paths"):
        ol.sweeps.sweep(
            lambda limit: bryson_denham(ol.Path("place", at_most=limit), limits=()),
            {"limit": [0.2, 0.3]},
            executor="batched",
        )


def test_an_objective_may_be_limited_all_along() -> None:
    problem = ol.scenarios.curriculum(alpha_F=2.0)
    start = float(ol.evaluate(problem, problem.baselines["curriculum"](problem, 4)).values["error"][0])
    limited = replace(problem, paths=(ol.Path(ol.Objective(), at_most=start + 0.1, name="all along"),))
    run = ol.evaluate(limited, problem.baselines["curriculum"](problem, 4))
    np.testing.assert_allclose(run["all along"], run["error"])


# --- wrong calls ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"quantity": "place"}, "give at_most, at_least or both"),
        ({"quantity": "place", "at_most": 0.0, "at_least": 0.0}, "at_least must be below at_most"),
        ({"quantity": 3.0, "at_most": 1.0}, "quantity must be text, an Objective or a function"),
        ({"quantity": ol.Objective.average_error(), "at_most": 1.0}, "averaged or integrated over training"),
        ({"quantity": "plce", "at_most": 1.0}, "quantity must be one of place, speed, error"),
        ({"quantity": lambda x, u: x["plce"], "at_most": 1.0}, r"x\['plce'\] does not exist"),
        ({"quantity": lambda x, u: u["pull"], "at_most": 1.0}, r"u\['pull'\] does not exist"),
        ({"quantity": lambda x: x["place"], "at_most": 1.0}, "Path 'path' fails with TypeError"),
        ({"quantity": lambda x, u: np.ones(2), "at_most": 2.0}, r"one number at each time, got shape \(2,\)"),
        ({"quantity": "speed", "at_most": 0.5}, "it is 1 at the start, which no schedule changes"),
        ({"quantity": lambda x, u: x["speed"], "name": "place", "at_most": 9.0}, "is taken: give this path"),
    ],
)
def test_a_wrong_path_is_told_at_once(wrong, message) -> None:
    with pytest.raises(ol.SpecificationError, match=message):
        bryson_denham(ol.Path(**wrong))


# --- continual learning -----------------------------------------------------------------------------------


def test_steady_replay_keeps_the_limit_of_forgetting() -> None:
    problem = ol.scenarios.task_order(forgetting_limit=0.02, alpha_F=3.0)
    run = ol.evaluate(problem, problem.baselines["steady replay"](problem, 10))
    assert 0.0199 < run["error1"].max() <= 0.02
    with pytest.raises(ol.SpecificationError, match=r"error1 at most 0\.0002 is required"):
        ol.scenarios.task_order(forgetting_limit=2e-4)


@pytest.mark.slow
def test_less_forgetting_costs_more() -> None:
    limits, found = (0.02, 0.01), []
    for limit in limits:
        solution = ol.solve(ol.scenarios.task_order(forgetting_limit=limit), starts=1)
        assert solution.certificate.converged
        assert solution.trajectory["error1"].max() <= limit * (1 + KEPT)
        found.append(solution)
    free = 0.020379  # without a limit, where the old task's error rises to 0.035
    assert free < found[0].objective < found[1].objective
    # The price is a derivative, and the objective convex in the limit here.
    slopes = [solution.weights[-1] for solution in found]
    drop = (found[1].objective - found[0].objective) / (limits[0] - limits[1])
    assert slopes[0] < drop < slopes[1]


def test_a_limited_scenario_comes_back_from_its_file(tmp_path) -> None:
    problem = ol.scenarios.task_order(forgetting_limit=0.02, alpha_F=1.0)
    with quiet():
        ol.solve(problem, method="greedy", intervals=2).save(tmp_path / "s.nc")
    assert ol.load(tmp_path / "s.nc").problem.paths == problem.paths
