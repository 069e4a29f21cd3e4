"""Few blocks for many directions: which sums they must keep, and what that costs.

Plain averages over a bin of directions fail where a teacher is huge in directions of hardly any variance, as
on pixels. What the error and the noise of SGD see is weighted with the variance: Σ cᵢGᵢ and Σ cᵢρᵢ over a bin
must be those of its block. The block's variance is the mean of log cᵢ under both weights.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from optlearn._arguments import Arguments, as_numbers
from optlearn._arrays import Array
from optlearn._errors import AccuracyWarning, SpecificationError, warn
from optlearn._theory.spectrum import Spectrum

# Directions whose variance is a smaller part of the largest one are round-off.
NEGLIGIBLE = 1e-9
# A direction that has learned by less than this at the end of training may share a bin with all slower ones.
SLOW = 0.05
# Rate and time points of the run on which the error of a reduction is measured.
TRIAL_RATE, TRIAL_TIMES = 0.5, 300
# Part of the squares of covariances, off a common eigenbasis, above which a warning tells.
NEGLECTED = 0.01
# Above this share of one direction in all variance the theory is warned of.
ALMOST_ALL = 0.9


class Reduction(NamedTuple):
    """Blocks for many directions.

    Attributes:
        spectrum: of B blocks, with its ``reduction_error``.
        teacher: (B,) squared norm of the teacher over N in each block.
        block_of: (N,) number of the block of each direction, from 0, in the order they were given.
    """

    spectrum: Spectrum
    teacher: np.ndarray
    block_of: np.ndarray


def reduce_spectrum(
    variances: Array, teacher: Array | None = None, blocks: int | None = 16, training: float = 10.0
) -> Reduction:
    """Blocks for directions of given variances.

    Bins are equally wide in log c, from the largest variance down to what a training of ∫η dα = ``training``
    hardly moves; one more bin takes all below. Blocks keep Σ cᵢTᵢ and Σ cᵢρᵢ of their bins.

    Args:
        variances: (N,) of the directions, any order.
        teacher: (N,) Tᵢ = w*ᵢ²/N, what there is to learn; None: the same in all directions, 1/N each.
        blocks: how many at most (bins may be empty); None: one for each distinct variance, exactly.
        training: ∫η dα that the blocks are made for.
    """
    c = _checked_variances(variances)
    N = len(c)
    T = np.full(N, 1 / N) if teacher is None else np.asarray(teacher, dtype=float)
    if T.shape != c.shape or not (np.all(np.isfinite(T)) and np.all(T >= 0)):
        raise SpecificationError(f"teacher must be {N} numbers of at least 0, got shape {T.shape}")
    largest = float(c.max() / c.sum())
    if largest > ALMOST_ALL:
        warn(
            f"one direction has {largest:.0%} of all variance: the order parameters' equations are off; "
            "least squares have an exact recursion (models.linear)",
            AccuracyWarning,
        )
    if blocks is None:
        values, block_of = np.unique(c, return_inverse=True)
        share = np.bincount(block_of) / N
        return Reduction(Spectrum(values, share, largest=largest), np.bincount(block_of, T), block_of)
    if not (_whole(blocks) and 1 <= blocks <= N):
        raise SpecificationError(f"blocks must be a whole number from 1 to {N} directions, got {blocks!r}")
    if not training > 0:
        raise SpecificationError(f"training must be above 0, got {training!r}")
    block_of = _bins(c, int(blocks), training)
    kept_T, kept_share = np.bincount(block_of, c * T), np.bincount(block_of, c / N)
    weight = c * T / max((c * T).sum(), 1e-300) + c / c.sum()
    log_c = np.log(np.maximum(c, NEGLIGIBLE**2 * c.max()))
    mean = np.exp(np.bincount(block_of, weight * log_c) / np.maximum(np.bincount(block_of, weight), 1e-300))
    spectrum = Spectrum(
        mean,
        kept_share / mean,
        largest=largest,
        reduction_error=_reduction_error(c, T, mean, kept_share / mean, kept_T / mean, training),
    )
    return Reduction(spectrum, kept_T / mean, block_of)


def power_law(N: int, exponent: float) -> np.ndarray:
    """(N,) variances ∝ i^−exponent with mean 1."""
    if not (_whole(N) and N >= 1):
        raise SpecificationError(f"N must be a whole number of at least 1, got {N!r}")
    if not (np.isfinite(exponent) and exponent >= 0):
        raise SpecificationError(f"exponent must be a number of at least 0, got {exponent!r}")
    values = np.arange(1.0, N + 1) ** -exponent
    return np.asarray(values / values.mean())


def marchenko_pastur(ratio: float, blocks: int) -> Spectrum:
    """Gauss nodes of the law as blocks."""
    if not (np.isfinite(ratio) and ratio > 0):
        raise SpecificationError(f"ratio must be a number above 0, got {ratio!r}")
    if not (_whole(blocks) and blocks >= 2):
        raise SpecificationError(f"blocks must be a whole number of at least 2, got {blocks!r}")
    return Spectrum(*marchenko_pastur_nodes(ratio, int(blocks)))


def marchenko_pastur_nodes(ratio: float, nodes: int) -> tuple[np.ndarray, np.ndarray]:
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


def marchenko_pastur_tail(ratio: float, nodes: int) -> np.ndarray:
    """(2, nodes) maps a function's values at the nodes to its last two coefficients in polynomials.

    The polynomials are those that are orthonormal under the law. Where the last coefficients are not small,
    the function has details between the nodes.
    """
    if ratio < 1:
        inner = marchenko_pastur_tail(1 / ratio, nodes - 1)
        return np.concatenate([np.zeros((2, 1)), inner], axis=1)
    vectors = _marchenko_pastur_eigen(ratio, nodes)[1]
    return np.asarray(vectors[-2:] * vectors[0])


def marchenko_pastur_nodes_for(ratio: float, time: float) -> int:
    """How many nodes describe a relaxation exp(−s·time) at every eigenvalue s to about 1e-8.

    As many as a polynomial needs degrees for it on the law's support; where the support ends above 0, all
    modes have relaxed after a while, and longer times need no more.
    """
    lowest, highest = ((1 + sign / np.sqrt(ratio)) ** 2 for sign in (-1, 1))
    lasting = min(time, 6 / lowest) if lowest > 0 else time
    return int(np.ceil(3 * np.sqrt(highest * lasting) + 4))


def data_eigenvalues(X: Array, centre: bool) -> np.ndarray:
    """Variances of the rows of X along the principal directions, with mean 1; round-off left out."""
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


def commuting(clusters: Sequence[Array], blocks: int) -> Spectrum:
    """Variances of clusters in the eigenbasis of their mean covariance; see ``Spectrum.commuting``."""
    tables = [np.asarray(table, dtype=float) for table in clusters]
    if not tables or any(t.ndim != 2 or len(t) < 2 or t.shape[1] != tables[0].shape[1] for t in tables):
        raise SpecificationError(
            "clusters must be tables of at least 2 samples by the same features, got shapes "
            f"{[table.shape for table in tables]}"
        )
    N = tables[0].shape[1]
    if not (_whole(blocks) and 1 <= blocks <= N):
        raise SpecificationError(f"blocks must be a whole number from 1 to {N} directions, got {blocks!r}")
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
    return Spectrum(variance / diagonal.mean(), [len(group) / N for group in groups])


def _whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _checked_variances(variances: Array) -> np.ndarray:
    c = np.asarray(variances, dtype=float)
    if c.ndim != 1 or not len(c) or not (np.all(np.isfinite(c)) and np.all(c >= 0) and np.any(c > 0)):
        lowest = f", the lowest {np.min(c):.6g}" if c.size else ""
        raise SpecificationError(
            f"variances must be a list of finite numbers of at least 0, one of them above 0, got shape "
            f"{c.shape}{lowest}"
        )
    return c


def _bins(c: np.ndarray, blocks: int, training: float) -> np.ndarray:
    """(N,) number of the bin of each direction, empty ones left out."""
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
    # What is left at the end of a noiseless training may be round-off.
    return float(np.max(np.abs(few - full) / np.maximum(full, 1e-9 * full[0])))


def _trial(c: np.ndarray, T: np.ndarray, share: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Risk Σ c s at all times: every mode relaxes exactly, the risk that feeds all is linear in a step."""
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
