"""The logistic function as a mixture of normal distribution functions of several widths.

With the Pólya-Gamma law of order b, 1/cosh(x/2)^b = E[exp(−ω x²/2)]. So the slope s' = 1/(4 cosh(x/2)²) of
the logistic function s, and its powers, are mixtures of Gaussians, and s itself is one of distribution
functions: Gaussian averages of products of them have closed forms. A Gauss quadrature in log ω makes the
mixture finite; each component more divides its error by about 5 (3e-5 for s with 4 of them, 1e-6 with 6).
"""

from functools import cache
from math import factorial

import numpy as np

# A fine grid of ω, in its logarithm: beyond these ends the laws of order 2, 4 and 6 have no mass.
GRID = np.linspace(np.log(0.02), np.log(12.0), 4001)


@cache
def logistic_mixture(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Shares w and sharpnesses c (count,) with s(x) ≈ Σ w Φ(c x)."""
    omega = np.exp(GRID)
    share, node = _gauss(GRID, omega * _polya_gamma(omega, 2) * np.sqrt(2 * np.pi / omega) / 4, count)
    return share, np.exp(node / 2)


@cache
def slope_mixture(power: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Sizes v and exponents ω (count,) with s'(x)^power ≈ Σ v exp(−ω x²/2)."""
    omega = np.exp(GRID)
    share, node = _gauss(GRID, omega * _polya_gamma(omega, 2 * power), count)
    return share / 4**power, np.exp(node)


def _polya_gamma(omega: np.ndarray, order: int) -> np.ndarray:
    """Density of the Pólya-Gamma law PG(order, 0)."""
    total = np.zeros_like(omega)
    for n in range(60):
        size = (-1) ** n * (2 * n + order) * factorial(n + order - 1) / factorial(n)
        total += size * np.exp(-((2 * n + order) ** 2) / (8 * omega))
    return 2 ** (order - 1) / factorial(order - 1) * np.maximum(total, 0.0) / np.sqrt(2 * np.pi * omega**3)


def _gauss(x: np.ndarray, density: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights and nodes of Gauss quadrature for a density on a grid, by Lanczos steps."""
    density = density / density.sum()
    diagonal, beside = np.zeros(count), np.zeros(count)
    before, now = np.zeros_like(x), np.ones_like(x)
    for i in range(count):
        diagonal[i] = density @ (x * now**2)
        step = (x - diagonal[i]) * now - (beside[i - 1] if i else 0.0) * before
        beside[i] = np.sqrt(density @ step**2)
        before, now = now, step / beside[i]
    nodes, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(beside[:-1], -1))
    return vectors[0] ** 2, nodes
