"""Finite data: learning rate and weight decay during many passes over the same samples."""

from typing import Annotated, Literal

import optlearn as ol
from optlearn import _time_courses as shapes
from optlearn._arguments import Arguments
from optlearn._control.families import BestOf
from optlearn.scenarios._baselines import Baseline, Baselines, phases
from optlearn.scenarios._catalogue import Example, scenario

RATE, DECAY = (0.0, 1.0), (0.0, 2.0)
# Nodes of the spectrum: enough for any rate and κ. Only a few sizes, since each is compiled separately.
NODES, MOST_PASSES = (32, 80), 100
# Where solvers start, and the rate of the baseline that stops early.
USUAL_RATE, GUESS = 0.5, {"learning_rate": 0.3, "weight_decay": 0.2}


@scenario(
    citations=("paquette2021sgd",),
    main=("kappa", "noise", "passes", "control"),
    code_only={"weight_decay": "a number, or a word"},
    example=Example({"learning_rate": [0.6, 0.2]}, 10, {"passes": 4.0}, wrong={"kappa": 0.0}),
    variants=({"control": "weight_decay"}, {"control": "both"}, {"weight_decay": "free"}),
)
def finite_data(
    kappa: Annotated[float, (0.25, 4, 0.25)] = 1.0,
    noise: Annotated[float, (0, 1, 0.05)] = 0.25,
    passes: Annotated[float, (1, 30, 1)] = 10.0,
    control: Literal["learning_rate", "weight_decay", "both"] = "learning_rate",
    weight_decay: float | Literal["free"] = 0.0,
) -> "ol.Problem":
    """The learning rate and weight decay for many passes over the same samples.

    Controls ``learning_rate``, from 0 to 1, and ``weight_decay``, from 0 to 2. The student sees κN noisy
    samples ``passes`` times, one in each step, drawn with replacement; weights start at zero. The final
    test error is minimised. A control that is not scheduled is a constant: the weight decay as given or, if
    it is "free", the best one; the learning rate always the best one.

    Args:
        kappa: κ, samples per weight.
        noise: σ², variance of the noise in the labels; that of the signal is 1.
        passes: average number of times that each sample is seen; at most 100.
        control: what is scheduled: "learning_rate", "weight_decay" or "both".
        weight_decay: λ while only the learning rate is scheduled; "free": the best constant.
    """
    from optlearn._theory.spectrum import marchenko_pastur_nodes_for

    check = Arguments("finite_data")
    kappa = check.number("kappa", kappa, 0.0, open_below=True)
    check.one_of("control", control, ("learning_rate", "weight_decay", "both"))
    scheduled = ("learning_rate", "weight_decay") if control == "both" else (control,)
    free_decay = weight_decay == "free"
    if isinstance(weight_decay, str) and weight_decay != "free":
        check.fail("weight_decay", weight_decay, f"must be from {DECAY[0]:g} to {DECAY[1]:g}, or 'free'")
    decay = 0.0 if weight_decay == "free" else check.number("weight_decay", weight_decay, *DECAY)
    if control != "learning_rate" and weight_decay != 0.0:
        check.fail("weight_decay", weight_decay, f"is scheduled if control is {control!r}: leave it out")
    constant = {"weight_decay"} if free_decay else {"learning_rate"} if control == "weight_decay" else set()
    bounds = {"learning_rate": RATE, "weight_decay": DECAY}
    horizon = check.number("passes", passes, 0.0, MOST_PASSES, open_below=True) * kappa
    needed = marchenko_pastur_nodes_for(kappa, RATE[1] * horizon)
    model = ol.models.FiniteData(kappa, noise, nodes=next(nodes for nodes in NODES if nodes >= needed))
    return ol.Problem(
        model=model,
        start=model.start(),
        horizon=horizon,
        controls={name: ol.Continuous(*bounds[name], guess=GUESS[name]) for name in scheduled},
        free={name: ol.Free(*bounds[name], guess=GUESS[name]) for name in constant},
        parameters={} if "weight_decay" in {*scheduled, *constant} else {"weight_decay": decay},
        intervals=100,
        baselines=_baselines(scheduled, constant),
        name="finite_data",
    )


def _baselines(scheduled: tuple[str, ...], constant: set[str]) -> Baselines:
    def play(problem: "ol.Problem", intervals: int, rate: shapes.Shape, decay: float) -> "ol.Schedule":
        """A rate over time and a constant decay, as far as the problem leaves them free."""
        values = {"learning_rate": rate, "weight_decay": shapes.constant(decay)}
        courses = {name: values[name] for name in scheduled}
        schedule = ol.Schedule.from_function(problem.horizon, courses, intervals)
        return schedule.with_parameters(**{name: values[name](0.0) for name in constant})

    def pair(problem: "ol.Problem", intervals: int, rate: float, decay: float = 0.0) -> "ol.Schedule":
        return play(problem, 1, shapes.constant(rate), decay)

    def cosine(problem: "ol.Problem", intervals: int, first: float) -> "ol.Schedule":
        return play(problem, intervals, shapes.cosine(first, 0.0, problem.horizon), 0.0)

    def early_stop(problem: "ol.Problem", intervals: int, share: float) -> "ol.Schedule":
        stop = share * problem.horizon
        first, then = ({**dict.fromkeys(scheduled, 0.0), "learning_rate": r} for r in (USUAL_RATE, 0.0))
        schedule = phases(problem.horizon, (stop, first), (problem.horizon - stop, then))
        return schedule.with_parameters(**dict.fromkeys(constant, 0.0))

    baselines: dict[str, Baseline] = {
        "constant": lambda problem, intervals: pair(problem, intervals, USUAL_RATE),
        "best constant rate": BestOf(pair, RATE),
    }
    if "learning_rate" in scheduled:
        baselines |= {"cosine": BestOf(cosine, RATE), "early stopping": BestOf(early_stop, (0.01, 1.0))}
    if "weight_decay" in {*scheduled, *constant}:
        baselines["best constant pair"] = BestOf(pair, RATE, DECAY)
    return baselines
