"""Curriculum learning: a classifier sees easy and hard samples.

A sample has a relevant slot x₁ (variance 1), whose sign along the teacher is the label, and an
irrelevant slot x₂ of variance Δ, the difficulty. The student erf((λ₁₁ + λ₂₂)/2) has weights on
both; it must learn to align the first with the teacher and to ignore the second. Q₁₂ stays zero
and M₂₁ is never read.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Settings
from optlearn._signatures import checked
from optlearn._theory.model import LearningModel
from optlearn._theory.order import OrderParameters, Overlaps, order_parameters
from optlearn._theory.sample import Break, Fields, Latent, Latents
from optlearn._theory.spectrum import Spectrum
from optlearn.models._averages import cosine, safe_root


class Curriculum(LearningModel):
    """Sign teacher, erf student, an irrelevant slot of tunable variance. Built by ``curriculum``.

    Parameters (settings): ``learning_rate`` η; ``weight_decay`` λ, of the penalty λ(Q₁₁ + Q₂₂)/4;
    ``difficulty`` Δ of the training samples; ``test_difficulties`` (2,) and ``test_share``, the
    share of the first of them, for the error.
    """

    reads_blocks = True

    def loss(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """Half the squared distance of the student's output from the label ±1."""
        label = jnp.sign(fields.teacher[0, 0])
        return (label - jax.scipy.special.erf(_preactivation(fields) / 2)) ** 2 / 2

    def metric(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """1 where the student's sign is wrong, else 0."""
        return (1 - jnp.sign(fields.teacher[0, 0]) * jnp.sign(_preactivation(fields))) / 2

    def penalty(self, x: OrderParameters, u: Settings) -> Array:
        """λ(Q₁₁ + Q₂₂)/4."""
        return u["weight_decay"] * (x.Q[0, 0] + x.Q[1, 1]) / 4

    def latents(self, u: Settings) -> Latents:
        """The difficulty of a training sample, as in the settings."""
        return Latents.single(difficulty=u["difficulty"])

    def test_latents(self, u: Settings) -> Latents:
        """The difficulty of a test sample: one of two."""
        share = jnp.asarray(u["test_share"])
        return Latents.choice(jnp.stack([share, 1 - share]), difficulty=u["test_difficulties"])

    def variances(self, latent: Latent, u: Settings) -> Array:
        """1 for the relevant slot, Δ for the other."""
        return jnp.stack([jnp.ones(()), latent["difficulty"]])

    def closed_drift(self, x: OrderParameters, u: Settings) -> OrderParameters:
        """The paper's equations for Q₁₁, Q₂₂ and M₁₁."""
        eta, Delta = u["learning_rate"], u["difficulty"]
        Q11, Q22, M11, T = self._seen(x)
        norm = Q11 + Delta * Q22
        label = jnp.sqrt(T * (norm + 2) - M11**2)
        narrowing = 1 / jnp.sqrt(norm + 1)
        pull = 2 * eta / (np.pi * (norm + 2))
        shrink = 2 * pull * (M11 / label + narrowing)
        gap = jnp.sqrt((3 * norm + 2) * (T * (norm + 1) - M11**2))
        spread = np.pi / 2 + jnp.arcsin(norm / (3 * norm + 2)) - 2 * jnp.arcsin(M11 / gap)
        spread = 2 / np.pi**2 * eta**2 * narrowing * spread
        decay = u["weight_decay"] * eta
        if self.spectrum is not None:
            # The factors of fields are the same in all blocks; each block has its own part c_b of the
            # covariances.
            variance = jnp.asarray(self.spectrum.variance)
            towards, fed = 2 / np.pi * eta / label, jnp.asarray(self.spectrum.share) * variance * spread
            M, T_b = x.M[:, 0, 0], jnp.asarray(self.block_overlaps.T)[:, 0, 0]
            shrinks = variance * shrink
            dQ11 = 2 * variance * towards * M - (shrinks + decay) * x.Q[:, 0, 0] + fed
            dQ22 = Delta * fed - (Delta * shrinks + decay) * x.Q[:, 1, 1]
            return self._moved(dQ11, dQ22, variance * towards * T_b - (shrinks + decay) / 2 * M)
        dQ11 = 4 / np.pi * eta * M11 / label - (shrink + decay) * Q11 + spread
        dQ22 = Delta * spread - (Delta * shrink + decay) * Q22
        dM11 = pull * (label - M11 * narrowing) - decay / 2 * M11
        return self._moved(dQ11, dQ22, dM11)

    def closed_error(self, x: OrderParameters, u: Settings) -> Array:
        """Probability of a wrong sign, averaged over the two test difficulties."""
        Q11, Q22, M11, T = self._seen(x)
        share, norms = u["test_share"], Q11 + u["test_difficulties"] * Q22
        across = safe_root(norms * T - M11**2)
        wrong = 0.5 - jnp.arctan2(jnp.broadcast_to(M11, across.shape), across) / np.pi
        return share * wrong[0] + (1 - share) * wrong[1]

    def observables(self, x: OrderParameters, u: Settings) -> dict[str, Array]:
        """``cosine``: M₁₁/√(T Q₁₁), 0 at zero weights."""
        x = self.total(x)
        return {"cosine": cosine(x.M[0, 0], self.summed.overlaps.T[0, 0], x.Q[0, 0])}

    def _seen(self, x: OrderParameters) -> tuple[Array, Array, Array, Array]:
        """Q₁₁, Q₂₂, M₁₁ and T as fields see them."""
        if self.spectrum is None:
            return x.Q[0, 0], x.Q[1, 1], x.M[0, 0], self.overlaps.T[0, 0]
        variance = jnp.asarray(self.spectrum.variance)
        T = jnp.asarray(self.block_overlaps.T)
        parts = (x.Q[:, 0, 0], x.Q[:, 1, 1], x.M[:, 0, 0], T[:, 0, 0])
        Q11, Q22, M11, T11 = (jnp.sum(variance * part) for part in parts)
        return Q11, Q22, M11, T11

    def _moved(self, dQ11: Array, dQ22: Array, dM11: Array) -> OrderParameters:
        zero, blocks = jnp.zeros_like(dM11), jnp.shape(dM11)
        return order_parameters(
            Q=jnp.stack([dQ11, zero, zero, dQ22], axis=-1).reshape(*blocks, 2, 2),
            M=jnp.stack([dM11, zero], axis=-1).reshape(*blocks, 2, 1),
        )


@checked
def curriculum(
    Delta: Sequence[float] = (0.0, 2.0),
    T: Array = 2.0,
    eta: float = 3.0,
    weight_decay: float = 0.0,
    easy_share: float = 0.5,
    spectrum: Spectrum | None = None,
) -> Curriculum:
    """Curriculum model with the paper's values as defaults.

    Args:
        Delta: variance of the irrelevant slot of easy and hard samples; training starts with easy
            ones.
        T: squared norm of the teacher over N; under a spectrum, optionally one number per block.
        eta: learning rate η.
        weight_decay: λ of the penalty λ(Q₁₁ + Q₂₂)/4; the drift holds λ̄ = λη.
        easy_share: share of easy samples in the test set.
        spectrum: spectrum of both slots; None: isotropic inputs.

    Returns:
        A model with order parameters Q11, Q22 and M11.
    """
    check = Arguments("curriculum")
    if np.ndim(Delta) != 1:
        check.fail("Delta", Delta, "must be 2 numbers (easy, hard), each at least 0")
    difficulties = check.numbers("Delta", Delta, (2,), lowest=0.0)
    return Curriculum(
        students=2,
        slots=2,
        overlaps=Overlaps(T=check.squared_norm("T", T, check.blocks(spectrum))),
        spectrum=spectrum,
        parameters={
            "learning_rate": check.number("eta", eta, 0.0),
            "weight_decay": check.number("weight_decay", weight_decay, 0.0),
            "difficulty": difficulties[0],
            "test_difficulties": difficulties,
            "test_share": check.number("easy_share", easy_share, 0.0, 1.0),
        },
        untracked=frozenset({"Q12", "M21"}),
        breaks=(Break("teacher", 0, 0),),
    )


def _preactivation(fields: Fields) -> Array:
    return fields.student[0, 0] + fields.student[1, 1]
