"""A linear unit whose steps do not grow with its errors: gradients that are cut, or only their signs.

The residual D₂ = λ − y of a sample is normal, so that all moments are known. A rule g(D₂) has
E[gλ] = p (Q − M) and E[gλ*] = p (M − T), with p = E[g'] the share of the gradient that is kept.
"""

from types import MappingProxyType
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf, erfc

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Settings
from optlearn._signatures import checked
from optlearn._theory.model import Latent, LearningModel
from optlearn._theory.order import OrderParameters, Overlaps
from optlearn._theory.sample import Fields
from optlearn.models._rules import FLOOR, HALF


class ResidualLearner(LearningModel):
    """A linear unit, its labels with noise of standard deviation ``sigma_n``, and a rule of its residual."""

    def loss(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """Half the squared error."""
        del x, latent
        return _residual(fields, u)[0, 0] ** 2 / 2

    def closed_error(self, x: OrderParameters, u: Settings) -> Array:
        """Half the squared distance from labels without noise."""
        del u
        return (x.Q[0, 0] - 2 * x.M[0, 0] + self.overlaps.T[0, 0]) / 2

    def _width(self, x: OrderParameters, u: Settings) -> Array:
        """Standard deviation of the residual."""
        Q, M, T = x.Q[0, 0], x.M[0, 0], self.overlaps.T[0, 0]
        return jnp.sqrt(Q - 2 * M + T + u["sigma_n"] ** 2 + FLOOR)

    def _drift(
        self, x: OrderParameters, u: Settings, kept: Array, square: Array, extras: dict[str, Array]
    ) -> OrderParameters:
        """From the share of the gradient that is kept, and the mean square of a step."""
        eta, Q, M = u["learning_rate"], x.Q[0, 0], x.M[0, 0]
        dQ = -2 * eta * kept * (Q - M) + eta**2 / u["batch"] * square
        dM = -eta * kept * (M - self.overlaps.T[0, 0])
        empty = jnp.zeros((1, 0))
        return OrderParameters(dQ.reshape(1, 1), dM.reshape(1, 1), empty, empty, extras)


class Clipped(ResidualLearner):
    """Gradients are cut at c: g = D₂ min(1, c/‖D₂‖).

    The setting ``clip`` is c; with the running scalar ``length``, the mean of ‖D₂‖ over the last
    N/``averaging`` steps or so, it counts in units of that.
    """

    def _limit(self, x: OrderParameters, u: Settings) -> Array:
        return u["clip"] * x["length"] if self.running else u["clip"]

    def update(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """The residual, cut."""
        del latent
        limit = self._limit(x, u)
        return jnp.clip(_residual(fields, u), -limit, limit)

    def statistics(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> dict[str, Array]:
        """The running mean moves towards the length of this sample's gradient."""
        del latent
        if not self.running:
            return {}
        return {"length": u["averaging"] * (jnp.abs(_residual(fields, u)[0, 0]) - x["length"])}

    def closed_drift(self, x: OrderParameters, u: Settings) -> OrderParameters:
        """The residual is normal: its cut moments are known."""
        s, c = self._width(x, u), self._limit(x, u)
        k = c / s
        kept = erf(k / np.sqrt(2))
        square = s**2 * (kept - HALF * k * jnp.exp(-(k**2) / 2)) + c**2 * erfc(k / np.sqrt(2))
        extras = {"length": u["averaging"] * (HALF * s - x["length"])} if self.running else {}
        return self._drift(x, u, kept, square, extras)


class SignSGD(ResidualLearner):
    """Every weight moves by the sign of its gradient: by −(η/√N) sign(D₂) sign(x_i).

    The signs of N normal inputs are √(2/π) times the inputs and a part that is independent of all fields,
    with the rest of the variance: a second slot, which only spreads the weights. A batch of several samples
    would have the sign of their sum, which is another rule.
    """

    limits = MappingProxyType({**LearningModel.limits, "batch": (1.0, 1.0)})

    def variances(self, latent: Latent, u: Settings) -> Array:
        """1 of the inputs, and what is left of the signs' variance."""
        del latent, u
        return jnp.array([1.0, 1 - 2 / np.pi])

    def update(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """The sign of the residual, along both parts of the inputs' signs."""
        del x, latent
        return jnp.sign(_residual(fields, u)) * np.array([[HALF], [1.0]])

    def closed_drift(self, x: OrderParameters, u: Settings) -> OrderParameters:
        """Signs of a normal residual."""
        return self._drift(x, u, HALF**2 / self._width(x, u), jnp.ones(()), {})


def _residual(fields: Fields, u: Settings) -> Array:
    """(1, 1) of the sample."""
    return fields.student[:1] - fields.teacher[:1] - u["sigma_n"] * fields.noise


@checked
def clipped(
    clip: float = 0.5,
    sigma_n: float = 0.5,
    T: float = 1.0,
    eta: float = 1.0,
    averaging: float | None = None,
) -> Clipped:
    """A linear student with clipped gradients.

    Args:
        clip: c, largest length of a sample's gradient by the student's field; with ``averaging`` in units of
            the running mean of these lengths, the order parameter ``length``.
        sigma_n: standard deviation of the label noise.
        T: squared norm of the teacher over N.
        eta: learning rate η.
        averaging: N times the share of the running mean that a step replaces; None: c is fixed.
    """
    check = Arguments("clipped")
    further = {"clip": check.number("clip", clip, 0.0)}
    if averaging is not None:
        further["averaging"] = check.number("averaging", averaging, 0.0)
    return Clipped(
        **_unit(check, sigma_n, T, eta, further), running=("length",) if "averaging" in further else ()
    )


@checked
def sign_sgd(sigma_n: float = 0.5, T: float = 1.0, eta: float = 0.3) -> SignSGD:
    """A linear student whose weights move by the signs of their gradients, one sample a step.

    Args:
        sigma_n: standard deviation of the label noise.
        T: squared norm of the teacher over N.
        eta: learning rate η: a weight moves by η/√N in every step.
    """
    check = Arguments("sign_sgd")
    return SignSGD(**_unit(check, sigma_n, T, eta, {}), slots=2)


def _unit(
    check: Arguments, sigma_n: float, T: float, eta: float, further: dict[str, float]
) -> dict[str, Any]:
    """What a model of one linear unit is made of."""
    return {
        "students": 1,
        "overlaps": Overlaps(T=np.eye(1) * check.number("T", T, 0.0, open_below=True)),
        "parameters": {
            "learning_rate": check.number("eta", eta, 0.0),
            "batch": 1.0,
            "sigma_n": check.number("sigma_n", sigma_n, 0.0),
            **further,
        },
    }
