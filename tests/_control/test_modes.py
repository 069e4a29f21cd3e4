"""Discrete controls whose values are modes: names, each with values of several parameters."""

from dataclasses import replace

import numpy as np
import pytest

import optlearn as ol

LESSONS = {"easy": {"noise": 0.1, "pull": [1.0, 0.2]}, "hard": {"noise": 0.6, "pull": [0.3, 2.0]}}


class Pair(ol.System):
    """Two errors that lessons pull down, each at its own pace."""

    names = ("a", "b")
    parameters = {"noise": 0.0, "pull": np.ones(2), "rate": 1.0}  # noqa: RUF012

    def drift(self, x, u):
        rate, pull = u["rate"], u["pull"]
        return {
            "a": -rate * pull[0] * x["a"] + rate**2 * u["noise"] * 0.1,
            "b": -rate * pull[1] * x["b"] + rate**2 * u["noise"] * 0.1,
        }

    def error(self, x, u):
        return x["a"] + x["b"]


def lessons(**changes):
    options = {
        "model": Pair(),
        "start": {"a": 1.0, "b": 1.0},
        "horizon": 2.0,
        "controls": {"lesson": ol.Discrete(LESSONS)},
        "intervals": 10,
    }
    return ol.Problem(**{**options, **changes})


def test_a_mode_sets_all_its_parameters() -> None:
    problem = lessons()
    schedule = ol.Schedule.piecewise([0.0, 0.5, 2.0], {"lesson": [1.0, 0.0]})
    apart = replace(
        problem,
        model=Pair(),
        controls={"noise": ol.Discrete((0.1, 0.6))},
        parameters={"pull": [1.0, 0.2]},
    )
    # The second part by itself, from where the first ends.
    first = ol.evaluate(
        replace(apart, horizon=0.5, parameters={"pull": [0.3, 2.0]}),
        ol.Schedule.constant(0.5, {"noise": 0.6}),
    )
    end = {name: first[name][-1] for name in ("a", "b")}
    second = ol.evaluate(replace(apart, horizon=1.5, start=end), ol.Schedule.constant(1.5, {"noise": 0.1}))
    assert ol.evaluate(problem, schedule).objective == pytest.approx(second.objective, rel=1e-10)


def test_every_pure_schedule_is_worse() -> None:
    problem = lessons(intervals=6)
    with pytest.warns(ol.NotConvergedWarning, match="mixes values"):
        solution = ol.solve(problem)
    grid = np.linspace(0, 2, 7)
    every = [
        ol.evaluate(
            problem, ol.Schedule.piecewise(grid, {"lesson": np.array(bits, float)}), record=2
        ).objective
        for bits in np.ndindex(*[2] * 6)
    ]
    assert solution.objective == pytest.approx(min(every), rel=1e-9)
    assert "lesson: 0 is easy, 1 is hard" in solution.notes


def test_shares_of_modes_by_name(tmp_path) -> None:
    problem = lessons(budgets=(ol.Budget("lesson", share={"easy": 0.3}),))
    assert dict(problem.budgets[0].share) == {0.0: 0.3}
    solution = ol.solve(problem, starts=1)
    assert np.mean(solution.schedule["lesson"] == 0) == pytest.approx(0.3)
    solution.save(tmp_path / "lessons.nc")
    assert ol.load(tmp_path / "lessons.nc", problem=problem).objective == solution.objective
    louder = {**LESSONS, "hard": {**LESSONS["hard"], "noise": 0.7}}
    other = lessons(budgets=problem.budgets, controls={"lesson": ol.Discrete(louder)})
    with pytest.raises(ol.SpecificationError, match="modes"):
        ol.load(tmp_path / "lessons.nc", problem=other)


def test_modes_of_several_worlds() -> None:
    worlds = ol.robust(lessons(), over={"rate": [0.5, 1.5]})
    schedule = ol.Schedule.constant(2.0, {"lesson": 1.0})
    apart = [ol.evaluate(lessons(parameters={"rate": rate}), schedule).objective for rate in (0.5, 1.5)]
    assert ol.evaluate(worlds, schedule).objective == pytest.approx(np.mean(apart), rel=1e-10)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"controls": {"lesson": ol.Discrete({"a": {"nois": 1}, "b": {"nois": 2}})}}, "mode 'a': .*'nois'"),
        ({"controls": {"noise": ol.Discrete(LESSONS)}}, "call it something else"),
        (
            {"controls": {"lesson": ol.Discrete(LESSONS), "noise": ol.Continuous(0, 1)}},
            "'noise' is set by the modes",
        ),
        ({"budgets": (ol.Budget("lesson", share={"eazy": 0.3}),)}, "no mode 'eazy'; modes are easy, hard"),
        ({"parameters": {"noise": 1.0}}, "no parameter 'noise'"),
        (
            {"controls": {"lesson": ol.Discrete({"a": {"pull": [1, 2, 3]}, "b": {"pull": [3, 2, 1]}})}},
            "shape",
        ),
    ],
)
def test_what_modes_may_not_be(changes, message) -> None:
    with pytest.raises(ol.SpecificationError, match=message):
        lessons(**changes)


@pytest.mark.parametrize(
    ("modes", "message"),
    [
        ({"a": {"noise": 1.0}}, "at least two modes"),
        ({"a": {}, "b": {}}, "set at least one parameter"),
        ({"a": {"noise": 1.0}, "b": {"pull": 1.0}}, "must set the same parameters"),
        ({"a": {"noise": "x"}, "b": {"noise": 1.0}}, r"values\['a'\]\['noise'\]"),
    ],
)
def test_what_modes_must_set(modes, message) -> None:
    with pytest.raises(ol.SpecificationError, match=message):
        ol.Discrete(modes)
