"""Descents from several starts, most of whose passes have a coarse quadrature or few steps."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from benchmarks.own_problems import logistic

import optlearn as ol
from optlearn._control.certificate import agreement
from optlearn._control.compiled import Rollout, compile_problem
from optlearn._control.runs import Level, Outcome, Start
from optlearn._control.solvers.coarse_to_fine import CoarseToFine
from optlearn._control.solvers.indirect import Indirect
from optlearn._control.solvers.starts import neutral

INTERVALS, STEPS = 6, 8


class TwoWells(ol.System):
    """Where a push leads: to one of two wells, of which the one farther away is deeper."""

    names = ("x",)
    parameters: ClassVar = {"push": 0.5}

    def drift(self, x, u):
        return {"x": u["push"]}

    def error(self, x, u):
        return 1 + ((x["x"] - 0.2) * (x["x"] - 0.8)) ** 2 - 0.01 * x["x"]


@pytest.fixture(scope="module")
def rollout():
    problem = ol.Problem(
        model=TwoWells(),
        start={"x": 0.0},
        horizon=1.0,
        controls={"push": ol.Continuous(0, 1)},
        intervals=INTERVALS,
    )
    return Rollout(compile_problem(problem), INTERVALS, STEPS)


def at(name, push, **others):
    return Start(name, np.full((INTERVALS, 1), push), np.zeros(0), local=True, **others)


class Scripted:
    """The indirect method, which says that few steps have led some starts astray."""

    def __init__(self, *astray):
        self.astray, self.went = astray, []

    def __call__(self, passes, start, *, tolerance, rival=None):
        self.went.append((start.name, passes.steps, start.near))
        run = Indirect(tolerance=tolerance).run(passes, start)
        if start.name in self.astray and passes.steps < STEPS:
            return replace(run, record=replace(run.record, outcome=Outcome.COARSE))
        return run


def follow(rollout, descend, starts):
    return CoarseToFine(descend, rollout, rollout, 1e-6, 2000).run_all(starts)


def test_what_few_steps_lead_astray_takes_more_and_the_others_go_on_from_where_they_are(rollout):
    descend = Scripted("wild")
    starts = [at("low", 0.1), at("wild", 0.9), at("after", 0.5)]
    runs = follow(rollout, descend, starts)
    assert descend.went[:5] == [
        ("low", STEPS // 2, False),
        ("wild", STEPS // 2, False),
        ("low", STEPS, True),  # on from its end
        ("wild", STEPS, False),  # again from its start
        ("after", STEPS, False),
    ]
    assert all(run.outcome.ok and run.record.steps == STEPS for run in runs)
    x = np.linspace(0, 1, 100_001)
    wells = 1 + ((x - 0.2) * (x - 0.8)) ** 2 - 0.01 * x
    assert runs[0].record.start in ("wild", "after")
    assert runs[0].objective == pytest.approx(wells.min(), abs=1e-6)
    low = next(run for run in runs if run.record.start == "low")
    assert low.objective == pytest.approx(wells[x < 0.5].min(), abs=1e-6)


def test_what_has_come_to_one_place_goes_on_from_there_once(rollout):
    class Straight(Scripted):
        def __call__(self, passes, start, *, tolerance, rival=None):
            run = super().__call__(passes, start, tolerance=tolerance)
            if start.name != "twin" or rival is None:
                return run
            return replace(run, w=rival.w, record=replace(run.record, objective=rival.objective))

    descend = Straight("wild")
    runs = follow(rollout, descend, [at("low", 0.1), at("twin", 0.1), at("wild", 0.9)])
    assert ("low", STEPS, True) in descend.went
    assert ("twin", STEPS, True) not in descend.went
    low, twin = (next(run for run in runs if run.record.start == name) for name in ("low", "twin"))
    assert twin.objective == low.objective
    assert twin.record.steps == STEPS


def test_the_run_that_goes_on_with_the_fine_rule_comes_first(rollout):
    """Hops come back to where it is, lower by round-off."""
    runs = follow(rollout, Scripted(), [at("low", 0.1), at("high", 0.9)])
    assert runs[0].coarse is not None
    assert [run.objective >= runs[0].objective for run in runs] == [True] * len(runs)


def test_a_first_start_that_more_steps_lead_astray_too_is_told(rollout):
    class AlwaysAstray(Scripted):
        def __call__(self, passes, start, *, tolerance, rival=None):
            run = super().__call__(passes, start, tolerance=tolerance)
            return replace(run, record=replace(run.record, outcome=Outcome.COARSE))

    (run,) = follow(rollout, AlwaysAstray(), [at("low", 0.1), at("high", 0.9)])
    assert run.astray
    assert run.record.steps == STEPS


def test_further_starts_take_the_steps_that_their_rival_took(rollout):
    """Objectives with other steps are others: they could never agree."""
    first = follow(rollout, Scripted("high"), [at("low", 0.1), at("high", 0.9)])[0]
    assert first.coarse == Level(pytest.approx(first.objective), STEPS)
    descend = Scripted()
    (second,) = follow(rollout, descend, [at("another", 0.7, rival=first)])
    assert descend.went[0] == ("another", STEPS, False)
    assert abs(second.objective - first.objective) <= agreement(first.objective)


@pytest.mark.slow
def test_four_layers_converge_to_the_lower_of_two_optima():
    """Passes of millions of operations: three starts of three used to agree on .0499096."""
    solution = ol.solve(ol.scenarios.layers(depth=4))
    assert solution.certificate.converged
    assert solution.objective <= 0.0492988


@pytest.mark.slow
def test_a_few_fine_passes_suffice_beside_a_coarse_rule(monkeypatch):
    compiled = compile_problem(logistic())
    rollout = Rollout(compiled, 10, 8)
    coarse = rollout.coarser()
    assert coarse is not None
    end = Indirect().run(coarse, neutral(compiled, 10))
    passes = []
    run = Rollout.__origin__.run

    def counted(self, *given, **named):
        passes.append(self.compiled.is_coarse)
        return run(self, *given, **named)

    monkeypatch.setattr(Rollout.__origin__, "run", counted)
    near = Start("coarse end", end.w, end.theta, near=True, curvature=end.curvature)
    (refined,) = Indirect().run_all(rollout, [near])
    fine = passes.count(False)
    monkeypatch.undo()
    assert refined.outcome.ok
    assert fine <= 12
    plain = Indirect().run(rollout, replace(near, curvature=None))
    assert refined.objective == pytest.approx(plain.objective, abs=agreement(plain.objective))
