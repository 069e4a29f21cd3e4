"""Power laws: least squares on data whose spectrum and teacher fall off like powers, as real ones do."""

from typing import Literal

import numpy as np

import optlearn as ol
from optlearn._arguments import Arguments
from optlearn.scenarios import _shared as shared
from optlearn.scenarios._catalogue import Example, scenario

INTERVALS = 40


@scenario(
    citations=("paquette2024phases",),
    ranges={
        "exponent": (1.0, 3, 0.1),
        "teacher_exponent": (-0.5, 3, 0.1),
        "N": (63, 4095, 64),
        "sigma_n2": (0, 1, 0.05),
        "alpha_F": (1, 30, 1),
        "max_rate": (0.1, 1.3, 0.1),
        "mean_batch": (1.5, 12, 0.5),
        "max_batch": (8, 64, 1),
    },
    main=("exponent", "teacher_exponent", "sigma_n2", "alpha_F", "control"),
    code_only={"recursion": "True, False or None"},
    example=Example({"learning_rate": [0.6, 0.2]}, 8, {"N": 63, "alpha_F": 4.0}, wrong={"exponent": -1.0}),
    variants=({"control": "batch"}, {"control": "both"}),
)
def power_law(
    exponent: float = 1.5,
    teacher_exponent: float = 0.5,
    N: int = 1023,
    sigma_n2: float = 0.1,
    alpha_F: float = 10.0,
    control: Literal["learning_rate", "batch", "both"] = "learning_rate",
    recursion: bool | None = None,
    max_rate: float = 1.0,
    mean_batch: float = 4.0,
    max_batch: float = 16.0,
) -> "ol.Problem":
    """Learning rate and batch size for least squares on data with a power-law spectrum.

    Controls ``learning_rate``, from 0 to ``max_rate``, and ``batch``, from 1 to ``max_batch`` with a mean of
    at most ``mean_batch``. The variances of the N directions are λ_i ∝ i^−exponent, the teacher's squared
    weights T_i ∝ i^−teacher_exponent; directions i from 2^k to 2^(k+1) − 1 make a block. Weights start at
    zero, where the error is ½. The task is *easy* where the teacher falls off (teacher_exponent ≥ 0), else
    *hard*. With ``control="learning_rate"`` batches have one sample; with "batch" the rate is a constant, the
    best one.

    Args:
        exponent: a, of the variances.
        teacher_exponent: b, of the teacher's squared weights.
        N: directions.
        sigma_n2: σ², variance of the label noise.
        alpha_F: horizon, training steps divided by N.
        control: what is scheduled: "learning_rate", "batch" or "both".
        recursion: the exact mean of SGD in discrete time; False: its limit, an ODE; None: the recursion where
            max_rate · λ₁/tr is above 0.1.
        max_rate: largest learning rate. Rates from about 1.4 on diverge, which the ODE does not know.
        mean_batch: largest mean of the batch size over training.
        max_batch: largest batch size.
    """
    check = Arguments("power_law")
    horizon = check.number("alpha_F", alpha_F, 0.0, open_below=True)
    rate = check.number("max_rate", max_rate, 0.0, open_below=True)
    model = _model(check, exponent, teacher_exponent, N, sigma_n2, horizon, recursion, rate)
    return shared.least_squares(check, model, horizon, control, rate, mean_batch, max_batch, INTERVALS)


def _model(
    check: Arguments,
    exponent: float,
    teacher_exponent: float,
    N: int,
    sigma_n2: float,
    horizon: float,
    recursion: bool | None,
    top_rate: float,
) -> "ol.models.Linear":
    count = check.count("N", N, lowest=2)
    place = np.arange(1.0, count + 1)
    c = place ** -check.number("exponent", exponent, 0.0)
    c *= count / c.sum()
    T = place ** -check.number("teacher_exponent", teacher_exponent)
    T /= c @ T
    block_of = np.floor(np.log2(place) + 1e-12).astype(int)
    sizes = np.bincount(block_of)
    variance = np.bincount(block_of, c) / sizes
    spectrum = ol.Spectrum(variance, sizes / count, largest=float(c[0] / count))
    # Whole steps in each of the default intervals.
    clock = max(1, round(horizon * count / INTERVALS)) * INTERVALS / horizon
    return ol.models.linear(
        spectrum,
        np.bincount(block_of, c * T) / variance,
        noise=check.number("sigma_n2", sigma_n2, 0.0),
        N=count,
        eta=top_rate,
        recursion=recursion,
        clock=clock,
    )
