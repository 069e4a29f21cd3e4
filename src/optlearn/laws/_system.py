"""The law as a system to be controlled: one set of parameters, or an ensemble of plausible ones."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, Settings
from optlearn._dynamics.system import System
from optlearn.laws._law import NAMES, NODES, relaxation_rates


class LossLaw(System):
    """Loss of a network under its learning rate, by members of an ensemble that see the same schedule.

    Controls and time are in units of the fit: ``learning_rate`` in that of the peak, ``batch`` in that of the
    usual batch, training time in that of the longest run. ``LawFit.problem`` makes problems of it and
    ``LawFit.schedule`` translates their solutions.

    Attributes:
        members: (M, 10) parameters of the law, one row for each member.
        rates, weights: (M, NODES) of the modes.
        by_tokens: training time counts tokens rather than steps, so larger batches leave fewer steps.
        falling: the rate never rises: what counts is the lowest so far.
    """

    members: Array
    rates: Array
    weights: Array
    by_tokens: bool = eqx.field(static=True, default=False)
    falling: bool = eqx.field(static=True, default=False)

    @classmethod
    def of(cls, members: np.ndarray, by_tokens: bool = False, falling: bool = False) -> "LossLaw":
        """The system of parameters (M, 10)."""
        rates, weights = relaxation_rates(members)
        return cls(members, rates, weights, by_tokens, falling)

    @property
    def names(self) -> Mapping[str, int | None]:
        """Progress and modes of every member, and the lowest rate so far."""
        count = len(self.members)
        found: dict[str, int | None] = {"progress": count, "modes": count * NODES}
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
        powers = {
            name: eta ** self._of_members(f"{name}_power") for name in ("progress", "noise", "relaxation")
        }
        floor = jnp.repeat(powers["noise"] / batch, NODES)
        clock = self.rates.ravel() * jnp.repeat(powers["relaxation"] * steps, NODES)
        after["progress"] = x["progress"] + powers["progress"] * steps
        after["modes"] = floor + (x["modes"] - floor) * jnp.exp(-clock)
        return after

    def losses(self, x: Any) -> Array:
        """(M,) the loss by every member."""
        noise = (x["modes"].reshape(-1, NODES) * self.weights).sum(axis=1)
        left = (x["progress"] + self._of_members("head_start")) ** -self._of_members("exponent")
        return (
            self._of_members("floor")
            + self._of_members("amplitude") * left
            + self._of_members("noise") * noise
        )

    def error(self, x: Any, u: Settings) -> Array:
        """The loss, on average over the members."""
        del u
        return self.losses(x).mean()

    def _of_members(self, name: str) -> Array:
        return self.members[:, NAMES.index(name)]
