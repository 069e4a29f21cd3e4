"""Fit the input model of the theory, x = μ_c/√N + σ_c g, to data.

The theory describes a cluster by its centroid and one standard deviation: around the centroid, data are
isotropic in all N directions. Real data are not, and a fit measures the deviation. Under the model the
*participation ratio* (Σ_i λ_i)²/Σ_i λ_i² of the eigenvalues λ_i of a cluster's covariance is N, up to
finite-sample fluctuations; data that vary in only d directions have a ratio of about d.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.cluster.vq import ClusterError, kmeans2

from optlearn import scenarios
from optlearn._arguments import Arguments, as_numbers
from optlearn._arrays import Array, Float, Int, Shaped
from optlearn._control.problem import Problem
from optlearn._errors import SpecificationError, UnphysicalStateError, warn
from optlearn._signatures import checked
from optlearn.practice.regression import ManyPassesFit as ManyPassesFit
from optlearn.practice.regression import RegressionFit as RegressionFit
from optlearn.practice.regression import many_passes as many_passes
from optlearn.practice.regression import regression as regression

KMEANS_STARTS = 5
# A cluster is far from isotropic if its participation ratio is below this share of an isotropic one's.
ISOTROPY_LIMIT = 0.5
# Above this many samples and dimensions, a cluster's spectrum is computed from a random subset of samples.
SPECTRUM_SAMPLES = 4000


class AnisotropyWarning(UserWarning):
    """Around their centroids the data vary in few directions, while the theory assumes isotropy.

    Only a training run can show how good a schedule from such a fit is; the fit's ``isotropy`` measures how
    wrong the assumption is.
    """


@dataclass(frozen=True)
class Isotropy:
    """The spectrum of each cluster's covariance, compared with that of isotropic data.

    Attributes:
        spectra: for each cluster, the eigenvalues of its covariance as shares of the variance,
            largest first; they sum to 1.
        participation: (C,) participation ratios, in dimensions.
        expected: (C,) those of isotropic Gaussian data with as many samples, N/(1 + N/n).
    """

    spectra: tuple[Float[np.ndarray, " d"], ...]
    participation: Float[np.ndarray, " C"]
    expected: Float[np.ndarray, " C"]

    @classmethod
    def measure(cls, clusters: Sequence[np.ndarray], rng: np.random.Generator) -> "Isotropy":
        """From the residuals (n_c, N) of each cluster, samples minus their centroid."""
        spectra = tuple(_spectrum(residuals, rng) for residuals in clusters)
        N = clusters[0].shape[1]
        return cls(
            spectra,
            participation=np.array([1 / np.sum(spectrum**2) for spectrum in spectra]),
            expected=np.array([N / (1 + N / _used(len(residuals), N)) for residuals in clusters]),
        )

    @property
    def ratio(self) -> Float[np.ndarray, " C"]:
        """(C,) participation relative to isotropic data: about 1 if the model holds."""
        return np.asarray(self.participation / self.expected)

    @property
    def far(self) -> bool:
        """Is a cluster far from isotropic?"""
        return bool(np.any(self.ratio < ISOTROPY_LIMIT))

    def top_share(self, directions: int = 1) -> Float[np.ndarray, " C"]:
        """(C,) share of the variance in the ``directions`` of largest variance."""
        return np.array([spectrum[:directions].sum() for spectrum in self.spectra])

    def warn(self, classes: np.ndarray, N: int) -> None:
        """Warn of clusters that are far from isotropic, with numbers."""
        top = self.top_share()
        parts = [
            f"cluster {classes[c]} in about {self.participation[c]:.1f} of {N} directions "
            f"({self.expected[c]:.0f} if isotropic), {top[c]:.0%} of its variance in one"
            for c in np.flatnonzero(self.ratio < ISOTROPY_LIMIT)
        ]
        if parts:
            warn(
                "the model assumes isotropic clusters, and these data are far from that: they spread, "
                f"{'; '.join(parts)}. Check the schedule by training",
                AnisotropyWarning,
            )


@dataclass(frozen=True)
class MixtureFit:
    """A Gaussian mixture with isotropic clusters, in the scaling x = μ_c/√N + σ_c g of the theory.

    Attributes:
        classes: (C,) the label of each cluster.
        centroids: (C, N) μ_c, which is √N times the mean of the cluster.
        sigma: (C,) standard deviation of a coordinate around its centroid.
        probabilities: (C,) share of the samples in each cluster.
        assignment: (n,) index of the cluster of each sample.
        isotropy: how well one number σ_c describes a cluster.
    """

    classes: Shaped[np.ndarray, " C"]
    centroids: Float[np.ndarray, "C N"]
    sigma: Float[np.ndarray, " C"]
    probabilities: Float[np.ndarray, " C"]
    assignment: Int[np.ndarray, " n"]
    isotropy: Isotropy

    @property
    def N(self) -> int:
        """Input dimension."""
        return self.centroids.shape[1]

    @cached_property
    def Omega(self) -> Float[np.ndarray, "C C"]:
        """(C, C) overlaps of the centroids, μ_c·μ_c'/N."""
        return self.centroids @ self.centroids.T / self.N

    @property
    def natural_scale(self) -> float:
        """Divisor of the samples, at least 1, that makes them no larger than the theory assumes.

        In the theory ‖μ_c‖²/N is of order 1: its mean over the samples is then at most 1. The root mean
        square of σ_c is at most ½; if it is 1, training diverges at the scenarios' learning rates.
        """
        centroids, spread = self.probabilities @ np.diag(self.Omega), self.probabilities @ self.sigma**2
        return max(1.0, float(np.sqrt(centroids)), 2 * float(np.sqrt(spread)))

    def rescaled(self, scale: float) -> "MixtureFit":
        """The fit of the same samples divided by ``scale``."""
        if not (np.isfinite(scale) and scale > 0):
            raise SpecificationError(f"scale must be a finite number above 0, got {scale!r}")
        return replace(self, centroids=self.centroids / scale, sigma=self.sigma / scale)

    def start(self, weights: Array) -> dict[str, np.ndarray]:
        """Order parameters of initial weights.

        Args:
            weights: (K, N), a row for each hidden node.

        Returns:
            ``Q`` (K, K), ``R`` (K, C) and ``Omega`` (C, C), in the form of the scenarios' ``start``.
        """
        w = as_numbers(weights)
        if w is None or w.ndim != 2 or w.shape[1] != self.N or not np.all(np.isfinite(w)):
            raise SpecificationError(
                f"weights must be finite numbers of shape (K, {self.N}), a row for each hidden node, got "
                f"shape {np.shape(weights)}"
            )
        return {"Q": w @ w.T / self.N, "R": w @ self.centroids.T / self.N, "Omega": self.Omega}

    def weights(self, Q: Array, R: Array, seed: int | Sequence[int] = 0) -> Float[np.ndarray, "K N"]:
        """Random weights with exactly the given overlaps.

        The component in the span of the centroids has the overlaps R with them; the rest lies in random
        directions orthogonal to it.

        Args:
            Q: (K, K) overlaps w_k·w_k'/N of the weights.
            R: (K, C) overlaps w_k·μ_c/N with the centroids.
            seed: seed of the random directions, one number or several.

        Returns:
            (K, N) weights.
        """
        Q, R = np.asarray(Q, dtype=float), np.asarray(R, dtype=float)
        K, C = len(Q), len(self.classes)
        if Q.shape != (K, K) or R.shape != (K, C):
            raise SpecificationError(
                f"Q and R must have shapes (K, K) and (K, {C}), got {Q.shape} and {R.shape}"
            )
        if K + C > self.N:
            raise SpecificationError(f"{K} nodes and {C} centroids do not fit in {self.N} dimensions")
        inverse = np.linalg.pinv(self.Omega, hermitian=True)
        values, vectors = np.linalg.eigh(Q - R @ inverse @ R.T)
        if values[0] < -1e-12 * max(1.0, np.abs(Q).max()):
            raise UnphysicalStateError(
                f"no weights have these overlaps: Q - R Ω⁻¹ Rᵀ has the negative eigenvalue {values[0]:.3g}"
            )
        # A separate stream: the same seed used elsewhere for noise must not give the same numbers.
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2,)))
        draws = rng.standard_normal((self.N, K))
        basis, _ = np.linalg.qr(np.column_stack([self.centroids.T, draws]))
        orthogonal = (vectors * np.sqrt(np.clip(values, 0.0, None))) @ basis[:, C:].T
        return np.asarray(R @ inverse @ self.centroids + np.sqrt(self.N) * orthogonal)

    def denoising(
        self, start: Array | Mapping[str, Array], Delta_F: float = 0.3, alpha_F: float = 1.0, **options: Array
    ) -> Problem:
        """The problem of the best noise in training a denoising autoencoder on these data.

        Args:
            start: initial weights (K, N), or a mapping with their overlaps ``Q`` and ``R``.
            Delta_F: noise variance at test time.
            alpha_F: horizon, training steps divided by N.
            **options: further arguments of ``scenarios.denoising``.
        """
        return self.problem("denoising", start, Delta_F=Delta_F, alpha_F=alpha_F, **options)

    def problem(
        self,
        scenario: str = "denoising",
        start: Array | Mapping[str, Array] | None = None,
        *,
        nodes: int = 2,
        seed: int = 0,
        **arguments: Any,
    ) -> Problem:
        """The problem of a scenario on these data: their σ, p_c, N and centroids replace its own.

        Args:
            scenario: a scenario whose inputs are a Gaussian mixture; ``data_scenarios()`` lists them.
            start: initial weights (K, N) of the network, or a mapping with their overlaps ``Q`` and
                ``R``; None for random weights, all entries standard normal.
            nodes: number of hidden nodes K of the random weights.
            seed: seed of the random weights.
            **arguments: arguments of the scenario, such as ``Delta_F``.
        """
        if scenario not in data_scenarios():
            names = ", ".join(data_scenarios())
            raise SpecificationError(
                f"scenario must be one that data can be fitted for, {names}, got {scenario!r}"
            )
        for name in sorted({"sigma", "N", "cluster_probabilities"} & set(arguments)):
            value = arguments[name]
            raise SpecificationError(f"{name} must be left out, since the data determine it, got {value!r}")
        if start is None:
            start = self.random_weights(nodes, seed)
        overlaps = {"Omega": self.Omega, **start} if isinstance(start, Mapping) else self.start(start)
        made: Problem = getattr(scenarios, scenario)(
            sigma=self.sigma, N=self.N, start=overlaps, cluster_probabilities=self.probabilities, **arguments
        )
        return made

    def random_weights(self, nodes: int, seed: int = 0) -> np.ndarray:
        """(nodes, N) standard normal weights."""
        if int(nodes) != nodes or nodes < 1:
            raise SpecificationError(f"nodes must be a whole number of at least 1, got {nodes!r}")
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(3,)))
        return rng.standard_normal((int(nodes), self.N))

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON: everything but the centroids and the assignment."""
        arrays = {name: getattr(self, name).tolist() for name in ("sigma", "probabilities", "Omega")}
        return {
            "classes": self.classes.tolist(),
            "N": self.N,
            "samples": len(self.assignment),
            **arrays,
            "participation": self.isotropy.participation.tolist(),
            "isotropic_participation": self.isotropy.expected.tolist(),
            "far_from_isotropic": self.isotropy.far,
        }


def data_scenarios() -> tuple[str, ...]:
    """The scenarios whose inputs are a Gaussian mixture, which can be fitted to data."""
    needed = {"sigma", "N", "start", "cluster_probabilities"}
    names = scenarios.list_scenarios()
    return tuple(n for n in names if needed <= set(inspect.signature(getattr(scenarios, n)).parameters))


@checked
def gaussian_mixture(
    X: Array, labels: Array | None = None, clusters: int | None = None, seed: int = 0
) -> MixtureFit:
    """Fit a mixture of isotropic Gaussian clusters to data.

    Args:
        X: (n, N) samples, or (n, …) such as images, which are flattened. They are not rescaled: the noise of
            the denoising scenario has variance 1 in these units. See ``rescaled``.
        labels: (n,) cluster of each sample; None to find ``clusters`` clusters by k-means.
        clusters: number of clusters to find. Only without labels.
        seed: seed of k-means and of the choice of samples for spectra.

    Warns:
        AnisotropyWarning: a cluster varies in far fewer directions than the model assumes.
    """
    check = Arguments("gaussian_mixture")
    check.count("seed", seed, 0)
    samples = as_numbers(X)
    if samples is None or samples.ndim < 2 or not samples.size:
        check.fail("X", X, "must be samples of shape (n, N)")
    samples = samples.reshape(len(samples), -1)
    if not np.all(np.isfinite(samples)):
        raise SpecificationError("X must be finite, got entries that are not")
    classes, assignment = _assign(samples, labels, clusters, seed)
    counts = np.bincount(assignment, minlength=len(classes))
    if counts.min() < 2:
        raise SpecificationError(f"cluster {classes[counts.argmin()]!r} has fewer than two samples")
    n, N = samples.shape
    rng = np.random.default_rng(seed)
    means = np.stack([samples[assignment == c].mean(axis=0) for c in range(len(classes))])
    residuals = [samples[assignment == c] - means[c] for c in range(len(classes))]
    fit = MixtureFit(
        classes=classes,
        centroids=np.sqrt(N) * means,
        sigma=np.array([np.sqrt(np.mean(members**2)) for members in residuals]),
        probabilities=counts / n,
        assignment=assignment,
        isotropy=Isotropy.measure(residuals, rng),
    )
    fit.isotropy.warn(classes, N)
    return fit


def _assign(
    samples: np.ndarray, labels: Array | None, clusters: int | None, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Classes (C,), and for each sample the index of its class."""
    if labels is not None:
        of_samples = np.asarray(labels)
        if of_samples.shape != (len(samples),):
            raise SpecificationError(
                f"labels must be one for each of {len(samples)} samples, got shape {of_samples.shape}"
            )
        if clusters is not None:
            raise SpecificationError(
                "labels and clusters must not both be given: clusters are found only without labels"
            )
        classes, assignment = np.unique(of_samples, return_inverse=True)
        return classes, assignment
    if clusters is None or int(clusters) != clusters or not 1 <= clusters <= len(samples):
        raise SpecificationError(
            f"clusters must be the number to find, from 1 to {len(samples)}, where labels are not given; got "
            f"{clusters!r}"
        )
    return _kmeans(samples, int(clusters), seed)


