"""Denoising autoencoder: how much noise to train with, for a given noise at test time."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

import optlearn as ol
from optlearn._arguments import Arguments
from optlearn._arrays import Array
from optlearn.scenarios import _shared as shared
from optlearn.scenarios._catalogue import Example, scenario

if TYPE_CHECKING:
    from optlearn._control.problem import Baseline

# The drift has infinite derivatives at Δ = 0 and at Δ = 1.
NOISE_BOUNDS = (0.01, 0.99)

StartName = Literal["fig3", "figS"]
CODE_ONLY = {"cluster_probabilities": "one number for each cluster"}


@scenario(
    citations=("cui2023denoising",),
    ranges={
        "Delta_F": (0.05, 0.9, 0.01),
        "alpha_F": (0.2, 1.6, 0.05),
        "eta": (1, 8, 0.1),
        "sigma": (0.02, 0.3, 0.01),
        "N": (100, 10_000, 100),
        "skip_rate": (1, 8, 0.1),
    },
    main=("Delta_F", "alpha_F", "eta", "sigma"),
    code_only=CODE_ONLY,
    example=Example({"noise": [0.6, 0.2]}, 10, {"finite_size": True}),
)
def denoising(
    Delta_F: float = 0.3,
    alpha_F: float = 0.8,
    eta: float = 5.0,
    sigma: Array = 0.1,
    N: float = 1000,
    start: StartName | Mapping[str, Array] = "fig3",
    skip_rate: float = 5.0,
    cluster_probabilities: Array | None = None,
    finite_size: bool = False,
) -> "ol.Problem":
    """The noise in training that leaves a denoising autoencoder with the lowest error at noise Δ_F.

    Control ``noise`` is the variance Δ of the noise, from 0.01 to 0.99. The skip is trained, from
    b = 0.

    Args:
        Delta_F: noise Δ_F at test time.
        alpha_F: horizon, training steps divided by input dimension.
        eta: learning rate η.
        sigma: standard deviation of the clean inputs around their centroid, one number or (C,).
        N: input dimension, which weighs the skip's part of the error.
        start: "fig3" or "figS", the starts of the paper's figures, or a mapping with ``Q`` (K, K),
            ``R`` (K, C) and ``Omega`` (C, C).
        skip_rate: learning rate η_b of the skip.
        cluster_probabilities: (C,); None for equal ones.
        finite_size: keep the terms of order 1 that the paper neglects (see ``models.autoencoder``).
    """
    check = Arguments("denoising")
    horizon = check.number("alpha_F", alpha_F, 0.0, open_below=True)
    noise = check.number("Delta_F", Delta_F, *NOISE_BOUNDS)
    overlaps = start_overlaps(check, start)
    model = ol.models.autoencoder(
        K=len(overlaps["Q"]),
        Omega=overlaps["Omega"],
        sigma=sigma,
        N=N,
        eta=eta,
        skip_rate=skip_rate,
        noise=noise,
        cluster_probabilities=cluster_probabilities,
        finite_size=finite_size,
    )
    return ol.Problem(
        model=model,
        start=model.state(Q=overlaps["Q"], R=overlaps["R"], b=0.0),
        horizon=horizon,
        controls={"noise": ol.Continuous(*NOISE_BOUNDS, guess=noise)},
        intervals=400,
        baselines=_baselines(),
        name="denoising",
    )


def _named_starts() -> Mapping[str, Mapping[str, Any]]:
    """Name of a start → Q and R of the students (rows) and Ω of the centroids."""
    of = ol.models
    return {
        "fig3": {**of.FIG3_START, "Omega": of.FIG3_OMEGA},
        "figS": {**of.FIGS_START, "Omega": of.FIGS_OMEGA},
    }


def start_overlaps(check: Arguments, start: str | Mapping[str, Array]) -> dict[str, np.ndarray]:
    """Q (K, K), R (K, C) and Omega (C, C) of a named or given start."""
    if isinstance(start, str):
        start = _named_starts()[check.one_of("start", start, get_args(StartName))]
    wanted = {"Q", "R", "Omega"}
    if not hasattr(start, "keys") or set(start) != wanted:
        known = ", ".join(map(repr, get_args(StartName)))
        check.fail("start", start, f"must be one of {known}, or a mapping with Q, R and Omega")
    Omega = check.gram("start['Omega']", start["Omega"])
    Q = check.gram("start['Q']", start["Q"])
    return {
        "Q": Q,
        "R": check.numbers("start['R']", start["R"], (len(Q), len(Omega))),
        "Omega": Omega,
    }


def _baselines() -> "Mapping[str, Baseline]":
    return {
        "constant": lambda problem, intervals: _constant(problem, _test_noise(problem)),
        "best constant": lambda problem, intervals: shared.best_of(
            problem, lambda noise: _constant(problem, noise), NOISE_BOUNDS
        ),
    }


def _constant(problem: "ol.Problem", noise: float) -> "ol.Schedule":
    return ol.Schedule.constant(problem.horizon, {"noise": noise})


def _test_noise(problem: "ol.Problem") -> float:
    return float(problem.settings["test_noise"])
