"""Denoising autoencoders: reconstruct x₁ from x̃ = √(1−Δ) x₁ + √Δ x₂ with tied weights and a skip.

x₁ is drawn from a Gaussian mixture (centroids μ_c, standard deviations σ_c), x₂ from N(0, I). The
output is b x̃ + Σ_k w_k g(λ̃_k)/√N with λ̃ = √(1−Δ) λ₁ + √Δ λ₂. The square loss has a part of order
N, which only the skip b sees, and a part of order 1, which the weights see.

Under a spectrum only the clean input x₁ has variances v_{cb} = σ_c² c_{cb} in block b; the noise x₂ is white.
For the linear autoencoder all gradients are linear in the fields, D₁ = √(1−Δ)(Fλ̃ − λ₁) − λ̃ and
D₂ = √Δ(Fλ̃ − λ₁) with F = Q + 2b, so second moments are all that its closed forms need.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Settings
from optlearn._pytrees import field
from optlearn._signatures import checked
from optlearn._theory.model import LearningModel
from optlearn._theory.order import OrderParameters, Overlaps, order_parameters
from optlearn._theory.sample import Fields, Latent
from optlearn._theory.spectrum import Spectrum, variances_by_cluster
from optlearn.models._averages import ACTIVATIONS, Activation, cosine, diagonal

# Overlaps of the centroids and of the initial weights of the paper's Fig. 3 (rows of R are
# students), for use as ``model.state(**FIG3_START, b=…)``.
FIG3_OMEGA = ((0.94712242, 0.03127489), (0.03127489, 0.99002076))
FIG3_START: Mapping[str, Any] = MappingProxyType(
    {
        "Q": ((0.25, 0.00288941), (0.00288941, 0.25)),
        "R": ((0.11648964, -0.00518089), (0.02885135, 0.10386931)),
    }
)

# The same for the supplement's figure that compares theory with a simulation at N = 10⁴, as printed
# there (except Ω₁₂, which is not printed). In the printed R rows are clusters; here they are
# students.
FIGS_OMEGA = ((0.976, -0.01355596), (-0.01355596, 1.014))
FIGS_START: Mapping[str, Any] = MappingProxyType(
    {"Q": ((0.25, -0.002), (-0.002, 0.25)), "R": ((0.099, -0.002), (-0.005, 0.102))}
)


class Autoencoder(LearningModel):
    """Tied-weight denoising autoencoder with a skip connection. Built by ``autoencoder``.

    Slot 0 is the clean input (C clusters), slot 1 the noise.

    Parameters (settings): ``learning_rate`` η; ``b_rate`` η_b of the skip (0: fixed skip); ``noise``
    Δ in training; ``test_noise`` Δ_F of the error; ``N``, input dimension; ``sigma`` (C,) standard
    deviations and ``cluster_probabilities`` (C,); with augmentation ``batch``, noisy views of each
    clean sample.

    The error is E‖x₁ − output‖², without a factor ½ and, unless ``finite_size``, without the
    paper's neglected term Ω_cc (1 − b√(1−Δ))².

    Attributes:
        activation: g.
    """

    reads_blocks = True
    limits = MappingProxyType(
        {**LearningModel.limits, **dict.fromkeys(("noise", "test_noise"), (0.0, 1.0)), "sigma": (0.0, np.inf)}
        | {"N": (0.0, np.inf)}
    )

    activation: Activation = field(static=True, kw_only=True)

    def loss(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """The part of ½‖x₁ − output‖² of order 1."""
        clean, noise = fields.student[0], u["noise"]
        noisy = jnp.sqrt(1 - noise) * fields.student[0] + jnp.sqrt(noise) * fields.student[1]
        hidden = self.activation.function(noisy)
        return hidden @ x.Q @ hidden / 2 - (clean - x.extras["b"] * noisy) @ hidden

    def bulk(self, gram: Array, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """½‖x₁ − b x̃‖²/N."""
        keep, add = jnp.sqrt(1 - u["noise"]), jnp.sqrt(u["noise"])
        b = x.extras["b"]
        residual = jnp.stack([1 - b * keep, -b * add])
        return residual @ gram @ residual / 2

    def metric(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """‖x₁ − output‖²: twice the loss, its extensive part included."""
        gram = jnp.diag(self.input_power(latent, u))
        if self.finite_size:
            mean = self.assignment(latent)
            gram = gram + mean @ self.overlaps.Omega @ mean.T / u["N"]
        return 2 * u["N"] * self.bulk(gram, x, latent, u) + 2 * self.loss(fields, x, latent, u)

    def variances(self, latent: Latent, u: Settings) -> Array:
        """(2,) σ_c² of the clean input's cluster, and 1."""
        clean = self.assignment(latent)[0] @ jnp.asarray(u["sigma"] ** 2)
        return jnp.stack([clean, jnp.ones(())])

    def block_variances(self, latent: Latent, u: Settings) -> Array:
        """(2, B) block variances of the clean input's cluster, and of the white noise."""
        clean = self.assignment(latent)[0] @ self.cluster_variances()
        return jnp.stack([clean, jnp.ones_like(clean)])

    def cluster_variances(self) -> Array:
        """(C, B) variances of the spectrum's blocks in each cluster."""
        assert self.spectrum is not None
        return variances_by_cluster(self.spectrum, self.centroids)

    def test_settings(self, u: Settings) -> Settings:
        """The noise at test time is ``test_noise``."""
        return {**u, "noise": u["test_noise"]}

    def closed_drift(self, x: OrderParameters, u: Settings) -> OrderParameters | None:
        """The paper's equations for the linear autoencoder."""
        if self.activation.name != "linear":
            return None
        if self.spectrum is not None:
            return _block_drift(self, x, u)
        eta, parts = u["learning_rate"], _ClusterMoments(x, u)
        keep, noise, identity = parts.keep, u["noise"], np.eye(self.students)
        fed_back = x.extras["b"] * identity + x.Q
        view = eta / u["batch"] if self.redrawn else eta
        correlated = parts.residual_input(fed_back, 2 + view * (keep * parts.var - parts.b * parts.tau))
        miss = parts.var * (1 - 2 * parts.b * keep) + parts.b**2 * parts.tau
        dQ = correlated + correlated.T + parts.noisy_noisy(view * miss)
        dQ = dQ + parts.residual_residual(fed_back, view * parts.tau)
        if self.redrawn:
            # Two views share only x₁: √(1−Δ) (2(1 − b√(1−Δ)) − √(1−Δ) Q) λ₁ is common to both.
            common = keep * (2 * (1 - parts.b * keep) * identity - keep * x.Q)
            dQ = dQ + (eta - view) * common @ parts.clean_clean(parts.var) @ common
        clean = parts.mean_var * x.R + (x.R * parts.p[None, :]) @ self.overlaps.Omega
        noisy, noisy_noisy = (1 - noise) * clean + noise * x.R, parts.noisy_noisy(1.0)
        dR = 2 * keep * clean - 2 * parts.b * noisy - noisy_noisy @ x.R - x.Q @ noisy
        skip = self._skip_drift(parts.b, parts.mean_var, parts.p, noisy_noisy, u)
        return order_parameters(Q=eta * dQ, R=eta * dR, extras={"b": skip})

    def closed_error(self, x: OrderParameters, u: Settings) -> Array | None:
        """The mean squared error of the linear autoencoder at noise ``test_noise``."""
        if self.activation.name != "linear":
            return None
        u = self.test_settings(u)
        if self.spectrum is not None:
            return _block_error(self, x, u)
        parts = _ClusterMoments(x, u)
        noisy = parts.noisy_noisy(1.0)
        hidden = jnp.sum(x.Q * noisy) + 2 * parts.b * _trace(noisy)
        hidden = hidden - 2 * parts.keep * _trace(parts.clean_clean(1.0))
        return self._skip_error(parts.b, parts.mean_var, parts.p, u) + hidden

    def observables(self, x: OrderParameters, u: Settings) -> dict[str, Array]:
        """``theta11``, …: cosine similarities of student k with centroid k, 0 at zero weights."""
        x, Omega = self.total(x), self.summed.overlaps.Omega
        return {
            f"theta{k + 1}{k + 1}": cosine(x.R[k, k], Omega[k, k], x.Q[k, k])
            for k in range(min(self.students, Omega.shape[0]))
        }

    def _skip_drift(self, b: Array, power: Array, p: Array, noisy: Array, u: Settings) -> Array:
        """db/dα, from the clean inputs' mean variance, the clusters' probabilities and E[λ̃λ̃ᵀ]."""
        scale = (1 - u["noise"]) * b - jnp.sqrt(1 - u["noise"])
        force = power * scale + b * u["noise"]
        if self.finite_size:
            force = force + (self._mean_Omega(p) * scale + _trace(noisy)) / u["N"]
        return -u["b_rate"] * force

    def _skip_error(self, b: Array, power: Array, p: Array, u: Settings) -> Array:
        """E‖x₁ − b x̃‖², the error of the skip alone."""
        power = power + (self._mean_Omega(p) / u["N"] if self.finite_size else 0.0)
        return u["N"] * (power * (1 - b * jnp.sqrt(1 - u["noise"])) ** 2 + b**2 * u["noise"])

    def _mean_Omega(self, p: Array) -> Array:
        """Mean squared norm of the centroids."""
        return p @ diagonal(self.summed.overlaps.Omega)


