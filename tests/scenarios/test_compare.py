"""The optimum beside the usual schedules and beside the user's own."""

import json

import numpy as np
import pytest

import optlearn as ol
from optlearn import scenarios
from optlearn._errors import SpecificationError

INTERVALS = 24


@pytest.fixture(scope="module")
def problem():
    return scenarios.denoising_batch()


@pytest.fixture(scope="module")
def solution(problem):
    return ol.solve(problem, intervals=INTERVALS, starts=1)


@pytest.fixture(scope="module")
def comparison(problem, solution):
    mine = {
        "too rich": ol.Schedule.constant(1.2, {"batch": 9.0}),
        "too much": ol.Schedule.piecewise([0, 1.1, 1.2], {"batch": [1.0, 49.0 + 2.0]}),
        "good": ol.Schedule.from_function(1.2, {"batch": lambda a: 2 + 6 * a / 1.2}, 12),
    }
    return ol.compare(problem, mine, solution=solution)


def test_rows_are_sorted_and_complete(comparison, problem, solution):
    names = [row.name for row in comparison.rows]
    assert set(names) == {"optimum", *problem.baselines, "too rich", "too much", "good"}
    places = [(not row.budgets_met, row.objective) for row in comparison.rows]
    assert places == sorted(places)
    assert names[-2:] == ["too rich", "too much"]  # which break limits
    assert comparison["too rich"].objective < comparison["constant"].objective
    assert comparison["optimum"].objective == solution.objective
    assert comparison["optimum"].excess == 0
    assert comparison["constant"].excess == pytest.approx(9.3529263150 - solution.objective, abs=1e-9)


def test_improvement_is_the_papers_measure(comparison):
    # 4.11 % in the theory sheet for 120 intervals; nearly so on a coarser grid.
    assert comparison["constant"].improvement == pytest.approx(4.11, abs=0.1)
    row = comparison["constant"]
    assert row.reduction == pytest.approx(100 * row.excess / row.objective)


def test_what_breaks_a_limit_is_shown_with_a_note(comparison):
    assert comparison["good"].budgets_met
    assert comparison["good"].note == ""
    assert not comparison["too rich"].budgets_met
    assert comparison["too rich"].note == "mean batch is 9, the budget 5"
    assert "its bounds are 1 and 50" in comparison["too much"].note


def test_shown_as_text_html_and_json(comparison):
    text, page = str(comparison), comparison._repr_html_()
    for row in comparison.rows:
        assert row.name in text
        assert row.name in page
    assert page.startswith("<table>")
    assert page.endswith("</table>")
    data = json.loads(json.dumps(comparison.to_json(), allow_nan=False))
    assert data["rows"][0]["name"] == comparison.rows[0].name
    with pytest.raises(KeyError, match="no schedule 'nobody'"):
        comparison["nobody"]


def test_a_foreign_value_of_a_discrete_control_is_a_note():
    problem = scenarios.curriculum()
    from optlearn._control.compare import broken_limits

    schedule = ol.Schedule.piecewise([0, 6, 12], {"difficulty": [0.0, 1.5]})
    assert broken_limits(problem, schedule) == ["difficulty = 1.5 is not among its values 0, 2"]
    mixed = ol.Schedule.mixed([0, 12], {"difficulty": {0.0: 0.25, 2.0: 0.75}})
    assert broken_limits(problem, mixed) == ["share of difficulty = 0 is 0.25, the budget 0.5"]


def test_a_schedule_that_runs_away_is_a_row_without_a_value(problem, solution):
    from optlearn._control.compare import _row

    unstable = scenarios.denoising_batch(eta=500.0)
    row = _row(unstable, "mine", ol.Schedule.constant(1.2, {"batch": 1.0}), solution)
    assert row.objective is None
    assert row.note


@pytest.mark.parametrize(
    ("schedules", "message"),
    [
        ({"mine": ol.Schedule.constant(1.0, {"batch": 5.0})}, "ends at α = 1"),
        ({"mine": ol.Schedule.constant(1.2, {"noise": 0.5})}, "lacks the control 'batch'"),
        ({"constant": ol.Schedule.constant(1.2, {"batch": 5.0})}, "name 'constant' is taken"),
    ],
)
def test_what_is_not_a_schedule_of_this_problem(problem, solution, schedules, message):
    with pytest.raises(SpecificationError, match=message):
        ol.compare(problem, schedules, solution=solution)


def test_baselines_take_a_grid(problem):
    assert ol.baselines(problem, intervals=7)["linear growth"].intervals == 7
    assert ol.baselines(problem)["linear growth"].intervals == problem.intervals
    assert np.isclose(ol.baselines(problem)["constant"]["batch"][0], 5)
