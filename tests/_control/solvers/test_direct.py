"""The direct method: outcomes, costates, fixed controls, and runs that end early."""

from typing import Any

import numpy as np
import pytest

from optlearn import models
from optlearn._control.budgets import Budget
from optlearn._control.compiled import CompiledProblem, Rollout, compile_problem
from optlearn._control.controls import Continuous, Discrete, Free
from optlearn._control.objective import Objective
from optlearn._control.problem import Problem
from optlearn._control.runs import _IPOPT, Outcome, Run, Start, from_ipopt
from optlearn._control.solvers.direct import Direct

# IPOPT's ApplicationReturnStatus, from its own header (IpReturnCodes.inc).
STATUSES = {
    "Solve_Succeeded": Outcome.SOLVED,
    "Solved_To_Acceptable_Level": Outcome.ACCEPTABLE,
    "Infeasible_Problem_Detected": Outcome.INFEASIBLE,
    "Search_Direction_Becomes_Too_Small": Outcome.STALLED,
    "Diverging_Iterates": Outcome.DIVERGED,
    "User_Requested_Stop": Outcome.INTERRUPTED,
    "Feasible_Point_Found": Outcome.STALLED,
    "Maximum_Iterations_Exceeded": Outcome.ITERATIONS,
    "Restoration_Failed": Outcome.STALLED,
    "Error_In_Step_Computation": Outcome.STALLED,
    "Maximum_CpuTime_Exceeded": Outcome.ITERATIONS,
    "Maximum_WallTime_Exceeded": Outcome.ITERATIONS,
    "Not_Enough_Degrees_Of_Freedom": Outcome.INFEASIBLE,
    "Invalid_Problem_Definition": Outcome.FAILED,
    "Invalid_Option": Outcome.FAILED,
    "Invalid_Number_Detected": Outcome.INVALID,
    "Unrecoverable_Exception": Outcome.FAILED,
    "NonIpopt_Exception_Thrown": Outcome.FAILED,
    "Insufficient_Memory": Outcome.FAILED,
    "Internal_Error": Outcome.FAILED,
}


def solve_direct(
    compiled: CompiledProblem, w: np.ndarray, theta: np.ndarray, *, steps: int = 1, **options: Any
) -> Run:
    return Direct(**options).shoot(Rollout(compiled, len(w), steps), Start("test", w, theta))


@pytest.mark.parametrize("status", STATUSES)
def test_every_status_of_ipopt_has_an_outcome(status: str) -> None:
    assert from_ipopt(status) is STATUSES[status]


def test_outcomes_are_advice() -> None:
    assert set(_IPOPT) <= set(STATUSES)
    assert from_ipopt("a status of the future") is Outcome.FAILED
    assert [o for o in Outcome if o.ok] == [Outcome.SOLVED, Outcome.ACCEPTABLE]
    for outcome in Outcome:
        assert outcome is Outcome.SOLVED or len(outcome.value.split()) > 8


def curriculum(controls: dict[str, Any], **options: Any) -> Problem:
    model = models.curriculum()
    start = model.state(Q11=1.0, Q22=1.0)
    return Problem(model=model, start=start, horizon=12.0, controls=controls, **options)


HALF_EASY = Budget("difficulty", share={0.0: 0.5})
EASY_OR_HARD = Discrete((0.0, 2.0))
NONE = np.zeros(0)


def test_costates_are_those_of_the_sweep(direct_case: Any, direct_solution: Any) -> None:
    if direct_case.intervals > 120 or "K=4" in direct_case.name:
        pytest.skip("long, and like a shorter case")
    found = direct_solution(direct_case)
    assert found.outcome is Outcome.SOLVED
    rolled = Rollout(direct_case.compiled(), direct_case.intervals).run(found.w, found.theta)
    assert found.objective == pytest.approx(rolled.objective, abs=1e-8)
    scale = np.abs(rolled.costates).max()
    # A squared norm on its bound, zero, has a multiplier of its own, which the sweep cannot know.
    inside = np.all(rolled.states[1:] > 1e-6, axis=1) if "free" in direct_case.name else slice(None)
    np.testing.assert_allclose(found.costates[inside], rolled.costates[1:][inside], atol=2e-6 * scale)


def test_multiplier_is_the_price_of_the_budget() -> None:
    """−ν is the derivative of the optimum with respect to the budget's target."""

    def optimum(share: float) -> Any:
        budget = Budget("difficulty", share={0.0: share})
        compiled = compile_problem(curriculum({"difficulty": EASY_OR_HARD}, budgets=(budget,)))
        return solve_direct(compiled, np.full((24, 1), share), NONE)

    price = (optimum(0.505).objective - optimum(0.495).objective) / 0.01
    assert price < -0.01
    assert optimum(0.5).budget_multipliers == pytest.approx(np.array([-price]), rel=1e-3)


def test_fixed_shares_stay_and_the_rest_is_optimised() -> None:
    problem = curriculum(
        {"difficulty": EASY_OR_HARD, "learning_rate": Continuous(0, 10)},
        budgets=(HALF_EASY,),
        free={"weight_decay": Free(0, 1, guess=0.1)},
    )
    compiled = compile_problem(problem)
    easy = np.repeat([1.0, 0.0, 1.0, 0.0], 6)
    w = np.column_stack([np.full(24, 3.0), easy])
    rollout = Rollout(compiled, 24)
    fixed = np.array([False, True])
    found = solve_direct(compiled, w, np.array([0.1]), fixed=fixed)
    assert found.outcome is Outcome.SOLVED
    np.testing.assert_array_equal(found.w[:, 1], easy)
    assert found.objective < rollout.objective(w, np.array([0.1])) - 1e-3
    # No learning rate is better on its own.
    gradient = rollout.run(found.w, found.theta).gradient[:, 0]
    inside = (found.w[:, 0] > 1e-3) & (found.w[:, 0] < 10 - 1e-3)
    assert inside.sum() > 12
    np.testing.assert_allclose(gradient[inside], 0.0, atol=1e-7)


