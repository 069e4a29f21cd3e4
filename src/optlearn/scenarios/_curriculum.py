"""Curriculum learning: when to show easy and when to show hard samples."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np

import optlearn as ol
from optlearn import _time_courses as shapes
from optlearn._arguments import Arguments
from optlearn._control.families import BestOf
from optlearn._schedule import uniform_grid
from optlearn.scenarios._baselines import Baselines, phases, rate_baselines, rate_control
from optlearn.scenarios._catalogue import Example, scenario


@scenario(
    citations=("saglietti2022curriculum",),
    main=("weight_decay", "eta", "alpha_F", "easy_share", "Delta[1]", "joint"),
    variants=({"joint": True},),
    example=Example({"difficulty": [0.0, 2.0]}, 24),
)
def curriculum(
    alpha_F: Annotated[float, (2, 20, 0.5)] = 12.0,
    eta: Annotated[float, (0.5, 6, 0.1)] = 3.0,
    weight_decay: Annotated[float, (0, 0.3, 0.005)] = 0.0,
    Delta: Annotated[Sequence[float], (0, 1, 0.05), (0.2, 4, 0.1)] = (0.0, 2.0),
    T: Annotated[float, (0.5, 4, 0.1)] = 2.0,
    easy_share: Annotated[float, (0.05, 0.95, 0.05)] = 0.5,
    joint: bool = False,
    max_learning_rate: Annotated[float, (4, 20, 0.5)] = 10.0,
    test_easy_share: Annotated[float, (0, 1, 0.05)] = 0.5,
) -> "ol.Problem":
    """The order of easy and hard samples that leaves a classifier with the lowest error.

    Control ``difficulty`` takes the two values of Δ; a share ``easy_share`` of training is spent on
    easy samples. With ``joint`` the control ``learning_rate`` is optimised as well. Start:
    Q₁₁ = Q₂₂ = 1, M₁₁ = 0.

    Args:
        alpha_F: horizon, training steps divided by input dimension.
        eta: learning rate η; with ``joint`` that of the first guess and of a baseline.
        weight_decay: λ of the penalty λ(Q₁₁ + Q₂₂)/4; the drift holds λ̄ = λη.
        Delta: variance of the irrelevant part of easy and of hard samples.
        T: squared norm of the teacher over N.
        easy_share: share of training that is spent on easy samples.
        joint: optimise the learning rate too.
        max_learning_rate: upper bound of η with ``joint``; the lower one is 0.
        test_easy_share: share of easy samples in the test error.
    """
    check = Arguments("curriculum")
    share = check.number("easy_share", easy_share, 0.0, 1.0)
    highest = check.number("max_learning_rate", max_learning_rate, 0.0, open_below=True)
    check.number("test_easy_share", test_easy_share, 0.0, 1.0)
    model = ol.models.curriculum(Delta, T, eta, weight_decay, test_easy_share)
    easy, hard = map(float, Delta)
    if not easy < hard:
        check.fail("Delta", tuple(Delta), "must be 2 numbers, easy below hard")
    controls: dict[str, ol.Discrete | ol.Continuous] = {"difficulty": ol.Discrete((easy, hard))}
    if check.flag("joint", joint):
        controls["learning_rate"] = rate_control(check, eta, highest)
    return ol.Problem(
        model=model,
        start=model.state(Q11=1.0, Q22=1.0),
        horizon=check.number("alpha_F", alpha_F, 0.0, open_below=True),
        controls=controls,
        budgets=(ol.Budget("difficulty", share={easy: share}),),
        intervals=120 if joint else 240,
        baselines=rate_baselines(_with_rate) if joint else _order_baselines(),
        name="curriculum, joint" if joint else "curriculum",
    )


def _order_baselines() -> Baselines:
    return {
        "curriculum": lambda problem, intervals: _easy_hard_easy(problem, _easy_time(problem)),
        "anti-curriculum": lambda problem, intervals: _easy_hard_easy(problem, 0.0),
        "random mix": _random_mix,
        "best two-switch": BestOf(
            lambda problem, intervals, a: _easy_hard_easy(problem, a),
            lambda problem: (0.0, _easy_time(problem)),
        ),
    }


def _easy_hard_easy(problem: "ol.Problem", a: float) -> "ol.Schedule":
    """Easy samples up to α = a, all hard ones, the other easy ones."""
    easy, hard = problem.discrete["difficulty"].values
    total = _easy_time(problem)
    return phases(
        problem.horizon,
        (a, {"difficulty": easy}),
        (problem.horizon - total, {"difficulty": hard}),
        (total - a, {"difficulty": easy}),
    )


def _random_mix(problem: "ol.Problem", intervals: int) -> "ol.Schedule":
    easy, hard = problem.discrete["difficulty"].values
    share = _easy_time(problem) / problem.horizon
    return ol.Schedule.mixed([0.0, problem.horizon], {"difficulty": {easy: share, hard: 1 - share}})


def _easy_time(problem: "ol.Problem") -> float:
    """Training time that the budget gives to easy samples."""
    (share,) = problem.budgets[0].share.values()
    return share * problem.horizon


def _with_rate(problem: "ol.Problem", intervals: int, rate: shapes.Shape) -> "ol.Schedule":
    """Easy samples, then hard ones, at a learning rate that is constant in each interval."""
    easy, hard = problem.discrete["difficulty"].values
    switch, grid = _easy_time(problem), uniform_grid(problem.horizon, intervals)
    if np.min(np.abs(grid - switch)) > 1e-9 * problem.horizon:
        grid = np.sort(np.append(grid, switch))  # the budget is met even if the grid cannot hold it
    middles = (grid[1:] + grid[:-1]) / 2
    rates = [rate(alpha) for alpha in middles]
    difficulties = np.where(middles < switch, easy, hard)
    return ol.Schedule.piecewise(grid, {"difficulty": difficulties, "learning_rate": rates})
