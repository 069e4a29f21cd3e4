"""The table of methods, and what a run says of itself."""

import pytest

import optlearn as ol
from optlearn._arguments import Arguments
from optlearn._control.runs import Outcome, Run, RunRecord, Start
from optlearn._control.solvers import methods
from optlearn._control.solvers.direct import Direct
from optlearn._control.solvers.methods import METHODS, check_options, make_method
from optlearn._errors import SpecificationError


def test_every_method_is_made_by_its_name() -> None:
    assert list(METHODS) == ["auto", "direct", "indirect", "greedy"]
    for name, description in METHODS.items():
        made = make_method(name, 7, 1e-3)
        assert (made.name, made.description, made.max_iterations, made.tolerance) == (
            name,
            description,
            7,
            1e-3,
        )
    assert not make_method("greedy", None, None).optimises
    with pytest.raises(
        SpecificationError, match="solve: method must be one of auto, direct, greedy, indirect, got 'x'"
    ):
        check_options(Arguments("solve"), method="x")


def test_records_survive_json_types() -> None:
    record = RunRecord("neutral", "direct", Outcome.STALLED, 12, 0.5, 0.1, 2)
    assert record.to_dict()["outcome"] == "stalled"
    assert RunRecord.from_dict(record.to_dict()) == record


def test_two_solvers_find_the_optimum_before_starts_are_said_to_agree() -> None:
    found = ol.solve(ol.scenarios.imbalance(), 20)
    assert {run.solver for run in found.runs} == {"direct", "indirect"}
    assert found.certificate.starts.agreeing == 3
    # The direct run is the sharp end of the others as well: nothing goes on from them.
    assert len(found.runs) == 3


def test_passes_stop_early_only_if_a_direct_run_ends_what_they_began(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, options = ol.scenarios.imbalance(), {"intervals": 24, "starts": 1}
    exact = ol.solve(problem, method="indirect", **options)

    def fails(self: Direct, rollout: object, start: Start) -> Run:
        record = RunRecord(start.name, "direct", Outcome.FAILED, 0, float("inf"), 0.0, 1)
        return Run(record, start.w, start.theta)

    monkeypatch.setattr(Direct, "shoot", fails)
    # So loose that passes stop early on any machine: their number depends on its rounding.
    monkeypatch.setattr(methods, "PASSES_TOLERANCE", 1e-3)
    alone = ol.solve(problem, **options)
    assert [run.solver for run in alone.runs] == ["direct", "indirect", "direct", "indirect"]
    assert alone.runs[1].iterations < exact.runs[0].iterations
    assert alone.runs[-1].iterations > 1
    assert alone.certificate.starts.tried == 1
    assert alone.runs[-1].outcome.ok
    assert alone.objective == pytest.approx(exact.objective, rel=1e-7)
