"""Local rules: the learning rate for units that do not follow a gradient."""

from typing import Literal

import optlearn as ol
from optlearn._arguments import Arguments
from optlearn.scenarios import _shared as shared
from optlearn.scenarios._catalogue import Example, scenario

RULES = ("hebb", "perceptron", "margin", "clipped")


@scenario(
    citations=("rosenblatt1958perceptron",),
    ranges={"alpha_F": (2, 40, 1), "threshold": (0.1, 3, 0.1)},
    example=Example({"learning_rate": [1.0, 0.4]}, 8, {"alpha_F": 5.0}),
)
def local_rules(
    rule: Literal["hebb", "perceptron", "margin", "clipped"] = "perceptron",
    alpha_F: float = 20.0,
    threshold: float = 0.5,
    max_learning_rate: float = 3.0,
) -> "ol.Problem":
    """The learning rate of a unit that learns by a local rule instead of a gradient.

    Control ``learning_rate``, from 0 to ``max_learning_rate``. With "hebb", "perceptron" and "margin" the
    unit learns the sign of a teacher and is judged by its share of mistakes; with "clipped" it is linear, its
    labels have noise of standard deviation 0.5, and it is judged by half its squared error. The start is Q =
    0.5, M = 0.1.

    Args:
        rule: "hebb" learns every sample, "perceptron" mistakes only, "margin" those that the student is
            unsure of, and "clipped" follows gradients of limited length.
        alpha_F: horizon, training steps divided by input dimension.
        threshold: of "margin", in standard deviations of the student's field, and of "clipped".
        max_learning_rate: upper bound of η.
    """
    check = Arguments("local_rules")
    check.one_of("rule", rule, RULES)
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
        baselines=shared.rate_baselines(),
        name="local_rules",
    )
