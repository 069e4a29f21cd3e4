"""Soft committees: the learning rate, the batch size, and dropout."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np

import optlearn as ol
from optlearn import _time_courses as shapes
from optlearn._arguments import Arguments
from optlearn._arrays import Array
from optlearn._control.families import BestOf
from optlearn.scenarios._baselines import (
    Baselines,
    along,
    batch_control,
    exponential_growth,
    linear_growth,
    mean_of,
    rate_baselines,
)
from optlearn.scenarios._catalogue import Example, scenario

Activation = Literal["erf", "linear"]
# Log of the factor by which an exponential baseline may grow or shrink.
GROWTH = 8.0
# First guess of both the activation probability and the rescaling.
DROPOUT_GUESS = 0.7


@scenario(
    citations=("saad1997globally",),
    code_only={"T": "a matrix"},
    example=Example({"learning_rate": [2.0, 0.5]}, 6, {"K": 1, "M": 1, "sigma_n": 0.3, "alpha_F": 5.0}),
)
def learning_rate(
    K: int = 2,
    M: int = 2,
    sigma_n: float = 0.0,
    alpha_F: float = 80.0,
    eta: Annotated[float, (0.1, 3, 0.1)] = 1.5,
    max_learning_rate: Annotated[float, (1.5, 9, 0.1)] = 3.0,
    batch: Annotated[float, (1, 10, 1)] = 1.0,
    T: Array | None = None,
    activation: Activation = "erf",
    start_norm: float = 0.5,
    start_overlap: Annotated[float, (0, 0.1, 0.01)] = 0.03,
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
        activation: activation of all nodes, "erf" (erf(λ/√2)) or "linear".
        start_norm: squared norm Q_kk of every student's weights at the start, over N.
        start_overlap: typical cosine at the start, 1/√N for random weights in N dimensions.
        seed: seed of the random initial weights.
    """
    check = Arguments("learning_rate")
    highest = check.number("max_learning_rate", max_learning_rate, 0.0, open_below=True)
    guess = check.number("eta", eta, 0.0, highest)
    return _from_random_weights(
        check,
        activation,
        {"K": K, "M": M, "T": T, "sigma_n": sigma_n, "eta": guess, "batch": batch},
        alpha_F,
        (start_norm, start_overlap, seed),
        controls={"learning_rate": ol.Continuous(0.0, highest, guess=guess)},
        baselines={"greedy": _greedy, **rate_baselines()},
    )


def _greedy(problem: "ol.Problem", intervals: int) -> "ol.Schedule":
    """The locally optimal schedule: at every moment the control under which the error falls fastest."""
    return ol.solve(problem, intervals, method="greedy").schedule


