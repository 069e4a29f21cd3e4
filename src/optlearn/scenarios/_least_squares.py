"""One pass of least squares, on power-law data or your own features: rate, batch size or both."""

from collections.abc import Callable
from typing import Annotated, Literal

import numpy as np

import optlearn as ol
from optlearn import _time_courses as shapes
from optlearn._arguments import Arguments
from optlearn._control.families import BestOf
from optlearn.scenarios._baselines import (
    Baselines,
    batch_control,
    bounds_of,
    linear_growth,
    mean_of,
    plateau_kinks,
)
from optlearn.scenarios._catalogue import Example, scenario

Scheduled = Literal["learning_rate", "batch", "both"]
INTERVALS = 40
# Exponents of a power decay that are tried, and shares of training in which a plateau decays.
EXPONENTS, DECAYS = (0.0, 4.0), (0.02, 1.0)
# Size of the toy problem that replaces missing features.
TOY_SAMPLES, TOY_FEATURES, TOY_INPUTS = 2000, 60, 30


@scenario(
    citations=("paquette2024phases",),
    main=("exponent", "teacher_exponent", "sigma_n2", "alpha_F", "control"),
    code_only={"recursion": "True, False or None"},
    example=Example({"learning_rate": [0.6, 0.2]}, 8, {"N": 63, "alpha_F": 4.0}, wrong={"exponent": -1.0}),
    variants=({"control": "batch"}, {"control": "both"}),
)
def power_law(
    exponent: Annotated[float, (1.0, 3, 0.1)] = 1.5,
    teacher_exponent: Annotated[float, (-0.5, 3, 0.1)] = 0.5,
    N: Annotated[int, (63, 4095, 64)] = 1023,
    sigma_n2: Annotated[float, (0, 1, 0.05)] = 0.1,
    alpha_F: Annotated[float, (1, 30, 1)] = 10.0,
    control: Scheduled = "learning_rate",
    recursion: bool | None = None,
    max_rate: Annotated[float, (0.1, 1.3, 0.1)] = 1.0,
    mean_batch: Annotated[float, (1.5, 12, 0.5)] = 4.0,
    max_batch: Annotated[float, (8, 64, 1)] = 16.0,
) -> "ol.Problem":
    """Learning rate and batch size for least squares on data with a power-law spectrum.

    Controls ``learning_rate``, from 0 to ``max_rate``, and ``batch``, from 1 to ``max_batch`` with a mean of
    at most ``mean_batch``. The variances of the N directions are λ_i ∝ i^−exponent, the teacher's squared
    weights T_i ∝ i^−teacher_exponent; directions i from 2^k to 2^(k+1) − 1 make a block. Weights start at
    zero, where the error is ½. The task is *easy* if the teacher falls off (teacher_exponent ≥ 0), else
    *hard*. With ``control="learning_rate"`` batches have one sample; with "batch" the rate is the best
    constant.

    Args:
        exponent: exponent a of the variances.
        teacher_exponent: exponent b of the teacher's squared weights.
        N: number of directions, the input dimension.
        sigma_n2: σ², variance of the label noise.
        alpha_F: horizon, training steps divided by N.
        control: what is scheduled: "learning_rate", "batch" or "both".
        recursion: True: the exact mean of SGD in discrete time; False: its limit, an ODE; None: the recursion
            if max_rate · λ₁/tr is above 0.1.
        max_rate: largest learning rate. Rates above about 1.4 diverge, which the ODE does not show.
        mean_batch: largest mean of the batch size over training.
        max_batch: largest batch size.
    """
    check = Arguments("power_law")
    horizon = check.number("alpha_F", alpha_F, 0.0, open_below=True)
    rate = check.number("max_rate", max_rate, 0.0, open_below=True)
    count = check.count("N", N, lowest=2)
    spectrum, teacher = dyadic_blocks(check, exponent, teacher_exponent, count)
    # Whole steps in each of the default intervals.
    clock = max(1, round(horizon * count / INTERVALS)) * INTERVALS / horizon
    noise = check.number("sigma_n2", sigma_n2, 0.0)
    model = ol.models.linear(
        spectrum, teacher, noise=noise, N=count, eta=rate, recursion=recursion, clock=clock
    )
    return least_squares(check, model, horizon, control, rate, mean_batch, max_batch, INTERVALS)


def dyadic_blocks(
    check: Arguments, exponent: float, teacher_exponent: float, N: int
) -> "tuple[ol.Spectrum, np.ndarray]":
    """Power laws of variances and of a teacher for which zero weights have a risk of 1.

    Directions i from 2^k to 2^(k+1) − 1 make a block.
    """
    place = np.arange(1.0, N + 1)
    c = place ** -check.number("exponent", exponent, 0.0)
    c *= N / c.sum()
    T = place ** -check.number("teacher_exponent", teacher_exponent)
    T /= c @ T
    block_of = np.floor(np.log2(place) + 1e-12).astype(int)
    sizes = np.bincount(block_of)
    variance = np.bincount(block_of, c) / sizes
    spectrum = ol.Spectrum(variance, sizes / N, largest=float(c[0] / N))
    return spectrum, np.bincount(block_of, c * T) / variance


