"""One denoiser for all noise levels: which noise to train with, and when."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

import optlearn as ol
from optlearn._arguments import Arguments
from optlearn.scenarios import _shared as shared
from optlearn.scenarios._catalogue import Example, scenario
from optlearn.scenarios._denoising import NOISE_BOUNDS, StartName, start_overlaps

if TYPE_CHECKING:
    from optlearn._control.problem import Baseline

Criterion = Literal["mean", "worst"]


@scenario(
    citations=("cui2023denoising",),
    ranges={
        "noises[0]": (0.02, 0.5, 0.01),
        "noises[1]": (0.3, 0.95, 0.01),
        "levels": (2, 8, 1),
        "alpha_F": (0.2, 1.6, 0.05),
        "eta": (1, 8, 0.1),
        "sigma": (0.02, 0.3, 0.01),
        "N": (100, 10_000, 100),
        "skip_rate": (1, 8, 0.1),
    },
    example=Example({"noise": [0.6, 0.2]}, 8, {"levels": 2}),
)
def diffusion(
    noises: Sequence[float] = (0.1, 0.7),
    levels: int = 4,
    objective: Criterion = "mean",
    alpha_F: float = 0.8,
    eta: float = 5.0,
    sigma: float = 0.1,
    N: float = 1000,
    start: StartName = "fig3",
    skip_rate: float = 5.0,
) -> "ol.Problem":
    """The noise in training that leaves one denoiser with the lowest error over many noises at test time.

    Control ``noise`` is the variance Δ of the noise in training, from 0.01 to 0.99. The network is not told
    the noise level; at test time it is anywhere between the two ``noises``, all equally likely. Model and
    start are those of ``denoising``.

    Args:
        noises: (2,) lowest and highest noise Δ_F at test time.
        levels: test noises that stand for all of them: Gauss's points between the two.
        objective: "mean" over the test noises, or "worst" of them.
        alpha_F: horizon, training steps divided by input dimension.
        eta: learning rate η.
        sigma: standard deviation of the clean inputs around their centroid.
        N: input dimension, which weighs the skip's part of the error.
        start: "fig3" or "figS", the starts of the paper's figures.
        skip_rate: learning rate η_b of the skip.
    """
    check = Arguments("diffusion")
    horizon = check.number("alpha_F", alpha_F, 0.0, open_below=True)
    low, high = check.numbers("noises", noises, (2,), *NOISE_BOUNDS)
    if not low < high:
        check.fail("noises", noises, "must be the lowest, then the highest")
    check.one_of("objective", objective, get_args(Criterion))
    nodes, weights = np.polynomial.legendre.leggauss(check.count("levels", levels, 2))
    tests = [{"test_noise": float(noise)} for noise in (low + high) / 2 + (high - low) / 2 * nodes]
    overlaps = start_overlaps(check, start)
    model = ol.models.autoencoder(
        K=len(overlaps["Q"]),
        Omega=overlaps["Omega"],
        sigma=sigma,
        N=N,
        eta=eta,
        skip_rate=skip_rate,
        noise=(low + high) / 2,
    )
    errors = [ol.Objective.under(test) for test in tests]
    mean = ol.Objective.under(*tests, weights=(weights / 2).tolist())
    worst = objective == "worst"
    return ol.Problem(
        model=model,
        start=model.state(Q=overlaps["Q"], R=overlaps["R"], b=0.0),
        horizon=horizon,
        controls={"noise": ol.Continuous(*NOISE_BOUNDS, guess=(low + high) / 2)},
        objective=errors[0] if worst else mean,
        rivals=tuple(errors[1:]) if worst else (),
        intervals=100,
        baselines=_baselines(low, high),
        name="diffusion",
    )


def _baselines(low: float, high: float) -> "Mapping[str, Baseline]":
    return {
        "middle": lambda problem, intervals: _constant(problem, (low + high) / 2),
        "best constant": lambda problem, intervals: shared.best_of(
            problem, lambda noise: _constant(problem, noise), NOISE_BOUNDS
        ),
        "all noises, falling": lambda problem, intervals: ol.Schedule.from_function(
            problem.horizon,
            {"noise": lambda alpha: high + (low - high) * alpha / problem.horizon},
            intervals,
        ),
    }


def _constant(problem: "ol.Problem", noise: float) -> "ol.Schedule":
    return ol.Schedule.constant(problem.horizon, {"noise": noise})
