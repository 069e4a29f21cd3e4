"""The drift of the order parameters for any loss, by quadrature over the local fields.

Given the latents, slot l has fields with mean m_l (its centroid's row of the Gram matrix G) and
covariance σ_l² G, independent of the other slots. With F the Cholesky columns of the fields that
the loss reads, fields = m_l + σ_l F ξ_l, so

    E[field D₂ᵀ] = m_l E[D₂]ᵀ + σ_l F E[ξ_l D₂ᵀ]

holds for every field, read or not, centroids' fields ρ included: only read fields are integrated
over.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, Settings
from optlearn._theory.expectation import AbstractRule, GaussHermite, QuasiMonteCarlo
from optlearn._theory.gaussian import gram_matrix, partial_cholesky
from optlearn._theory.model import Latent, LearningModel
from optlearn._theory.order import OrderParameters
from optlearn._theory.reads import Reads, fields_read
from optlearn._theory.sample import Fields

# Nodes a dimension that keep the default tensor grid below about 10⁵ points.
DEFAULT_NODES = {0: 1, 1: 64, 2: 40, 3: 28, 4: 16, 5: 10}


@dataclass(frozen=True)
class Coordinates:
    """Which standard normal drives which field: by slot the fields read, then the label noise."""

    pivots: tuple[tuple[int, ...], ...]
    noise: bool
    cuts: tuple[float | None, ...]

    @property
    def smooth(self) -> tuple[bool, ...]:
        """One flag a coordinate: is it the label noise?"""
        return (False,) * sum(map(len, self.pivots)) + (True,) * self.noise

    @property
    def starts(self) -> tuple[int, ...]:
        """First coordinate of each slot."""
        return tuple(int(n) for n in np.cumsum([0, *map(len, self.pivots)])[:-1])


def coordinates(model: LearningModel, reads: Reads, slots: tuple[int, ...]) -> Coordinates:
    """Coordinates of ``slots`` (others have no pivots); fields that jump come first in a slot."""
    K = model.students
    thresholds = {(b.slot, b.node + (K if b.kind == "teacher" else 0)): b.at for b in model.breaks}
    pivots, cuts = [], []
    for slot in range(model.slots):
        read = np.concatenate([reads.student[slot], reads.teacher[slot]])
        entries = [int(i) for i in np.flatnonzero(read)] if slot in slots else []
        jumping = {i for i in entries if (slot, i) in thresholds}
        entries = [*(i for i in entries if i in jumping), *(i for i in entries if i not in jumping)]
        pivots.append(tuple(entries))
        cuts += [thresholds.get((slot, i)) for i in entries]
    return Coordinates(tuple(pivots), reads.noise, (*cuts, *([None] * reads.noise)))


def default_rule(model: LearningModel) -> AbstractRule:
    """A rule for the dimension of the model's integrals; see ``AutoRule`` for a checked choice."""
    where = coordinates(model, fields_read(model), tuple(range(model.slots)))
    dimension = len(where.smooth)
    if dimension not in DEFAULT_NODES:
        return QuasiMonteCarlo(16)
    return GaussHermite(DEFAULT_NODES[dimension])


def generic_drift(
    model: LearningModel, x: OrderParameters, u: Settings, rule: AbstractRule
) -> OrderParameters:
    """dx/dα of THEORY: any loss, latents, clusters, readout, penalty, batches, augmentation."""
    latents = model.latents(u)
    sums = jax.vmap(lambda latent: _moments(model, x, latent, u, rule))(latents.values)
    mean = jax.tree.map(lambda m: jnp.tensordot(latents.probabilities, m, axes=1), sums)
    K, M = model.students, model.overlaps.T.shape[0]
    eta = u["learning_rate"]
    pull = jax.grad(model.penalty)(x, u)
    P = _symmetric(mean["Q"] + pull.Q)
    field_grad = mean["field_grad"]
    A = field_grad[:K] + 2 * x.Q @ P
    batch = u.get("batch", 1.0)
    spread = mean["spread"] / batch
    if model.redrawn:
        spread = spread + (1 - 1 / batch) * mean["cross"]
    extras = {name: -u[f"{name}_rate"] * (mean["bulk"][name] + pull.extras[name]) for name in model.extras}
    return OrderParameters(
        Q=-eta * (A + A.T) + eta**2 * spread,
        M=-eta * (field_grad[K : K + M].T + 2 * P @ x.M),
        R=-eta * (field_grad[K + M :].T + 2 * P @ x.R),
        v=-u.get("readout_rate", eta) * (mean["v"] + pull.v),
        extras=extras,
    )


