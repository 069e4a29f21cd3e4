"""Scouts: descents in lockstep, from where they begin to what they bring back."""

import numpy as np
import pytest
from tests.fuzz.systems import KINDS, problem

import optlearn as ol
from optlearn._control.batched.solve import solve_many
from optlearn._control.compiled import Rollout, compile_problem
from optlearn._control.runs import Outcome, Run, RunRecord
from optlearn._control.solvers import scouts
from optlearn._control.solvers.feasible import FeasibleSet
from optlearn._control.solvers.scouts import Ends, Scouting, descend, looks, lower_ends

NEVER = np.zeros(0)
# A pendulum that goes over the top backwards, to which one start in a hundred leads, and most lead to .98643.
OVER_THE_TOP = 21, 0.934655


def budgeted(sense: str = "equal") -> ol.Problem:
    return ol.Problem(
        model=KINDS["quartic"].model(),
        start={"e": 1.0},
        horizon=1.0,
        controls={"u": ol.Continuous(-1, 3), "k": ol.Discrete((0.0, 1.0, 2.0))},
        budgets=(
            ol.Budget("u", mean=0.7, sense=sense),
            ol.Budget("k", share={1.0: 0.25}, sense=sense),
        ),
        intervals=4,
    )


class TestLooks:
    def test_all_corners_are_among_them_where_they_are_few(self):
        first = looks(np.random.default_rng(0), 64, 4, 1)
        assert first.shape == (64, 4, 1)
        at_bounds = {tuple(v.ravel()) for v in first if set(v.ravel()) <= {0.0, 1.0}}
        assert len(at_bounds) == 16

    def test_half_are_corners_where_they_are_many(self):
        first = looks(np.random.default_rng(0), 64, 6, 2)
        assert sum(set(v.ravel()) <= {0.0, 1.0} for v in first) == 32


class TestDescend:
    def test_lanes_reach_their_own_minima(self):
        targets = np.array([0.2, 0.9, 1.7])
        stiff = np.array([1.0, 300.0])

        def passes(rows, v):
            off = v[:, :, 0] - targets[rows, None]
            return (stiff * off**2).sum(axis=1), (2 * stiff * off)[..., None]

        ends = descend(passes, lambda _, v: np.clip(v, 0, 1), np.full((3, 2, 1), 0.5), 60)
        expected = np.clip(targets, 0, 1)
        assert ends.v[:, :, 0] == pytest.approx(np.repeat(expected[:, None], 2, axis=1), abs=1e-5)
        assert ends.objective == pytest.approx(301 * (expected - targets) ** 2, abs=1e-7)

    def test_what_is_not_finite_stays_and_does_not_stop_the_others(self):
        def passes(rows, v):
            value = (v[:, 0, 0] - 0.3) ** 2
            return np.where(rows == 0, np.nan, value), 2 * (v - 0.3)

        ends = descend(passes, lambda _, v: np.clip(v, 0, 1), np.full((2, 1, 1), 0.9), 20)
        assert np.isinf(ends.objective[0])
        assert ends.v[1, 0, 0] == pytest.approx(0.3)


class TestFound:
    def test_the_lowest_counts_twice_and_the_next_once(self):
        objective = np.array([0.5, 0.1, 0.3, 0.1, 0.3, 0.1, 0.7, 0.4])
        assert lower_ends(Ends(np.zeros((8, 1, 1)), objective), 1e-3) == [1, 3, 2]

    def test_nothing_is_found_where_all_end_with_ours(self):
        assert lower_ends(Ends(np.zeros((3, 1, 1)), np.array([1.0, 1.0 - 1e-9, 1.0])), 1e-6) == []


@pytest.mark.parametrize("sense", ["equal", "at most"])
def test_many_projections_are_those_of_one(sense):
    compiled = compile_problem(budgeted(sense))
    own, box = FeasibleSet(compiled, 4), scouts._Box(compiled)
    v = np.random.default_rng(1).normal(0.5, 1.0, size=(30, 4, compiled.relaxation.size))
    expected = [own.nearest(box.values(one), NEVER)[0] for one in v]
    assert box.values(box.nearest(v)) == pytest.approx(np.array(expected), abs=1e-8)


def test_scouts_stay_at_home_where_a_control_has_two_budgets():
    own = budgeted()
    both = (ol.Budget("k", share={0.0: 0.5}, sense="at most"), *own.budgets)
    twice = ol.Problem(
        model=own.model, start=own.start, horizon=1.0, controls=own.controls, budgets=both, intervals=4
    )
    compiled = compile_problem(twice)
    rollout = Rollout(compiled, 4, 1)
    record = RunRecord("any", "any", Outcome.SOLVED, 1, 1.0, 0.0, 1)
    w = np.tile(compiled.relaxation.neutral, (4, 1))
    scouting = Scouting(rollout, few=False, negligible=1e-7)
    assert scouting.starts(Run(record, w, NEVER), (0,)) == []
    assert scouting.obstacle == "several budgets of one control"


def test_a_basin_that_starts_miss_is_found():
    seed, lowest = OVER_THE_TOP
    solution = ol.solve(problem(KINDS["swing"], seed))
    assert solution.objective == pytest.approx(lowest, abs=1e-6)
    assert solution.certificate.converged
    assert any(run.start.startswith("scout") for run in solution.runs)


def test_without_scouts_it_is_missed(monkeypatch):
    """What the test above shows is the scouts' doing."""
    monkeypatch.setattr(scouts, "FEWEST_SCOUTS", scouts.SCOUTS + 1)
    solution = ol.solve(problem(KINDS["swing"], OVER_THE_TOP[0]))
    assert solution.objective > OVER_THE_TOP[1] + 0.05


@pytest.mark.slow
def test_a_batch_finds_it_too():
    seed, lowest = OVER_THE_TOP
    solved = solve_many([problem(KINDS["swing"], seed)])
    assert solved.objective[0] == pytest.approx(lowest, abs=1e-6)


@pytest.mark.slow
def test_scouts_on_a_coarser_grid_bring_starts_for_the_finer():
    """The same pendulum with 24 intervals: scouts have five pieces."""
    seed, _ = OVER_THE_TOP
    fine = ol.solve(problem(KINDS["swing"], seed), intervals=24)
    assert fine.objective <= 0.9347
