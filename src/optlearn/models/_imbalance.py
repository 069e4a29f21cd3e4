"""Two groups of unequal size: a linear classifier learns from a majority and a minority.

Group c (0: majority, 1: minority) is a Gaussian cluster with its own centroid, variance σ_c² and
teacher: the label of a sample is the sign of its own group's teacher field. The student's output is
linear, the loss is a square, and the error counts wrong signs, group by group.
"""

from collections.abc import Sequence
from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Settings
from optlearn._errors import SpecificationError
from optlearn._pytrees import field
from optlearn._signatures import checked
from optlearn._theory.model import LearningModel
from optlearn._theory.order import OrderParameters, Overlaps, order_parameters
from optlearn._theory.sample import Break, Fields, Latent, Latents
from optlearn._theory.spectrum import Spectrum, variances_by_cluster
from optlearn.models._averages import FLOOR, below, both_below, cosine, density, diagonal, safe_root

# Nodes of the bivariate normal law: errors are accurate to 1e-11 up to a cosine of 0.99 between
# student and teacher.
ANGLES = 24
# How the two errors are combined.
CRITERIA = ("mean", "balanced", "worst")


class Imbalance(LearningModel):
    """Linear student, square loss, one sign teacher for each of two groups. Built by ``imbalance``.

    Parameters (settings): ``learning_rate`` η; ``batch`` (fresh samples a step); ``share``, the
    minority's natural share; ``sampling``, the probability that a training sample is drawn from
    the minority; ``reweighting`` q, which multiplies the losses of the minority by q/share and
    those of the majority by (1 − q)/(1 − share): at the natural share, this gives the mean gradient of
    sampling with probability q; ``variance`` (2,); ``test_share``, the minority's weight in the
    error; ``smoothing`` δ of the worst error.

    Attributes:
        criterion: "mean" and "balanced" weigh the errors of the groups by ``test_share``; "worst"
            is the larger one, with its corner rounded: (a + b)/2 + √((a − b)² + δ²)/2.
    """

    reads_blocks = True
    limits = MappingProxyType({**LearningModel.limits, "smoothing": (0.0, np.inf)})

    criterion: str = field(static=True, kw_only=True, default="mean")

    def loss(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """The group's weight times half the squared distance of the output from the label ±1."""
        group = self.assignment(latent)[0]
        return group @ _weights(u) * (self._label(fields, group) - fields.student[0, 0]) ** 2 / 2

    def metric(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """1 where the sign of the output is wrong, else 0."""
        label = self._label(fields, self.assignment(latent)[0])
        return (1 - label * jnp.sign(fields.student[0, 0])) / 2

    def latents(self, u: Settings) -> Latents:
        """The group of a training sample."""
        return Latents.clusters((2,), _pair(u["sampling"]))

    def test_latents(self, u: Settings) -> Latents:
        """The group of a test sample."""
        return Latents.clusters((2,), _pair(u["test_share"]))

    def variances(self, latent: Latent, u: Settings) -> Array:
        """(1,) σ_c² of the group."""
        return (self.assignment(latent)[0] @ jnp.asarray(u["variance"]))[None]

    def closed_drift(self, x: OrderParameters, u: Settings) -> OrderParameters:
        """Averages over the groups of terms linear and quadratic in the fields."""
        if self.spectrum is not None:
            return self._block_drift(x, u)
        T, S, Omega = (jnp.asarray(part) for part in jax.tree.leaves(self.overlaps))
        eta, variance, weights = u["learning_rate"], jnp.asarray(u["variance"]), _weights(u)
        Q, M, R = x.Q[0, 0], x.M[0], x.R[0]
        mean, slope = self._label_moments(u)
        force = _pair(u["sampling"]) * weights * eta
        # E[(label − λ) field] of each group: contributions of its mean and of its spread.
        centred, pull = force * (mean - R), force * variance
        grown = jnp.sum(centred * R + pull * (slope * M - Q))
        square = 1 - 2 * (mean * R + variance * slope * M) + R**2 + variance * Q
        spread = jnp.sum(force * weights * variance * square) * eta / u["batch"]
        return order_parameters(
            Q=(2 * grown + spread).reshape(1, 1),
            M=(S @ centred + T @ (pull * slope) - jnp.sum(pull) * M)[None],
            R=(Omega @ centred + S.T @ (pull * slope) - jnp.sum(pull) * R)[None],
        )

    def _block_drift(self, x: OrderParameters, u: Settings) -> OrderParameters:
        """The same block by block: means are those of whole vectors, covariances have their part c_b."""
        assert self.spectrum is not None
        overlaps = self.block_overlaps
        T, S, Omega = (jnp.asarray(part) for part in (overlaps.T, overlaps.S, overlaps.Omega))
        eta, weights = u["learning_rate"], _weights(u)
        variance = jnp.asarray(u["variance"])[None, :] * self._group_variances()  # (B, groups)
        Q, M, R = x.Q[:, 0, 0], x.M[:, 0], x.R[:, 0]
        mean, slope = self._label_moments(u)
        whole = jnp.sum(R, axis=0)
        force = _pair(u["sampling"]) * weights * eta
        centred, pull = force * (mean - whole), force[None, :] * variance
        lean, shrink = pull * slope[None, :], jnp.sum(pull, axis=1)
        grown = R @ centred + jnp.sum(lean * M, axis=1) - shrink * Q
        along, norm = jnp.sum(variance * M, axis=0), jnp.sum(variance * Q[:, None], axis=0)
        square = 1 - 2 * (mean * whole + slope * along) + whole**2 + norm
        spread = variance @ (force * weights * square) * eta / u["batch"] * self.spectrum.share
        toward_teachers = S @ centred + jnp.einsum("bij,bj->bi", T, lean) - shrink[:, None] * M
        toward_centroids = Omega @ centred + jnp.einsum("bji,bj->bi", S, lean) - shrink[:, None] * R
        return order_parameters(
            Q=(2 * grown + spread)[:, None, None],
            M=toward_teachers[:, None, :],
            R=toward_centroids[:, None, :],
        )

    def _group_variances(self) -> Array:
        """(B, 2) variances of the blocks in each group."""
        assert self.spectrum is not None
        return variances_by_cluster(self.spectrum, 2).T

    def closed_error(self, x: OrderParameters, u: Settings) -> Array:
        """The two errors combined by the criterion."""
        errors = self._errors(x, u)
        if self.criterion == "worst":
            return (errors[0] + errors[1] + jnp.hypot(errors[0] - errors[1], u["smoothing"])) / 2
        return jnp.sum(_pair(u["test_share"]) * errors)

    def observables(self, x: OrderParameters, u: Settings) -> dict[str, Array]:
        """``error_majority``, ``error_minority``; ``cosine_majority``, … with the groups' teachers."""
        errors, T = self._errors(x, u), self.summed.overlaps.T
        x = self.total(x)
        groups = ("majority", "minority")
        by_group = {f"error_{name}": errors[c] for c, name in enumerate(groups)}
        return by_group | {
            f"cosine_{name}": cosine(x.M[0, c], T[c, c], x.Q[0, 0]) for c, name in enumerate(groups)
        }

    def _label(self, fields: Fields, group: Array) -> Array:
        return group @ jnp.sign(fields.teacher[0])

    def _label_moments(self, u: Settings) -> tuple[Array, Array]:
        """(2,) E[label], and the slope κ of Cov(label, field) = σ² κ (overlap with the teacher)."""
        T, S = self._teachers()
        width = jnp.sqrt(T * u["variance"])
        shift = S / width
        return 2 * below(shift) - 1, 2 * density(shift) / width

    def _errors(self, x: OrderParameters, u: Settings) -> Array:
        """(2,) probability that student and teacher of a group differ in sign."""
        T, S = self._teachers()
        spread, Q, M, R = jnp.sqrt(u["variance"]), x.Q[..., 0, 0], x.M[..., 0, :], x.R[..., 0, :]
        if self.spectrum is not None:
            variance = self._group_variances()
            Q, M, R = jnp.sum(variance * Q[:, None], 0), jnp.sum(variance * M, 0), jnp.sum(R, 0)
        across = safe_root(Q * T - M**2)
        h, k = S / (spread * jnp.sqrt(T)), R / (spread * jnp.sqrt(Q + FLOOR))
        both = both_below(h, k, jnp.arctan2(M, across), ANGLES)
        return below(h) + below(k) - 2 * both

    def _teachers(self) -> tuple[Array, Array]:
        """(2,) squared norm of each group's teacher, as fields see it, and its overlap with the centroid."""
        if self.spectrum is None:
            return diagonal(self.overlaps.T), diagonal(self.overlaps.S)
        T = jnp.stack([diagonal(part) for part in self.block_overlaps.T])
        return jnp.sum(self._group_variances() * T, axis=0), diagonal(self.summed.overlaps.S)


@checked
def imbalance(
    share: float = 0.2,
    variance: Sequence[float] = (1.0, 1.0),
    mean: Sequence[float] = (0.5, 0.5),
    alignment: Sequence[float] = (0.5, 0.5),
    similarity: float = 0.5,
    eta: float = 0.5,
    batch: float = 1.0,
    sampling: float | None = None,
    reweighting: float | None = None,
    criterion: str = "mean",
    smoothing: float = 1e-3,
    spectrum: Spectrum | None = None,
) -> Imbalance:
    """Two groups on opposite sides of the origin.

    The centroids are ν₀ a and −ν₁ a with one axis a, a·a/N = 1; inputs are μ/√N + σ g.

    Args:
        share: the minority's share of the data, above 0 and below 1.
        variance: (2,) variance σ² of the inputs of majority and minority, above 0.
        mean: (2,) distances ν of the two centroids from the origin.
        alignment: (2,) cosine of each group's teacher with the axis.
        similarity: cosine of the two teachers.
        eta: learning rate η.
        batch: fresh samples in each step.
        sampling: probability that a training sample is of the minority; None for ``share``.
        reweighting: the minority's share in the gradient, by weighting losses; None for ``share``,
            with weights of 1.
        criterion: the error: "mean" over the natural shares, "balanced" (both groups count equally), or
            "worst" (the larger one).
        smoothing: δ that rounds the corner of the worst error, above 0; it adds δ/2 where the two
            errors are equal.
        spectrum: spectrum of the inputs, optionally with a row for each group (with commuting covariances);
            teachers and centroids lie in random directions.

    Returns:
        A model with order parameters Q11, M11, M12 (teachers), R11 and R12 (centroids).
    """
    check = Arguments("imbalance")
    if not 0 < check.number("share", share) < 1:
        check.fail("share", share, "must be above 0 and below 1")
    widths = check.numbers("variance", variance, (2,), lowest=0.0)
    if not np.all(widths > 0):
        check.fail("variance", variance, "must be 2 numbers, each above 0")
    criterion = check.one_of("criterion", criterion, CRITERIA)
    check.blocks(spectrum)
    parameters: dict[str, Array] = {
        "learning_rate": check.number("eta", eta, 0.0),
        "batch": check.number("batch", batch, 1.0),
        "share": share,
        "sampling": share if sampling is None else check.number("sampling", sampling, 0.0, 1.0),
        "reweighting": share if reweighting is None else check.number("reweighting", reweighting, 0.0, 1.0),
        "variance": widths,
        "test_share": share if criterion == "mean" else 0.5,
        "smoothing": check.number("smoothing", smoothing, 0.0, open_below=True),
    }
    return Imbalance(
        students=1,
        clusters=(2,),
        overlaps=_overlaps(check, mean, alignment, similarity),
        parameters=parameters,
        spectrum=spectrum,
        breaks=(Break("teacher", 0, 0), Break("teacher", 0, 1)),
        criterion=criterion,
    )


def _overlaps(
    check: Arguments, mean: Sequence[float], alignment: Sequence[float], similarity: float
) -> Overlaps:
    signed = check.numbers("mean", mean, (2,), lowest=0.0) * (1, -1)
    along = check.numbers("alignment", alignment, (2,), lowest=-1.0, highest=1.0)
    between = check.number("similarity", similarity, -1.0, 1.0)
    T = np.array([[1.0, between], [between, 1.0]])
    try:
        Overlaps(T=np.block([[T, along[:, None]], [along[None, :], np.ones((1, 1))]]))
    except SpecificationError:
        check.fail(
            "similarity",
            similarity,
            f"must be a cosine that two teachers with the alignments {along[0]:g} and {along[1]:g} can have",
        )
    return Overlaps(T=T, S=np.outer(along, signed), Omega=np.outer(signed, signed))


def _pair(minority: Array) -> Array:
    """(2,) probabilities of majority and minority."""
    minority = jnp.asarray(minority)
    return jnp.stack([1 - minority, minority])


def _weights(u: Settings) -> Array:
    """(2,) factors of the groups' losses."""
    return _pair(u["reweighting"]) / _pair(u["share"])