def generic_error(model: LearningModel, x: OrderParameters, u: Settings, rule: AbstractRule) -> Array:
    """Mean of the metric over test samples, the extensive part ``N · bulk`` not included."""
    settings = model.test_settings(u)
    latents = model.test_latents(settings)
    reads = fields_read(model, "metric")
    sampler = _Sampler(model, x, settings, reads, tuple(range(model.slots)))

    def one(latent: Latent) -> Array:
        points, weights, build = sampler.given(latent, rule)
        values = jax.vmap(lambda xi: model.metric(build(xi), x, latent, settings))(points)
        return weights @ values

    return latents.probabilities @ jax.vmap(one)(latents.values)


class _Sampler:
    """Turns standard normals into fields for a given latent."""

    def __init__(
        self,
        model: LearningModel,
        x: OrderParameters,
        u: Settings,
        reads: Reads,
        slots: tuple[int, ...],
    ) -> None:
        self.model, self.u = model, u
        self.gram = gram_matrix(x, model.overlaps)
        self.where = coordinates(model, reads, slots)
        factors = {p: partial_cholesky(self.gram, p) for p in set(self.where.pivots)}
        self.factors = [factors[p] for p in self.where.pivots]

    def slot_moments(self, latent: Latent) -> tuple[Array, Array]:
        """Means (L, n) of all fields and standard deviations (L,) of the inputs."""
        centroids = self.model.overlaps.Omega.shape[0]
        means = self.model.assignment(latent) @ self.gram[self.gram.shape[0] - centroids :]
        return means, jnp.sqrt(self.model.variances(latent, self.u))

    def given(self, latent: Latent, rule: AbstractRule) -> tuple[Array, Array, Callable[[Array], Fields]]:
        """Points, weights, and the map from a point to the fields."""
        means, sigmas = self.slot_moments(latent)
        points, weights = rule.points(self.where.smooth, self._cut(means, sigmas))
        half, odd = divmod(points.shape[0], 2)
        centred = not any(self.model.clusters) and all(c is None for c in self.where.cuts)
        if self.model.even and centred and not odd:
            # The second half of a rule mirrors the first.
            points, weights = points[:half], 2 * weights[:half]
        return points, weights, self.fields_map(means, sigmas)

    def fields_map(self, means: Array, sigmas: Array) -> Callable[[Array], Fields]:
        """The affine map from standard normals (d,) to fields; those not read are zero."""
        K, M = self.model.students, self.model.overlaps.T.shape[0]
        dimension = len(self.where.smooth)
        # Assembled once, so that a point costs one small matrix product and no scatter.
        offset = jnp.zeros((self.model.slots, K + M))
        matrix = jnp.zeros((self.model.slots, K + M, dimension))
        for slot, pivots in enumerate(self.where.pivots):
            if pivots:
                entries, start = np.array(pivots), self.where.starts[slot]
                rows = sigmas[slot] * self.factors[slot][entries]
                offset = offset.at[slot, entries].set(means[slot][entries])
                matrix = matrix.at[slot, entries, start : start + len(pivots)].set(rows)

        def fields(xi: Array) -> Fields:
            table = offset + matrix @ xi
            noise = xi[-1] if self.where.noise else jnp.zeros(())
            return Fields(table[:, :K], table[:, K:], noise)

        return fields

    def _cut(self, means: Array, sigmas: Array) -> Callable[[int, Array], Array | None]:
        place = [(slot, i) for slot, p in enumerate(self.where.pivots) for i in range(len(p))]

        def cut(coordinate: int, prefix: Array) -> Array | None:
            threshold = self.where.cuts[coordinate]
            if threshold is None:
                return None
            slot, position = place[coordinate]
            entry = self.where.pivots[slot][position]
            row = self.factors[slot][entry]
            start = self.where.starts[slot]
            before = prefix[:, start : start + position] @ row[:position]
            centre = (threshold - means[slot, entry]) / (sigmas[slot] + 1e-300)
            return (centre - before) / row[position]

        return cut


