"""Learning rate of a soft committee: how to leave the symmetric plateau, and how to settle in noise."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np

import optlearn as ol
from optlearn._arguments import Arguments
from optlearn._arrays import Array
from optlearn.scenarios import _shared as shared
from optlearn.scenarios._catalogue import Example, scenario

if TYPE_CHECKING:
    from optlearn._control.problem import Baseline


@scenario(
    citations=("saad1997globally",),
    ranges={
        "eta": (0.1, 3, 0.1),
        "max_learning_rate": (1.5, 9, 0.1),
        "batch": (1, 10, 1),
        "start_overlap": (0, 0.1, 0.01),
    },
    code_only={"T": "a matrix"},
    example=Example({"learning_rate": [2.0, 0.5]}, 6, {"K": 1, "M": 1, "sigma_n": 0.3, "alpha_F": 5.0}),
)
def learning_rate(
    K: int = 2,
    M: int = 2,
    sigma_n: float = 0.0,
    alpha_F: float = 80.0,
    eta: float = 1.5,
    max_learning_rate: float = 3.0,
    batch: float = 1.0,
    T: Array | None = None,
    activation: Literal["erf", "linear"] = "erf",
    start_norm: float = 0.5,
    start_overlap: float = 0.03,
    seed: int = 0,
) -> "ol.Problem":
    """The learning rate that leaves a soft committee with the lowest error.

    Control ``learning_rate``, from 0 to ``max_learning_rate``. K nodes learn the sum of M nodes, from small
    random weights. Among the baselines is the locally optimal (greedy) schedule.

    Args:
        K: hidden nodes of the student; more than M is allowed.
        M: hidden nodes of the teacher.
        sigma_n: standard deviation of the label noise, which cannot be learned.
        alpha_F: horizon, training steps divided by input dimension.
        eta: learning rate η of the first guess and of a baseline.
        max_learning_rate: upper bound of η.
        batch: fresh samples in each step.
        T: (M, M) overlaps of the teacher's nodes; a number for a multiple of the identity; None for the
            identity.
        activation: of all nodes, "erf" (erf(λ/√2)) or "linear".
        start_norm: squared norm Q_kk of every student's weights at the start, over N.
        start_overlap: typical cosine at the start, 1/√N for random weights in N dimensions.
        seed: of the random numbers of the start.
    """
    check = Arguments("learning_rate")
    highest = check.number("max_learning_rate", max_learning_rate, 0.0, open_below=True)
    guess = check.number("eta", eta, 0.0, highest)
    check.one_of("activation", activation, ("erf", "linear"))
    model = ol.models.committee(K, M, T=T, sigma_n=sigma_n, eta=guess, batch=batch, activation=activation)
    overlaps = np.asarray(model.overlaps.T)
    return ol.Problem(
        model=model,
        start=model.state(**shared.random_overlaps(check, K, overlaps, start_norm, start_overlap, seed)),
        horizon=check.number("alpha_F", alpha_F, 0.0, open_below=True),
        controls={"learning_rate": ol.Continuous(0.0, highest, guess=guess)},
        intervals=80,
        baselines=_baselines(),
        name="learning_rate",
    )


def _baselines() -> "Mapping[str, Baseline]":
    return {"greedy": greedy, **shared.rate_baselines()}


def greedy(problem: "ol.Problem", intervals: int) -> "ol.Schedule":
    """The locally optimal schedule: at every moment the control under which the error falls fastest."""
    return ol.solve(problem, intervals, method="greedy").schedule
