"""Batch size of a soft committee: when to spend the samples of a fixed budget."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np

import optlearn as ol
from optlearn import _time_courses as shapes
from optlearn._arguments import Arguments
from optlearn._arrays import Array
from optlearn.scenarios import _shared as shared
from optlearn.scenarios._catalogue import Example, scenario

if TYPE_CHECKING:
    from optlearn._control.problem import Baseline

# By which factor, as a logarithm, an exponential baseline may grow or shrink.
GROWTH = 8.0


@scenario(
    citations=("smith2018batch",),
    ranges={"mean_batch": (2, 10, 0.5), "max_batch": (15, 60, 1), "start_overlap": (0, 0.1, 0.01)},
    code_only={"T": "a matrix"},
    example=Example({"batch": [1.0, 2.5]}, 6, {"sigma_n": 0.5, "alpha_F": 5.0}),
)
def batch_size(
    K: int = 2,
    M: int = 2,
    sigma_n: float = 0.3,
    alpha_F: float = 80.0,
    eta: float = 1.5,
    mean_batch: float = 4.0,
    max_batch: float = 20.0,
    T: Array | None = None,
    activation: Literal["erf", "linear"] = "erf",
    start_norm: float = 0.5,
    start_overlap: float = 0.03,
    seed: int = 0,
) -> "ol.Problem":
    """The batch size that leaves a soft committee with the lowest error, for a given number of samples.

    Control ``batch``, a real number from 1 to ``max_batch``: fresh samples in each step. Its mean over
    training is at most ``mean_batch``, so that α_F N steps use at most ``mean_batch`` α_F N samples. The best
    whole numbers are reported too. Model, start and teachers are those of ``learning_rate``.

    Args:
        K: hidden nodes of the student; more than M is allowed.
        M: hidden nodes of the teacher.
        sigma_n: standard deviation of the label noise, which cannot be learned.
        alpha_F: horizon, training steps divided by input dimension.
        eta: learning rate η, constant.
        mean_batch: largest mean of the batch size over training.
        max_batch: largest batch size.
        T: (M, M) overlaps of the teacher's nodes; a number for a multiple of the identity; None for the
            identity.
        activation: of all nodes, "erf" (erf(λ/√2)) or "linear".
        start_norm: squared norm Q_kk of every student's weights at the start, over N.
        start_overlap: typical cosine at the start, 1/√N for random weights in N dimensions.
        seed: of the random numbers of the start.
    """
    check = Arguments("batch_size")
    mean, control = shared.batch_control(check, mean_batch, max_batch)
    check.one_of("activation", activation, ("erf", "linear"))
    model = ol.models.committee(K, M, T=T, sigma_n=sigma_n, eta=eta, batch=mean, activation=activation)
    overlaps = np.asarray(model.overlaps.T)
    return ol.Problem(
        model=model,
        start=model.state(**shared.random_overlaps(check, K, overlaps, start_norm, start_overlap, seed)),
        horizon=check.number("alpha_F", alpha_F, 0.0, open_below=True),
        controls={"batch": control},
        budgets=(ol.Budget("batch", mean=mean, sense="at most"),),
        intervals=80,
        baselines=_baselines(),
        name="batch_size",
    )


def _baselines() -> "Mapping[str, Baseline]":
    return {
        "constant": lambda problem, intervals: shared.batch_alone(
            problem, intervals, shapes.constant(shared.mean_batch_of(problem))
        ),
        "linear growth": lambda problem, intervals: shared.batch_alone(
            problem, intervals, shared.linear_growth(problem)
        ),
        "exponential growth": _best_exponential,
    }


def _best_exponential(problem: "ol.Problem", intervals: int) -> "ol.Schedule":
    def family(growth: float) -> "ol.Schedule":
        return shared.batch_alone(problem, intervals, shared.exponential_growth(problem, intervals, growth))

    return shared.best_of(problem, family, (-GROWTH, GROWTH))
