"""Rules of a committee that know less than the gradient: node perturbation and feedback alignment."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Settings
from optlearn._signatures import checked
from optlearn._theory.model import Latent, LearningModel
from optlearn._theory.order import OrderParameters, Overlaps
from optlearn._theory.sample import Fields
from optlearn.models._committee import Committee, committee


def _output(field: Array) -> Array:
    return erf(field / np.sqrt(2))


class NodePerturbation(LearningModel):
    """Units are shaken and learn from what that does to the loss: g_k = (ℓ(λ + σ_p ξ) − ℓ(λ)) ξ_k/σ_p.

    On average that is the gradient of the loss smoothed by σ_p; its spread grows with the number of units.
    The shaking ξ is a sample's further normals. Settings: ``perturbation`` σ_p and ``sigma_n``, standard
    deviation of the label noise.
    """

    def loss(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """Half the squared error of a soft committee of erf units."""
        del x, latent
        return self._loss(fields.student[0], fields, u)

    def _loss(self, student: Array, fields: Fields, u: Settings) -> Array:
        label = jnp.sum(_output(fields.teacher[0])) + u["sigma_n"] * fields.noise
        return (jnp.sum(_output(student)) - label) ** 2 / 2

    def update(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """The change of the loss, along the shaking."""
        del x, latent
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
        perturbation: σ_p, standard deviation of the shaking of a unit's field.
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
    """Errors reach the units through fixed random weights F instead of the readout v, which is trained.

    A ``Committee`` with one head and the further setting ``feedback`` (K,) F.
    """

    def update(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """The gradient, with F for v."""
        output = (x.v @ self._task(latent)) @ self.activation.function(fields.student[0])
        residual = output - self._target(fields, latent) - u["sigma_n"] * fields.noise
        slope = jax.vmap(jax.grad(self.activation.function))(fields.student[0])
        return (residual * u["feedback"] * slope)[None]

    def _feedback(self, x: OrderParameters, u: Settings) -> Array:
        del x
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
    parts = {part.name: getattr(plain, part.name) for part in dataclasses.fields(plain)}
    return FeedbackAlignment(**parts | {"parameters": {**plain.parameters, "feedback": fixed}})
