"""Denoising autoencoder: how much noise to train with, for a given noise at test time."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from optlearn._arrays import Array
from optlearn._control.controls import Continuous
from optlearn._control.problem import Baseline, Problem
from optlearn._control.scenario_call import scenario
from optlearn._schedule import Schedule
from optlearn.models._autoencoder import (
    FIG3_OMEGA,
    FIG3_START,
    FIGS_OMEGA,
    FIGS_START,
    Autoencoder,
    autoencoder,
)
from optlearn.models._checks import Arguments
from optlearn.scenarios._search import best_of

# The drift has infinite derivatives at Δ = 0 and at Δ = 1.
NOISE_BOUNDS = (0.01, 0.99)

# Name of a start → Q and R of the students (rows) and Ω of the centroids.
STARTS: Mapping[str, Mapping[str, Any]] = {
    "fig3": {**FIG3_START, "Omega": FIG3_OMEGA},
    "figS": {**FIGS_START, "Omega": FIGS_OMEGA},
}


@scenario
def denoising(
    Delta_F: float = 0.3,
    alpha_F: float = 0.8,
    eta: float = 5.0,
    sigma: Array = 0.1,
    N: float = 1000,
    start: str | Mapping[str, Array] = "fig3",
    skip_rate: float = 5.0,
    cluster_probabilities: Array | None = None,
    finite_size: bool = False,
) -> Problem:
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
    model: Autoencoder = autoencoder(
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
    return Problem(
        model=model,
        start=model.state(Q=overlaps["Q"], R=overlaps["R"], b=0.0),
        horizon=horizon,
        controls={"noise": Continuous(*NOISE_BOUNDS, guess=noise)},
        intervals=400,
        baselines=_baselines(),
        name="denoising",
    )


def start_overlaps(check: Arguments, start: str | Mapping[str, Array]) -> dict[str, np.ndarray]:
    """Q (K, K), R (K, C) and Omega (C, C) of a named or given start."""
    if isinstance(start, str):
        start = STARTS[check.one_of("start", start, STARTS)]
    wanted = {"Q", "R", "Omega"}
    if not hasattr(start, "keys") or set(start) != wanted:
        known = ", ".join(map(repr, STARTS))
        check.fail("start", start, f"must be one of {known}, or a mapping with Q, R and Omega")
    Omega = check.gram("start['Omega']", start["Omega"])
    Q = check.gram("start['Q']", start["Q"])
    return {
        "Q": Q,
        "R": check.numbers("start['R']", start["R"], (len(Q), len(Omega))),
        "Omega": Omega,
    }


def _baselines() -> Mapping[str, Baseline]:
    return {
        "constant": lambda problem, intervals: _constant(problem, _test_noise(problem)),
        "best constant": lambda problem, intervals: best_of(
            problem, lambda noise: _constant(problem, noise), NOISE_BOUNDS
        ),
    }


def _constant(problem: Problem, noise: float) -> Schedule:
    return Schedule.constant(problem.horizon, {"noise": noise})


def _test_noise(problem: Problem) -> float:
    return float(problem.settings["test_noise"])