def _moments(
    model: LearningModel, x: OrderParameters, latent: Latent, u: Settings, rule: AbstractRule
) -> dict[str, Any]:
    """Expectations given one latent that the drift is made of."""
    slots = tuple(range(model.slots))
    sampler = _Sampler(model, x, u, fields_read(model), slots)
    means, sigmas = sampler.slot_moments(latent)
    points, weights, build = sampler.given(latent, rule)

    def gradient(xi: Array) -> tuple[Array, Array, Array, dict[str, Array]]:
        return loss_gradient(model, build(xi), x, latent, u)

    D2, D3, D4, D_extras = jax.vmap(gradient)(points)
    field_grad = jnp.einsum("p,plk,ln->nk", weights, D2, means)
    for slot, pivots in enumerate(sampler.where.pivots):
        start = sampler.where.starts[slot]
        noise = points[:, start : start + len(pivots)]
        cross = jnp.einsum("p,pr,pk->rk", weights, noise, D2[:, slot])
        field_grad = field_grad + sigmas[slot] * sampler.factors[slot] @ cross
    result: dict[str, Any] = {
        "field_grad": field_grad,
        "spread": jnp.einsum("p,plk,l,plj->kj", weights, D2, sigmas**2, D2),
        "Q": jnp.tensordot(weights, D3, axes=1),
        "v": jnp.tensordot(weights, D4, axes=1),
    }
    if model.extras:
        gram = jnp.diag(sigmas**2)
        if model.finite_size:
            mean = model.assignment(latent)
            gram = gram + mean @ model.overlaps.Omega @ mean.T / u["N"]
        result["bulk"] = jax.grad(model.bulk, argnums=1)(gram, x, latent, u).extras
        if model.finite_size:
            result["bulk"] = {
                name: force + weights @ D_extras[name] / u["N"] for name, force in result["bulk"].items()
            }
    if model.redrawn:
        result["cross"] = _cross_view(model, x, latent, u, rule)
    return result


def _cross_view(
    model: LearningModel, x: OrderParameters, latent: Latent, u: Settings, rule: AbstractRule
) -> Array:
    """E[D₂ᵀ σ² D₂'] of two views of one sample that share all but the redrawn slots."""
    sampler = _Sampler(model, x, u, fields_read(model), tuple(range(model.slots)))
    means, sigmas = sampler.slot_moments(latent)
    where = sampler.where
    owner = np.repeat(np.arange(model.slots), [len(p) for p in where.pivots])
    redrawn = np.concatenate([np.isin(owner, model.redrawn), np.zeros(int(where.noise), dtype=bool)])
    dimension, doubled = len(where.smooth), int(redrawn.sum())
    # The second view's redrawn coordinates are appended; breaks are cut in the first view only.
    first = np.arange(dimension)
    second = first.copy()
    second[redrawn] = dimension + np.arange(doubled)
    cut = sampler._cut(means, sigmas)
    points, weights = rule.points(
        where.smooth + (False,) * doubled,
        lambda j, prefix: cut(j, prefix) if j < dimension else None,
    )

    build = sampler.fields_map(means, sigmas)

    def shared_gradient(xi: Array) -> Array:
        return loss_gradient(model, build(xi), x, latent, u)[0]

    D_a = jax.vmap(shared_gradient)(points[:, first])
    D_b = jax.vmap(shared_gradient)(points[:, second])
    shared = np.array([slot not in model.redrawn for slot in range(model.slots)], dtype=float)
    return _symmetric(jnp.einsum("p,plk,l,plj->kj", weights, D_a, shared * sigmas**2, D_b))


def loss_gradient(
    model: LearningModel, fields: Fields, x: OrderParameters, latent: Latent, u: Settings
) -> tuple[Array, Array, Array, dict[str, Array]]:
    """What one sample does: D₂ (L, K), D₃ (K, K), D₄ (K, H), and the extras'; gradients of its loss.

    Under a rule of the model's own D₂ is that rule, and the loss does not act on Q.
    """
    if not model.has_rule:
        by_fields, by_state = jax.grad(model.loss, argnums=(0, 1))(fields, x, latent, u)
        return by_fields.student, by_state.Q, by_state.v, by_state.extras
    by_state = jax.grad(model.loss, argnums=1)(fields, x, latent, u)
    return model.update(fields, x, latent, u), jnp.zeros_like(x.Q), by_state.v, by_state.extras


def _symmetric(matrix: Array) -> Array:
    return (matrix + matrix.T) / 2