class _ClusterMoments:
    """Second moments of the linear autoencoder's fields, averaged over clusters with given weights.

    Given cluster c, E[λ₁λ₁ᵀ] = σ_c² Q + R_c R_cᵀ and E[λ̃λ̃ᵀ] = τ_c Q + (1−Δ) R_c R_cᵀ with
    τ_c = (1−Δ)σ_c² + Δ. A method's ``weight`` (a number, or one for each cluster) multiplies the
    moments of cluster c before they are averaged.
    """

    def __init__(self, x: OrderParameters, u: Settings) -> None:
        self.x, self.b, self.noise = x, x.extras["b"], u["noise"]
        self.p, self.var = jnp.asarray(u["cluster_probabilities"]), jnp.asarray(u["sigma"] ** 2)
        self.keep = jnp.sqrt(1 - self.noise)
        self.tau = (1 - self.noise) * self.var + self.noise
        self.mean_var = self.p @ self.var

    def clean_clean(self, weight: Array) -> Array:
        """E[λ₁λ₁ᵀ]."""
        weights = self.p * weight
        return (weights @ self.var) * self.x.Q + (self.x.R * weights[None, :]) @ self.x.R.T

    def noisy_noisy(self, weight: Array) -> Array:
        """E[λ̃λ̃ᵀ]."""
        weights = self.p * weight
        means = (self.x.R * ((1 - self.noise) * weights)[None, :]) @ self.x.R.T
        return (weights @ self.tau) * self.x.Q + means

    def residual_input(self, fed_back: Array, weight: Array) -> Array:
        """E[λ̃Λᵀ] with the residual Λ = λ₁ − (b + Q) λ̃."""
        return self.keep * self.clean_clean(weight) - self.noisy_noisy(weight) @ fed_back

    def residual_residual(self, fed_back: Array, weight: Array) -> Array:
        """E[ΛΛᵀ]."""
        clean = self.clean_clean(weight)
        mixed = self.keep * fed_back @ clean
        return clean - mixed - mixed.T + fed_back @ self.noisy_noisy(weight) @ fed_back


