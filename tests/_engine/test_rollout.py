"""Sweeps: the objective against the accurate integrator, gradients against finite differences."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from optlearn import models
from optlearn._control.compiled import CompiledProblem, Rollout, compile_problem
from optlearn._control.controls import Continuous, Discrete, Free
from optlearn._control.objective import Objective
from optlearn._control.problem import Problem
from optlearn._engine.integrate import integrate
from optlearn._engine.rollout import LANES


def _cost(x: Any, u: Any) -> Any:
    return 0.02 * u["learning_rate"] ** 2 + 0.1 * x.Q[1, 1]


OBJECTIVES = {
    "final": Objective(),
    "average": Objective(final=0.0, average=1.0),
    "cost": Objective(final=0.0, cost=_cost),
    "all": Objective(final=0.5, average=2.0, cost=_cost, terminal=lambda x, u: 0.003 * x.Q[0, 0] ** 2),
}


def curriculum(objective: Objective) -> Problem:
    """Three difficulties, a learning rate and a free weight decay."""
    model = models.curriculum()
    return Problem(
        model=model,
        start=model.state(Q11=1.0, Q22=1.0),
        horizon=6.0,
        controls={"difficulty": Discrete((0.0, 1.0, 2.0)), "learning_rate": Continuous(0, 5)},
        free={"weight_decay": Free(0, 1)},
        objective=objective,
    )


def uneven(intervals: int, horizon: float) -> np.ndarray:
    """Edges whose intervals differ in length by a factor of three."""
    lengths = 1.0 + 2.0 * np.arange(intervals) / intervals
    return horizon * np.concatenate([[0.0], np.cumsum(lengths) / lengths.sum()])


def controls(intervals: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    rate = rng.uniform(1.0, 4.0, intervals)
    return np.column_stack([rate, rng.dirichlet(np.ones(3), intervals)[:, :2]]), np.array([0.2])


def accurate(compiled: CompiledProblem, grid: np.ndarray, w: np.ndarray, theta: np.ndarray) -> float:
    """The objective by the adaptive integrator and Simpson's rule on a dense record."""
    problem = compiled.problem
    schedule = compiled.relaxation.schedule(w, {})
    schedule = type(schedule)(grid, schedule.values, schedule.mixtures)
    parameters = dict(zip(problem.free, theta, strict=True))
    per = 32
    times = np.unique(np.concatenate([np.linspace(a, b, per + 1) for a, b in pairwise(grid)]))
    path = integrate(problem.model, schedule, start=problem.start, parameters=parameters, record=times)
    objective, states = problem.objective, path.states
    u = problem.settings | parameters
    at = problem.model.layout.unflatten
    total = objective.final * path["error"][-1]
    if objective.terminal is not None:
        total += objective.terminal(at(states[-1]), u)
    weights = np.tile([2.0, 4.0], per // 2)
    weights = np.append(weights, 1.0)
    weights[0] = 1.0
    for i, (a, b) in enumerate(pairwise(grid)):
        part = slice(i * per, (i + 1) * per + 1)
        values = objective.average * path["error"][part]
        if objective.cost is not None:
            at_rate = {**u, "learning_rate": w[i, 0]}
            values = values + [objective.cost(at(x), at_rate) for x in states[part]]
        total += (b - a) / per / 3 * (weights @ values) / problem.horizon
    return float(total)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("grid", ["equal", "uneven"])
def test_objective_equals_the_accurate_one(objective: str, grid: str) -> None:
    compiled = compile_problem(curriculum(OBJECTIVES[objective]))
    edges = np.linspace(0, 6.0, 9) if grid == "equal" else uneven(8, 6.0)
    w, theta = controls(8)
    rollout = Rollout(compiled, 8 if grid == "equal" else edges, 12)
    value, states = rollout.forward(w, theta)
    wanted = accurate(compiled, edges, w, theta)
    assert value == pytest.approx(wanted, abs=3e-8)
    assert rollout.objective(w, theta) == value
    assert states.shape == (97, 3)
    np.testing.assert_array_equal(states[0], compiled.start)
    # Fourth order: twice the steps leave a sixteenth of the error.
    errors = [abs(Rollout(compiled, edges, s).objective(w, theta) - wanted) for s in (3, 6)]
    assert 8 < errors[0] / errors[1] < 32


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("steps", [1, 3])
def test_gradients_equal_finite_differences(objective: str, steps: int) -> None:
    compiled = compile_problem(curriculum(OBJECTIVES[objective]))
    rollout = Rollout(compiled, uneven(6, 6.0), steps)
    w, theta = controls(6)
    rolled = rollout.run(w, theta)
    assert rolled.objective == rollout.objective(w, theta)
    assert rolled.gradient.shape == w.shape
    for place in np.ndindex(*w.shape):
        assert rolled.gradient[place] == pytest.approx(
            _difference(lambda v: rollout.objective(v, theta), w, place), abs=2e-9
        )
    free = _difference(lambda v: rollout.objective(w, v), theta, (0,))
    assert rolled.free_gradient == pytest.approx(np.array([free]), abs=2e-9)
    assert np.abs(rolled.gradient).max() > 1e-4


def _difference(function: Any, at: np.ndarray, place: tuple[int, ...], h: float = 1e-3) -> float:
    """Fourth-order central difference."""
    values = []
    for shift in (-2, -1, 1, 2):
        moved = at.copy()
        moved[place] += shift * h
        values.append(function(moved))
    return float(np.dot(values, [1, -8, 8, -1]) / (12 * h))


def test_costates_are_derivatives_with_respect_to_the_state() -> None:
    problem = curriculum(OBJECTIVES["all"])
    compiled = compile_problem(problem)
    w, theta = controls(6)
    grid = uneven(6, 6.0)
    rolled = Rollout(compiled, grid, 2).run(w, theta)
    assert rolled.costates.shape == (13, 3)

    # Training that begins in the middle, from a state that is moved a little.
    def rest(x: np.ndarray) -> float:
        state = x
        total = 0.0
        for i in range(3, 6):
            for _ in range(2):
                state, cost = compiled.engine.step(
                    compiled.constants, state, w[i], theta, (grid[i + 1] - grid[i]) / 2
                )
                total += float(cost)
        return total + float(compiled.engine.final(compiled.constants, state, theta))

    for i in range(3):
        wanted = _difference(rest, rolled.states[6], (i,))
        assert rolled.costates[6, i] == pytest.approx(wanted, abs=1e-8)


def test_free_parameters_in_the_final_cost_alone() -> None:
    model = models.committee(K=2, M=1, sigma_n=0.3, dropout=True)
    problem = Problem(
        model=model,
        start=model.state(),
        horizon=2.0,
        controls={"activation": Continuous(0, 1)},
        free={"rescaling": Free(0, 1)},
    )
    rollout = Rollout(compile_problem(problem), 5, 2)
    w, theta = np.linspace(1.0, 0.5, 5)[:, None], np.array([0.6])
    rolled = rollout.run(w, theta)
    wanted = _difference(lambda v: rollout.objective(w, v), theta, (0,))
    assert rolled.free_gradient[0] == pytest.approx(wanted, abs=1e-10)
    assert abs(wanted) > 1e-3


def test_a_known_forward_pass_is_not_needed_again():
    compiled = compile_problem(curriculum(OBJECTIVES["all"]))
    rollout = Rollout(compiled, 6, 2)
    w, theta = np.random.default_rng(0).uniform(0.1, 0.4, (6, compiled.sizes[1])), np.array([0.2])
    whole, half = rollout.run(w, theta), Rollout(compiled, 6, 2).run(w, theta, rollout.forward(w, theta))
    for name, value in vars(whole).items():
        np.testing.assert_array_equal(value, getattr(half, name), err_msg=name)


def test_passes_that_are_kept_are_those_of_their_steps_and_controls():
    compiled = compile_problem(curriculum(OBJECTIVES["all"]))
    rollout = Rollout(compiled, 6, 2)
    w, theta = np.random.default_rng(0).uniform(0.1, 0.4, (6, compiled.sizes[1])), np.array([0.2])
    first = rollout.run(w, theta)
    assert rollout.run(w, theta) is first
    for other in (
        rollout.with_steps(4).run(w, theta),
        rollout.run(0.9 * w, theta),
        rollout.run(w, theta + 0.1),
    ):
        assert other.objective != first.objective
    for steps, again in ((2, rollout.run(w, theta)), (4, rollout.with_steps(4).run(w, theta))):
        np.testing.assert_array_equal(again.gradient, Rollout(compiled, 6, steps).run(w, theta).gradient)


@pytest.mark.parametrize("backend", ["casadi", "xla"])
def test_many_controls_at_once_are_as_one_by_one(backend):
    problem = curriculum(OBJECTIVES["cost"])
    compiled = compile_problem(problem, backend)
    rollout, theta = Rollout(compiled, 3, 2), np.array([0.3])
    w = np.random.default_rng(0).uniform(0, 0.5, size=(LANES + 3, 3, compiled.relaxation.size))
    objectives, gradients = rollout.many(w, theta)
    for i in (0, LANES - 1, LANES, LANES + 2):
        one = rollout.run(w[i], theta)
        assert objectives[i] == pytest.approx(one.objective, rel=1e-13)
        assert gradients[i] == pytest.approx(one.gradient, rel=1e-11, abs=1e-14)