@scenario(
    citations=("smith2018batch",),
    code_only={"T": "a matrix"},
    example=Example({"batch": [1.0, 2.5]}, 6, {"sigma_n": 0.5, "alpha_F": 5.0}),
)
def batch_size(
    K: int = 2,
    M: int = 2,
    sigma_n: float = 0.3,
    alpha_F: float = 80.0,
    eta: float = 1.5,
    mean_batch: Annotated[float, (2, 10, 0.5)] = 4.0,
    max_batch: Annotated[float, (15, 60, 1)] = 20.0,
    T: Array | None = None,
    activation: Activation = "erf",
    start_norm: float = 0.5,
    start_overlap: Annotated[float, (0, 0.1, 0.01)] = 0.03,
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
        activation: activation of all nodes, "erf" (erf(λ/√2)) or "linear".
        start_norm: squared norm Q_kk of every student's weights at the start, over N.
        start_overlap: typical cosine at the start, 1/√N for random weights in N dimensions.
        seed: seed of the random initial weights.
    """
    check = Arguments("batch_size")
    mean, control = batch_control(check, mean_batch, max_batch)
    return _from_random_weights(
        check,
        activation,
        {"K": K, "M": M, "T": T, "sigma_n": sigma_n, "eta": eta, "batch": mean},
        alpha_F,
        (start_norm, start_overlap, seed),
        controls={"batch": control},
        budgets=(ol.Budget("batch", mean=mean, sense="at most"),),
        baselines={
            "constant": along("batch", lambda problem: shapes.constant(mean_of(problem))),
            "linear growth": along("batch", linear_growth),
            "exponential growth": BestOf(exponential_growth, (-GROWTH, GROWTH)),
        },
    )


def _from_random_weights(
    check: Arguments,
    activation: str,
    arguments: Mapping[str, Any],
    alpha_F: float,
    start: tuple[float, float, int],
    controls: "Mapping[str, ol.Continuous]",
    baselines: Baselines,
    budgets: "tuple[ol.Budget, ...]" = (),
) -> "ol.Problem":
    """The problem of a committee with these arguments, from random weights (norm, overlap, seed)."""
    check.one_of("activation", activation, ("erf", "linear"))
    model = ol.models.committee(**arguments, activation=activation)
    overlaps = random_overlaps(check, model.students, np.asarray(model.overlaps.T), *start)
    return ol.Problem(
        model=model,
        start=model.state(**overlaps),
        horizon=check.number("alpha_F", alpha_F, 0.0, open_below=True),
        controls=controls,
        budgets=budgets,
        intervals=80,
        baselines=baselines,
        name=check.owner,
    )


def random_overlaps(
    check: Arguments, K: int, T: np.ndarray, norm: float, overlap: float, seed: int
) -> dict[str, np.ndarray]:
    """Q (K, K) and M (K, M) of K students, almost uncorrelated with each other and with teachers T (M, M).

    Every student has the squared norm ``norm``; its cosine with another student, and with any direction
    in the teachers' space, is a normal number of standard deviation ``overlap``: 1/√N for random
    weights in N dimensions.
    """
    norm = check.number("start_norm", norm, 0.0, open_below=True)
    overlap = check.number("start_overlap", overlap, 0.0, 0.3)
    normal = np.random.default_rng(check.count("seed", seed, lowest=0)).standard_normal
    among = np.triu(normal((K, K)), 1)
    eigenvalues, axes = np.linalg.eigh(T)
    root = axes * np.sqrt(np.clip(eigenvalues, 0.0, None)) @ axes.T
    return {
        "Q": norm * (np.eye(K) + overlap * (among + among.T)),
        "M": np.sqrt(norm) * overlap * normal((K, len(T))) @ root,
    }


@scenario(
    citations=("srivastava2014dropout",),
    main=("sigma_n", "eta", "alpha_F", "K", "M"),
    code_only={"T": "a matrix"},
    example=Example({"activation": [1.0, 0.6]}, 8),
)
def dropout(
    K: Annotated[int, (1, 4, 1)] = 2,
    M: Annotated[int, (1, 3, 1)] = 1,
    sigma_n: Annotated[float, (0, 0.6, 0.01)] = 0.3,
    eta: Annotated[float, (0.2, 2, 0.05)] = 1.0,
    alpha_F: Annotated[float, (1, 10, 0.25)] = 5.0,
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
        controls={"activation": ol.Continuous(0.0, 1.0, guess=DROPOUT_GUESS)},
        free={"rescaling": ol.Free(0.0, 1.0, guess=DROPOUT_GUESS)},
        intervals=50,
        baselines={
            "no dropout": lambda problem, intervals: _dropout(problem, intervals, 1.0, 1.0),
            "best constant p = p_f": BestOf(
                lambda problem, intervals, p: _dropout(problem, intervals, p, p), (0.0, 1.0)
            ),
            "best constant p, free p_f": BestOf(_dropout, (0.0, 1.0), (0.0, 1.0)),
        },
        name="dropout",
    )


def _dropout(problem: "ol.Problem", intervals: int, p: float, rescaling: float) -> "ol.Schedule":
    schedule = ol.Schedule.constant(problem.horizon, {"activation": p})
    return schedule.with_parameters(rescaling=rescaling)
