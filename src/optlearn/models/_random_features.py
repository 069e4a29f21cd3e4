"""A linear head on random features: y = Σ_m g(u_m·z) + σ_n ξ is learned from x_i = g(w_i·z), z Gaussian.

Second moments of the features and of the labels are known in closed form, E[g(a)g(b)] of two Gaussian fields.
The best head, the spectrum and the noise that no head can remove follow; then this is least squares
(``linear``).
"""

import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import float64
from optlearn._signatures import checked
from optlearn._theory.reduction import NEGLIGIBLE, reduce_spectrum
from optlearn.models._activations import ACTIVATIONS
from optlearn.models._linear import Linear, linear


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
        features: N, how many.
        inputs: dimension of z.
        teachers: nodes of the teacher, of unit norm.
        activation: of features and teacher, "erf", "relu" or "linear".
        sigma_n: standard deviation of the label noise.
        blocks: that stand for all directions; None: all of them.
        training: ∫η dα that the blocks are made for.
        eta: learning rate η.
        batch: fresh samples in each step.
        recursion: the exact mean in discrete time; None: where η λ₁/tr is above 0.1.
        seed: of the random directions.
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
