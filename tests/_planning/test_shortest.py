from dataclasses import replace

import numpy as np
import pytest

import optlearn as ol
from optlearn._control.shortest import shortest
from optlearn._control.solution import NotConvergedWarning, warn_not_converged
from optlearn._errors import SpecificationError


def by_bisection(problem, low, high, reach, **options):
    """The shortest horizon by plain solves alone."""
    while high - low > 1e-8:
        middle = (low + high) / 2
        enough = ol.solve(replace(problem, horizon=middle, reach=None), **options).objective <= reach
        low, high = (low, middle) if enough else (middle, high)
    return high


def test_the_shortest_training_of_dynamics_known_by_hand(pull):
    """At full force the height is 2/0.3 (1 − exp(−0.3 T)): nothing is faster."""
    far = replace(pull, objective=ol.Objective(), parameters={"target": 10.0})
    solution = ol.solve(replace(far, horizon=ol.Free(0.01, 5.0), reach=64.0), method="direct", starts=1)
    assert solution.problem.horizon == pytest.approx(-np.log(1 - 0.3 * 2 / 2) / 0.3, abs=1e-6)
    assert solution.objective <= 64
    assert solution.objective == pytest.approx(64, abs=1e-6)
    assert solution.certificate.converged
    assert solution.problem.reach is None
    assert "the shortest training that reaches 64" in solution.notes[-1]


def test_doubtful_horizons_on_the_way_are_a_note_and_no_warnings(pull, recwarn):
    far = replace(pull, objective=ol.Objective(), parameters={"target": 10.0})
    problem = replace(far, horizon=ol.Free(0.01, 5.0), reach=64.0)

    def solve(plain, warm):
        solution = ol.solve(plain, method="direct", starts=1, warm_start=warm)
        if solution.objective <= 64:
            return solution
        doubtful = replace(solution.certificate, converged=False, reasons=("made up",))
        warn_not_converged(plain.name, doubtful)
        return replace(solution, certificate=doubtful)

    solution = shortest(problem, solve)
    assert "at shorter horizons, did not converge: a shorter one may reach it too" in solution.notes[-1]
    assert not [warning for warning in recwarn if warning.category is NotConvergedWarning]


OPTIONS = {"intervals": 8, "method": "direct", "starts": 1}


@pytest.fixture(scope="module")
def reached():
    return ol.solve(ol.scenarios.learning_rate(K=1, M=1, sigma_n=0.3, alpha_F=6.0, reach=0.02), **OPTIONS)


def test_a_scenario_reaches_an_error_and_nothing_shorter_does(reached, tmp_path):
    horizon = reached.problem.horizon
    for other, enough in ((horizon - 1e-6, False), (horizon + 1e-6, True)):
        plain = ol.scenarios.learning_rate(K=1, M=1, sigma_n=0.3, alpha_F=other)
        assert (ol.solve(plain, **OPTIONS).objective <= 0.02) is enough
    # The file makes the problem again, with the horizon that was found.
    assert ol.load(reached.save(tmp_path / "reached.nc")).problem.horizon == pytest.approx(horizon)


@pytest.mark.slow
def test_bisection_with_plain_solves_agrees(reached):
    horizon = reached.problem.horizon
    found = by_bisection(reached.problem, 0.9 * horizon, 1.1 * horizon, 0.02, **OPTIONS)
    assert horizon == pytest.approx(found, abs=1e-6)


def test_what_cannot_be_reached_says_what_can(pull):
    problem = replace(pull, objective=ol.Objective(), parameters={"target": 5.0}, reach=0.1)
    best = ol.solve(replace(problem, reach=None), method="direct", starts=1).objective
    with pytest.raises(SpecificationError, match=f"the best up to α = 2 is {best:.4g}"):
        ol.solve(problem, method="direct", starts=1)
    for changes, message in (
        ({"horizon": ol.Free(0, 2)}, "horizon must be above 0, got 0"),
        ({"reach": float("nan")}, "reach must be a finite number or None, got nan"),
        ({"shortest": 3.0}, "shortest must be above 0 and below the longest horizon, 2, got 3"),
    ):
        with pytest.raises(SpecificationError, match=message):
            replace(problem, **changes)
