"""Other ways to learn than the gradient: Hebb's rule, the perceptron, learning from a margin.

They teach one unit the sign of a teacher. All that a rule g needs is what its two moments are: it
moves weights by −(η/√N) g x, so dM = −ηE[gλ*] and dQ = −2ηE[gλ] + η²E[g²]/B. With a = E[sign(λ*) λ/√Q], b =
E[sign(λ*) λ*/√T] and c = E[g²], each over the samples that are learned from, these are closed forms.
"""

from abc import abstractmethod
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Settings
from optlearn._signatures import checked
from optlearn._theory.model import Break, Latent, LearningModel
from optlearn._theory.order import OrderParameters, Overlaps
from optlearn._theory.sample import Fields
from optlearn.models._measures import cosine

HALF = np.sqrt(2 / np.pi)
# Under the square root of 1 − ρ², whose derivative is infinite at perfect alignment, and under that of Q.
FLOOR = 1e-20


class Moments(NamedTuple):
    """E[gλ]/√Q, E[gλ*]/√T and E[g²] of a rule."""

    own: Array
    teacher: Array
    square: Array


class SignLearner(LearningModel):
    """One unit that learns the sign of one teacher by a local rule; its error is the share of wrong signs.

    A subclass gives the rule and its moments.
    """

    @abstractmethod
    def moments(self, rho: Array, u: Settings) -> Moments:
        """Those of the rule at the cosine ρ of student and teacher."""

    def loss(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """1 where the sign is wrong, else 0; nothing follows its gradient."""
        del x, latent, u
        return (1 - jnp.sign(fields.student[0, 0]) * jnp.sign(fields.teacher[0, 0])) / 2

    def closed_drift(self, x: OrderParameters, u: Settings) -> OrderParameters:
        """From the moments."""
        eta, T = u["learning_rate"], self.overlaps.T[0, 0]
        norm = jnp.sqrt(x.Q[0, 0] + FLOOR)
        found = self.moments(x.M[0, 0] / (norm * jnp.sqrt(T)), u)
        dQ = -2 * eta * norm * found.own + eta**2 / u["batch"] * found.square
        dM = -eta * jnp.sqrt(T) * found.teacher
        return OrderParameters(
            Q=dQ.reshape(1, 1), M=dM.reshape(1, 1), R=jnp.zeros((1, 0)), v=jnp.zeros((1, 0)), extras={}
        )

    def closed_error(self, x: OrderParameters, u: Settings) -> Array:
        """arccos(ρ)/π."""
        del u
        T, Q, M = self.overlaps.T[0, 0], x.Q[0, 0], x.M[0, 0]
        across = jnp.sqrt(jnp.maximum(Q * T - M**2, 0.0) + FLOOR)
        return jnp.arctan2(across, M) / np.pi

    def observables(self, x: OrderParameters, u: Settings) -> dict[str, Array]:
        """``cosine`` of student and teacher."""
        del u
        return {"cosine": cosine(x.M[0, 0], self.overlaps.T[0, 0], x.Q[0, 0])}


class Hebb(SignLearner):
    """Every sample is learned, whatever the student says: g = −sign λ*."""

    def update(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """−sign λ*."""
        del x, latent, u
        return -jnp.sign(fields.teacher)

    def moments(self, rho: Array, u: Settings) -> Moments:
        """All samples."""
        del u
        return Moments(-HALF * rho, -HALF * jnp.ones(()), jnp.ones(()))


class Perceptron(SignLearner):
    """Only mistakes are learned: g = −(sign λ* − sign λ)/2."""

    def update(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """±1 where the student is wrong, else 0."""
        del x, latent, u
        return (jnp.sign(fields.student) - jnp.sign(fields.teacher)) / 2

    def moments(self, rho: Array, u: Settings) -> Moments:
        """Of samples on which the signs differ."""
        del u
        pull = (1 - rho) / np.sqrt(2 * np.pi)
        wrong = jnp.arctan2(jnp.sqrt(jnp.maximum(1 - rho**2, 0.0) + FLOOR), rho) / np.pi
        return Moments(pull, -pull, wrong)


class Margin(SignLearner):
    """Samples of which the student is sure are left out: Hebb's rule where ``|λ| < θ√Q``.

    The setting ``threshold`` is θ, in units of the student's own standard deviation.
    """

    def update(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """−sign λ* within the margin, else 0."""
        del latent
        near = jnp.abs(fields.student) < u["threshold"] * jnp.sqrt(x.Q[0, 0])
        return jnp.where(near, -jnp.sign(fields.teacher), 0.0)

    def moments(self, rho: Array, u: Settings) -> Moments:
        """Of samples within the margin, by parts."""
        theta = u["threshold"]
        across = jnp.sqrt(jnp.maximum(1 - rho**2, 0.0) + FLOOR)
        inside = HALF * erf(theta / (across * np.sqrt(2)))
        edge = HALF * jnp.exp(-(theta**2) / 2) * erf(rho * theta / (across * np.sqrt(2)))
        return Moments(edge - rho * inside, rho * edge - inside, erf(theta / np.sqrt(2)))


@checked
def sign_learner(rule: str = "hebb", T: float = 1.0, eta: float = 1.0, threshold: float = 1.0) -> SignLearner:
    """One unit that learns the sign of a teacher by a local rule.

    Args:
        rule: "hebb", "perceptron" or "margin".
        T: squared norm of the teacher over N.
        eta: learning rate η.
        threshold: θ of the margin, in standard deviations of the student's field.
    """
    check = Arguments("sign_learner")
    kinds: dict[str, type[SignLearner]] = {"hebb": Hebb, "perceptron": Perceptron, "margin": Margin}
    kind = kinds[check.one_of("rule", rule, kinds)]
    settings = {"learning_rate": check.number("eta", eta, 0.0), "batch": 1.0}
    if rule == "margin":
        settings["threshold"] = check.number("threshold", threshold, 0.0)
    return kind(
        students=1,
        overlaps=Overlaps(T=np.eye(1) * check.number("T", T, 0.0, open_below=True)),
        parameters=settings,
        breaks=(Break("teacher", 0, 0), Break("student", 0, 0)),
    )
