"""The schedule as arrays that a compiled loop can look up step by step."""

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, Settings
from optlearn._pytrees import Pytree
from optlearn._schedule import Schedule


class Controls(Pytree):
    """Controls by SGD step.

    Attributes:
        first: (intervals,) the first step of each interval of the schedule.
        values: control name → (intervals,).
        choices: mixed control name → its (n,) possible values.
        cumulative: mixed control name → (intervals, n − 1) cumulative shares but the last, which is 1.
    """

    first: Array
    values: dict[str, Array]
    choices: dict[str, Array]
    cumulative: dict[str, Array]

    def at(self, step: Array, uniforms: Array, settings: Settings) -> dict[str, Array]:
        """Settings at a step; ``uniforms`` (mixtures,) decide the mixed controls."""
        interval = jnp.sum(self.first <= step) - 1
        u = {**settings, **{name: table[interval] for name, table in self.values.items()}}
        for i, (name, choices) in enumerate(self.choices.items()):
            u[name] = choices[jnp.sum(uniforms[i] >= self.cumulative[name][interval])]
        return u


def make_controls(schedule: Schedule, N: int) -> Controls:
    """Arrays of a schedule for input dimension N: step μ has the controls of α = μ/N."""
    return Controls(
        schedule.first_steps(N),
        dict(schedule.values),
        {name: mixture.values for name, mixture in schedule.mixtures.items()},
        {name: np.cumsum(mixture.shares, axis=1)[:, :-1] for name, mixture in schedule.mixtures.items()},
    )


def course(schedule: Schedule, settings: Mapping[str, Array], name: str) -> np.ndarray | None:
    """Every value that a setting takes during a run; None if the model does not have it."""
    if name in schedule.mixtures:
        return schedule.mixtures[name].values
    if name in schedule.values:
        return np.asarray(schedule.values[name])
    return np.atleast_1d(settings[name]) if name in settings else None
