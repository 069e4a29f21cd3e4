"""Anisotropic inputs: the spectrum of their covariance, in blocks.

Directions with the same variance behave alike, so overlaps are stored block by block: Q_b = w_b·w_b/N with
the part w_b of the weights in block b.

A few blocks may represent many directions (``reduce_spectrum``). Plain averages over a bin of directions fail
if a teacher is huge in directions with hardly any variance, as for pixels. Error and noise of SGD are
weighted with the variance: Σ cᵢGᵢ and Σ cᵢρᵢ over a bin must equal those of its block. The log of the block's
variance is the mean of log cᵢ under both weights.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arguments import Arguments, as_numbers
from optlearn._arrays import Array, Float, Int
from optlearn._errors import AccuracyWarning, SpecificationError, warn
from optlearn._pytrees import Pytree, field
from optlearn._signatures import checked

# η λ₁/tr above which the equations of the order parameters are wrong by several per cent (measured: 4 to 10 %
# at 0.4, 1 % at 0.04).
NARROW = 0.1
# A direction, or a block with this small a share of them, with this much of the total variance triggers a
# warning: the theory needs every direction's part to be small.
ALMOST_ALL, FEW = 0.9, 0.01
# Directions whose variance is a smaller part of the largest one are round-off.
NEGLIGIBLE = 1e-9
# A direction that has learned less than this by the end of training may share a bin with all slower ones.
SLOW = 0.05
# Rate and time points of the run on which the error of a reduction is measured.
TRIAL_RATE, TRIAL_TIMES = 0.5, 300
# Share of the squared covariances off a common eigenbasis above which a warning is given.
NEGLECTED = 0.01


class Spectrum(Pytree):
    """Variances of the inputs in blocks of directions.

    In block b, which holds a share ρ_b of all directions, the entries of an input have the variance c_b
    (times the model's own ``variances``).

    Args:
        variance: (B,) c_b, at least 0; or (clusters, B), a row for each cluster, for different covariances
            that commute.
        share: (B,) ρ_b, above 0, which sum to 1.

    Attributes:
        variance: (B,) or (clusters, B).
        share: (B,); those of a reduced spectrum need not sum to 1, since blocks conserve Σ c ρ instead.
        largest: the largest direction's share of the total variance, λ₁/tr, if known. The equations of the
            order parameters need η λ₁/tr ≪ 1.
        reduction_error: if blocks represent directions of different variances, the largest relative error of
            the risk of least squares along training, as measured; else None.
    """

    variance: Float[Array, "*clusters B"]
    share: Float[Array, " B"]
    largest: float | None = field(static=True)
    reduction_error: float | None = field(static=True)

    @checked
    def __init__(
        self,
        variance: Array,
        share: Array,
        *,
        largest: float | None = None,
        reduction_error: float | None = None,
    ) -> None:
        check = Arguments("Spectrum")
        if largest is not None:
            check.number("largest", largest, 0.0, 1.0)
        if reduction_error is not None:
            check.number("reduction_error", reduction_error, 0.0)
        self.variance, self.share = _as_float("variance", variance), _as_float("share", share)
        self.largest, self.reduction_error = largest, reduction_error
        if not any(isinstance(part, jax.core.Tracer) for part in (self.variance, self.share)):
            _check(self)

    @property
    def blocks(self) -> int:
        """The number B of blocks."""
        return int(self.share.shape[0])

    @property
    def reduced(self) -> bool:
        """Whether blocks represent directions of different variances."""
        return self.reduction_error is not None

    @classmethod
    @checked
    def power_law(cls, N: int, exponent: float, blocks: int | None = 16) -> "Spectrum":
        """Variances λ_i ∝ i^−exponent in N directions, of mean 1.

        Args:
            N: number of directions.
            exponent: the exponent.
            blocks: number of blocks that represent all directions; None: N, one for each direction.
        """
        return reduce_spectrum(power_law(N, exponent), blocks=blocks).spectrum

    @classmethod
    @checked
    def marchenko_pastur(cls, ratio: float, blocks: int = 16) -> "Spectrum":
        """The spectrum of XᵀX/n, X of n × N independent standard normals, in the limit of large N; mean 1.

        Args:
            ratio: n/N, samples for each direction; below 1, a share 1 − n/N has no variance.
            blocks: Gauss nodes of the law.
        """
        check = Arguments("marchenko_pastur")
        ratio = check.number("ratio", ratio, 0.0, open_below=True)
        return cls(*marchenko_pastur_nodes(ratio, check.count("blocks", blocks, 2)))

    @classmethod
    @checked
    def from_data(cls, X: Array, blocks: int | None = 16, *, centre: bool = True) -> "Spectrum":
        """The spectrum of the rows of ``X``, scaled to a mean variance of 1.

        Args:
            X: (n, N) inputs or features, a row for each sample.
            blocks: number of blocks that represent all directions; None: one for each.
            centre: subtract the mean of the rows first.
        """
        return reduce_spectrum(data_eigenvalues(X, centre), blocks=blocks).spectrum

    @classmethod
    @checked
    def commuting(cls, clusters: Sequence[Array], blocks: int = 8) -> "Spectrum":
        """Variances of several clusters in the eigenbasis of their mean covariance, of mean 1 over all.

        Covariances that do not commute have entries off that basis. These are neglected, and a warning states
        their share of the covariances.

        Args:
            clusters: a table (n, N) of samples for each; each cluster's mean is subtracted.
            blocks: number of equally large groups of directions; a block has their mean variance.
        """
        tables = [_as_float(f"clusters[{i}]", table) for i, table in enumerate(clusters)]
        if not tables or any(t.ndim != 2 or len(t) < 2 or t.shape[1] != tables[0].shape[1] for t in tables):
            raise SpecificationError(
                "clusters must be tables of at least 2 samples by the same features, got shapes "
                f"{[table.shape for table in tables]}"
            )
        N = tables[0].shape[1]
        blocks = Arguments("commuting").count("blocks", blocks, 1, N)
        covariances = np.stack([np.atleast_2d(np.cov(table, rowvar=False, bias=True)) for table in tables])
        basis = np.linalg.eigh(covariances.mean(axis=0))[1]
        turned = basis.T @ covariances @ basis
        diagonal = np.diagonal(turned, axis1=1, axis2=2)
        neglected = 1 - float(np.sum(diagonal**2) / np.sum(turned**2))
        if neglected > NEGLECTED:
            warn(
                f"the covariances of the clusters do not commute: {neglected:.1%} of their squares lie off a "
                "common eigenbasis and are neglected",
                AccuracyWarning,
            )
        groups = np.array_split(np.arange(N), blocks)
        variance = np.stack([diagonal[:, group].mean(axis=1) for group in groups], axis=1)
        return cls(variance / diagonal.mean(), [len(group) / N for group in groups])

    @staticmethod
    def reduce(
        variances: Array, teacher: Array | None = None, blocks: int | None = 16, training: float = 10.0
    ) -> "Reduction":
        """Blocks for directions of given ``variances``; see ``reduce_spectrum``."""
        return reduce_spectrum(variances, teacher, blocks, training)

    def directions(self, N: int) -> Int[np.ndarray, " B"]:
        """(B,) number of directions in each block; they sum to N."""
        share = np.asarray(self.share)
        if self.reduced and abs(share.sum() - 1) > 1e-9:
            raise SpecificationError(
                f"the shares of this reduced spectrum sum to {share.sum():.6g}: no {N} directions have it. "
                "Simulate the spectrum itself (blocks=None)"
            )
        ends = np.round(np.cumsum(share) * N).astype(int)
        counts = np.diff(ends, prepend=0)
        if np.any(counts < 1):
            raise SpecificationError(
                f"N={N} is too small for {self.blocks} blocks: block {int(np.argmin(counts)) + 1} has a "
                f"share of {share[np.argmin(counts)]:.3g}, less than one direction"
            )
        return counts


def _as_float(name: str, value: Array) -> Array:
    if isinstance(value, jax.core.Tracer):
        return value
    numbers = as_numbers(value)
    if numbers is None:
        Arguments("Spectrum").fail(name, value, "must be an array of numbers")
    return numbers


def _check(spectrum: Spectrum) -> None:
    variance, share = np.asarray(spectrum.variance), np.asarray(spectrum.share)
    if share.ndim != 1 or not len(share):
        raise SpecificationError(f"share must be one number for each block, got shape {share.shape}")
    if variance.ndim not in (1, 2) or variance.shape[-1:] != share.shape or not variance.size:
        raise SpecificationError(
            f"variance must have one number for each of the {len(share)} shares (or a row of them for each "
            f"cluster), got shape {variance.shape}"
        )
    if not (np.all(np.isfinite(variance)) and np.all(variance >= 0)):
        raise SpecificationError(f"variance must be finite and at least 0, got {variance.tolist()}")
    if not np.all(np.max(variance, axis=-1) > 0):
        raise SpecificationError(f"variance must be above 0 in some block, got {variance.tolist()}")
    if not (np.all(np.isfinite(share)) and np.all(share > 0)):
        raise SpecificationError(f"share must be finite and above 0, got {share.tolist()}")
    if spectrum.reduced:
        return
    if abs(share.sum() - 1) > 1e-9:
        raise SpecificationError(f"share must sum to 1, got {share.tolist()} (sum {share.sum():.9g})")
    part = share * variance / np.sum(share * variance, axis=-1, keepdims=True)
    narrow = (part > ALMOST_ALL) & (share < FEW)
    if spectrum.largest is None and np.any(narrow):
        block = int(np.flatnonzero(narrow.reshape(-1, len(share)).any(axis=0))[0])
        warn(
            f"block {block + 1} holds {part[..., block].max():.0%} of the variance in {share[block]:.2%} of "
            "all directions: the theory is inaccurate unless these are still many and η λ₁/tr is small",
            AccuracyWarning,
        )


def variances_by_cluster(spectrum: Spectrum, clusters: int) -> Float[Array, "clusters B"]:
    """Variances of the blocks, with a row for each cluster."""
    variance = jnp.asarray(spectrum.variance)
    return jnp.tile(variance[None, :], (clusters, 1)) if variance.ndim == 1 else variance


class Reduction(NamedTuple):
    """Blocks for many directions.

    Attributes:
        spectrum: spectrum of B blocks, with its ``reduction_error``.
        teacher: (B,) squared norm of the teacher over N in each block.
        block_of: (N,) block index of each direction, from 0, in the original order.
    """

    spectrum: Spectrum
    teacher: Float[np.ndarray, " B"]
    block_of: Int[np.ndarray, " N"]


def reduce_spectrum(
    variances: Array, teacher: Array | None = None, blocks: int | None = 16, training: float = 10.0
) -> Reduction:
    """Blocks for directions of given variances.

    Bins are equally wide in log c, from the largest variance down to one that hardly learns during a training
    of ∫η dα = ``training``; one more bin takes all below. Blocks keep Σ cᵢTᵢ and Σ cᵢρᵢ of their bins.

    Args:
        variances: (N,) variances of the directions, in any order.
        teacher: (N,) Tᵢ = w*ᵢ²/N of the teacher; None: the same in all directions, 1/N each.
        blocks: maximum number of blocks (bins may be empty); None: one for each distinct variance, exactly.
        training: ∫η dα that the blocks are designed for.
    """
    c = _as_float("variances", variances)
    if c.ndim != 1 or not len(c) or not (np.all(np.isfinite(c)) and np.all(c >= 0) and np.any(c > 0)):
        lowest = f", the lowest {np.min(c):.6g}" if c.size else ""
        raise SpecificationError(
            f"variances must be a list of finite numbers of at least 0, one of them above 0, got shape "
            f"{c.shape}{lowest}"
        )
    N = len(c)
    T = np.full(N, 1 / N) if teacher is None else _as_float("teacher", teacher)
    if T.shape != c.shape or not (np.all(np.isfinite(T)) and np.all(T >= 0)):
        raise SpecificationError(f"teacher must be {N} numbers of at least 0, got shape {T.shape}")
    largest = float(c.max() / c.sum())
    if largest > ALMOST_ALL:
        warn(
            f"one direction has {largest:.0%} of the total variance: the order parameters' equations are "
            "inaccurate; least squares have an exact recursion (models.linear)",
            AccuracyWarning,
        )
    if blocks is None:
        values, block_of = np.unique(c, return_inverse=True)
        share = np.bincount(block_of) / N
        return Reduction(Spectrum(values, share, largest=largest), np.bincount(block_of, T), block_of)
    check = Arguments("reduce_spectrum")
    training = check.number("training", training, 0.0, open_below=True)
    block_of = _bins(c, check.count("blocks", blocks, 1, N), training)
    kept_T, kept_share = np.bincount(block_of, c * T), np.bincount(block_of, c / N)
    weight = c * T / max((c * T).sum(), 1e-300) + c / c.sum()
    log_c = np.log(np.maximum(c, NEGLIGIBLE**2 * c.max()))
    mean = np.exp(np.bincount(block_of, weight * log_c) / np.maximum(np.bincount(block_of, weight), 1e-300))
    share, T_b = kept_share / mean, kept_T / mean
    error = _reduction_error(c, T, mean, share, T_b, training)
    return Reduction(Spectrum(mean, share, largest=largest, reduction_error=error), T_b, block_of)


def power_law(N: int, exponent: float) -> Float[np.ndarray, " N"]:
    """(N,) variances ∝ i^−exponent with mean 1."""
    check = Arguments("power_law")
    values = np.arange(1.0, check.count("N", N) + 1) ** -check.number("exponent", exponent, 0.0)
    return np.asarray(values / values.mean())


def marchenko_pastur_nodes(
    ratio: float, nodes: int
) -> tuple[Float[np.ndarray, " nodes"], Float[np.ndarray, " nodes"]]:
    """Gauss nodes and weights of the spectrum of XᵀX/n for n = ratio · N; below 1 with the atom at 0."""
    if ratio < 1:
        # XXᵀ/N has the law of the inverse ratio; it shares all nonzero eigenvalues.
        values, weights = marchenko_pastur_nodes(1 / ratio, nodes - 1)
        return np.append(0.0, values / ratio), np.append(1 - ratio, ratio * weights)
    values, vectors = _marchenko_pastur_eigen(ratio, nodes)
    return np.maximum(values, 0.0), vectors[0] ** 2


def _marchenko_pastur_eigen(ratio: float, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    diagonal = np.append(1.0, np.full(nodes - 1, 1 + 1 / ratio))
    off = np.full(nodes - 1, np.sqrt(1 / ratio))
    return np.linalg.eigh(np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1))


def marchenko_pastur_tail(ratio: float, nodes: int) -> Float[np.ndarray, "2 nodes"]:
    """(2, nodes) map from a function's values at the nodes to its last two polynomial coefficients.

    The polynomials are orthonormal under the law. If the last coefficients are not small, the nodes do not
    resolve the function.
    """
    if ratio < 1:
        inner = marchenko_pastur_tail(1 / ratio, nodes - 1)
        return np.concatenate([np.zeros((2, 1)), inner], axis=1)
    vectors = _marchenko_pastur_eigen(ratio, nodes)[1]
    return np.asarray(vectors[-2:] * vectors[0])


def marchenko_pastur_nodes_for(ratio: float, time: float) -> int:
    """Number of nodes that describe a relaxation exp(−s·time) at every eigenvalue s to about 1e-8.

    This is the degree that a polynomial needs for it on the law's support. If the support ends above 0, all
    modes relax eventually, and longer times need no more nodes.
    """
    lowest, highest = ((1 + sign / np.sqrt(ratio)) ** 2 for sign in (-1, 1))
    lasting = min(time, 6 / lowest) if lowest > 0 else time
    return int(np.ceil(3 * np.sqrt(highest * lasting) + 4))


def data_eigenvalues(X: Array, centre: bool) -> Float[np.ndarray, " d"]:
    """Variances of the rows of X along the principal directions, with mean 1, without round-off."""
    table = as_numbers(X)
    if table is None or table.ndim != 2 or table.shape[0] < 2 or not np.all(np.isfinite(table)):
        Arguments("from_data").fail("X", X, "must be a finite table of at least 2 samples (rows)")
    table = table - table.mean(axis=0) if centre else table
    n, N = table.shape
    values = np.linalg.eigvalsh(table.T @ table / n if n >= N else table @ table.T / n)
    values = values[values > NEGLIGIBLE * values[-1]]
    if not len(values) or values[-1] <= 0:
        raise SpecificationError("X must have a feature that is not constant")
    return np.asarray(values / values.mean())


def _bins(c: np.ndarray, blocks: int, training: float) -> np.ndarray:
    """(N,) index of the bin of each direction, not counting empty bins."""
    lowest = max(c[c > 0].min(), SLOW / (2 * training))
    if blocks == 1 or lowest >= c.max():
        return np.zeros(len(c), dtype=int)
    below = blocks - 1 if np.any(c < lowest * (1 - 1e-12)) else blocks
    edges = np.geomspace(lowest, c.max(), below + 1)
    bins = np.searchsorted(edges[1:-1], c, side="right") + 1
    bins[c < lowest * (1 - 1e-12)] = 0
    return np.unique(bins, return_inverse=True)[1]


def _reduction_error(
    c: np.ndarray, T: np.ndarray, c_b: np.ndarray, share: np.ndarray, T_b: np.ndarray, training: float
) -> float:
    """Largest relative error of the risk of least squares (no noise, from zero) along a training."""
    end = training / TRIAL_RATE
    times = np.append(0.0, np.geomspace(end * 1e-5, end, TRIAL_TIMES))
    full = _trial(c, T, np.full(len(c), 1 / len(c)), times)
    few = _trial(c_b, T_b, share, times)
    # The risk at the end of a noiseless training may be round-off.
    return float(np.max(np.abs(few - full) / np.maximum(full, 1e-9 * full[0])))


def _trial(c: np.ndarray, T: np.ndarray, share: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Risk Σ c s at all times: modes relax exactly, with the common risk taken as linear within a step."""
    s, rate = T.copy(), 2 * TRIAL_RATE * c
    fed = TRIAL_RATE**2 * share * c
    risk = [float(c @ s)]
    for step in np.diff(times):
        decay = np.exp(-rate * step)
        # ∫ e^{−r(h−t)} dt and ∫ e^{−r(h−t)} t/h dt over a step.
        z = np.maximum(rate * step, 1e-12)
        first = step * -np.expm1(-z) / z
        last = np.where(z > 1e-4, (step - first) / z, step * (0.5 - z / 6))
        kept, a, b = c @ (decay * s), fed * (first - last), fed * last
        after = (kept + risk[-1] * (c @ a)) / (1 - c @ b)
        s = decay * s + a * risk[-1] + b * after
        risk.append(float(after))
    return np.array(risk)
