"""The loss of an exponential average of the weights, by a law that was fitted to the weights themselves.

The noise of SGD is in modes, each of them a direction in which weights scatter: v is the mean square of the
scatter, which decays at a rate ρ, so that the scatter itself decays at ρ/2. An average w̄ ← w̄ + (w − w̄)/m
follows it without parameters of its own::

    dc/dt = −(ρ/2 + γ) c + γ v        c = mean of w̄ w along a mode, γ = 1/m
    dv̄/dt = 2γ (c − v̄)                v̄ = mean of w̄²: v γ / (γ + ρ/2) under a constant rate

The average follows the progress of the weights with a delay: S̄ is an average of S.
"""

import numpy as np

from optlearn._arrays import Float
from optlearn.laws._law import (
    NAMES,
    Course,
    effect_of,
    loss_of,
    over_interval,
    relax,
    relaxation_rates,
)

# Weights count as constant over this fraction of the memory, if that is more than a step.
PARTS = 100


def loss_of_average(
    parameters: Float[np.ndarray, "K 15"], course: Course, memory: float, step: float
) -> Float[np.ndarray, "K intervals"]:
    """Loss of averaged weights at the end of every interval of the only run of ``course``.

    Args:
        parameters: sets of them.
        course: intervals of constant settings.
        memory: m of the average, in steps; 1: the weights themselves.
        step: of training, in units of the course's time.
    """
    rates, weights = relaxation_rates(parameters)
    value = {name: parameters[:, i] for i, name in enumerate(NAMES)}
    modes = mixed = averaged = np.zeros(rates.shape)
    progress = delayed = path = np.zeros(len(parameters))
    losses = []
    for length, rate, batch in zip(course.lengths[0], course.rates[0], course.batches[0], strict=True):
        parts = max(1, int(np.ceil(round(length / step, 6) / max(1.0, memory / PARTS))))
        kept = (1 - 1 / memory) ** (length / step / parts)
        effect = effect_of(value, rate, batch)
        for _ in range(parts):
            gained, level, time = over_interval(value, effect, batch, length / parts, path, np)
            time, level = rates * time[:, None], level[:, None]
            path = path + effect * length / parts
            progress = progress + gained
            delayed = progress + kept * (delayed - progress)
            modes = relax(modes, level, time, np)
            follows = mixed * np.exp(-time / 2)
            averaged = kept**2 * averaged + 2 * kept * (1 - kept) * follows + (1 - kept) ** 2 * modes
            mixed = kept * follows + (1 - kept) * modes
        noise = np.einsum("kn,kn->k", averaged, weights)
        losses.append(loss_of(value, delayed, path, noise))
    return np.stack(losses, axis=1)
