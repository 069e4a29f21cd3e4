"""Denoising autoencoders: how much noise to train with, and how many noisy copies of a sample to use."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

import numpy as np

import optlearn as ol
from optlearn import _time_courses as shapes
from optlearn._arguments import Arguments
from optlearn._arrays import Array
from optlearn._control.families import BestOf
from optlearn.scenarios._baselines import along, at, batch_control, constant, linear_growth, mean_of
from optlearn.scenarios._catalogue import Example, scenario

# The drift has infinite derivatives at Δ = 0 and Δ = 1.
NOISE_BOUNDS = (0.01, 0.99)

StartName = Literal["fig3", "figS"]
Criterion = Literal["mean", "worst"]
CODE_ONLY = {"cluster_probabilities": "one number for each cluster"}


@scenario(
    citations=("cui2023denoising",),
    main=("Delta_F", "alpha_F", "eta", "sigma"),
    code_only=CODE_ONLY,
    example=Example({"noise": [0.6, 0.2]}, 10, {"finite_size": True}),
)
def denoising(
    Delta_F: Annotated[float, (0.05, 0.9, 0.01)] = 0.3,
    alpha_F: Annotated[float, (0.2, 1.6, 0.05)] = 0.8,
    eta: Annotated[float, (1, 8, 0.1)] = 5.0,
    sigma: Annotated[Array, (0.02, 0.3, 0.01)] = 0.1,
    N: Annotated[float, (100, 10000, 100)] = 1000,
    start: StartName | Mapping[str, Array] = "fig3",
    skip_rate: Annotated[float, (1, 8, 0.1)] = 5.0,
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
    noise = check.number("Delta_F", Delta_F, *NOISE_BOUNDS)
    arguments = {
        "sigma": sigma, "N": N, "eta": eta, "skip_rate": skip_rate, "noise": noise,
        "cluster_probabilities": cluster_probabilities, "finite_size": finite_size,
    }  # fmt: skip
    return _problem(
        check,
        start,
        arguments,
        alpha_F,
        controls={"noise": ol.Continuous(*NOISE_BOUNDS, guess=noise)},
        intervals=400,
        baselines={
            "constant": at("noise", lambda problem: float(problem.settings["test_noise"])),
            "best constant": BestOf(constant("noise"), NOISE_BOUNDS),
        },
    )


@scenario(
    citations=("cui2023denoising",),
    code_only=CODE_ONLY,
    example=Example({"batch": [1.0, 4.0]}, 6, {"finite_size": True}),
)
def denoising_batch(
    Delta_F: Annotated[float, (0.05, 0.9, 0.01)] = 0.3,
    mean_batch: Annotated[float, (1.5, 20, 0.5)] = 5.0,
    alpha_F: float = 1.2,
    max_batch: Annotated[float, (25, 100, 5)] = 50.0,
    eta: float = 5.0,
    sigma: Annotated[Array, (0.02, 0.3, 0.01)] = 0.1,
    N: Annotated[float, (100, 10000, 100)] = 1000,
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
        max_batch: largest batch B.
        eta: learning rate η.
        sigma: standard deviation of the clean inputs around their centroid, one number or (C,).
        N: input dimension, which weighs the skip's part of the error.
        start: "fig3" or "figS", the starts of the paper's figures, or a mapping with ``Q`` (K, K),
            ``R`` (K, C) and ``Omega`` (C, C).
        cluster_probabilities: (C,); None for equal ones.
        finite_size: keep the terms of order 1 that the paper neglects (see ``models.autoencoder``).
    """
    check = Arguments("denoising_batch")
    noise = check.number("Delta_F", Delta_F, *NOISE_BOUNDS)
    mean, control = batch_control(check, mean_batch, max_batch)
    arguments = {
        "sigma": sigma, "N": N, "eta": eta, "noise": noise, "cluster_probabilities": cluster_probabilities,
        "trained_skip": False, "augmentation": True, "batch": mean, "finite_size": finite_size,
    }  # fmt: skip
    return _problem(
        check,
        start,
        arguments,
        alpha_F,
        controls={"batch": control},
        budgets=(ol.Budget("batch", mean=mean),),
        intervals=120,
        baselines={"constant": at("batch", mean_of), "linear growth": along("batch", linear_growth)},
    )


