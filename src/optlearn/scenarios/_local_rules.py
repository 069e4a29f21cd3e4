"""Units that learn by a local rule instead of a gradient: learning rate, and which samples to learn."""

from typing import Annotated, Literal, get_args

import optlearn as ol
from optlearn._arguments import Arguments
from optlearn._control.families import BestOf
from optlearn.scenarios._baselines import at, bounds_of, constant, line, rate_baselines
from optlearn.scenarios._catalogue import Example, scenario

Rule = Literal["hebb", "perceptron", "margin", "clipped"]
# Beyond four standard deviations there are hardly any samples; below the lowest margin almost none are left.
LOWEST, HIGHEST = 0.05, 4.0


@scenario(
    citations=("rosenblatt1958perceptron",),
    example=Example({"learning_rate": [1.0, 0.4]}, 8, {"alpha_F": 5.0}),
)
def local_rules(
    rule: Rule = "perceptron",
    alpha_F: Annotated[float, (2, 40, 1)] = 20.0,
    threshold: Annotated[float, (0.1, 3, 0.1)] = 0.5,
    max_learning_rate: float = 3.0,
) -> "ol.Problem":
    """The learning rate of a unit that learns by a local rule instead of a gradient.

    Control ``learning_rate``, from 0 to ``max_learning_rate``. With "hebb", "perceptron" and "margin" the
    unit learns the sign of a teacher and is judged by its share of mistakes; with "clipped" it is linear, its
    labels have noise of standard deviation 0.5, and it is judged by half its squared error. The start is Q =
    0.5, M = 0.1.

    Args:
        rule: "hebb" learns every sample, "perceptron" only mistakes, "margin" samples about which the student
            is unsure, and "clipped" follows gradients of limited length.
        alpha_F: horizon, training steps divided by input dimension.
        threshold: threshold of "margin", in standard deviations of the student's field, and of "clipped".
        max_learning_rate: upper bound of η.
    """
    check = Arguments("local_rules")
    check.one_of("rule", rule, get_args(Rule))
    highest = check.number("max_learning_rate", max_learning_rate, 0.0, open_below=True)
    limit = check.number("threshold", threshold, 0.0, open_below=True)
    if rule == "clipped":
        model: ol.LearningModel = ol.models.clipped(clip=limit)
    else:
        model = ol.models.sign_learner(rule, threshold=limit)
    return ol.Problem(
        model=model,
        start=model.state(Q11=0.5, M11=0.1),
        horizon=check.number("alpha_F", alpha_F, 0.0, open_below=True),
        controls={"learning_rate": ol.Continuous(0.0, highest, guess=min(1.0, highest))},
        intervals=60,
        baselines=rate_baselines(),
        name="local_rules",
    )


@scenario(citations=("kinzel1990selecting",), example=Example({"threshold": [2.0, 0.8]}, 8, {"alpha_F": 5.0}))
def selection(
    eta: Annotated[float, (0.2, 2, 0.1)] = 1.0,
    alpha_F: Annotated[float, (2, 20, 0.5)] = 10.0,
    overlap: Annotated[float, (0, 0.5, 0.05)] = 0.1,
) -> "ol.Problem":
    """Which samples to learn from so that a student of a sign teacher makes the fewest mistakes.

    Control ``threshold`` θ, from 0.05 to 4: only samples with ``|λ| < θ√Q`` are learned, by Hebb's rule; for
    the others the student's field exceeds θ standard deviations. The start is Q = 0.5.

    Args:
        eta: learning rate η.
        alpha_F: horizon, samples seen (learned from or not) divided by input dimension.
        overlap: M at the start, with the teacher of squared norm 1.
    """
    check = Arguments("selection")
    model = ol.models.sign_learner("margin", eta=check.number("eta", eta, 0.0, open_below=True))
    return ol.Problem(
        model=model,
        start=model.state(Q11=0.5, M11=check.number("overlap", overlap, 0.0, 0.7)),
        horizon=check.number("alpha_F", alpha_F, 0.0, open_below=True),
        controls={"threshold": ol.Continuous(LOWEST, HIGHEST, guess=1.0)},
        intervals=40,
        baselines={
            "all samples": at("threshold", HIGHEST),
            "best constant": BestOf(constant("threshold"), bounds_of("threshold")),
            "linear": BestOf(line("threshold"), bounds_of("threshold"), bounds_of("threshold")),
        },
        name="selection",
    )
