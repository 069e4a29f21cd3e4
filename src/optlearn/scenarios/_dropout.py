"""Dropout: when to switch hidden nodes off, and how to rescale the output at test time."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import optlearn as ol
from optlearn._arguments import Arguments
from optlearn._arrays import Array
from optlearn.scenarios import _shared as shared
from optlearn.scenarios._catalogue import Example, scenario

if TYPE_CHECKING:
    from optlearn._control.problem import Baseline

# Where solvers start, for both the activation probability and the rescaling.
GUESS = 0.7


@scenario(
    citations=("srivastava2014dropout",),
    ranges={
        "K": (1, 4, 1),
        "M": (1, 3, 1),
        "sigma_n": (0, 0.6, 0.01),
        "eta": (0.2, 2, 0.05),
        "alpha_F": (1, 10, 0.25),
    },
    main=("sigma_n", "eta", "alpha_F", "K", "M"),
    code_only={"T": "a matrix"},
    example=Example({"activation": [1.0, 0.6]}, 8),
)
def dropout(
    K: int = 2,
    M: int = 1,
    sigma_n: float = 0.3,
    eta: float = 1.0,
    alpha_F: float = 5.0,
    T: Array | None = None,
) -> "ol.Problem":
    """The activation probability of hidden nodes that leaves a committee with the lowest error.

    Control ``activation``, from 0 to 1, is the probability p with which a node is on; the free
    parameter ``rescaling``, from 0 to 1, is the factor p_f of the output at test time. The weights
    start at zero.

    Args:
        K: hidden nodes of the student.
        M: hidden nodes of the teacher.
        sigma_n: standard deviation of the label noise.
        eta: learning rate η.
        alpha_F: horizon, training steps divided by input dimension.
        T: (M, M) overlaps of the teacher's nodes; a number for a multiple of the identity; None for
            the identity.
    """
    check = Arguments("dropout")
    horizon = check.number("alpha_F", alpha_F, 0.0, open_below=True)
    model = ol.models.committee(K, M, T=T, sigma_n=sigma_n, eta=eta, dropout=True)
    return ol.Problem(
        model=model,
        start=model.state(),
        horizon=horizon,
        controls={"activation": ol.Continuous(0.0, 1.0, guess=GUESS)},
        free={"rescaling": ol.Free(0.0, 1.0, guess=GUESS)},
        intervals=50,
        baselines=_baselines(),
        name="dropout",
    )


def _baselines() -> "Mapping[str, Baseline]":
    return {
        "no dropout": lambda problem, intervals: _constant(problem, 1.0, 1.0),
        "best constant p = p_f": _best_tied,
        "best constant p, free p_f": _best_free,
    }


def _constant(problem: "ol.Problem", p: float, rescaling: float) -> "ol.Schedule":
    schedule = ol.Schedule.constant(problem.horizon, {"activation": p})
    return schedule.with_parameters(rescaling=rescaling)


def _best_tied(problem: "ol.Problem", intervals: int) -> "ol.Schedule":
    return shared.best_of(problem, lambda p: _constant(problem, p, p), (0.0, 1.0))


def _best_free(problem: "ol.Problem", intervals: int) -> "ol.Schedule":
    return shared.best_of(
        problem, lambda p, rescaling: _constant(problem, p, rescaling), (0.0, 1.0), (0.0, 1.0)
    )
