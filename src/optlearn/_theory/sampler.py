"""From standard normals to local fields, and from fields back to the effect of a gradient on weights.

Only fields that a loss reads are integrated over: ``fields_read`` finds them in its traced program, and
``Coordinates`` assigns a standard normal to each.

Given the latents, slot l has fields with mean m_l (its centroid's row of the Gram matrix G) and
covariance σ_l² G, independent of the other slots. With F the Cholesky columns of the fields that
the loss reads, fields = m_l + σ_l F ξ_l, so

    E[field D₂ᵀ] = m_l E[D₂]ᵀ + σ_l F E[ξ_l D₂ᵀ]

holds for every field, read or not, centroids' fields ρ included.

Under a spectrum a field is a sum over blocks b, and so is its covariance, σ_l² Σ_b c_b G_b. With F that of
the read fields r, F Fᵀ = Σ_b c_b G_b[r, r], the part of a field in block b has

    E[field_b D₂ᵀ] = m_{l,b} E[D₂]ᵀ + σ_l c_b G_b[:, r] F⁻ᵀ E[ξ_l D₂ᵀ].

A singular matrix does no harm: its null vectors are those of every c_b G_b.
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax.linalg import triangular_solve

from optlearn._arrays import Array, Bool, Float, Settings
from optlearn._engine.tracing.trace import dependencies
from optlearn._theory.expectation import Quadrature, Table
from optlearn._theory.model import LearningModel
from optlearn._theory.order import OrderParameters, field_covariance, gram_matrix
from optlearn._theory.sample import Break, Fields, Latent

# Added under every square root. The derivative of a Cholesky factor is infinite at a singular Gram
# matrix (zero weights, perfect alignment); with this, expectations and their gradients are finite
# and off by about this much (round-off adds about 1e-9 to gradients).
JITTER = 1e-13

_READS: dict[Hashable, "Reads"] = {}


@dataclass(frozen=True)
class Reads:
    """Flags of read fields: student (L, K), teacher (L, M), noise; number of further normals; breaks.

    Either all further normals count or none: a rule that perturbs its units perturbs all.
    """

    student: Bool[np.ndarray, "L K"]
    teacher: Bool[np.ndarray, "L M"]
    noise: bool
    normals: int = 0
    breaks: tuple[Break, ...] = ()


def fields_read(model: LearningModel, function: Literal["loss", "metric"] = "loss") -> Reads:
    """The fields that enter the model's loss (and its own rule) or metric, found in its traced program.

    The answer is structural and never too small: a field counts even where its derivative vanishes,
    as in the sign of a teacher.
    """
    # Neither loss nor metric depends on the quadrature, and tables are large.
    bare = replace(model, drift_quadrature=None, error_quadrature=None, drift_breaks=None)
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), float), bare)
    leaves, structure = jax.tree.flatten(shapes)
    key = (structure, tuple(leaf.shape for leaf in leaves), function)
    if key not in _READS:
        with jax.enable_x64(True):
            _READS[key] = _find(shapes, function)
    cut = model.breaks if function == "metric" or model.drift_breaks is None else model.drift_breaks
    return replace(_READS[key], breaks=cut)


def _find(shapes: LearningModel, function: str) -> Reads:
    L, K, M = shapes.slots, shapes.students, shapes.teachers

    def table(model: LearningModel, u: dict[str, Any]) -> Any:
        if function == "metric":
            return model.test_latents(model.test_settings(u)).values
        return model.latents(u).values

    latents = jax.eval_shape(table, shapes, shapes.parameters)
    latent = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape[1:], s.dtype), latents)
    state = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, float), shapes.state())
    sizes = (L, K), (L, M), (), (shapes.normals,)
    fields = Fields(*(jax.ShapeDtypeStruct(shape, float) for shape in sizes))

    def read(f: Fields, model: LearningModel, x: Any, c: Any, u: Any) -> Any:
        model, x = model.summed, model.total(x)
        if function == "metric":
            return model.metric(f, x, c, u)
        read = sum(model.statistics(f, x, c, u).values(), start=jnp.zeros(()))
        if model.has_rule:
            read = read + jnp.sum(model.update(f, x, c, u))
        if not model.has_rule or model.heads or model.extras or model.trained:
            read = read + model.loss(f, x, c, u)
        return read

    flags = dependencies(read, fields, shapes, state, latent, shapes.parameters)
    normals = shapes.normals if np.any(flags.normals) else 0
    return Reads(flags.student, flags.teacher, bool(flags.noise), normals)


def partial_cholesky(
    gram: Float[Array, "n n"], pivots: tuple[int, ...], jitter: float = JITTER
) -> Float[Array, "n r"]:
    """(n, r) factor F such that the Gaussian vector is F ξ plus a part independent of its pivots.

    The first pivot entry depends on ξ₀ alone, the second on ξ₀ and ξ₁, and so on. With all n
    entries as pivots, F Fᵀ is the Gram matrix. ``jitter=0`` gives exact zeros for zero vectors,
    without gradients.
    """
    factor = jnp.zeros((gram.shape[0], 0), gram.dtype)
    for pivot in pivots:
        column = gram[:, pivot] - factor @ factor[pivot]
        # Round-off may leave a square just below zero; it must not take its derivative away (and at
        # zero itself jnp.maximum would halve it).
        square = jnp.where(column[pivot] > -jitter / 2, column[pivot], 0.0) + jitter
        if jitter == 0.0:
            # A pivot at round-off level belongs to the span of those before it.
            present = square > 1e-14 * jnp.maximum(gram[pivot, pivot], 1e-300)
            inverse = jnp.where(present, 1 / jnp.sqrt(jnp.where(present, square, 1.0)), 0.0)
        else:
            inverse = 1 / jnp.sqrt(square)
        column = column * inverse
        # The pivot's own entry keeps the jitter; later columns must not reach back to earlier
        # pivots.
        column = column.at[pivot].set(square * inverse)
        done = np.array(pivots[: factor.shape[1]], dtype=int)
        column = column.at[done].set(0.0)
        factor = jnp.concatenate([factor, column[:, None]], axis=1)
    return factor


@dataclass(frozen=True)
class Coordinates:
    """The role of each standard normal: the read fields slot by slot, further normals, then label noise."""

    pivots: tuple[tuple[int, ...], ...]
    noise: bool
    cuts: tuple[tuple[Break, ...], ...]  # of each coordinate
    normals: int = 0

    @property
    def smooth(self) -> tuple[bool, ...]:
        """One flag per coordinate: is it the label noise?"""
        return (False,) * (sum(map(len, self.pivots)) + self.normals) + (True,) * self.noise

    @property
    def segments(self) -> tuple[int, ...]:
        """Number of segments of each coordinate; 0 for the label noise."""
        return tuple(0 if s else len(c) + 1 for s, c in zip(self.smooth, self.cuts, strict=True))

    @property
    def starts(self) -> tuple[int, ...]:
        """First coordinate of each slot."""
        return tuple(int(n) for n in np.cumsum([0, *map(len, self.pivots)])[:-1])


def coordinates(model: LearningModel, reads: Reads) -> Coordinates:
    """Coordinates of all slots. In a slot, fields with a jump come first, then fields of sums with a jump.

    A sum of fields is cut where its last field is: those before are known there.
    """
    read = np.concatenate([reads.student, reads.teacher], axis=1)
    forms = {b: [(slot, entry) for slot, entry, _ in _entries(model, b)] for b in reads.breaks}
    alone = {place for form in forms.values() if len(form) == 1 for place in form}
    summed = {place for form in forms.values() for place in form}
    pivots = tuple(
        tuple(
            sorted(
                map(int, np.flatnonzero(read[slot])),
                key=lambda i: 2 - ((slot, i) in alone) - ((slot, i) in summed),
            )
        )
        for slot in range(model.slots)
    )
    order = [(slot, entry) for slot, entries in enumerate(pivots) for entry in entries]
    cuts: list[tuple[Break, ...]] = [()] * (len(order) + reads.normals + reads.noise)
    for b, form in forms.items():
        # A function that reads only part of a sum does not jump with it.
        if all(read[place] for place in form):
            last = max(map(order.index, form))
            cuts[last] = (*cuts[last], b)
    return Coordinates(pivots, reads.noise, tuple(cuts), reads.normals)


def _entries(model: LearningModel, place: Break) -> Iterator[tuple[int, int, float]]:
    """Slot, index among all fields, and factor of the fields of a sum."""
    for kind, slot, node, factor in place.terms:
        yield slot, node + (model.students if kind == "teacher" else 0), factor


class Slots(NamedTuple):
    """Distribution of the slots' fields given a latent."""

    means: Float[Array, "L n"]  # of all fields
    sigmas: Float[Array, " L"]  # standard deviations of the inputs, those of the blocks not included
    factors: list[Float[Array, "n r"]]  # for each slot, Cholesky columns of the fields read
    variances: Float[Array, "L B"] | None  # of the blocks, under a spectrum
    assignment: Float[Array, "L C"]  # weights of the centroids in the means