def test_free_parameters_of_a_fixed_schedule_are_optimised(capfd: Any) -> None:
    """Budgets of fixed controls must not use up degrees of freedom: two rows, one parameter."""
    problem = curriculum(
        {"difficulty": Discrete((0.0, 1.0, 2.0))},
        budgets=(Budget("difficulty", share={0.0: 0.25, 1.0: 0.25}),),
        free={"learning_rate": Free(0.5, 8)},
    )
    compiled = compile_problem(problem)
    levels = np.repeat([0, 1, 2, 2], 6)
    w = np.eye(3)[levels][:, :2]
    found = solve_direct(compiled, w, np.array([6.0]), fixed=np.ones(2, dtype=bool))
    assert found.outcome is Outcome.SOLVED
    np.testing.assert_array_equal(found.w, w)
    rollout = Rollout(compiled, 24)
    rates = np.linspace(0.5, 8, 76)
    values = [rollout.objective(w, np.array([rate])) for rate in rates]
    assert found.theta[0] == pytest.approx(rates[int(np.argmin(values))], abs=0.11)
    assert found.objective <= min(values) + 1e-9
    assert "overconstrained" not in "".join(capfd.readouterr())


@pytest.mark.parametrize("steps", [1, 3])
def test_steps_refine_the_integration_only(steps: int) -> None:
    compiled = compile_problem(curriculum({"difficulty": EASY_OR_HARD}, budgets=(HALF_EASY,)))
    found = solve_direct(compiled, np.full((24, 1), 0.5), NONE, steps=steps)
    assert found.w.shape == (24, 1)
    assert found.costates.shape == (24, 3)
    rolled = Rollout(compiled, 24, steps).run(found.w, NONE)
    assert found.objective == pytest.approx(rolled.objective, abs=1e-9)
    np.testing.assert_allclose(found.costates, rolled.costates[steps::steps], atol=1e-6)


def test_iteration_limit_gives_a_usable_result() -> None:
    compiled = compile_problem(curriculum({"difficulty": EASY_OR_HARD}, budgets=(HALF_EASY,)))
    found = solve_direct(compiled, np.full((24, 1), 0.5), NONE, max_iterations=1)
    assert found.outcome is Outcome.ITERATIONS
    assert found.iterations == 1
    assert found.w.shape == (24, 1)
    assert np.all((found.w >= 0) & (found.w <= 1))
    assert np.isfinite(Rollout(compiled, 24).objective(found.w, found.theta))
    assert np.isfinite(found.objective)


def test_contradictory_budgets_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Budgets that no schedule meets, smuggled past the check of the problem."""
    compiled = compile_problem(curriculum({"difficulty": EASY_OR_HARD}, budgets=(HALF_EASY,)))
    impossible = compiled.relaxation.budget_rows._replace(targets=np.array([1.5]))
    monkeypatch.setitem(compiled.relaxation.__dict__, "budget_rows", impossible)
    found = solve_direct(compiled, np.full((24, 1), 0.5), NONE)
    assert found.outcome is Outcome.INFEASIBLE
    assert np.all((found.w >= 0) & (found.w <= 1))


class _Broken:
    """A solver that returns what is not a number."""

    def __call__(self, x0: np.ndarray, lbg: np.ndarray, **_: Any) -> dict[str, Any]:
        return {
            "x": np.full(len(x0), np.nan),
            "lam_g": np.full(len(lbg), np.nan),
            "f": np.array([[np.nan]]).item(),
        }

    def stats(self) -> dict[str, Any]:
        return {"return_status": "Invalid_Number_Detected", "iter_count": 3}


def test_a_failed_run_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compile_problem(
        curriculum(
            {"difficulty": EASY_OR_HARD},
            budgets=(HALF_EASY,),
            free={"learning_rate": Free(1, 5)},
        )
    )
    monkeypatch.setattr(Direct, "_ipopt", lambda *arguments: _Broken())
    w = np.linspace(0, 1, 24)[:, None]
    found = solve_direct(compiled, w, np.array([2.5]))
    assert found.outcome is Outcome.INVALID
    np.testing.assert_array_equal(found.w, w)
    np.testing.assert_array_equal(found.theta, [2.5])


def test_a_start_on_the_bounds_is_no_obstacle() -> None:
    compiled = compile_problem(curriculum({"difficulty": EASY_OR_HARD}, budgets=(HALF_EASY,)))
    from_middle = solve_direct(compiled, np.full((24, 1), 0.5), NONE)
    from_bounds = solve_direct(compiled, np.repeat([1.0, 0.0], 12)[:, None], NONE)
    assert from_bounds.outcome is Outcome.SOLVED
    assert from_bounds.objective == pytest.approx(from_middle.objective, abs=1e-9)


def test_running_cost_alone_is_minimised_pointwise() -> None:
    """∫ (η − a)² has its minimum where the learning rate is a, whatever the dynamics."""
    objective = Objective(final=0.0, cost=lambda x, u: (u["learning_rate"] - 2.5) ** 2)
    compiled = compile_problem(curriculum({"learning_rate": Continuous(0, 5)}, objective=objective))
    found = solve_direct(compiled, np.full((12, 1), 1.0), NONE)
    assert found.outcome is Outcome.SOLVED
    np.testing.assert_allclose(found.w, 2.5, atol=1e-6)
    assert found.objective == pytest.approx(0.0, abs=1e-12)
