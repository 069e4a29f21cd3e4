"""Inputs that spread differently in different directions: the spectrum of their covariance, in blocks.

Directions of one variance behave alike, so overlaps are kept block by block: Q_b = w_b·w_b/N with the part
    w_b
of the weights in block b. Given many directions of different variances, ``reduction`` finds blocks for them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import Array
from optlearn._errors import AccuracyWarning, SpecificationError, warn
from optlearn._pytrees import Pytree, field
from optlearn._signatures import checked

if TYPE_CHECKING:
    from optlearn._theory.reduction import Reduction

# A block with this much of all variance in so small a share of the directions is hardly an extensive one.
ALMOST_ALL, FEW = 0.9, 0.01


class Spectrum(Pytree):
    """Variances of the inputs in blocks of directions.

    In block b, which holds a share ρ_b of all directions, the entries of an input have the variance c_b
    (times what the model's own ``variances`` say).

    Args:
        variance: (B,) c_b, at least 0; or (clusters, B), a row for each cluster, for covariances that differ
            but commute.
        share: (B,) ρ_b, above 0, which sum to 1.

    Attributes:
        variance: (B,) or (clusters, B).
        share: (B,); those of a reduced spectrum need not sum to 1, since blocks conserve Σ c ρ instead.
        largest: share of the largest direction in all variance, λ₁/tr, if known. The equations of the order
            parameters need η λ₁/tr ≪ 1.
        reduction_error: of a spectrum whose blocks stand for directions of different variances: the largest
            relative error of the risk of least squares along training, as measured; else None.
    """

    variance: Array
    share: Array
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
        """B, how many."""
        return int(self.share.shape[0])

    @property
    def reduced(self) -> bool:
        """Whether blocks stand for directions of different variances."""
        return self.reduction_error is not None

    @classmethod
    @checked
    def power_law(cls, N: int, exponent: float, blocks: int | None = 16) -> "Spectrum":
        """Variances λ_i ∝ i^−exponent in N directions, of mean 1.

        Args:
            N: directions.
            exponent: a.
            blocks: how many stand for all; None: N, one for each direction.
        """
        from optlearn._theory.reduction import power_law, reduce_spectrum

        return reduce_spectrum(power_law(N, exponent), blocks=blocks).spectrum

    @classmethod
    @checked
    def marchenko_pastur(cls, ratio: float, blocks: int = 16) -> "Spectrum":
        """The spectrum of XᵀX/n, X of n × N independent standard normals, in the limit of large N; mean 1.

        Args:
            ratio: n/N, samples for each direction; below 1, a share 1 − n/N has no variance.
            blocks: Gauss nodes of the law.
        """
        from optlearn._theory.reduction import marchenko_pastur

        return marchenko_pastur(ratio, blocks)

    @classmethod
    @checked
    def from_data(cls, X: Array, blocks: int | None = 16, *, centre: bool = True) -> "Spectrum":
        """The spectrum of the rows of ``X``, scaled to a mean variance of 1.

        Args:
            X: (n, N) inputs or features, a row for each sample.
            blocks: how many stand for all directions; None: one for each.
            centre: subtract the mean of the rows first.
        """
        from optlearn._theory.reduction import data_eigenvalues, reduce_spectrum

        return reduce_spectrum(data_eigenvalues(X, centre), blocks=blocks).spectrum

    @classmethod
    @checked
    def commuting(cls, clusters: Sequence[Array], blocks: int = 8) -> "Spectrum":
        """Variances of several clusters in the eigenbasis of their mean covariance, of mean 1 over all.

        Covariances that do not commute have entries off that basis. These are neglected, and a warning says
        how much of the covariances they are.

        Args:
            clusters: for each a table (n, N) of samples; what is centred is the spread around its mean.
            blocks: groups of directions, equally many in each; a block has their mean variance.
        """
        from optlearn._theory.reduction import commuting

        return commuting(clusters, blocks)

    @staticmethod
    def reduce(
        variances: Array, teacher: Array | None = None, blocks: int | None = 16, training: float = 10.0
    ) -> "Reduction":
        """Blocks for directions of given ``variances``; see ``reduction.reduce_spectrum``."""
        from optlearn._theory.reduction import reduce_spectrum

        return reduce_spectrum(variances, teacher, blocks, training)

    def directions(self, N: int) -> np.ndarray:
        """(B,) how many of N directions each block has; they sum to N."""
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
    try:
        return np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise SpecificationError(f"{name} must be an array of numbers, got {value!r}") from None


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
            "all directions: the theory is off unless these are still many, and η λ₁/tr is small",
            AccuracyWarning,
        )
