"""The assembled Jacobian and Hessian equal CasADi's own derivatives of the same program."""

from typing import Any

import casadi
import numpy as np
import pytest

from optlearn import models
from optlearn._control.budgets import Budget
from optlearn._control.compiled import Rollout, compile_problem
from optlearn._control.controls import Continuous, Discrete, Free
from optlearn._control.objective import Objective
from optlearn._control.problem import Problem
from optlearn._control.solvers.shooting import shooting_program
from optlearn._engine.casadi import FLAT


def _cost(x: Any, u: Any) -> Any:
    return 0.02 * u["learning_rate"] ** 2 * (1 + x.Q[1, 1])


def curriculum(controls: dict[str, Any], **options: Any) -> Problem:
    model = models.curriculum()
    return Problem(
        model=model, start=model.state(Q11=1.0, Q22=1.0), horizon=3.0, controls=controls, **options
    )


def dropout(**options: Any) -> Problem:
    model = models.committee(K=2, M=1, sigma_n=0.3, dropout=True)
    return Problem(
        model=model,
        start=model.state(Q=0.1 * np.eye(2)),
        horizon=1.0,
        controls={"activation": Continuous(0, 1)},
        free={"rescaling": Free(0, 1), "learning_rate": Free(0.5, 2)},
        **options,
    )


TWO, THREE, RATE = Discrete((0.0, 2.0)), Discrete((0.0, 1.0, 2.0)), Continuous(0, 5)
PROBLEMS = {
    "plain": lambda: curriculum({"learning_rate": RATE}),
    "budget": lambda: curriculum({"difficulty": TWO}, budgets=(Budget("difficulty", share={0.0: 0.5}),)),
    "three values, two shares": lambda: curriculum(
        {"difficulty": THREE}, budgets=(Budget("difficulty", share={0.0: 0.4, 2.0: 0.3}),)
    ),
    "two controls, two budgets": lambda: curriculum(
        {"difficulty": THREE, "learning_rate": RATE},
        budgets=(
            Budget("learning_rate", mean=2.0, sense="at most"),
            Budget("difficulty", mean=0.9),
        ),
    ),
    "two discrete controls": lambda: curriculum(
        {"difficulty": THREE, "learning_rate": Discrete((1.0, 2.0, 4.0))}
    ),
    "free parameters": dropout,
    "free parameter in the drift": lambda: curriculum(
        {"difficulty": TWO}, free={"learning_rate": Free(0, 5), "weight_decay": Free(0, 1)}
    ),
    "running cost": lambda: curriculum(
        {"difficulty": TWO, "learning_rate": RATE},
        free={"weight_decay": Free(0, 1)},
        objective=Objective(final=0.3, average=1.0, cost=_cost, terminal=lambda x, u: x.M[0, 0]),
    ),
    "running cost alone": lambda: dropout(objective=Objective(final=0.0, average=1.0)),
}


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("name", PROBLEMS)
def test_derivatives_equal_those_of_casadi(name: str, steps: int) -> None:
    compiled = compile_problem(PROBLEMS[name]())
    program = shooting_program(compiled, 3, steps)
    z, p, f, g = (program.nlp[key] for key in ("x", "p", "f", "g"))
    rng = np.random.default_rng(0)
    n, m, k = compiled.sizes
    low, high = compiled.relaxation.bounds
    limits = list(compiled.problem.free.values())
    point = np.concatenate(
        [
            (compiled.start + 0.1 * rng.uniform(0.5, 1.0, (3, n))).ravel(),
            rng.uniform(low, high, (3, m)).ravel() * 0.5,
            [rng.uniform(free.lower, free.upper) for free in limits],
        ]
    )
    rows, targets, _ = compiled.relaxation.budget_rows
    numbers = np.concatenate([compiled.constants, compiled.start, [3.0], rows.ravel()])
    lam_f, lam_g = 0.7, rng.normal(size=g.shape[0])
    multipliers = casadi.MX.sym("lam_g", g.shape[0])
    weight = casadi.MX.sym("lam_f")
    lagrangian = weight * f + casadi.dot(multipliers, g)
    reference = casadi.Function(
        "reference",
        [z, p, weight, multipliers],
        [g, casadi.jacobian(g, z), casadi.hessian(lagrangian, z)[0]],
    )
    wanted_g, wanted_jacobian, wanted_hessian = (
        np.array(casadi.densify(v)) for v in reference(point, numbers, lam_f, lam_g)
    )
    found_g, found_jacobian = program.derivatives["jac_g"](point, numbers)
    np.testing.assert_allclose(np.array(found_g), wanted_g, rtol=0, atol=1e-13)
    jacobian = np.array(casadi.densify(found_jacobian))
    scale = max(1.0, np.abs(wanted_jacobian).max())
    np.testing.assert_allclose(jacobian, wanted_jacobian, rtol=0, atol=1e-12 * scale)
    upper = np.array(casadi.densify(program.derivatives["hess_lag"](point, numbers, lam_f, lam_g)))
    assert np.all(np.tril(upper, -1) == 0)
    hessian = np.triu(upper) + np.triu(upper, 1).T
    scale = max(1.0, np.abs(wanted_hessian).max())
    np.testing.assert_allclose(hessian, wanted_hessian, rtol=0, atol=1e-11 * scale)
    assert np.abs(wanted_hessian).max() > 1e-3
    assert g.shape[0] == 3 * n + len(targets) + 3 * len(compiled.relaxation.share_sums)
    assert z.shape[0] == 3 * (n + m) + k


def test_both_forms_of_the_interval_functions_are_covered() -> None:
    """Small drifts are expanded to one expression, large ones are called."""
    sizes = {
        steps * compile_problem(make()).engine.rate.n_instructions() > FLAT
        for make in PROBLEMS.values()
        for steps in (1, 2)
    }
    assert sizes == {True, False}


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_simulated_point_is_feasible_and_has_the_objective_of_the_sweep(name: str) -> None:
    compiled = compile_problem(PROBLEMS[name]())
    rng = np.random.default_rng(1)
    _, m, _ = compiled.sizes
    low, high = compiled.relaxation.bounds
    w = low + (high - low) * rng.uniform(0.1, 0.45, (4, m))
    theta = np.array([0.3 * f.lower + 0.7 * f.upper for f in compiled.problem.free.values()])
    value, states = Rollout(compiled, 4, 2).forward(w, theta)
    program = shooting_program(compiled, 4, 2)
    function = casadi.Function(
        "nlp", [program.nlp["x"], program.nlp["p"]], [program.nlp["f"], program.nlp["g"]]
    )
    rows, targets, _ = compiled.relaxation.budget_rows
    horizon = compiled.problem.horizon
    f, g = function(
        np.concatenate([states[2::2].ravel(), w.ravel(), theta]),
        np.concatenate([compiled.constants, compiled.start, [horizon], rows.ravel()]),
    )
    assert float(f) == pytest.approx(value, abs=1e-13)
    steps, means, sums = np.split(np.array(g).ravel(), np.cumsum([4 * len(compiled.start), len(targets)]))
    np.testing.assert_allclose(steps, 0.0, atol=1e-13)
    np.testing.assert_allclose(means, rows @ w.mean(axis=0), atol=1e-13)
    shares = (w @ compiled.relaxation.share_sums.T).ravel()
    np.testing.assert_allclose(sums, shares, atol=1e-13)
