"""The linear denoising autoencoder on clean inputs with a spectrum: closed forms, block by block.

The noise x₂ is white; only the clean input x₁ has variances v_{cb} = σ_c² c_{cb} in block b. All gradients
are linear in the fields, D₁ = √(1−Δ)(Fλ̃ − λ₁) − λ̃ and D₂ = √Δ(Fλ̃ − λ₁) with F = Q + 2b, so second moments are
all there is.
"""

from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, Settings
from optlearn._theory.order import OrderParameters

if TYPE_CHECKING:
    from optlearn.models._autoencoder import Autoencoder


class BlockMoments(NamedTuple):
    """Second moments of the fields.

    Attributes:
        p: (C,) probabilities of the clusters.
        variance: (C, B) v of the clean inputs.
        Q: (K, K) whole overlaps of the students.
        clean: (C, K, K) E[λ₁λ₁ᵀ] given the cluster.
        noisy: (C, K, K) E[λ̃λ̃ᵀ].
    """

    p: Array
    variance: Array
    Q: Array
    clean: Array
    noisy: Array

    def mean(self, table: Array) -> Array:
        """Average over clusters."""
        return jnp.tensordot(self.p, table, axes=1)


def block_moments(model: "Autoencoder", x: OrderParameters, u: Settings) -> BlockMoments:
    """Second moments at the noise of ``u``."""
    variance = jnp.asarray(u["sigma"] ** 2)[:, None] * model.cluster_variances()
    whole = model.total(x)
    clean = jnp.einsum("cb,bkj->ckj", variance, x.Q) + jnp.einsum("kc,jc->ckj", whole.R, whole.R)
    noisy = (1 - u["noise"]) * clean + u["noise"] * whole.Q[None]
    return BlockMoments(jnp.asarray(u["cluster_probabilities"]), variance, whole.Q, clean, noisy)


def block_drift(model: "Autoencoder", x: OrderParameters, u: Settings) -> OrderParameters:
    """dx/dα of Q, R and the skip."""
    assert model.spectrum is not None
    parts, eta, noise, K = block_moments(model, x, u), u["learning_rate"], u["noise"], model.students
    keep, b, identity = jnp.sqrt(1 - noise), x.extras["b"], np.eye(K)
    R = model.total(x).R
    # E[field λ₁ᵀ] of students and centroids in each block: what means add, and what spreads add.
    mean_variance = parts.p @ parts.variance
    students = jnp.concatenate([x.Q, jnp.swapaxes(x.R, -1, -2)], axis=1)
    centroids = jnp.concatenate([x.R, jnp.asarray(model.block_overlaps.Omega)], axis=1)
    clean = jnp.einsum("bnc,c,kc->bnk", centroids, parts.p, R) + mean_variance[:, None, None] * students
    noisy = (1 - noise) * clean + noise * students
    fed_back = parts.Q + 2 * b * identity
    A = jnp.einsum("bnk,kj->bnj", noisy, fed_back) - 2 * keep * clean
    # 2P: the loss reads Q through λ̃ᵀQλ̃/2.
    pull = parts.mean(parts.noisy)
    own = A[:, :K] + jnp.einsum("bkj,ji->bki", x.Q, pull)
    spread = _spread(model, parts, fed_back, u) * jnp.asarray(model.spectrum.share)[:, None, None]
    return OrderParameters(
        Q=-eta * (own + jnp.swapaxes(own, -1, -2)) + eta**2 * spread,
        M=jnp.zeros_like(x.M),
        R=-eta * (jnp.swapaxes(A[:, K:], -1, -2) + jnp.einsum("kj,bjc->bkc", pull, x.R)),
        v=jnp.zeros((K, 0)),
        extras={"b": _skip_drift(model, parts, b, u)},
    )


def block_error(model: "Autoencoder", x: OrderParameters, u: Settings) -> Array:
    """E‖x₁ − output‖² at the noise of ``u``."""
    parts, b, keep = block_moments(model, x, u), x.extras["b"], jnp.sqrt(1 - u["noise"])
    variance = _power(model, parts)
    if model.finite_size:
        variance = variance + _mean_Omega(model, parts) / u["N"]
    clean, noisy = parts.mean(parts.clean), parts.mean(parts.noisy)
    hidden = jnp.sum(parts.Q * noisy) + jnp.sum((2 * b * noisy - 2 * keep * clean) * np.eye(model.students))
    return u["N"] * (variance * (1 - b * keep) ** 2 + b**2 * u["noise"]) + hidden


def _spread(model: "Autoencoder", parts: BlockMoments, fed_back: Array, u: Settings) -> Array:
    """(B, K, K) Σ_l σ_l² c_b E[D_l D_lᵀ]."""
    noise, identity = u["noise"], np.eye(model.students)
    keep = jnp.sqrt(1 - noise)
    turned = keep * fed_back - identity

    def quadratic(left: Array, table: Array) -> Array:
        return jnp.einsum("ik,ckj,lj->cil", left, table, left)

    def symmetric(left: Array) -> Array:
        product = jnp.einsum("ik,ckj->cij", left, parts.clean)
        return product + jnp.swapaxes(product, -1, -2)

    by_clean = quadratic(turned, parts.noisy) - (1 - noise) * (symmetric(turned) - parts.clean)
    by_noise = noise * (quadratic(fed_back, parts.noisy) - keep * symmetric(fed_back) + parts.clean)

    def weighed(table: Array) -> Array:
        return jnp.einsum("c,cb,ckj->bkj", parts.p, parts.variance, table)

    spread = weighed(by_clean) + parts.mean(by_noise)[None]
    if not model.redrawn:
        return spread
    # Two views share x₁ only.
    cross = (1 - noise) * weighed(quadratic(turned - identity, parts.clean))
    return spread / u["batch"] + (1 - 1 / u["batch"]) * cross


def _skip_drift(model: "Autoencoder", parts: BlockMoments, b: Array, u: Settings) -> Array:
    scale = (1 - u["noise"]) * b - jnp.sqrt(1 - u["noise"])
    force = _power(model, parts) * scale + b * u["noise"]
    if model.finite_size:
        hidden = jnp.sum(parts.mean(parts.noisy) * np.eye(model.students))
        force = force + (_mean_Omega(model, parts) * scale + hidden) / u["N"]
    return -u["b_rate"] * force


def _power(model: "Autoencoder", parts: BlockMoments) -> Array:
    """Mean variance of the entries of a clean input."""
    assert model.spectrum is not None
    return parts.p @ parts.variance @ jnp.asarray(model.spectrum.share)


def _mean_Omega(model: "Autoencoder", parts: BlockMoments) -> Array:
    Omega = model.summed.overlaps.Omega
    return parts.p @ jnp.sum(jnp.asarray(Omega) * np.eye(Omega.shape[0]), axis=0)
