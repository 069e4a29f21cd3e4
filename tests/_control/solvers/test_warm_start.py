"""First guesses from neighbouring problems."""

from dataclasses import replace

import numpy as np
import pytest

import optlearn as ol
from optlearn._control.solvers.starts import fits, warm_schedule
from optlearn._errors import SpecificationError
from optlearn._schedule import Mixture

SHARE = np.array([0.25, 0.75])
MIXED = ol.Schedule(
    np.array([0.0, 6.0, 12.0]),
    {},
    {"difficulty": Mixture(np.array([0.0, 2.0]), np.column_stack([SHARE, 1 - SHARE]))},
)
PROBLEM = ol.scenarios.curriculum(alpha_F=10.0, Delta=(0.1, 1.5))


def test_another_horizon_and_other_values() -> None:
    moved = warm_schedule(PROBLEM, MIXED)
    np.testing.assert_allclose(moved.grid, [0.0, 5.0, 10.0])
    np.testing.assert_allclose(moved["difficulty"], SHARE * 0.1 + (1 - SHARE) * 1.5)
    pure = ol.Schedule.piecewise([0.0, 6.0, 12.0], {"difficulty": [0.0, 2.0]})
    np.testing.assert_allclose(warm_schedule(PROBLEM, pure)["difficulty"], [0.1, 1.5])


def test_values_that_become_the_same_add_their_shares() -> None:
    three = Mixture(np.array([0.0, 1.4, 2.0]), np.array([[0.5, 0.2, 0.3]]))
    schedule = ol.Schedule(np.array([0.0, 10.0]), {}, {"difficulty": three})
    moved = warm_schedule(PROBLEM, schedule)
    columns = PROBLEM.controls["difficulty"].encode("difficulty", moved)
    np.testing.assert_allclose(columns, [[0.5]])


def test_bounds_and_free_parameters_are_kept() -> None:
    problem = ol.scenarios.dropout()
    schedule = ol.Schedule.constant(5.0, {"activation": 1.3}).with_parameters(rescaling=-0.2)
    moved = warm_schedule(problem, schedule)
    assert moved["activation"] == 1.0
    assert moved.parameters == {"rescaling": 0.0}
    guessed = warm_schedule(problem, ol.Schedule.constant(2.5, {"activation": 0.5}))
    assert guessed.parameters == {"rescaling": problem.free["rescaling"].start}
    assert guessed.horizon == problem.horizon


def test_what_cannot_be_a_start() -> None:
    other = ol.Schedule.constant(12.0, {"noise": 0.2})
    assert fits(PROBLEM, MIXED)
    assert not fits(PROBLEM, other)
    with pytest.raises(SpecificationError, match="lacks the control 'difficulty'"):
        warm_schedule(PROBLEM, other)


def test_a_solution_of_a_shorter_training_starts_a_longer_one() -> None:
    short = ol.solve(ol.scenarios.curriculum(alpha_F=10.0), 60, "indirect", starts=1)
    long = ol.solve(ol.scenarios.curriculum(alpha_F=12.0), 60, "indirect", starts=1, warm_start=short)
    assert long.runs[0].start == "warm start"
    assert long.certificate.converged


def test_from_a_solution_one_start_is_enough() -> None:
    """The evidence of several starts is that of the neighbour; passes that know its curvature end it."""
    first = ol.solve(ol.scenarios.dropout(), 20)
    changed = ol.scenarios.dropout(eta=1.1)
    near = ol.solve(changed, 20, warm_start=first)
    afresh = ol.solve(changed, 20)
    assert [(run.start, run.solver) for run in near.runs] == [("warm start", "indirect")]
    assert near.certificate.starts.tried == near.options["starts"] == 1
    assert near.certificate.converged
    assert near.objective == pytest.approx(afresh.objective, rel=1e-6)


def test_the_curvature_of_a_neighbour_saves_passes() -> None:
    first = ol.solve(ol.scenarios.denoising(), 60)
    changed = ol.scenarios.denoising(eta=5.1)
    passes = []
    for neighbour in (first, replace(first, curvature=None)):
        near = ol.solve(changed, 60, "indirect", warm_start=neighbour)
        assert near.certificate.converged
        passes.append(near.runs[0].iterations)
    assert passes[0] < passes[1]


def test_a_schedule_is_one_start_of_several() -> None:
    schedule = ol.Schedule.constant(5.0, {"activation": 0.8})
    found = ol.solve(ol.scenarios.dropout(), 10, warm_start=schedule)
    assert found.certificate.starts.tried == 3


def test_a_neighbour_that_leads_nowhere_is_not_the_only_start() -> None:
    first = ol.solve(ol.scenarios.dropout(), 10)
    with pytest.warns(ol.NotConvergedWarning):
        found = ol.solve(ol.scenarios.dropout(eta=1.5), 10, warm_start=first, max_iterations=1)
    assert {"warm start", "neutral"} <= {run.start for run in found.runs}