@scenario(
    citations=("paquette2024phases",),
    main=("passes", "control", "max_rate"),
    code_only={"features": "a file", "labels": "a file"},
    example=Example({"learning_rate": [0.6, 0.2]}, 8, {"passes": 0.2, "blocks": 6}, wrong={"passes": 0.0}),
    variants=({"control": "batch"}, {"control": "both"}),
)
def probe(
    features: str = "",
    labels: str = "",
    passes: Annotated[float, (0.1, 10, 0.1)] = 1.0,
    control: Scheduled = "learning_rate",
    max_rate: Annotated[float, (0.1, 1.5, 0.1)] = 1.0,
    mean_batch: Annotated[float, (1.5, 12, 0.5)] = 4.0,
    max_batch: Annotated[float, (8, 64, 1)] = 16.0,
    blocks: Annotated[int, (4, 32, 1)] = 16,
) -> "ol.Problem":
    """The learning rate and batch size of a linear head on your own features.

    Controls ``learning_rate``, from 0 to ``max_rate``, and ``batch``. Spectrum, best head and noise are
    measured on the features; training is then the exact recursion of least squares. In your own loop, with
    the loss ½(f − y)² and centred features and labels, the learning rate is η divided by the mean of ‖x‖².
    ``ol.fit.regression`` gives the same problem along with predictions and training.

    Args:
        features: file (``.npy``) with a table of samples (rows) by features; "": random features as a toy.
        labels: file (``.npy``) with a number for each sample.
        passes: number of samples seen over the number of samples.
        control: what is scheduled: "learning_rate", "batch" or "both".
        max_rate: largest learning rate η.
        mean_batch: largest mean of the batch size over training.
        max_batch: largest batch size.
        blocks: number of blocks that represent all directions of the features.
    """
    check = Arguments("probe")
    if bool(features) != bool(labels):
        check.fail("labels" if features else "features", "", "features and labels need a file each")
    X, y = (_table(check, "features", features), _table(check, "labels", labels)) if features else _toy()
    rate = check.number("max_rate", max_rate, 0.0, open_below=True)
    data = ol.models.measured(X, y)
    steps = check.number("passes", passes, 0.0, open_below=True) * len(X)
    horizon = max(1, round(steps)) / data.directions
    model = data.linear(check.count("blocks", blocks), training=rate * horizon / 2)
    return least_squares(check, model, horizon, control, rate, mean_batch, max_batch, INTERVALS)


def _table(check: Arguments, name: str, path: str) -> np.ndarray:
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except (OSError, ValueError) as error:
        check.fail(name, path, f"must be a file of NumPy (.npy); {error}")


def _toy() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(TOY_SAMPLES, TOY_INPUTS))
    X = np.maximum(z @ rng.normal(size=(TOY_INPUTS, TOY_FEATURES)) / np.sqrt(TOY_INPUTS), 0.0)
    return X, np.tanh(z[:, 0] + z[:, 1]) + 0.3 * rng.normal(size=TOY_SAMPLES)


def least_squares(
    check: Arguments,
    model: "ol.models.Linear",
    horizon: float,
    control: str,
    max_rate: float,
    mean_batch: float,
    max_batch: float,
    intervals: int,
) -> "ol.Problem":
    """The problem of the scenario ``check.owner``; see ``power_law`` for its arguments.

    Batches have the size of the model's ``batch`` unless they are scheduled; if only batches are scheduled,
    the learning rate is the best constant.
    """
    check.one_of("control", control, ("learning_rate", "batch", "both"))
    mean, batch = batch_control(check, mean_batch, max_batch, whole_numbers=False)
    scheduled = ("learning_rate", "batch") if control == "both" else (control,)
    with_rate, with_batch = "learning_rate" in scheduled, "batch" in scheduled
    controls = {"learning_rate": ol.Continuous(0.0, max_rate, guess=0.4 * max_rate), "batch": batch}
    return ol.Problem(
        model=model,
        start=model.start(),
        horizon=horizon,
        controls={name: controls[name] for name in scheduled},
        budgets=(ol.Budget("batch", mean=mean, sense="at most"),) if with_batch else (),
        free={} if with_rate else {"learning_rate": ol.Free(0.0, max_rate, guess=0.2 * max_rate)},
        intervals=intervals,
        baselines=decay_baselines(with_batch) if with_rate else _batch_baselines(),
        name=check.owner,
    )


def decay_baselines(with_batch: bool) -> Baselines:
    """Best constant rate; best linear and cosine decays to zero; best plateau and decay; best power decay."""

    def best(shape: Callable[..., shapes.Shape], *more: tuple[float, float]) -> BestOf:
        def family(problem: "ol.Problem", intervals: int, peak: float, *others: float) -> "ol.Schedule":
            courses = {"learning_rate": shape(peak, problem.horizon, *others)}
            if with_batch:
                courses["batch"] = shapes.constant(mean_of(problem))
            return ol.Schedule.from_function(problem.horizon, courses, intervals)

        kinks = plateau_kinks if shape is _plateau else lambda _: ()
        return BestOf(family, bounds_of("learning_rate"), *more, kinks=kinks)

    return {
        "constant": best(lambda peak, horizon: shapes.constant(peak)),
        "linear": best(lambda peak, horizon: shapes.linear(peak, 0.0, horizon)),
        "cosine": best(lambda peak, horizon: shapes.cosine(peak, 0.0, horizon)),
        "WSD": best(_plateau, DECAYS),
        "power decay": best(shapes.power_decay, EXPONENTS),
    }


def _plateau(peak: float, horizon: float, decay: float) -> shapes.Shape:
    return shapes.warm_up_stable_decay(peak, horizon, 0.0, decay)


def _batch_baselines() -> Baselines:
    """Time courses of the batch size, each with its best constant rate."""

    def with_best_rate(course: "Callable[[ol.Problem], shapes.Shape]") -> BestOf:
        def family(problem: "ol.Problem", intervals: int, rate: float) -> "ol.Schedule":
            schedule = ol.Schedule.from_function(problem.horizon, {"batch": course(problem)}, intervals)
            return schedule.with_parameters(learning_rate=rate)

        return BestOf(family, lambda problem: (0.0, problem.free["learning_rate"].upper))

    return {
        "constant": with_best_rate(lambda problem: shapes.constant(mean_of(problem))),
        "linear growth": with_best_rate(linear_growth),
    }
