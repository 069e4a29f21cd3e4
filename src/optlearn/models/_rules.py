"""Learning rules other than the gradient.

Signs. Hebb's rule, the perceptron and learning from a margin teach one unit the sign of a teacher. Only the
moments of a rule g matter: it changes weights by −(η/√N) g x, so dM = −ηE[gλ*] and dQ = −2ηE[gλ] + η²E[g²]/B.
With a = E[sign(λ*) λ/√Q], b = E[sign(λ*) λ*/√T] and c = E[g²], each over the samples that are learned, these
have closed forms.

Residuals. Clipped gradients, or only their signs, keep the steps of a linear unit from growing with its
errors. The residual D₂ = λ − y of a sample is normal, so all moments are known. A rule g(D₂) has E[gλ] = p (Q
− M) and E[gλ*] = p (M − T), where p = E[g'] is the share of the gradient that is kept.

Node perturbation and feedback alignment train a committee with less information than the gradient.
"""

from abc import abstractmethod
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf, erfc

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Settings
from optlearn._signatures import checked
from optlearn._theory.model import LearningModel
from optlearn._theory.order import OrderParameters, Overlaps, order_parameters
from optlearn._theory.sample import Break, Fields, Latent
from optlearn._theory.spectrum import Spectrum
from optlearn.models._averages import ACTIVATIONS, FLOOR, cosine, safe_root
from optlearn.models._committee import Committee, committee

HALF = np.sqrt(2 / np.pi)
_erf = ACTIVATIONS["erf"].function


# --- rules of a sign ------------------------------------------------------------------------------


class RuleMoments(NamedTuple):
    """E[gλ]/√Q, E[gλ*]/√T and E[g²] of a rule."""

    student: Array
    teacher: Array
    square: Array


