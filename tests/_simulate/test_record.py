"""What a simulation costs is said before it begins."""

import pytest

import optlearn as ol
from optlearn._errors import SpecificationError
from optlearn._simulate.record import CostWarning, check_cost, in_words


@pytest.mark.parametrize(
    ("N", "mode", "message"),
    [
        (
            10**12,
            "overlaps",
            r"N must be smaller, got 1000000000000: 1.2e\+13 steps .* about 3 years",
        ),
        (10**9, "weights", "simulate: N must be smaller for 8 seeds to fit into memory, got 1000000000"),
    ],
)
def test_what_never_ends_is_refused_before_it_begins(N, mode, message):
    problem = ol.scenarios.curriculum()
    schedule = ol.Schedule.constant(problem.horizon, {"difficulty": 2.0})
    with pytest.raises(SpecificationError, match=message):
        ol.simulate(problem, schedule, N=N, mode=mode)


def test_hours_are_announced_at_the_line_that_asks_for_them():
    with pytest.warns(CostWarning, match=r"1e\+10 steps of 8 seeds take about 22 hours") as found:
        check_cost("simulate", N=1000, steps=10**10, seeds=8)
    assert found[0].filename == __file__


def test_what_is_done_in_minutes_is_not_worth_a_word():
    check_cost("simulate", N=1000, steps=10**8, seeds=8)
    assert in_words(800) == "13 minutes"
