"""Bad input to problems, controls and budgets: each a clear error."""

from typing import Any

import numpy as np
import pytest

from optlearn import models
from optlearn._control.budgets import Budget
from optlearn._control.controls import Continuous, Discrete, Free
from optlearn._control.objective import Objective
from optlearn._control.problem import Problem
from optlearn._errors import SpecificationError, UnphysicalStateError

INFINITY, NAN = float("inf"), float("nan")
EASY_OR_HARD = Discrete((0.0, 2.0))


def curriculum(**changes: Any) -> Problem:
    model = models.curriculum()
    arguments = {
        "model": model,
        "start": model.state(Q11=1.0, Q22=1.0),
        "horizon": 12.0,
        "controls": {"difficulty": EASY_OR_HARD, "learning_rate": Continuous(0, 10)},
    }
    return Problem(**{**arguments, **changes})


@pytest.mark.parametrize("kind", [Continuous, Free])
@pytest.mark.parametrize(
    ("lower", "upper", "guess", "message"),
    [
        (1.0, 1.0, None, "lower must be below upper"),
        (2.0, 1.0, None, "lower must be below upper"),
        (0.0, [INFINITY], None, "upper must be a finite number"),
        (NAN, 1.0, None, "lower must be a finite number.* got nan"),
        (0.0, 1.0, 2.0, "guess must be from 0 to 1, got 2.0"),
        (0.0, 1.0, NAN, "guess must be a finite number or None, got nan"),
    ],
)
def test_bounds(kind: Any, lower: float, upper: float, guess: float | None, message: str) -> None:
    with pytest.raises(SpecificationError, match=message) as raised:
        kind(lower, upper, guess)
    assert kind.__name__ in str(raised.value)


def test_start_of_a_control() -> None:
    assert Continuous(1.0, 3.0).start == 2.0
    assert Continuous(1.0, 3.0, guess=1.0).start == 1.0
    assert Free(0.0, 1.0, guess=0.9).start == 0.9
    # A whole number is a number: JAX would not mix it with others.
    assert isinstance(Continuous(1, 3, guess=2).start, float)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"values": (1.0,)}, "at least two different numbers"),
        ({"values": ()}, "values must be a list of numbers"),
        ({"values": (1.0, 1.0)}, "at least two different numbers"),
        ({"values": (0.0, 1.0, 1.0)}, "at least two different numbers"),
        ({"values": (0.0, INFINITY)}, "finite"),
        ({"values": (0.0, NAN)}, "finite"),
        ({"values": (0.0, 1.0), "min_dwell": -1.0}, "min_dwell must be at least 0, got -1.0"),
        ({"values": (0.0, 1.0), "min_dwell": NAN}, "min_dwell must be a finite number, got nan"),
        (
            {"values": (0.0, 1.0), "max_switches": -1},
            "max_switches must be a whole number of at least 0, got -1",
        ),
    ],
)
def test_discrete(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecificationError, match=message):
        Discrete(**arguments)


@pytest.mark.parametrize("horizon", [0.0, -1.0, INFINITY, NAN])
def test_horizon(horizon: float) -> None:
    with pytest.raises(SpecificationError, match=r"horizon must be .*, got"):
        curriculum(horizon=horizon)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"controls": {}}, "must name at least one"),
        ({"controls": {"noise": Continuous(0, 1)}}, "unknown control 'noise'.*learning_rate"),
        ({"free": {"noise": Free(0, 1)}}, "unknown free parameter 'noise'.*learning_rate"),
        ({"free": {"learning_rate": Free(0, 1)}}, "'learning_rate' is both a control and a free"),
        (
            {"controls": {"test_difficulties": Continuous(0, 1)}},
            r"'test_difficulties' has shape \(2,\): only single",
        ),
        ({"parameters": {"noise": 1.0}}, "no parameter 'noise'"),
        ({"budgets": (Budget("noise", mean=1.0),)}, "budget on unknown control 'noise'"),
    ],
)
def test_names(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecificationError, match=message):
        curriculum(**changes)


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (Budget("learning_rate", mean=11.0), "infeasible budget: mean learning_rate = 11.*0 and 10"),
        (Budget("learning_rate", mean=-0.1), "infeasible budget: mean learning_rate = -0.1"),
        (Budget("learning_rate", mean=-0.1, sense="at most"), "infeasible budget"),
        (Budget("difficulty", mean=2.5), "infeasible budget: mean difficulty = 2.5.*0 and 2"),
        (Budget("learning_rate", share={0.0: 0.5}), "is for discrete controls; use mean"),
        (Budget("difficulty", share={1.0: 0.5}), r"\[1.0\] are not among its values \[0.0, 2.0\]"),
        (Budget("difficulty", share={0.0: 1.5}), "infeasible budget: shares"),
        (Budget("difficulty", share={0.0: -0.1}), "infeasible budget: shares"),
        (Budget("difficulty", share={0.0: 0.7, 2.0: 0.7}), "infeasible budget: shares"),
        (Budget("difficulty", share={0.0: 0.3, 2.0: 0.3}), "add up to 0.6, not 1"),
        (
            Budget("difficulty", share={0.0: 0.3, 2.0: 0.3}, sense="at most"),
            "add up to 0.6, not 1",
        ),
    ],
)
def test_infeasible_budget(budget: Budget, message: str) -> None:
    with pytest.raises(SpecificationError, match=message):
        curriculum(budgets=(budget,))


