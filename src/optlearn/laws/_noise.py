"""The noise behind the residuals of a fit: its size, and how long it is correlated.

Noise along a curve is white, plus a part whose correlation decays exponentially with the steps between two
points::

    cov(ε_i, ε_j) = s² [(1 − c) δ_ij + c exp(−|step_i − step_j| / m)]

Correlated neighbours count for less than as many independent points. The inverse of the second part is
tridiagonal, so everything here is linear in the number of points.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve_banded, cholesky_banded
from scipy.optimize import minimize

from optlearn._arrays import Float

# Residuals beyond this many standard deviations count linearly (Huber): spikes are no evidence.
OUTLYING = 2.5
# Losses that are known better than this share are exact as far as a law can tell.
EXACT = 1e-6
# Correlation, two more numbers, must raise twice the log-likelihood by this much (Akaike's criterion).
EVIDENCE = 4.0
LOGIT = 8.0  # bound of the logit of a share
GAUSSIAN = 1.4826  # standard deviations in a median absolute deviation


def robust_size(residuals: Float[np.ndarray, " points"]) -> float:
    """Standard deviation of Gaussian noise with the median size of ``residuals``; spikes do not matter."""
    return max(GAUSSIAN * float(np.median(np.abs(residuals))), EXACT)


@dataclass(frozen=True)
class Noise:
    """Noise along curves.

    Attributes:
        gaps: (points,) steps since the last point of the same curve; infinite for the first.
        variance: of a point, s².
        share: of the variance that is correlated, c.
        memory: steps after which its correlation is 1/e, m.
    """

    gaps: Float[np.ndarray, " points"]
    variance: float
    share: float
    memory: float

    @classmethod
    def of(
        cls,
        residuals: Float[np.ndarray, " points"],
        jacobian: Float[np.ndarray, "points free"],
        prior: Float[np.ndarray, " free"],
        steps: Sequence[np.ndarray],
    ) -> "Noise":
        """The most likely noise, given that the fit has absorbed some of it.

        Restricted maximum likelihood: slow noise looks like a change of the parameters, so the fit has
        removed some of it, and the residuals alone underestimate it.

        Args:
            residuals: of a fit.
            jacobian: their slopes in the fitted numbers.
            prior: inverse variances of the fitted numbers before the fit.
            steps: of the points of each curve.
        """
        gaps = np.concatenate([np.append(np.inf, np.diff(step)) for step in steps])
        shortest = np.log(np.median(np.concatenate([np.diff(step) for step in steps])))
        longest = np.log(max(np.ptp(step) for step in steps))
        known = np.diag(prior) * max(float(np.mean(residuals**2)), EXACT**2)
        both = np.column_stack([residuals, jacobian])

        def noise(x: np.ndarray, variance: float = 1.0) -> Noise:
            return cls(gaps, variance, 1 / (1 + np.exp(-x[0])), np.exp(x[1]))

        def deviance(x: np.ndarray) -> tuple[float, float]:
            """Twice the negative logarithm of the likelihood, less a constant; and the variance."""
            log_determinant, products = noise(x)._whitened(both)
            information = products[1:, 1:] + known
            explained = products[0, 1:] @ np.linalg.solve(information, products[0, 1:])
            # A prior on a number is worth one point, which pays for that number.
            left = max(len(residuals) - int(np.sum(prior == 0)), 1)
            variance = max(products[0, 0] - explained, EXACT**2) / left
            log_information = np.linalg.slogdet(information)[1]
            return log_determinant + log_information + left * np.log(variance), variance

        starts = [np.array([logit, at]) for logit in (-2.0, 2.0) for at in (shortest + 1, longest - 1.5)]
        correlated = minimize(
            lambda x: deviance(x)[0],
            min(starts, key=lambda x: deviance(x)[0]),
            method="Nelder-Mead",
            bounds=[(-LOGIT, LOGIT), (shortest - 1, longest)],
            options={"xatol": 0.05, "fatol": 0.05, "maxfev": 80},
        ).x
        white = np.array([-np.inf, shortest])
        best = correlated if deviance(correlated)[0] < deviance(white)[0] - EVIDENCE else white
        return noise(best, deviance(best)[1])

    def _bands(self) -> np.ndarray:
        """(2, points) diagonal and lower diagonal of the inverse of the exponential correlations."""
        left = np.exp(-self.gaps / self.memory)
        lost = -np.expm1(-2 * self.gaps / self.memory)
        bands = np.zeros((2, len(left)))
        bands[0] = 1 / lost
        bands[0, :-1] += left[1:] ** 2 / lost[1:]
        bands[1, :-1] = -left[1:] / lost[1:]
        return bands

    def _whitened(self, columns: np.ndarray) -> tuple[float, np.ndarray]:
        """Logarithm of the determinant of the correlations R, and columnsᵀ R⁻¹ columns.

        With the inverse A of the exponential correlations, R⁻¹ = A (c + (1 − c) A)⁻¹.
        """
        bands = self._bands()
        mixed = (1 - self.share) * bands
        mixed[0] += self.share
        roots = [cholesky_banded(b, lower=True) for b in (mixed, bands)]
        solved = cho_solve_banded((roots[0], True), columns)
        times = bands[0][:, None] * solved
        times[1:] += bands[1, :-1, None] * solved[:-1]
        times[:-1] += bands[1, :-1, None] * solved[1:]
        log_mixed, log_inverse = (2 * np.log(root[0]).sum() for root in roots)
        return log_mixed - log_inverse, columns.T @ times

    def of_sums(self, weights: Float[np.ndarray, "points sums"]) -> Float[np.ndarray, "sums sums"]:
        """Covariance of weighted sums of the noise of all points."""
        remembered = cho_solve_banded((cholesky_banded(self._bands(), lower=True), True), weights)
        return self.variance * weights.T @ (self.share * remembered + (1 - self.share) * weights)