class _BlockMoments(NamedTuple):
    """Second moments of the fields."""

    p: Array  # (C,) probabilities of the clusters
    variance: Array  # (C, B) v of the clean inputs
    power: Array  # mean variance of the entries of a clean input
    Q: Array  # (K, K) whole overlaps of the students
    clean: Array  # (C, K, K) E[λ₁λ₁ᵀ] given the cluster
    noisy: Array  # (C, K, K) E[λ̃λ̃ᵀ]

    def mean(self, table: Array) -> Array:
        """Average over clusters."""
        return jnp.tensordot(self.p, table, axes=1)


def _block_moments(model: Autoencoder, x: OrderParameters, u: Settings) -> _BlockMoments:
    """Second moments at the noise of ``u``."""
    assert model.spectrum is not None
    variance = jnp.asarray(u["sigma"] ** 2)[:, None] * model.cluster_variances()
    p, whole = jnp.asarray(u["cluster_probabilities"]), model.total(x)
    clean = jnp.einsum("cb,bkj->ckj", variance, x.Q) + jnp.einsum("kc,jc->ckj", whole.R, whole.R)
    noisy = (1 - u["noise"]) * clean + u["noise"] * whole.Q[None]
    power = p @ variance @ jnp.asarray(model.spectrum.share)
    return _BlockMoments(p, variance, power, whole.Q, clean, noisy)


