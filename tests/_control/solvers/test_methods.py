"""The table of methods, and what a run says of itself."""

import pytest

from optlearn._control.solvers.base import Outcome, RunRecord
from optlearn._control.solvers.methods import METHODS, make_method
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
    with pytest.raises(SpecificationError, match="one of auto, direct, indirect, greedy, got 'x'"):
        make_method("x", None, None)


def test_records_survive_json_types() -> None:
    record = RunRecord("neutral", "direct", Outcome.STALLED, 12, 0.5, 0.1, 2)
    assert record.to_dict()["outcome"] == "stalled"
    assert RunRecord.from_dict(record.to_dict()) == record
