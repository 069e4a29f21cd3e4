"""Solutions in words: one number for the possible improvement, worded alike wherever it is shown."""

from dataclasses import replace
from pathlib import Path

import pytest

import optlearn as ol
from optlearn._app.messages import Optimum, Solve
from optlearn._app.solver import work
from optlearn._control.certificate import Certificate, Starts, limits
from optlearn._control.summary import certificate_words, possible_improvement


@pytest.fixture(scope="module")
def pure() -> ol.Solution:
    """Of a discrete control, on a grid on which a pure schedule misses the minimum principle by far."""
    return ol.solve(ol.scenarios.curriculum(), intervals=120, method="indirect")


@pytest.fixture(scope="module")
def continuous() -> ol.Solution:
    return ol.solve(ol.scenarios.dropout(), intervals=25, method="indirect", starts=1)


def answers(solution: ol.Solution) -> dict[str, str]:
    return dict(certificate_words(solution))


def test_what_may_still_be_won_is_small_beside_a_verdict_that_it_is(pure: ol.Solution) -> None:
    certificate = pure.certificate
    assert certificate.converged
    small = limits(pure.objective)
    assert certificate.may_still_be_won <= small["hamiltonian_gap"] + small["relaxation_gap"]
    assert certificate.to_dict()["may_still_be_won"] == certificate.may_still_be_won


def test_both_gaps_count_and_a_better_pure_schedule_takes_nothing_off() -> None:
    made = Certificate(9e-6, 3e-6, 0.0, Starts(3, 3, 0.0), 0.0, True, mixed_gap=2e-6)
    assert made.may_still_be_won == pytest.approx(5e-6)
    assert replace(made, relaxation_gap=-3e-6).may_still_be_won == 2e-6
    assert replace(made, hamiltonian_gap=1e-6).may_still_be_won == 1e-6
    assert replace(made, relaxation_gap=None, mixed_gap=None).may_still_be_won == 9e-6


@pytest.mark.parametrize("name", ["pure", "continuous"])
def test_summary_report_and_notebook_say_the_same(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    solution = request.getfixturevalue(name)
    words = possible_improvement(solution)
    assert f"possible improvement (first-order estimate): {words}\n" in solution.summary()
    assert answers(solution)["How much better could it be?"].startswith(f"{words} (first-order estimate). ")
    page = solution.report(tmp_path / "r.html").read_text(encoding="utf-8")
    assert page.count(words) == 2  # in the facts, and in the certificate
    assert "possible improvement" in page
    assert words in solution._repr_html_()


def test_the_explorer_says_the_same() -> None:
    events: list[object] = []
    work(Solve("dropout", {}), events.append)
    found = next(event for event in events if isinstance(event, Optimum))
    won = found.certificate.may_still_be_won
    said = dict(found.words)["How much better could it be?"]
    assert said.startswith(f"{won:.1e}, {won / found.objective:.1e} of the objective (first")


def test_pure_and_mixed_are_explained_where_there_are_both(
    pure: ol.Solution, continuous: ol.Solution
) -> None:
    assert pure.relaxed is not None
    assert f"{pure.relaxed.objective:.8g}, is a lower bound for all pure" in answers(pure)["Pure or mixed?"]
    assert possible_improvement(pure).endswith("including mixed schedules")
    assert "Pure or mixed?" not in answers(continuous)
    assert "mixed" not in possible_improvement(continuous)


@pytest.mark.parametrize(
    ("starts", "verdict"),
    [
        (Starts(1, 1, 0.0), "Unknown: only one start was tried"),
        (Starts(3, 1, 1e-3), "This is no evidence"),
        (Starts(3, 2, 1e-3), "This is evidence, not proof"),
    ],
)
def test_starts_are_evidence_only_if_some_agree(
    continuous: ol.Solution, starts: Starts, verdict: str
) -> None:
    doubtful = replace(continuous, certificate=replace(continuous.certificate, starts=starts))
    assert verdict in answers(doubtful)["Is it the best of many optima?"]