def _block_drift(model: Autoencoder, x: OrderParameters, u: Settings) -> OrderParameters:
    """dx/dα of Q, R and the skip."""
    assert model.spectrum is not None
    parts, eta, noise, K = _block_moments(model, x, u), u["learning_rate"], u["noise"], model.students
    keep, b, identity = jnp.sqrt(1 - noise), x.extras["b"], np.eye(K)
    R = model.total(x).R
    # E[field λ₁ᵀ] of students and centroids in each block: contributions of means and of spreads.
    mean_variance = parts.p @ parts.variance
    students = jnp.concatenate([x.Q, jnp.swapaxes(x.R, -1, -2)], axis=1)
    centroids = jnp.concatenate([x.R, jnp.asarray(model.block_overlaps.Omega)], axis=1)
    clean = jnp.einsum("bnc,c,kc->bnk", centroids, parts.p, R) + mean_variance[:, None, None] * students
    noisy = (1 - noise) * clean + noise * students
    fed_back = parts.Q + 2 * b * identity
    A = jnp.einsum("bnk,kj->bnj", noisy, fed_back) - 2 * keep * clean
    # 2P: the loss depends on Q through λ̃ᵀQλ̃/2.
    pull = parts.mean(parts.noisy)
    turn = A[:, :K] + jnp.einsum("bkj,ji->bki", x.Q, pull)
    spread = _block_spread(model, parts, fed_back, u) * jnp.asarray(model.spectrum.share)[:, None, None]
    return order_parameters(
        Q=-eta * (turn + jnp.swapaxes(turn, -1, -2)) + eta**2 * spread,
        R=-eta * (jnp.swapaxes(A[:, K:], -1, -2) + jnp.einsum("kj,bjc->bkc", pull, x.R)),
        extras={"b": model._skip_drift(b, parts.power, parts.p, pull, u)},
    )


def _block_error(model: Autoencoder, x: OrderParameters, u: Settings) -> Array:
    """E‖x₁ − output‖² at the noise of ``u``."""
    parts, b, keep = _block_moments(model, x, u), x.extras["b"], jnp.sqrt(1 - u["noise"])
    clean, noisy = parts.mean(parts.clean), parts.mean(parts.noisy)
    hidden = jnp.sum(parts.Q * noisy) + _trace(2 * b * noisy - 2 * keep * clean)
    return model._skip_error(b, parts.power, parts.p, u) + hidden


def _block_spread(model: Autoencoder, parts: _BlockMoments, fed_back: Array, u: Settings) -> Array:
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
    # Two views share only x₁.
    cross = (1 - noise) * weighed(quadratic(turned - identity, parts.clean))
    return spread / u["batch"] + (1 - 1 / u["batch"]) * cross


