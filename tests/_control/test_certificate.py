"""Certificates: bad schedules are seen, budgets are checked, and who is not converged says so."""

import json
from typing import Any

import numpy as np
import pytest

import optlearn as ol
from optlearn._control.certificate import Starts
from optlearn._control.compiled import CompiledProblem, Rollout, compile_problem
from optlearn._control.finish import certify
from optlearn._control.runs import Outcome, Start
from optlearn._control.solution import NotConvergedWarning
from optlearn._control.solvers.direct import Direct

NONE = np.zeros(0)
EASY_HARD = np.repeat([1.0, 0.0], 30)[:, None]


def certificate(compiled: CompiledProblem, w: np.ndarray, theta: np.ndarray = NONE, **changes: Any) -> Any:
    objective = Rollout(compiled, len(w), 4).objective(w, theta)
    options = {
        "objective": objective,
        "solver_objective": objective,
        "relaxed_objective": None,
        "outcome": Outcome.SOLVED,
        "starts": Starts.of([objective]),
    }
    found, rolled = certify(Rollout(compiled, len(w), 4), w, theta, **{**options, **changes})
    assert rolled.objective == pytest.approx(objective, abs=1e-12)
    return found


@pytest.fixture(scope="module")
def curriculum() -> CompiledProblem:
    return compile_problem(ol.scenarios.curriculum())


@pytest.fixture(scope="module")
def optimum(curriculum: CompiledProblem) -> np.ndarray:
    return Direct().shoot(Rollout(curriculum, 60), Start("half", np.full((60, 1), 0.5), NONE)).w


def test_the_optimum_is_certified(curriculum: CompiledProblem, optimum: np.ndarray) -> None:
    found = certificate(curriculum, optimum)
    assert found.hamiltonian_gap < 1e-7
    assert found.converged
    assert found.reasons == ()
    assert found.relaxation_gap is None


def test_a_bad_schedule_gets_a_large_gap(curriculum: CompiledProblem, optimum: np.ndarray) -> None:
    rollout = Rollout(curriculum, 60, 4)
    best = rollout.objective(optimum, NONE)
    for bad in (EASY_HARD, 1 - EASY_HARD, np.full((60, 1), 0.5)):
        found = certificate(curriculum, bad)
        to_be_won = rollout.objective(bad, NONE) - best
        # An estimate to first order: of the right size.
        assert 0.5 * to_be_won < found.hamiltonian_gap < 10 * to_be_won
        assert found.hamiltonian_gap > 5e-3
        assert not found.converged
        assert any("hamiltonian_gap" in reason for reason in found.reasons)


def test_the_gap_closes_on_the_way_to_the_optimum(curriculum: CompiledProblem, optimum: np.ndarray) -> None:
    gaps = [
        certificate(curriculum, optimum + share * (EASY_HARD - optimum)).hamiltonian_gap
        for share in (0.3, 0.1, 0.03, 0.0)
    ]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[2] < 0.2 * gaps[0]


def test_a_wrong_free_parameter_is_seen() -> None:
    """The controls are the best for the parameter; only the parameter is wrong."""
    compiled = compile_problem(ol.scenarios.dropout())
    start = Start("guess", np.full((25, 1), 0.7), np.array([0.7]))
    found = Direct().shoot(Rollout(compiled, 25), start)
    right = certificate(compiled, found.w, found.theta)
    assert right.converged
    wrong = np.array([0.5])
    to_be_won = Rollout(compiled, 25, 4).objective(found.w, wrong) - found.objective
    seen = certificate(compiled, found.w, wrong)
    assert not seen.converged
    assert seen.hamiltonian_gap > 0.5 * to_be_won > 1e-3


def test_a_broken_budget_is_a_reason(curriculum: CompiledProblem) -> None:
    w = EASY_HARD.copy()
    w[30] = 1.0
    found = certificate(curriculum, w)
    assert found.budget_error == pytest.approx(1 / 60)
    assert "budget_error" in "".join(found.reasons)


def test_every_doubt_is_a_reason(curriculum: CompiledProblem, optimum: np.ndarray) -> None:
    value = Rollout(curriculum, 60, 4).objective(optimum, NONE)
    found = certificate(curriculum, optimum, outcome=Outcome.ITERATIONS)
    assert found.reasons == (Outcome.ITERATIONS.value,)
    found = certificate(curriculum, optimum, solver_objective=value + 1e-3)
    assert found.integration_error == pytest.approx(1e-3)
    assert "integration_error" in found.reasons[0]
    assert "more intervals or steps" in found.reasons[0]
    found = certificate(curriculum, optimum, relaxed_objective=value - 1e-3)
    assert found.relaxation_gap == pytest.approx(1e-3)
    assert "relaxation_gap" in found.reasons[0]
    assert not found.converged
    found = certificate(curriculum, optimum, relaxed_objective=value - 1e-9)
    assert found.converged
    found = certificate(curriculum, optimum, quadrature_error=np.nan)
    assert found.reasons == ("quadrature_error is not known: a finer quadrature gives NaN",)


def test_starts_are_counted(curriculum: CompiledProblem, optimum: np.ndarray) -> None:
    objectives = [0.2, 0.1, 0.1 + 5e-7, 0.1 + 5e-6]
    starts = certificate(curriculum, optimum, starts=Starts.of(objectives)).starts
    assert (starts.tried, starts.agreeing) == (4, 2)
    assert starts.spread == pytest.approx(0.1)


def test_certificate_as_plain_numbers(curriculum: CompiledProblem, optimum: np.ndarray) -> None:
    found = certificate(curriculum, optimum)
    text = json.loads(json.dumps(found.to_dict()))
    assert text["hamiltonian_gap"] == found.hamiltonian_gap
    assert text["starts"] == {"tried": 1, "agreeing": 1, "spread": 0.0, "dropped": 0, "unscouted": ""}
    assert text["converged"] is True


def test_not_converged_warns_where_it_was_called() -> None:
    problem = ol.scenarios.denoising()
    with pytest.warns(NotConvergedWarning, match="denoising: not converged.*iteration") as caught:
        found = ol.solve(problem, 20, "direct", starts=1, max_iterations=1)
    assert caught[0].filename == __file__
    assert found.outcome is Outcome.ITERATIONS
    assert not found.certificate.converged
    assert found.certificate.reasons[0] == Outcome.ITERATIONS.value
    assert "NOT CONVERGED" in found.summary()
    # Still a result: no worse than where it started.
    start = ol.evaluate(problem, ol.Schedule.constant(0.8, {"noise": 0.3}))
    assert found.objective <= start.objective + 1e-9


def test_converged_says_so() -> None:
    found = ol.solve(ol.scenarios.denoising(), 50, starts=1)
    assert found.certificate.converged
    assert "NOT CONVERGED" not in found.summary()
    assert "converged" in found.summary()
