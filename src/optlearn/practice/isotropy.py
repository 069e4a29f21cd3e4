"""How far data are from the model, whose clusters spread alike in all directions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optlearn._warn import warn

# A cluster is called far from isotropic if its participation ratio is below this share of an isotropic one's.
ISOTROPY_LIMIT = 0.5
# Spectra of clusters with more samples and more dimensions than this are of a random part of the samples.
SPECTRUM_SAMPLES = 4000


class AnisotropyWarning(UserWarning):
    """Around their centroids the data spread in few directions, and the theory assumes all of them.

    Schedules from such a fit are a guess whose worth only a training run can tell; the fit's
    ``isotropy`` says how far off the assumption is.
    """


@dataclass(frozen=True)
class Isotropy:
    """The spectrum of the covariance of each cluster, against that of isotropic data.

    Attributes:
        spectra: for each cluster, the eigenvalues of its covariance as shares of the variance,
            largest first; they sum to 1.
        participation: (C,) participation ratios, in dimensions.
        expected: (C,) the same of isotropic Gaussian data of as many samples, N/(1 + N/n).
    """

    spectra: tuple[np.ndarray, ...]
    participation: np.ndarray
    expected: np.ndarray

    @classmethod
    def measure(cls, clusters: Sequence[np.ndarray], rng: np.random.Generator) -> "Isotropy":
        """Of clusters of residuals (n_c, N), samples minus their centroid."""
        spectra = tuple(_spectrum(residuals, rng) for residuals in clusters)
        N = clusters[0].shape[1]
        return cls(
            spectra,
            participation=np.array([1 / np.sum(spectrum**2) for spectrum in spectra]),
            expected=np.array([N / (1 + N / _used(len(residuals), N)) for residuals in clusters]),
        )

    @property
    def ratio(self) -> np.ndarray:
        """(C,) participation against isotropic data: about 1 where the model holds."""
        return np.asarray(self.participation / self.expected)

    @property
    def far(self) -> bool:
        """Is a cluster far from isotropic?"""
        return bool(np.any(self.ratio < ISOTROPY_LIMIT))

    def top_share(self, directions: int = 1) -> np.ndarray:
        """(C,) share of the variance in the ``directions`` with the largest."""
        return np.array([spectrum[:directions].sum() for spectrum in self.spectra])

    def warn(self, classes: np.ndarray, N: int) -> None:
        """Warn, with numbers, of clusters that are far from isotropic."""
        top = self.top_share()
        parts = [
            f"cluster {classes[c]} in about {self.participation[c]:.1f} of {N} directions "
            f"({self.expected[c]:.0f} if isotropic), {top[c]:.0%} of its variance in one"
            for c in np.flatnonzero(self.ratio < ISOTROPY_LIMIT)
        ]
        if parts:
            warn(
                "the data are far from the model, whose clusters are isotropic: they spread, "
                f"{'; '.join(parts)}. Check the schedule by training",
                AnisotropyWarning,
            )


def _used(count: int, N: int) -> int:
    """Samples that enter a spectrum."""
    return min(count, SPECTRUM_SAMPLES) if N > SPECTRUM_SAMPLES else count


def _spectrum(residuals: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Eigenvalues of the covariance as shares of the variance, largest first."""
    used = _used(*residuals.shape)
    if used < len(residuals):
        residuals = residuals[np.sort(rng.choice(len(residuals), used, replace=False))]
    rows, columns = residuals.shape
    gram = residuals.T @ residuals if columns <= rows else residuals @ residuals.T
    values = np.clip(np.linalg.eigvalsh(gram)[::-1], 0.0, None)
    total = values.sum()
    # Without any spread every direction is alike.
    return np.asarray(values / total if total > 0 else np.full(len(values), 1 / len(values)))