class SignLearner(LearningModel):
    """One unit that learns the sign of one teacher by a local rule; its error is the share of wrong signs.

    A subclass gives the rule and its moments.
    """

    @abstractmethod
    def moments(self, rho: Array, u: Settings) -> RuleMoments:
        """Moments of the rule at the cosine ρ of student and teacher."""

    def loss(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """1 where the sign is wrong, else 0; nothing follows its gradient."""
        return (1 - jnp.sign(fields.student[0, 0]) * jnp.sign(fields.teacher[0, 0])) / 2

    def closed_drift(self, x: OrderParameters, u: Settings) -> OrderParameters:
        """From the moments."""
        eta, T = u["learning_rate"], self.overlaps.T[0, 0]
        norm = jnp.sqrt(x.Q[0, 0] + FLOOR)
        moments = self.moments(x.M[0, 0] / (norm * jnp.sqrt(T)), u)
        dQ = -2 * eta * norm * moments.student + eta**2 / u["batch"] * moments.square
        dM = -eta * jnp.sqrt(T) * moments.teacher
        return order_parameters(Q=dQ.reshape(1, 1), M=dM.reshape(1, 1))

    def closed_error(self, x: OrderParameters, u: Settings) -> Array:
        """arccos(ρ)/π."""
        T, Q, M = self.overlaps.T[0, 0], x.Q[0, 0], x.M[0, 0]
        across = safe_root(Q * T - M**2)
        return jnp.arctan2(across, M) / np.pi

    def observables(self, x: OrderParameters, u: Settings) -> dict[str, Array]:
        """``cosine`` of student and teacher."""
        return {"cosine": cosine(x.M[0, 0], self.overlaps.T[0, 0], x.Q[0, 0])}


class Hebb(SignLearner):
    """Every sample is learned, whatever the student's output: g = −sign λ*."""

    def update(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """−sign λ*."""
        return -jnp.sign(fields.teacher)

    def moments(self, rho: Array, u: Settings) -> RuleMoments:
        """Moments over all samples."""
        return RuleMoments(-HALF * rho, -HALF * jnp.ones(()), jnp.ones(()))


class Perceptron(SignLearner):
    """Only misclassified samples are learned: g = −(sign λ* − sign λ)/2."""

    def update(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """±1 where the student is wrong, else 0."""
        return (jnp.sign(fields.student) - jnp.sign(fields.teacher)) / 2

    def moments(self, rho: Array, u: Settings) -> RuleMoments:
        """Moments over samples on which the signs differ."""
        pull = (1 - rho) / np.sqrt(2 * np.pi)
        wrong = jnp.arctan2(safe_root(1 - rho**2), rho) / np.pi
        return RuleMoments(pull, -pull, wrong)


class Margin(SignLearner):
    """Samples about which the student is confident are skipped: Hebb's rule where ``|λ| < θ√Q``.

    The setting ``threshold`` is θ, in units of the student's own standard deviation.
    """

    def update(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """−sign λ* within the margin, else 0."""
        near = jnp.abs(fields.student) < u["threshold"] * jnp.sqrt(x.Q[0, 0])
        return jnp.where(near, -jnp.sign(fields.teacher), 0.0)

    def moments(self, rho: Array, u: Settings) -> RuleMoments:
        """Moments over samples within the margin, by integration by parts."""
        theta = u["threshold"]
        across = safe_root(1 - rho**2)
        inside = HALF * erf(theta / (across * np.sqrt(2)))
        edge = HALF * jnp.exp(-(theta**2) / 2) * erf(rho * theta / (across * np.sqrt(2)))
        return RuleMoments(edge - rho * inside, rho * edge - inside, erf(theta / np.sqrt(2)))


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
    unit = _unit(check, T, eta)
    if rule == "margin":
        unit["parameters"]["threshold"] = check.number("threshold", threshold, 0.0)
    return kind(**unit, breaks=(Break("teacher", 0, 0), Break("student", 0, 0)))


def _unit(check: Arguments, T: float, eta: float) -> dict[str, Any]:
    """Arguments of a model with one unit and one teacher; ``parameters`` may be extended."""
    return {
        "students": 1,
        "overlaps": Overlaps(T=np.eye(1) * check.number("T", T, 0.0, open_below=True)),
        "parameters": {"learning_rate": check.number("eta", eta, 0.0), "batch": 1.0},
    }


# --- rules of a residual --------------------------------------------------------------------------


class ResidualLearner(LearningModel):
    """A linear unit with label noise of standard deviation ``sigma_n`` and a rule of its residual."""

    def loss(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """Half the squared error."""
        return _residual(fields, u)[0, 0] ** 2 / 2

    def closed_error(self, x: OrderParameters, u: Settings) -> Array:
        """Half the squared distance from labels without noise."""
        return (x.Q[0, 0] - 2 * x.M[0, 0] + self.overlaps.T[0, 0]) / 2

    def _width(self, x: OrderParameters, u: Settings) -> Array:
        """Standard deviation of the residual."""
        Q, M, T = x.Q[0, 0], x.M[0, 0], self.overlaps.T[0, 0]
        return jnp.sqrt(Q - 2 * M + T + u["sigma_n"] ** 2 + FLOOR)

    def _drift(
        self, x: OrderParameters, u: Settings, kept: Array, square: Array, extras: dict[str, Array]
    ) -> OrderParameters:
        """From the share of the gradient that is kept and the mean square of a step."""
        eta, Q, M = u["learning_rate"], x.Q[0, 0], x.M[0, 0]
        dQ = -2 * eta * kept * (Q - M) + eta**2 / u["batch"] * square
        dM = -eta * kept * (M - self.overlaps.T[0, 0])
        return order_parameters(Q=dQ.reshape(1, 1), M=dM.reshape(1, 1), extras=extras)


class Clipped(ResidualLearner):
    """Gradients are clipped at c: g = D₂ min(1, c/‖D₂‖).

    The setting ``clip`` is c; if there is a running scalar ``length``, the mean of ‖D₂‖ over about the last
    N/``averaging`` steps, it is in units of ``length``.
    """

    def _limit(self, x: OrderParameters, u: Settings) -> Array:
        return u["clip"] * x["length"] if self.running else u["clip"]

    def update(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """The clipped residual."""
        limit = self._limit(x, u)
        return jnp.clip(_residual(fields, u), -limit, limit)

    def statistics(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> dict[str, Array]:
        """The running mean relaxes towards the length of this sample's gradient."""
        if not self.running:
            return {}
        return {"length": u["averaging"] * (jnp.abs(_residual(fields, u)[0, 0]) - x["length"])}

    def closed_drift(self, x: OrderParameters, u: Settings) -> OrderParameters:
        """Moments of the clipped normal residual."""
        s, c = self._width(x, u), self._limit(x, u)
        k = c / s
        kept = erf(k / np.sqrt(2))
        square = s**2 * (kept - HALF * k * jnp.exp(-(k**2) / 2)) + c**2 * erfc(k / np.sqrt(2))
        extras = {"length": u["averaging"] * (HALF * s - x["length"])} if self.running else {}
        return self._drift(x, u, kept, square, extras)


class SignSGD(ResidualLearner):
    """Every weight changes by the sign of its gradient: by −(η/√N) sign(D₂) sign(x_i).

    The signs of N normal inputs are √(2/π) times the inputs plus a part that is independent of all fields and
    has the remaining variance: a second slot, which only adds noise to the weights. A batch of several
    samples would use the sign of their sum, which is a different rule.

    Under a spectrum along the axes of the weights, signs are those of x_i/√c_b: this is Adam without memory,
    β₁ = β₂ = 0.
    """

    limits = MappingProxyType({**LearningModel.limits, "batch": (1.0, 1.0)})
    reads_blocks = True

    def variances(self, latent: Latent, u: Settings) -> Array:
        """1 for the inputs, and the remaining variance of the signs."""
        return jnp.array([1.0, 1 - 2 / np.pi])

    def update(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """The sign of the residual, along both parts of the inputs' signs."""
        return jnp.sign(_residual(fields, u)) * np.array([[HALF], [1.0]])

    def scales(self, x: OrderParameters, u: Settings, squares: Array | None) -> Array | None:
        """1/√c_b: signs do not depend on the size of an input."""
        return None if self.spectrum is None else 1 / jnp.sqrt(jnp.asarray(self.spectrum.variance))[:, None]

    def closed_drift(self, x: OrderParameters, u: Settings) -> OrderParameters:
        """Signs of a normal residual."""
        if self.spectrum is None:
            return self._drift(x, u, HALF**2 / self._width(x, u), jnp.ones(()), {})
        eta, Q, M, T = u["learning_rate"], x.Q[:, 0, 0], x.M[:, 0, 0], self.block_overlaps.T[:, 0, 0]
        c, share = jnp.asarray(self.spectrum.variance), jnp.asarray(self.spectrum.share)
        width = jnp.sqrt(2 * self.closed_error(x, u) + u["sigma_n"] ** 2 + FLOOR)
        pull = eta * HALF**2 * jnp.sqrt(c) / width
        dQ, dM = -2 * pull * (Q - M) + eta**2 * share, -pull * (M - T)
        return order_parameters(Q=dQ[:, None, None], M=dM[:, None, None])

    def closed_error(self, x: OrderParameters, u: Settings) -> Array:
        """Half the squared distance from labels without noise, dominated by directions of large variance."""
        if self.spectrum is None:
            return super().closed_error(x, u)
        distance = (x.Q - 2 * x.M + self.block_overlaps.T)[:, 0, 0]
        return jnp.asarray(self.spectrum.variance) @ distance / 2


def _residual(fields: Fields, u: Settings) -> Array:
    """(1, 1) of the sample."""
    return fields.student[:1] - fields.teacher[:1] - u["sigma_n"] * fields.noise


@checked
def clipped(
    clip: float = 0.5, sigma_n: float = 0.5, T: float = 1.0, eta: float = 1.0, averaging: float | None = None
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
    cut = {"clip": check.number("clip", clip, 0.0)}
    if averaging is not None:
        cut["averaging"] = check.number("averaging", averaging, 0.0)
    unit = _unit(check, T, eta)
    unit["parameters"] |= {"sigma_n": check.number("sigma_n", sigma_n, 0.0), **cut}
    return Clipped(**unit, running=() if averaging is None else ("length",))


@checked
def sign_sgd(
    sigma_n: float = 0.5, T: float = 1.0, eta: float = 0.3, spectrum: Spectrum | None = None
) -> SignSGD:
    """A linear student whose weights move by the signs of their gradients, one sample a step.

    Args:
        sigma_n: standard deviation of the label noise.
        T: squared norm of the teacher over N.
        eta: learning rate η: a weight moves by η/√N in every step.
        spectrum: spectrum of the inputs, along the axes of the weights; None: isotropic inputs.
    """
    check = Arguments("sign_sgd")
    if spectrum is not None and not (spectrum.variance.ndim == 1 and np.all(spectrum.variance > 0)):
        check.fail("spectrum", spectrum, "must have one row of variances above 0")
    unit = _unit(check, T, eta)
    unit["parameters"]["sigma_n"] = check.number("sigma_n", sigma_n, 0.0)
    return SignSGD(**unit, slots=2, spectrum=spectrum)


# --- rules of a committee -------------------------------------------------------------------------


class NodePerturbation(LearningModel):
    """Units are perturbed and learn from the effect on the loss: g_k = (ℓ(λ + σ_p ξ) − ℓ(λ)) ξ_k/σ_p.

    On average this is the gradient of the loss smoothed by σ_p; its variance grows with the number of units.
    The perturbation ξ consists of a sample's further normals. Settings: ``perturbation`` σ_p and ``sigma_n``,
    standard deviation of the label noise.
    """

    def loss(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """Half the squared error of a soft committee of erf units."""
        return self._loss(fields.student[0], fields, u)

    def _loss(self, student: Array, fields: Fields, u: Settings) -> Array:
        label = jnp.sum(_erf(fields.teacher[0])) + u["sigma_n"] * fields.noise
        return (jnp.sum(_erf(student)) - label) ** 2 / 2

    def update(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """The change of the loss, along the perturbation."""
        shaking, size, student = fields.normals, u["perturbation"], fields.student[0]
        change = self._loss(student + size * shaking, fields, u) - self._loss(student, fields, u)
        return (change / size * shaking)[None]


@checked
def node_perturbation(
    K: int = 1,
    M: int = 1,
    perturbation: float = 0.5,
    sigma_n: float = 0.0,
    eta: float = 0.5,
    T: Array | None = None,
) -> NodePerturbation:
    """A soft committee that learns by node perturbation.

    Args:
        K: hidden nodes of the student.
        M: hidden nodes of the teacher.
        perturbation: σ_p, standard deviation of the perturbation of a unit's field.
        sigma_n: standard deviation of the label noise.
        eta: learning rate η.
        T: (M, M) overlaps of the teacher's nodes; None for the identity.
    """
    check = Arguments("node_perturbation")
    K, M = check.count("K", K), check.count("M", M)
    return NodePerturbation(
        students=K,
        normals=K,
        overlaps=Overlaps(T=check.gram("T", 1.0 if T is None else T, M)),
        parameters={
            "learning_rate": check.number("eta", eta, 0.0),
            "batch": 1.0,
            "perturbation": check.number("perturbation", perturbation, 0.0, open_below=True),
            "sigma_n": check.number("sigma_n", sigma_n, 0.0),
        },
    )


class FeedbackAlignment(Committee):
    """Errors reach the units through fixed random weights F instead of the trained readout v.

    A ``Committee`` with one head and the further setting ``feedback`` (K,) F.
    """

    def update(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """The gradient, with F for v."""
        output = (x.v @ self._task(latent)) @ self.activation.function(fields.student[0])
        residual = output - self._target(fields, latent) - u["sigma_n"] * fields.noise
        slope = jax.vmap(jax.grad(self.activation.function))(fields.student[0])
        return (residual * u["feedback"] * slope)[None]

    def _feedback(self, x: OrderParameters, u: Settings) -> Array:
        return jnp.asarray(u["feedback"])[:, None]


@checked
def feedback_alignment(
    feedback: Array = (0.8, -0.6),
    M: int = 2,
    sigma_n: float = 0.0,
    eta: float = 0.5,
    readout_rate: float = 0.5,
    T: Array | None = None,
) -> FeedbackAlignment:
    """A committee of erf units with a trained readout that learns by feedback alignment.

    Args:
        feedback: (K,) F, one number for each hidden node.
        M: hidden nodes of the teacher, whose readouts are 1.
        sigma_n: standard deviation of the label noise.
        eta: learning rate η of the hidden nodes.
        readout_rate: learning rate of the readout.
        T: (M, M) overlaps of the teacher's nodes; None for the identity.
    """
    check = Arguments("feedback_alignment")
    fixed = check.numbers("feedback", feedback, np.shape(feedback) or (1,))
    if fixed.ndim != 1:
        check.fail("feedback", feedback, "must be one number for each hidden node")
    plain = committee(len(fixed), M, T=T, sigma_n=sigma_n, eta=eta, heads=1, readout_rate=readout_rate)
    return FeedbackAlignment._like(plain, {**plain.parameters, "feedback": fixed})
