from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

import optlearn as ol
from optlearn._control.compiled import Rollout, compile_problem
from optlearn._errors import BudgetError, SpecificationError, UnphysicalStateError
from optlearn._planning.replan import measured


@pytest.fixture
def solved(pull):
    return ol.solve(pull, method="direct", starts=1)


def test_the_rest_from_the_predicted_state_is_what_was_planned(solved):
    again = solved.replan(at=0.8, method="direct")
    assert again.certificate.converged
    assert again.schedule.intervals == 6
    np.testing.assert_allclose(again.full_schedule["force"], solved.schedule["force"], atol=1e-6)
    np.testing.assert_allclose(again.full_schedule.grid, solved.schedule.grid)
    np.testing.assert_array_equal(again.full_schedule["force"][:4], solved.schedule["force"][:4])
    whole = ol.evaluate(solved.problem, again.full_schedule).objective
    assert abs(whole - solved.objective) <= solved.certificate.may_still_be_won + 1e-9
    # And once more, counted from the beginning.
    third = again.replan(at=1.2, method="direct")
    np.testing.assert_allclose(third.full_schedule["force"], solved.schedule["force"], atol=1e-6)


def test_a_longer_run_is_a_fresh_solve_with_the_past_fixed(solved, pull):
    longer = solved.replan(at=1.0, horizon=3.0, method="direct")
    assert longer.full_schedule.horizon == pytest.approx(3.0)
    # The same by brute force: all controls of the long problem, of which the first five are given.
    compiled = compile_problem(replace(pull, horizon=3.0))
    rollout = Rollout(compiled, 15, solved.options["steps"])
    past = solved.schedule["force"][:5]

    def cost(rest):
        rolled = rollout.run(np.concatenate([past, rest])[:, None], np.zeros(0))
        return rolled.objective, rolled.gradient[5:, 0]

    tight = {"ftol": 1e-15, "gtol": 1e-10}
    found = minimize(cost, np.full(10, 0.4), jac=True, method="L-BFGS-B", bounds=[(0, 2)] * 10, options=tight)
    np.testing.assert_allclose(longer.full_schedule["force"][5:], found.x, atol=1e-5)
    assert cost(longer.full_schedule["force"][5:])[0] == pytest.approx(found.fun, abs=1e-10)
    shorter = solved.replan(at=1.0, horizon=1.4, method="direct")
    assert shorter.full_schedule.horizon == pytest.approx(1.4)


def test_a_measured_state_and_other_parameters_count(solved):
    ahead = solved.replan(at=1.0, state={"height": 1.1}, method="direct")
    flat = solved.replan(at=1.0, state=np.array([1.1]), method="direct")
    assert ahead.objective == pytest.approx(flat.objective, abs=1e-12)
    behind = solved.replan(at=1.0, state={"height": 0.0}, method="direct")
    assert behind.schedule["force"].mean() > ahead.schedule["force"].mean() + 0.3
    other = solved.replan(at=1.0, parameters={"target": 1.8}, method="direct")
    assert other.schedule["force"].mean() > solved.schedule["force"][5:].mean() + 0.2


def test_a_budget_holds_for_the_whole_of_training(pull):
    problem = replace(pull, budgets=(ol.Budget("force", mean=0.4),))
    solved = ol.solve(problem, method="direct", starts=1)
    again = solved.replan(at=1.0, parameters={"target": 2.0}, method="direct")
    assert again.full_schedule["force"].mean() == pytest.approx(0.4, abs=1e-9)
    rising = ol.solve(replace(pull, budgets=(ol.Budget("force", mean=1.0),)), method="direct", starts=1)
    with pytest.raises(BudgetError, match="infeasible budget: mean force"):
        rising.replan(at=1.8, horizon=1.82)


def test_a_curriculum_goes_on_as_planned():
    problem = ol.scenarios.curriculum(alpha_F=4.0)
    solved = ol.solve(problem, intervals=24, starts=2)
    again = solved.replan(at=2.0)
    np.testing.assert_array_equal(again.full_schedule["difficulty"][:12], solved.schedule["difficulty"][:12])
    assert np.mean(again.full_schedule["difficulty"] == 0.0) == pytest.approx(0.5)
    whole = ol.evaluate(problem, again.full_schedule).objective
    assert whole <= solved.objective + 1e-9