@checked
def autoencoder(
    K: int = 2,
    Omega: Array | None = None,
    sigma: Array = 0.1,
    N: float = 1000,
    activation: str = "linear",
    eta: float = 5.0,
    skip_rate: float = 5.0,
    noise: float = 0.3,
    test_noise: float | None = None,
    cluster_probabilities: Array | None = None,
    trained_skip: bool = True,
    augmentation: bool = False,
    batch: float = 1.0,
    finite_size: bool = False,
    spectrum: Spectrum | None = None,
) -> Autoencoder:
    """A denoising autoencoder with the values of the paper's Fig. 3 as defaults.

    Args:
        K: hidden nodes.
        Omega: (C, C) overlaps of the centroids; None for ``FIG3_OMEGA``.
        sigma: standard deviation of the clean inputs around their centroid, one number or C.
        N: input dimension, which weighs the skip's part of the error.
        activation: "linear", "erf" (erf(λ/√2)) or "relu"; closed forms for "linear".
        eta: learning rate η.
        skip_rate: learning rate η_b of the skip.
        noise: variance Δ of the added noise in training, from 0 to 1; ``optimal_skip`` and
            derivatives with respect to Δ need it inside.
        test_noise: Δ_F of the error; None for ``noise``.
        cluster_probabilities: (C,); None for equal ones.
        trained_skip: if False the skip keeps its initial value, usually ``optimal_skip``.
        augmentation: train on ``batch`` noisy views of each clean sample.
        batch: number of views; a real number interpolates. Only with augmentation.
        finite_size: add to the error the term Ω_cc (1 − b√(1−Δ))² and to the skip's drift its 1/N
            correction, both of which the paper neglects.
        spectrum: of the clean inputs, perhaps with a row for each cluster (their covariances commute then);
            the noise is white. Centroids lie in random directions unless Omega is (B, C, C).

    Returns:
        A model with order parameters Q, R and b.
    """
    check = Arguments("autoencoder")
    blocks = check.blocks(spectrum)
    overlaps = Overlaps(Omega=check.gram("Omega", FIG3_OMEGA if Omega is None else Omega, blocks=blocks))
    clusters = overlaps.Omega.shape[-1]
    if spectrum is not None and abs(np.sum(spectrum.share) - 1) > 1e-9:
        check.fail("spectrum", spectrum, "must have shares that sum to 1: white noise fills all directions")
    function = ACTIVATIONS[check.one_of("activation", activation, ACTIVATIONS)]
    noise = check.number("noise", noise, 0.0, 1.0)
    skip_rate = check.number("skip_rate", skip_rate, 0.0)
    parameters = {
        "learning_rate": check.number("eta", eta, 0.0),
        "b_rate": skip_rate if check.flag("trained_skip", trained_skip) else 0.0,
        "noise": noise,
        "test_noise": noise if test_noise is None else check.number("test_noise", test_noise, 0.0, 1.0),
        "N": check.number("N", N, 0.0, open_below=True),
        "sigma": check.numbers("sigma", sigma, (clusters,), lowest=0.0),
        "cluster_probabilities": check.probabilities(
            "cluster_probabilities", cluster_probabilities, clusters
        ),
    }
    batch = check.number("batch", batch, 1.0)
    if check.flag("augmentation", augmentation):
        parameters["batch"] = batch
    elif batch != 1:
        check.fail("batch", batch, "has an effect only with augmentation=True")
    K = check.count("K", K)
    return Autoencoder(
        students=K,
        slots=2,
        clusters=(clusters, 0),
        overlaps=overlaps,
        parameters=parameters,
        extras=("b",),
        redrawn=(1,) if augmentation else (),
        finite_size=check.flag("finite_size", finite_size),
        spectrum=spectrum,
        activation=function,
    )


@checked
def optimal_skip(noise: Array, sigma: Array, cluster_probabilities: Array | None = None) -> Array:
    """b* = √(1−Δ) σ² / ((1−Δ)σ² + Δ), where a trained skip settles at constant noise.

    Args:
        noise: Δ, above 0 if σ = 0.
        sigma: standard deviation of the clean inputs, one number or one for each cluster.
        cluster_probabilities: weights of the clusters in the mean of σ²; None for equal ones.
    """
    squares = np.atleast_1d(np.asarray(sigma, dtype=float)) ** 2
    p = Arguments("optimal_skip").probabilities("cluster_probabilities", cluster_probabilities, len(squares))
    variance = float(p @ squares)
    return np.sqrt(1 - noise) * variance / ((1 - noise) * variance + noise)


def _trace(matrix: Array) -> Array:
    # jnp.trace is a gather; for the few nodes of a student this is cheaper to trace.
    return jnp.sum(matrix * np.eye(matrix.shape[0]))
