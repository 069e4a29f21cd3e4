"""Denoising autoencoder: how many noisy copies of each sample to train on, and when."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import optlearn as ol
from optlearn._arguments import Arguments
from optlearn._arrays import Array
from optlearn.scenarios import _shared as shared
from optlearn.scenarios._catalogue import Example, scenario
from optlearn.scenarios._denoising import CODE_ONLY, NOISE_BOUNDS, StartName, start_overlaps

if TYPE_CHECKING:
    from optlearn._control.problem import Baseline


@scenario(
    citations=("cui2023denoising",),
    ranges={
        "Delta_F": (0.05, 0.9, 0.01),
        "mean_batch": (1.5, 20, 0.5),
        "max_batch": (25, 100, 5),
        "sigma": (0.02, 0.3, 0.01),
        "N": (100, 10_000, 100),
    },
    code_only=CODE_ONLY,
    example=Example({"batch": [1.0, 4.0]}, 6, {"finite_size": True}),
)
def denoising_batch(
    Delta_F: float = 0.3,
    mean_batch: float = 5.0,
    alpha_F: float = 1.2,
    max_batch: float = 50.0,
    eta: float = 5.0,
    sigma: Array = 0.1,
    N: float = 1000,
    start: StartName | Mapping[str, Array] = "fig3",
    cluster_probabilities: Array | None = None,
    finite_size: bool = False,
) -> "ol.Problem":
    """The noisy copies of each sample that leave an autoencoder with the lowest error.

    Control ``batch`` is the number B of noisy copies of each clean sample, a real number from 1 to
    ``max_batch`` whose mean over training is ``mean_batch``; the best whole numbers are reported
    too. The skip keeps its best value b*, and the noise in training is that at test time.

    Args:
        Delta_F: noise Δ_F in training and at test time.
        mean_batch: mean of B over training.
        alpha_F: horizon, training steps divided by input dimension.
        max_batch: largest B.
        eta: learning rate η.
        sigma: standard deviation of the clean inputs around their centroid, one number or (C,).
        N: input dimension, which weighs the skip's part of the error.
        start: "fig3" or "figS", the starts of the paper's figures, or a mapping with ``Q`` (K, K),
            ``R`` (K, C) and ``Omega`` (C, C).
        cluster_probabilities: (C,); None for equal ones.
        finite_size: keep the terms of order 1 that the paper neglects (see ``models.autoencoder``).
    """
    check = Arguments("denoising_batch")
    horizon = check.number("alpha_F", alpha_F, 0.0, open_below=True)
    noise = check.number("Delta_F", Delta_F, *NOISE_BOUNDS)
    mean, control = shared.batch_control(check, mean_batch, max_batch)
    overlaps = start_overlaps(check, start)
    model = ol.models.autoencoder(
        K=len(overlaps["Q"]),
        Omega=overlaps["Omega"],
        sigma=sigma,
        N=N,
        eta=eta,
        noise=noise,
        cluster_probabilities=cluster_probabilities,
        trained_skip=False,
        augmentation=True,
        batch=mean,
        finite_size=finite_size,
    )
    skip = ol.models.optimal_skip(noise, sigma, cluster_probabilities)
    return ol.Problem(
        model=model,
        start=model.state(Q=overlaps["Q"], R=overlaps["R"], b=skip),
        horizon=horizon,
        controls={"batch": control},
        budgets=(ol.Budget("batch", mean=mean),),
        intervals=120,
        baselines=_baselines(),
        name="denoising_batch",
    )


def _baselines() -> "Mapping[str, Baseline]":
    return {
        "constant": lambda problem, intervals: ol.Schedule.constant(
            problem.horizon, {"batch": shared.mean_batch_of(problem)}
        ),
        "linear growth": lambda problem, intervals: shared.batch_alone(
            problem, intervals, shared.linear_growth(problem)
        ),
    }