@pytest.mark.filterwarnings("ignore::optlearn._control.solution.NotConvergedWarning")
def test_a_budget_of_shares_holds_wherever_the_run_is():
    problem = ol.scenarios.curriculum(alpha_F=4.0)
    solved = ol.solve(problem, intervals=12, starts=1)
    # No few intervals from 1.09 on hold what is left of the shares: the plan is kept up to its next edge.
    for at, kept in ((1.09, 4 / 3), (2.59, 2.59)):
        again = solved.replan(at=at)
        whole = again.full_schedule
        assert again.past.horizon == pytest.approx(kept)
        assert problem.budgets[0].broken(whole) == []
        assert whole.horizon == pytest.approx(4.0)
        assert ol.evaluate(problem, whole).objective <= solved.objective + 1e-9
    longer = solved.replan(at=2.0, horizon=4.5)
    assert replace(problem, horizon=4.5).budgets[0].broken(longer.full_schedule) == []


@pytest.mark.filterwarnings("ignore::optlearn._control.solution.NotConvergedWarning")
def test_what_was_measured_counts_up_to_the_next_edge():
    solved = ol.solve(ol.scenarios.curriculum(alpha_F=4.0), intervals=12, starts=1)
    state = {"Q11": 1.0, "Q22": 0.5, "M11": 0.8}
    again = solved.replan(at=1.09, state=state)
    part = solved.schedule.between(1.09, 4 / 3)
    moved = ol.integrate(solved.problem.model, part, start=state)
    np.testing.assert_allclose(again.trajectory.states[0], moved.states[-1], rtol=1e-9)


@pytest.mark.parametrize(
    ("state", "lacks"),
    [({"Q11": 1.0}, "M11_1, M11_2"), (({"Q11": 1.0, "M11": 0.5}, {"Q11": 1.0}), "M11_2")],
)
def test_every_member_of_an_ensemble_must_be_measured(state, lacks):
    problem = ol.scenarios.learning_rate(K=1, M=1, alpha_F=1.0)
    robust = ol.robust(problem, {"sigma_n": [0.0, 0.3]})
    with pytest.raises(SpecificationError, match=f"Q11_1, M11_1, Q11_2, M11_2; it lacks {lacks}, got"):
        measured("replan", robust.model, state)
    flat = measured("replan", robust.model, {"Q11": 1.0, "M11": 0.5})
    np.testing.assert_array_equal(flat, [1.0, 0.5, 1.0, 0.5])


def test_accounts_must_be_known_as_well(pull):
    counted = ol.robust(pull, {"decay": [0.2, 0.4]}, risk="worst")
    with pytest.raises(SpecificationError, match="it lacks account1_1, elapsed_1"):
        measured("replan", counted.model, {"height": 1.0})
    state = ({"height": 1.0}, {"account": [0.1], "elapsed": 1.0})
    np.testing.assert_array_equal(measured("replan", counted.model, [state, state]), [1.0, 0.1, 1.0] * 2)


def test_free_parameters_of_the_end_can_still_be_chosen():
    solved = ol.solve(ol.scenarios.dropout(alpha_F=2.0), intervals=10, starts=1)
    again = solved.replan(at=1.0)
    assert set(again.problem.free) == {"rescaling"}
    assert again.objective == pytest.approx(solved.objective, abs=1e-7)


def test_the_past_is_in_the_file(solved, tmp_path):
    again = solved.replan(at=0.8, method="direct")
    loaded = ol.load(again.save(tmp_path / "again.nc"))
    assert loaded.full_schedule.to_dict() == again.full_schedule.to_dict()
    whole = ol.load(solved.save(tmp_path / "first.nc"), problem=solved.problem)
    assert whole.replan(at=0.8, method="direct").objective == pytest.approx(again.objective, abs=1e-9)


def test_what_cannot_be_planned(solved):
    for arguments, message in (
        ({"at": 2.5}, "at must be a training time from 0 to the horizon 2, got 2.5"),
        ({"at": -1}, "at must be a training time from 0"),
        ({"at": float("nan")}, "replan: at must be a finite number, got nan"),
        ({"at": "a"}, "replan: at must be a finite number, got 'a'"),
        ({"at": 1.0, "horizon": "b"}, "replan: horizon must be a finite number, got 'b'"),
        ({"at": 1.0, "state": np.ones(7)}, r"state must be 1 finite numbers \(height\)"),
        ({"at": 1.0, "state": {}}, "state must give all of height; it lacks height"),
        ({"at": 1.0, "state": {"height": 1.0, "width": 1.0}}, "no state 'width'"),
        ({"at": 2.0}, "horizon must be beyond at = 2, got 2"),
        ({"at": 1.0, "horizon": 0.5}, "horizon must be beyond at = 1, got 0.5"),
        ({"at": 1.0, "parameters": {"colour": 1}}, "no parameter 'colour'"),
    ):
        with pytest.raises(SpecificationError, match=message):
            solved.replan(**arguments)
    with pytest.raises(UnphysicalStateError, match="height = -2; it must be above -1"):
        solved.replan(at=1.0, state={"height": -2.0})