@pytest.mark.parametrize(
    "budget",
    [
        Budget("learning_rate", mean=10.0),
        Budget("learning_rate", mean=99.0, sense="at most"),
        Budget("difficulty", share={0.0: 0.6, 2.0: 0.6}, sense="at most"),
        Budget("difficulty", share={0: 0.25}),  # a whole number stands for the value 0.0
    ],
)
def test_feasible_budget(budget: Budget) -> None:
    assert curriculum(budgets=(budget,)).budgets == (budget,)


@pytest.mark.parametrize(
    ("name", "budgets"),
    [
        (
            "difficulty",
            (Budget("difficulty", share={0.0: 0.5}), Budget("difficulty", share={2.0: 0.4})),
        ),
        ("difficulty", (Budget("difficulty", share={0.0: 0.5}), Budget("difficulty", mean=0.5))),
        (
            "learning_rate",
            (
                Budget("learning_rate", mean=2.0),
                Budget("learning_rate", mean=1.0, sense="at most"),
            ),
        ),
    ],
)
def test_budgets_that_contradict_each_other(name: str, budgets: tuple[Budget, ...]) -> None:
    with pytest.raises(SpecificationError, match=f"infeasible budgets: no schedule of '{name}'"):
        curriculum(budgets=budgets)


def test_budgets_that_agree() -> None:
    both = (Budget("difficulty", share={0.0: 0.5}), Budget("difficulty", mean=1.0, sense="at most"))
    assert curriculum(budgets=both).budgets == both


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "one of mean, share=.* and total must be given"),
        ({"mean": 1.0, "share": {0.0: 0.5}}, "one of mean, share=.* and total must be given"),
        ({"mean": 1.0, "sense": "at least"}, "sense must be one of equal, at most"),
    ],
)
def test_budget_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecificationError, match=message):
        Budget("learning_rate", **arguments)


def test_objective_with_nothing_to_minimise() -> None:
    with pytest.raises(SpecificationError, match="nothing to minimise"):
        Objective(final=0.0)


@pytest.mark.parametrize(
    ("objective", "running"),
    [
        (Objective(), False),
        (Objective(final=0.0, terminal=lambda x, u: x.Q[0, 0]), False),
        (Objective(average=0.1), True),
        (Objective(final=0.0, cost=lambda x, u: u["learning_rate"]), True),
    ],
)
def test_objective_knows_whether_it_has_an_integral(objective: Objective, running: bool) -> None:
    assert objective.has_running is running


def test_unphysical_start() -> None:
    model = models.curriculum()
    with pytest.raises(UnphysicalStateError, match="M11"):
        curriculum(start=model.state(Q11=1.0, Q22=1.0, M11=2.0))
    with pytest.raises(UnphysicalStateError, match="Q11 = -1"):
        curriculum(start=model.state(Q11=-1.0, Q22=1.0))


def test_start_of_another_model() -> None:
    other = models.committee(K=3, M=1)
    with pytest.raises((SpecificationError, UnphysicalStateError)):
        curriculum(start=other.state(Q=np.eye(3)))


def test_properties() -> None:
    problem = curriculum(free={"weight_decay": Free(0, 1, guess=0.25)}, parameters={"test_share": 1})
    assert list(problem.continuous) == ["learning_rate"]
    assert list(problem.discrete) == ["difficulty"]
    assert problem.settings["weight_decay"] == 0.25
    assert problem.settings["test_share"] == 1.0
    changed = problem.with_parameters(test_share=0.5)
    assert changed.settings["test_share"] == 0.5
    assert problem.settings["test_share"] == 1.0
    with pytest.raises(SpecificationError, match="no parameter 'noise'"):
        problem.with_parameters(noise=1.0)


def test_a_whole_number_is_a_horizon() -> None:
    assert isinstance(curriculum(horizon=12).horizon, float)
