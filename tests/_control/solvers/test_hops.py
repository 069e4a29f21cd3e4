"""Hops: brief descents from beside the best run, where scouts would cost too much."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import pytest

import optlearn as ol
from optlearn._control.certificate import agreement
from optlearn._control.compiled import Rollout, compile_problem
from optlearn._control.runs import Start
from optlearn._control.solvers.descent import Descent
from optlearn._control.solvers.hops import Hop, Hops
from optlearn._control.solvers.indirect import Indirect

THETA = np.zeros(0)
INTERVALS = 8


class EarlyOrNever(ol.System):
    """What is done in the first quarter decides between two wells, the deeper of which asks for nothing."""

    names = ("clock", "early", "late")
    parameters: ClassVar = {"push": 0.5}

    def drift(self, x, u):
        first = jnp.where(x["clock"] < 0.25, 1.0, 0.0)
        return {"clock": 1.0, "early": 4 * first * u["push"], "late": (1 - first) * u["push"]}

    def error(self, x, u):
        wells = ((x["early"] - 0.8) * (x["early"] - 0.05)) ** 2
        return 1 + wells + 0.05 * x["early"] + (x["late"] - 0.4) ** 2


def early_or_never() -> ol.Problem:
    return ol.Problem(
        model=EarlyOrNever(),
        start={"clock": 0.0, "early": 0.0, "late": 0.0},
        horizon=1.0,
        controls={"push": ol.Continuous(0, 1)},
        intervals=INTERVALS,
    )


def briefly(passes: Rollout, start: Start) -> Descent:
    return Descent(passes, start, 200, 1e-4)


def test_a_hop_finds_the_deeper_well_and_the_others_come_back():
    rollout = Rollout(compile_problem(early_or_never()), INTERVALS, 4)
    start = Start("high", np.full((INTERVALS, 1), 0.8), THETA, local=True)
    best = Indirect().run(rollout, start)
    early = np.linspace(0, 1, 10_001)
    costs = 1 + ((early - 0.8) * (early - 0.05)) ** 2 + 0.05 * early
    assert best.objective == pytest.approx(costs[early > 0.5].min(), abs=1e-6)
    beside_best = Hops(rollout, best, briefly)
    found = beside_best.starts()
    assert [hop.name for hop, _ in found] == ["push lower first 2"]
    (_, beside), *_ = found
    assert Indirect().run(rollout, beside).objective == pytest.approx(costs.min(), abs=1e-6)
    # Another length confirms it.
    (hop, _), *_ = found
    for other in hop.others(INTERVALS):
        again = beside_best.start(other)
        assert Indirect().run(rollout, again).objective == pytest.approx(costs.min(), abs=1e-6)


def test_a_hop_to_nowhere_is_no_start():
    """Held at a bound from which training runs away."""

    class RunsAway(ol.System):
        names = ("x",)
        parameters: ClassVar = {"gain": 0.1}

        def drift(self, x, u):
            return {"x": 40 * jnp.exp(u["gain"] * x["x"]) * u["gain"] ** 2}

        def error(self, x, u):
            return (x["x"] - 1) ** 2

    problem = ol.Problem(
        model=RunsAway(), start={"x": 0.0}, horizon=1.0, controls={"gain": ol.Continuous(0, 8)}, intervals=8
    )
    rollout = Rollout(compile_problem(problem), INTERVALS, 4)
    best = Indirect().run(rollout, Start("low", np.full((INTERVALS, 1), 0.1), THETA, local=True))
    assert Hops(rollout, best, briefly).start(Hop("up", 0, slice(0, 2), 8.0)) is None


def test_where_there_is_one_well_every_hop_comes_back():
    problem = early_or_never()
    rollout = Rollout(compile_problem(problem), INTERVALS, 4)
    deepest = Indirect().run(rollout, Start("low", np.full((INTERVALS, 1), 0.1), THETA, local=True))
    found = Hops(rollout, deepest, briefly).starts()
    ends = [Indirect().run(rollout, start).objective for _, start in found]
    assert all(end >= deepest.objective - agreement(deepest.objective) for end in ends)


def test_a_tilt_is_part_of_objective_and_gradient():
    rollout = Rollout(compile_problem(early_or_never()), INTERVALS, 4)
    rng = np.random.default_rng(0)
    w, tilt = rng.uniform(0.2, 0.9, (INTERVALS, 1)), rng.normal(size=(INTERVALS, 1))
    tilted, plain = rollout.tilted(tilt, THETA), rollout.run(w, THETA)
    rolled = tilted.run(w, THETA)
    assert rolled.objective == pytest.approx(plain.objective + np.sum(tilt * w))
    assert rolled.gradient == pytest.approx(plain.gradient + tilt)
    assert rollout.run(w, THETA).gradient == pytest.approx(plain.gradient)  # which is not tilted itself


def test_a_step_goes_farther_where_it_wins_nearly_all_that_its_slope_promises():
    rollout = Rollout(compile_problem(early_or_never()), INTERVALS, 4)
    won = {}
    for farther in (False, True):
        descent = Descent(rollout, Start("low", np.full((INTERVALS, 1), 0.2), THETA), 100, 1e-6)
        before, gradient = descent.point.objective, descent.feasible.gradient(descent.point.rolled)
        descent._search(-1e-3 * gradient, 1.0, farther=farther)
        won[farther] = before - descent.point.objective
        assert descent.iterations == 2  # looks ahead are no passes
    assert won[True] > 20 * won[False] > 0
