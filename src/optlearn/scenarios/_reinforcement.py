"""A perceptron that learns from rewards: its learning rate, and a curriculum of episode lengths."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import optlearn as ol
from optlearn._arguments import Arguments
from optlearn._control.families import BestOf
from optlearn.scenarios._baselines import Baselines, at, bounds_of, rate_baselines
from optlearn.scenarios._catalogue import Example, scenario

if TYPE_CHECKING:
    from optlearn._arrays import Array, Settings

Scheduled = Literal["learning_rate", "decisions", "both", "penalty", "mistakes"]


@scenario(
    citations=("patel2025rl",),
    main=("decisions", "alpha_F", "max_rate", "control"),
    example=Example({"learning_rate": [1.5, 2.5]}, 8, {"alpha_F": 10.0}),
    variants=({"control": "decisions"}, {"control": "both"}, {"control": "penalty"}, {"control": "mistakes"}),
)
def reinforcement(
    decisions: Annotated[int, (1, 10, 1)] = 3,
    alpha_F: Annotated[float, (5, 100, 5)] = 50.0,
    max_rate: Annotated[float, (0.5, 10, 0.5)] = 5.0,
    control: Scheduled = "learning_rate",
    mistakes: Annotated[int, (0, 2, 1)] = 0,
    penalty: Annotated[float, (0, 0.5, 0.05)] = 0.0,
    eta: Annotated[float, (0.1, 5, 0.1)] = 1.0,
    max_decisions: Annotated[int, (10, 13, 1)] = 10,
) -> "ol.Problem":
    """How a perceptron learns from rewards: its learning rate and the length of its episodes.

    A student takes ``decisions`` in an episode and is rewarded if all of them, except up to ``mistakes``,
    agree with a teacher; it then reinforces them all. Controls: ``learning_rate``, from 0 to ``max_rate``;
    ``decisions``, from 1 to ``max_decisions``, a curriculum of episode lengths at the rate ``eta``, or with
    "both" at the best one; ``penalty``, from 0 to 1, or the number of ``mistakes`` that are forgiven, each
    together with the rate. The start is Q = 1 and ρ = 0; the objective is 1 − ρ, where ρ is the cosine of
    student and teacher.

    Args:
        decisions: decisions T in an episode, unless they are scheduled.
        alpha_F: horizon, episodes divided by input dimension.
        max_rate: largest learning rate.
        control: what is scheduled: "learning_rate", "decisions", "both", "penalty" or "mistakes".
        mistakes: how many mistakes a rewarded episode may contain.
        penalty: how strongly an episode without a reward is unlearned.
        eta: learning rate, unless it is scheduled.
        max_decisions: longest episode of a curriculum.
    """
    check = Arguments("reinforcement")
    T, most = check.count("decisions", decisions), check.count("max_decisions", max_decisions)
    highest = check.number("max_rate", max_rate, 0.0, open_below=True)
    chosen = check.one_of("control", control, get_args(Scheduled))
    curriculum = chosen in ("decisions", "both")
    if curriculum and most < max(T, 2):
        check.fail("max_decisions", max_decisions, f"must be at least {max(T, 2)}")
    if chosen == "mistakes" and T == 1:
        check.fail("decisions", T, "must be at least 2 where mistakes are to be forgiven")
    forgiven = check.count("mistakes", mistakes, 0, T - 1)
    model = ol.models.reward_learner(
        T,
        forgiven,
        check.number("penalty", penalty, 0.0),
        eta=check.number("eta", eta, 0.0),
        max_decisions=most if curriculum else None,
    )
    controls: dict[str, Any] = {}
    if chosen != "decisions":
        controls["learning_rate"] = ol.Continuous(0.0, highest, guess=min(eta, highest))
    if curriculum:
        controls["decisions"] = ol.Discrete(tuple(range(1, most + 1)))
    elif chosen == "penalty":
        controls["penalty"] = ol.Continuous(0.0, 1.0, guess=0.1)
    elif chosen == "mistakes":
        controls["mistakes"] = ol.Discrete(tuple(range(T)))
    return ol.Problem(
        model=model,
        start={"Q11": 1.0},
        horizon=check.number("alpha_F", alpha_F, 0.0, open_below=True),
        controls=controls,
        objective=ol.Objective(final=0.0, terminal=misalignment),
        intervals=100,
        baselines=_baselines(controls, T),
        name="reinforcement",
    )


def misalignment(x: Any, u: "Settings") -> "Array":
    """1 − ρ."""
    return 1 - x["M11"] / x["Q11"] ** 0.5


def _baselines(controls: dict[str, Any], T: int) -> Baselines:
    """Rates of the usual shapes; constant episode lengths; other controls at their default values."""
    if "learning_rate" not in controls:
        lengths = controls["decisions"].values
        return {f"episodes of {length:g}": at("decisions", float(length)) for length in lengths}
    fixed = {"decisions": float(T), "penalty": 0.0, "mistakes": 0.0}
    others = {name: fixed[name] for name in controls if name != "learning_rate"}
    if not others:
        return rate_baselines()

    def with_rate(problem: "ol.Problem", intervals: int, course: Any) -> "ol.Schedule":
        courses = {"learning_rate": course} | {name: lambda _, v=v: v for name, v in others.items()}
        return ol.Schedule.from_function(problem.horizon, courses, intervals)

    best = BestOf(
        lambda problem, intervals, value: with_rate(problem, intervals, lambda _: value),
        bounds_of("learning_rate"),
    )
    return {"best constant rate": best}