def _kmeans(samples: np.ndarray, clusters: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The best of several runs; clusters in order of size, the smallest first."""
    best: tuple[float, np.ndarray] | None = None
    for start in range(KMEANS_STARTS):
        try:
            rng = np.random.default_rng([seed, start])
            centres, assignment = kmeans2(samples, clusters, minit="++", missing="raise", rng=rng)
        except ClusterError:
            continue
        spread = float(np.mean((samples - centres[assignment]) ** 2))
        if best is None or spread < best[0]:
            best = spread, assignment
    if best is None:
        raise SpecificationError(
            f"clusters must be fewer for these data, got {clusters}: k-means left one empty in every run"
        )
    order = np.argsort(np.bincount(best[1], minlength=clusters), kind="stable")
    return np.arange(clusters), np.argsort(order)[best[1]]


def _used(count: int, N: int) -> int:
    """Samples used for a spectrum."""
    return min(count, SPECTRUM_SAMPLES) if N > SPECTRUM_SAMPLES else count


def _spectrum(residuals: Float[np.ndarray, "n N"], rng: np.random.Generator) -> Float[np.ndarray, " d"]:
    """Eigenvalues of the covariance as shares of the variance, largest first."""
    used = _used(*residuals.shape)
    if used < len(residuals):
        residuals = residuals[np.sort(rng.choice(len(residuals), used, replace=False))]
    rows, columns = residuals.shape
    gram = residuals.T @ residuals if columns <= rows else residuals @ residuals.T
    values = np.clip(np.linalg.eigvalsh(gram)[::-1], 0.0, None)
    total = values.sum()
    # Without any variance all directions are alike.
    return np.asarray(values / total if total > 0 else np.full(len(values), 1 / len(values)))
