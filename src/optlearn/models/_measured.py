"""Least squares whose spectrum, teacher and noise follow from second moments: ``linear`` for other inputs.

Measured on data. In the eigenbasis of XᵀX/n the best linear predictor w* is the teacher and its residual z
the label noise. That noise may depend on the input, so its power E[x_i² z²] is measured direction by
direction. Beyond these second moments, the only assumption is that fourth moments of the inputs are Gaussian.

Known for random features. A linear head learns y = Σ_m g(u_m·z) + σ_n ξ from x_i = g(w_i·z), z Gaussian. The
second moments of features and labels have closed forms, E[g(a)g(b)] of two Gaussian fields. They determine
the best head, the spectrum, and the noise that no head can remove.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from optlearn._arguments import Arguments, as_numbers
from optlearn._arrays import Array, Float, float64
from optlearn._signatures import checked
from optlearn._theory.spectrum import NEGLIGIBLE, reduce_spectrum
from optlearn.models._averages import ACTIVATIONS
from optlearn.models._linear import Linear, linear

# Number of rows of a table that are projected at once.
AT_ONCE = 10_000


@dataclass(frozen=True)
class Measured:
    """The statistics of data that determine least squares.

    Attributes:
        variances: (d,) eigenvalues of XᵀX/n, largest first; those below 1e-9 of the largest are left out.
        basis: (N, d) their directions.
        weights: (N,) w*, the best linear predictor, for inputs minus their mean.
        noise: σ², mean square of its residuals.
        noise_shape: (d,) E[x_i² z²] over λ_i σ²; ones if residuals are independent of inputs.
        input_mean: (N,) mean subtracted from inputs.
        label_mean: mean subtracted from labels.
        samples: number of samples n.
    """

    variances: Float[np.ndarray, " d"]
    basis: Float[np.ndarray, "N d"]
    weights: Float[np.ndarray, " N"]
    noise: float
    noise_shape: Float[np.ndarray, " d"]
    input_mean: Float[np.ndarray, " N"]
    label_mean: float
    samples: int

    @property
    def directions(self) -> int:
        """d, which is N in the units of the theory."""
        return len(self.variances)

    @property
    def input_power(self) -> float:
        """tr, the mean of ‖x‖². A rate η of the theory is η / tr in your own loop (loss ½(f − y)²)."""
        return float(self.variances.sum())

    @property
    def largest(self) -> float:
        """λ₁/tr."""
        return float(self.variances[0] / self.input_power)

    @property
    def teacher(self) -> Float[np.ndarray, " d"]:
        """(d,) T_i in the units of the theory: Σ_i c_i T_i is the risk of zero weights."""
        return self.variances * (self.basis.T @ self.weights) ** 2 / self._scaled

    @property
    def _scaled(self) -> np.ndarray:
        """(d,) c_i, variances of mean 1."""
        return self.variances * self.directions / self.input_power

    def linear(self, blocks: int | None = 16, training: float = 10.0, recursion: bool = True) -> Linear:
        """The model of the theory.

        Args:
            blocks: number of blocks that represent all directions; None: one for each.
            training: ∫η dα that the blocks are designed for.
            recursion: the exact mean in discrete time, or its limit.
        """
        reduced = reduce_spectrum(self._scaled, self.teacher, blocks, training)
        weight = np.bincount(reduced.block_of, self._scaled)
        shape = np.bincount(reduced.block_of, self._scaled * self.noise_shape) / weight
        return linear(
            reduced.spectrum,
            reduced.teacher,
            noise=self.noise,
            N=self.directions,
            recursion=recursion,
            noise_shape=shape,
        )

    def excess_curve(self, rates: Array, batches: Array = 1.0) -> Float[np.ndarray, " times"]:
        """(steps + 1,) predicted mean excess risk E(f − f*)² before every step, and after the last.

        The exact recursion in all directions.

        Args:
            rates: (steps,) learning rates η in the units of the theory.
            batches: (steps,) fresh samples in each step, or one number.
        """
        gammas = np.asarray(rates, dtype=float) / self.directions
        sizes = np.broadcast_to(np.asarray(batches, dtype=float), gammas.shape)
        c, s = self._scaled, self.teacher.copy()
        noise = c * self.noise * self.noise_shape
        risk = np.empty(len(gammas) + 1)
        for step, (gamma, size) in enumerate(zip(gammas, sizes, strict=True)):
            risk[step] = c @ s
            s = s * (1 - 2 * gamma * c + gamma**2 * c**2 * (1 + 1 / size))
            s += gamma**2 / size * (c * risk[step] + noise)
        risk[-1] = c @ s
        return risk


@checked
def measured(X: Array, y: Array, centre: bool = True) -> Measured:
    """Measure spectrum, teacher and noise.

    Args:
        X: (n, N) inputs or features, a row for each sample; more samples than features.
        y: (n,) labels, any numbers.
        centre: subtract means of inputs and labels, as a trained bias would.
    """
    table, labels = check_samples("regression", X, y)
    n = len(table)
    input_mean = table.mean(axis=0) if centre else np.zeros(table.shape[1])
    label_mean = float(labels.mean()) if centre else 0.0
    # As moments of the raw table, so that no centred copy of it is needed.
    second = table.T @ table / n - np.outer(input_mean, input_mean)
    cross = table.T @ (labels - label_mean) / n - input_mean * float(np.mean(labels - label_mean))
    values, basis = np.linalg.eigh(second)
    kept = values > NEGLIGIBLE * values[-1]
    if not kept.any() or values[-1] <= 0:
        Arguments("regression").fail("X", table, "must have a feature that varies")
    values, basis = values[kept][::-1], basis[:, kept][:, ::-1]
    weights = basis @ ((basis.T @ cross) / values)
    power, noise = np.zeros(len(values)), 0.0
    for first in range(0, n, AT_ONCE):
        rows = table[first : first + AT_ONCE] - input_mean
        square = (rows @ weights - (labels[first : first + AT_ONCE] - label_mean)) ** 2
        noise += float(square.sum()) / n
        power += square @ (rows @ basis) ** 2 / n
    shape = power / (values * noise) if noise > 0 else np.ones(len(values))
    return Measured(values, basis, weights, noise, shape, input_mean, label_mean, n)


@checked
@float64
def random_features(
    features: int = 400,
    inputs: int = 200,
    teachers: int = 1,
    activation: str = "relu",
    sigma_n: float = 0.1,
    blocks: int | None = 16,
    training: float = 10.0,
    eta: float = 0.5,
    batch: float = 1.0,
    recursion: bool | None = None,
    seed: int = 0,
) -> Linear:
    """Least squares on random features of Gaussian inputs, features scaled to a mean square of 1.

    Args:
        features: number N of features.
        inputs: dimension of z.
        teachers: number of teacher nodes, of unit norm.
        activation: of features and teacher, "erf", "relu" or "linear".
        sigma_n: standard deviation of the label noise.
        blocks: number of blocks that represent all directions; None: one for each.
        training: ∫η dα that the blocks are designed for.
        eta: learning rate η.
        batch: fresh samples in each step.
        recursion: the exact mean in discrete time; None: if η λ₁/tr is above 0.1.
        seed: seed of the random directions.
    """
    check = Arguments("random_features")
    N, D, M = (
        check.count(name, value)
        for name, value in (("features", features), ("inputs", inputs), ("teachers", teachers))
    )
    function = ACTIVATIONS[check.one_of("activation", activation, ACTIVATIONS)]
    noise = check.number("sigma_n", sigma_n, 0.0) ** 2
    vectors = np.random.default_rng(check.count("seed", seed, 0)).normal(size=(N + M, D))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    gram = vectors @ vectors.T
    moments = np.asarray(function.I2(gram, np.arange(N + M)[:, None], np.arange(N + M)[None, :]))
    cross = moments[:N, N:].sum(axis=1)
    values, basis = np.linalg.eigh(moments[:N, :N])
    kept = values > NEGLIGIBLE * values[-1]
    values, projected = values[kept], basis[:, kept].T @ cross
    left = float(moments[N:, N:].sum() - np.sum(projected**2 / values))
    c = values * len(values) / values.sum()
    reduced = reduce_spectrum(c, projected**2 / values / c, blocks, training)
    return linear(
        reduced.spectrum,
        reduced.teacher,
        noise=max(left, 0.0) + noise,
        N=len(values),
        eta=eta,
        batch=batch,
        recursion=recursion,
    )


def check_samples(owner: str, X: Any, y: Any) -> tuple[Float[np.ndarray, "n N"], Float[np.ndarray, " n"]]:
    """Inputs and labels as finite arrays of matching shapes."""
    check = Arguments(owner)
    table, labels = as_numbers(X), as_numbers(y)
    if table is None or labels is None:
        check.fail(*(("X", X) if table is None else ("y", y)), "must be an array of real numbers")
    if table.ndim != 2 or table.shape[1] < 1 or len(table) <= table.shape[1]:
        check.fail("X", table, "must be a table with more samples (rows) than features")
    if labels.shape != table.shape[:1]:
        check.fail("y", labels, f"must be {len(table)} labels, one for each row of X")
    for name, array in (("X", table), ("y", labels)):
        if not np.all(np.isfinite(array)):
            check.fail(name, array, "must be finite")
    if not np.ptp(labels) > 0:
        check.fail("y", labels, "must vary: there is nothing to learn")
    return table, labels
