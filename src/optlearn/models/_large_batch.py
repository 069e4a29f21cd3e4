"""Finite data and batches that are a share of the input dimension: training is a map, not a flow."""

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Settings
from optlearn._dynamics.system import System
from optlearn._pytrees import field
from optlearn._signatures import checked
from optlearn.models._finite_data import FiniteData


@checked
class LargeBatch(System):
    """``FiniteData`` with batches of βN samples: steps of finite size, w ← w − ε ∇(batch error)/2.

    Time counts steps, so horizons and the ends of intervals are whole numbers. ``learning_rate`` is the step
    size ε, stable below 2/s_max for the full batch; ``batch`` is β = B/N.

    Args:
        data: the samples.
        distinct: whether the samples of a batch are all different; with β = κ that is gradient descent on all
            of them, without noise. Else they are drawn with replacement.
    """

    data: FiniteData
    distinct: bool = field(static=True, default=False)

    @property
    def names(self) -> dict[str, int]:
        """``response`` and ``variance``, one entry a mode."""
        return self.data.names

    @property
    def parameters(self) -> Mapping[str, float]:
        """Step size ε, weight decay λ and batch β = B/N."""
        return {"learning_rate": 0.3, "weight_decay": 0.0, "batch": 0.5}

    @property
    def longest(self) -> float:
        """One step."""
        return 1.0

    def start(self, Q: float = 0.0) -> dict[str, np.ndarray]:
        """Weights of squared norm NQ at random, or zero: the state before the first step."""
        return self.data.start(Q)

    def advance(self, x: Array, u: Settings, length: Array) -> Array:
        """The state after one step, or where it is if ``length`` is shorter than that."""
        epsilon, beta, s = u["learning_rate"], u["batch"], self.data.eigenvalues
        keep = 1 - epsilon * (s + u["weight_decay"])
        spared = 1 - beta / self.data.kappa if self.distinct else 1.0
        fed = epsilon**2 / beta * spared * self.data.train_error(x)
        moved = {"response": keep * x["response"] + epsilon, "variance": keep**2 * x["variance"] + fed * s}
        arrived = length > 1 - 1e-9
        return {name: jnp.where(arrived, moved[name], x[name]) for name in moved}

    def error(self, x: Array, u: Settings) -> Array:
        """The test error."""
        return self.data.error(x, u)

    def observables(self, x: Array, u: Settings) -> dict[str, Array]:
        """Those of the data."""
        return self.data.observables(x, u)

    def check_specification(self, x: Array, u: Settings) -> None:
        """Raise for batches that cannot be drawn."""
        most = float(self.data.kappa) if self.distinct else np.inf
        Arguments("LargeBatch").number("batch", float(u["batch"]), 0.0, most, open_below=True)
        super().check_specification(x, u)