@scenario(citations=("cui2023denoising",), example=Example({"noise": [0.6, 0.2]}, 8, {"levels": 2}))
def diffusion(
    noises: Annotated[Sequence[float], (0.02, 0.5, 0.01), (0.3, 0.95, 0.01)] = (0.1, 0.7),
    levels: Annotated[int, (2, 8, 1)] = 4,
    objective: Criterion = "mean",
    alpha_F: Annotated[float, (0.2, 1.6, 0.05)] = 0.8,
    eta: Annotated[float, (1, 8, 0.1)] = 5.0,
    sigma: Annotated[float, (0.02, 0.3, 0.01)] = 0.1,
    N: Annotated[float, (100, 10000, 100)] = 1000,
    start: StartName = "fig3",
    skip_rate: Annotated[float, (1, 8, 0.1)] = 5.0,
) -> "ol.Problem":
    """The noise in training that leaves one denoiser with the lowest error over many noises at test time.

    Control ``noise`` is the variance Δ of the noise in training, from 0.01 to 0.99. The network is not told
    the noise level; at test time it is anywhere between the two ``noises``, all equally likely. Model and
    start are those of ``denoising``.

    Args:
        noises: (2,) lowest and highest noise Δ_F at test time.
        levels: number of test noises that represent all: Gauss points between the two.
        objective: "mean" over the test noises, or "worst" of them.
        alpha_F: horizon, training steps divided by input dimension.
        eta: learning rate η.
        sigma: standard deviation of the clean inputs around their centroid.
        N: input dimension, which weighs the skip's part of the error.
        start: "fig3" or "figS", the starts of the paper's figures.
        skip_rate: learning rate η_b of the skip.
    """
    check = Arguments("diffusion")
    low, high = check.numbers("noises", noises, (2,), *NOISE_BOUNDS)
    if not low < high:
        check.fail("noises", noises, "must be the lowest, then the highest")
    check.one_of("objective", objective, get_args(Criterion))
    nodes, weights = np.polynomial.legendre.leggauss(check.count("levels", levels, 2))
    tests = [{"test_noise": float(noise)} for noise in (low + high) / 2 + (high - low) / 2 * nodes]
    errors = [ol.Objective.under(test) for test in tests]
    mean = ol.Objective.under(*tests, weights=(weights / 2).tolist())
    worst, middle = objective == "worst", (low + high) / 2
    return _problem(
        check,
        start,
        {"sigma": sigma, "N": N, "eta": eta, "skip_rate": skip_rate, "noise": middle},
        alpha_F,
        controls={"noise": ol.Continuous(*NOISE_BOUNDS, guess=middle)},
        objective=errors[0] if worst else mean,
        rivals=tuple(errors[1:]) if worst else (),
        intervals=100,
        baselines={
            "middle": at("noise", middle),
            "best constant": BestOf(constant("noise"), NOISE_BOUNDS),
            "all noises, falling": along("noise", lambda problem: shapes.linear(high, low, problem.horizon)),
        },
    )


def _problem(
    check: Arguments,
    start: str | Mapping[str, Array],
    arguments: Mapping[str, Any],
    alpha_F: float,
    **parts: Any,
) -> "ol.Problem":
    """The problem of an autoencoder with these arguments; ``parts`` are fields of the problem."""
    horizon = check.number("alpha_F", alpha_F, 0.0, open_below=True)
    overlaps = _start_overlaps(check, start)
    model = ol.models.autoencoder(K=len(overlaps["Q"]), Omega=overlaps["Omega"], **arguments)
    skip = 0.0  # if it is trained; else it has its best value throughout
    if not arguments.get("trained_skip", True):
        data = (arguments[name] for name in ("noise", "sigma", "cluster_probabilities"))
        skip = ol.models.optimal_skip(*data)
    initial = model.state(Q=overlaps["Q"], R=overlaps["R"], b=skip)
    return ol.Problem(model=model, start=initial, horizon=horizon, name=check.owner, **parts)


def _start_overlaps(check: Arguments, start: str | Mapping[str, Array]) -> dict[str, np.ndarray]:
    """Q (K, K), R (K, C) and Omega (C, C) of a named or explicit start."""
    if isinstance(start, str):
        check.one_of("start", start, get_args(StartName))
        models, is_fig3 = ol.models, start == "fig3"
        overlaps = models.FIG3_START if is_fig3 else models.FIGS_START
        start = {**overlaps, "Omega": models.FIG3_OMEGA if is_fig3 else models.FIGS_OMEGA}
    if not hasattr(start, "keys") or set(start) != {"Q", "R", "Omega"}:
        names = ", ".join(map(repr, get_args(StartName)))
        check.fail("start", start, f"must be one of {names}, or a mapping with Q, R and Omega")
    Omega = check.gram("start['Omega']", start["Omega"])
    Q = check.gram("start['Q']", start["Q"])
    return {"Q": Q, "R": check.numbers("start['R']", start["R"], (len(Q), len(Omega))), "Omega": Omega}