class Sampler:
    """Turns standard normals into fields for a given latent."""

    def __init__(self, model: LearningModel, x: OrderParameters, u: Settings, reads: Reads) -> None:
        self.model, self.u, self.where = model, u, coordinates(model, reads)
        if model.spectrum is not None:
            self.blocks = gram_matrix(x, model.block_overlaps)
            self.gram = self.blocks.sum(axis=0)
            return
        self.gram = gram_matrix(x, model.overlaps)
        factors = {p: partial_cholesky(self.gram, p) for p in set(self.where.pivots)}
        self._factors = [factors[p] for p in self.where.pivots]

    def slots(self, latent: Latent) -> Slots:
        """Means, widths and factors of the slots' fields."""
        assignment = self.model.assignment(latent)
        means = assignment @ self.gram[self.gram.shape[0] - self.model.centroids :]
        sigmas = jnp.sqrt(self.model.variances(latent, self.u))
        if self.model.spectrum is None:
            return Slots(means, sigmas, self._factors, None, assignment)
        variances = self.model.block_variances(latent, self.u)
        factors = [
            partial_cholesky(field_covariance(self.blocks, variances[slot]), pivots)
            for slot, pivots in enumerate(self.where.pivots)
        ]
        return Slots(means, sigmas, factors, variances, assignment)

    def quadrature_points(
        self, slots: Slots, quadrature: Quadrature
    ) -> tuple[Float[Array, "P d"], Float[Array, " P"], Callable[[Array], Fields]]:
        """Points, weights, and the map from a point to the fields."""
        points, weights = quadrature.points(self.where.smooth, self.cut(slots))
        half, odd = divmod(points.shape[0], 2)
        centred = not any(self.model.clusters) and not any(self.where.cuts)
        if self.model.even and centred and not odd and not isinstance(quadrature, Table):
            # The second half of the points mirrors the first.
            points, weights = points[:half], 2 * weights[:half]
        return points, weights, self.fields_map(slots)

    def fields_map(self, slots: Slots) -> Callable[[Array], Fields]:
        """The affine map from standard normals (d,) to fields; those not read are zero."""
        K, M = self.model.students, self.model.teachers
        dimension = len(self.where.smooth)
        end = dimension - self.where.noise
        missing = jnp.zeros(self.model.normals - self.where.normals)
        # Assembled once, so that a point costs one small matrix product and no scatter.
        offset = jnp.zeros((self.model.slots, K + M))
        matrix = jnp.zeros((self.model.slots, K + M, dimension))
        for slot, pivots in enumerate(self.where.pivots):
            if pivots:
                entries, start = np.array(pivots), self.where.starts[slot]
                rows = slots.sigmas[slot] * slots.factors[slot][entries]
                offset = offset.at[slot, entries].set(slots.means[slot][entries])
                matrix = matrix.at[slot, entries, start : start + len(pivots)].set(rows)

        def fields(xi: Array) -> Fields:
            table = offset + matrix @ xi
            noise = xi[-1] if self.where.noise else jnp.zeros(())
            normals = jnp.concatenate([xi[end - self.where.normals : end], missing])
            return Fields(table[:, :K], table[:, K:], noise, normals)

        return fields

    def field_gradient(
        self, slots: Slots, points: Float[Array, "P d"], weights: Array, D2: Float[Array, "P L K"]
    ) -> Float[Array, "*B n K"]:
        """(n, K) E[field D₂ᵀ] of all fields, summed over slots; (B, n, K) under a spectrum."""
        if slots.variances is None:
            total = jnp.einsum("p,plk,ln->nk", weights, D2, slots.means)
        else:
            # The blocks' parts of the means; those of fields that are not read count too.
            to_centroids = self.blocks[:, :, self.gram.shape[0] - self.model.centroids :]
            total = jnp.einsum("p,plk,lc,bnc->bnk", weights, D2, slots.assignment, to_centroids)
        for slot, pivots in enumerate(self.where.pivots):
            start = self.where.starts[slot]
            noise = points[:, start : start + len(pivots)]
            cross = jnp.einsum("p,pr,pk->rk", weights, noise, D2[:, slot])
            if slots.variances is None:
                total = total + slots.sigmas[slot] * slots.factors[slot] @ cross
            elif pivots:
                entries = np.array(pivots)
                pull = triangular_solve(
                    slots.factors[slot][entries], cross, left_side=True, lower=True, transpose_a=True
                )
                shares = slots.sigmas[slot] * slots.variances[slot]
                total = total + jnp.einsum("b,bnr,rk->bnk", shares, self.blocks[:, :, entries], pull)
        return total

    def spread(
        self, slots: Slots, weights: Array, first: Array, second: Array, counted: np.ndarray
    ) -> Float[Array, "*B K K"]:
        """(K, K) E[Σ_l σ_l² D₂ D₂'ᵀ] over the slots counted; (B, K, K), with shares, under a spectrum."""
        if slots.variances is None:
            return jnp.einsum("p,plk,l,plj->kj", weights, first, counted * slots.sigmas**2, second)
        assert self.model.spectrum is not None
        power = (counted * slots.sigmas**2)[:, None] * slots.variances * self.model.spectrum.share[None, :]
        return jnp.einsum("p,plk,lb,plj->bkj", weights, first, power, second)

    def cut(self, slots: Slots) -> Callable[[int, Array], Array | None]:
        """Where a coordinate is cut, given those before it."""

        def place_of(broken: Break, coordinate: int, prefix: Array) -> Array:
            """(P,) where the sum reaches its threshold, as its last field moves."""
            left = broken.threshold(self.u)
            slope = jnp.zeros(())
            for slot, entry, factor in _entries(self.model, broken):
                start, width = self.where.starts[slot], factor * (slots.sigmas[slot] + 1e-300)
                position = self.where.pivots[slot].index(entry)
                row = slots.factors[slot][entry]
                left = left - factor * slots.means[slot, entry]
                left = left - width * (prefix[:, start : start + position] @ row[:position])
                if start + position == coordinate:
                    slope = width * row[position]
                else:
                    left = left - width * prefix[:, start + position] * row[position]
            return left / slope

        def cut(coordinate: int, prefix: Array) -> Array | None:
            cuts = self.where.cuts[coordinate]
            return jnp.stack([place_of(b, coordinate, prefix) for b in cuts], axis=1) if cuts else None

        return cut
