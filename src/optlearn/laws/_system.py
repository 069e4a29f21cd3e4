"""The law as a system to be controlled: one set of parameters, or an ensemble of plausible ones."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, Settings
from optlearn._dynamics.ensemble import Ensemble
from optlearn._dynamics.system import System
from optlearn._pytrees import field
from optlearn.laws._law import NAMES, NODES, relaxation_rates


class LossLaw(System):
    """Loss of a network under its learning rate.

    Controls and time are in units of the fit: ``learning_rate`` in that of the peak, ``batch`` in that of the
    usual batch, training time in that of the longest run. ``LawFit.problem`` makes problems of it and
    ``LawFit.schedule`` translates their solutions.

    Attributes:
        numbers: (10,) parameters of the law.
        rates, shares: (NODES,) of the modes.
        by_tokens: training time counts tokens rather than steps, so larger batches leave fewer steps.
        falling: the rate never rises: what counts is the lowest so far.
    """

    numbers: Array
    rates: Array
    shares: Array
    by_tokens: bool = field(static=True, default=False)
    falling: bool = field(static=True, default=False)

    @classmethod
    def of(cls, numbers: np.ndarray, by_tokens: bool = False, falling: bool = False) -> "LossLaw":
        """The system of parameters (10,)."""
        (rates,), (shares,) = relaxation_rates(np.asarray(numbers)[None])
        return cls(np.asarray(numbers), rates, shares, by_tokens, falling)

    @classmethod
    def ensemble(cls, members: np.ndarray, by_tokens: bool = False, falling: bool = False) -> Ensemble:
        """Members (M, 10) that see the same schedule; what counts is their mean loss."""
        return Ensemble.of([cls.of(numbers, by_tokens, falling) for numbers in members])

    @property
    def names(self) -> Mapping[str, int | None]:
        """Progress and modes, and the lowest rate so far."""
        found: dict[str, int | None] = {"progress": None, "modes": NODES}
        return {**found, "lowest": None} if self.falling else found

    @property
    def parameters(self) -> Mapping[str, Array]:
        """The usual ones."""
        return {"learning_rate": 1.0, "batch": 1.0}

    def advance(self, x: Any, u: Settings, length: Array) -> Any:
        """The state after ``length`` under a constant rate and batch."""
        eta, batch = u["learning_rate"], u["batch"]
        after = {}
        if self.falling:
            eta = after["lowest"] = jnp.minimum(eta, x["lowest"])
        steps = length / batch if self.by_tokens else length
        floor = eta ** self._of("noise_power") / batch
        clock = self.rates * eta ** self._of("relaxation_power") * steps
        after["progress"] = x["progress"] + eta ** self._of("progress_power") * steps
        after["modes"] = floor + (x["modes"] - floor) * jnp.exp(-clock)
        return after

    def error(self, x: Any, u: Settings) -> Array:
        """The loss."""
        del u
        left = (x["progress"] + self._of("head_start")) ** -self._of("exponent")
        noise = self._of("noise") * (x["modes"] * self.shares).sum()
        return self._of("floor") + self._of("amplitude") * left + noise

    def _of(self, name: str) -> Array:
        return self.numbers[NAMES.index(name)]
