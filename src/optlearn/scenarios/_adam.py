"""One pass of least squares on power-law data, by Adam or by SGD: the learning rate."""

from typing import Annotated, Literal, get_args

import optlearn as ol
from optlearn._arguments import Arguments
from optlearn.scenarios._catalogue import Example, scenario
from optlearn.scenarios._least_squares import INTERVALS, decay_baselines, dyadic_blocks, power_law

Optimiser = Literal["adam", "sgd"]


@scenario(
    citations=("kingma2015adam", "paquette2024phases"),
    main=("exponent", "teacher_exponent", "sigma_n2", "alpha_F", "optimiser"),
    example=Example({"learning_rate": [0.3, 0.1]}, 8, {"N": 63, "alpha_F": 4.0}, wrong={"exponent": -1.0}),
)
def adam(
    exponent: Annotated[float, (0.0, 3, 0.1)] = 1.5,
    teacher_exponent: Annotated[float, (-0.5, 3, 0.1)] = 0.5,
    N: Annotated[int, (63, 4095, 64)] = 1023,
    sigma_n2: Annotated[float, (0.05, 1, 0.05)] = 0.1,
    alpha_F: Annotated[float, (1, 30, 1)] = 10.0,
    optimiser: Optimiser = "adam",
    max_rate: Annotated[float, (0.1, 2.0, 0.1)] = 1.0,
) -> "ol.Problem":
    """The learning rate of Adam for least squares on power-law data, compared with that of SGD.

    Control ``learning_rate``, from 0 to ``max_rate``. Data and start are those of ``power_law``: variances
    λ_i ∝ i^−exponent along the axes of the weights, a teacher with T_i ∝ i^−teacher_exponent, zero weights
    with an error of ½. Adam's squares are always up to date (β₂ forgets fast compared to training), ε is 0,
    and in a step a weight changes by about η/√N. With ``optimiser="sgd"`` this is ``power_law``, in SGD's
    units.

    Args:
        exponent: exponent a of the variances.
        teacher_exponent: exponent b of the teacher's squared weights.
        N: number of directions, the input dimension.
        sigma_n2: σ², variance of the label noise, above 0.
        alpha_F: horizon, training steps divided by N.
        optimiser: "adam" or "sgd".
        max_rate: largest learning rate.
    """
    check = Arguments("adam")
    horizon = check.number("alpha_F", alpha_F, 0.0, open_below=True)
    highest = check.number("max_rate", max_rate, 0.0, open_below=True)
    noise = check.number("sigma_n2", sigma_n2, 0.0, open_below=True)
    count = check.count("N", N, lowest=2)
    spectrum, teacher = dyadic_blocks(check, exponent, teacher_exponent, count)
    if check.one_of("optimiser", optimiser, get_args(Optimiser)) == "sgd":
        model: ol.System = power_law(exponent, teacher_exponent, N, noise, horizon, max_rate=highest).model
        start = model.start()  # type: ignore[attr-defined]  # a linear model's
    else:
        student = ol.models.committee(
            1,
            1,
            T=teacher[:, None, None],
            activation="linear",
            sigma_n=noise**0.5,
            eta=0.4 * highest,
            spectrum=spectrum,
        )
        model = ol.models.adam(student)
        start = {}
    return ol.Problem(
        model=model,
        start=start,
        horizon=horizon,
        controls={"learning_rate": ol.Continuous(0.0, highest, guess=0.4 * highest)},
        intervals=INTERVALS,
        baselines=decay_baselines(with_batch=False),
        name="adam",
    )
