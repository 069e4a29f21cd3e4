"""Rules for Gaussian expectations: where to evaluate, and with which weights.

A rule turns "d independent standard normals" into points (P, d) and weights (P,) that sum to 1.
Where a loss jumps or bends, Gauss-Hermite converges only like 1/n; there the line is cut and a
Gauss-Legendre rule is laid on each side. The cut of one coordinate may depend on the coordinates
before it. ``wrong_rows`` shows whether the installed JAX computes such expectations wrongly.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from typing_extensions import override

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Float, float64
from optlearn._signatures import checked

# How far a cut line reaches, in standard deviations, for n nodes a side: 1.2 √n balances what lies
# beyond against what the nodes resolve (measured); beyond 9 lies 2e-19 of the mass.
REACH = 9.0

# 2**24 points of ten coordinates fill 1.3 GB.
MOST_LOG2_POINTS = 24

# cut(j, prefix (P, j)) → where coordinate j is cut, (P, cuts), or None where nothing jumps.
Cut = Callable[[int, Float[Array, "P j"]], Float[Array, "P cuts"] | None]
# Points and weights of a quadrature.
PointsAndWeights = tuple[Float[Array, "P d"], Float[Array, " P"]]


def no_cut(_coordinate: int, _prefix: Array) -> None:
    """Nothing jumps anywhere."""
    return


@dataclass(frozen=True)
class AbstractQuadrature:
    """A quadrature rule for standard normals."""

    @abstractmethod
    def points(self, smooth: tuple[bool, ...], cut: Cut = no_cut) -> PointsAndWeights:
        """Points (P, d) and weights (P,).

        Args:
            smooth: one flag a coordinate: true for the label noise, which enters a square loss
                quadratically, so that few nodes may be enough.
            cut: where the integrand jumps.
        """


@checked
@dataclass(frozen=True)
class GaussHermite(AbstractQuadrature):
    """Tensor product of one-dimensional rules: exponential accuracy for few dimensions.

    Args:
        nodes: nodes in each dimension (on each side of a cut).
        noise_nodes: nodes for the label noise (default: as many). 3 are exact for a square loss.
    """

    nodes: int = 20
    noise_nodes: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("nodes", self.nodes), ("noise_nodes", self.noise_nodes)):
            if value is not None:
                Arguments("GaussHermite").count(name, value)

    @override
    def points(self, smooth: tuple[bool, ...], cut: Cut = no_cut) -> PointsAndWeights:
        points, weights = jnp.zeros((1, 0)), jnp.ones(1)
        for coordinate, is_smooth in enumerate(smooth):
            where = cut(coordinate, points)
            nodes = (self.noise_nodes or self.nodes) if is_smooth else self.nodes
            if where is None:
                line, mass = hermite_line(nodes)
                lines = jnp.broadcast_to(line[None, :], (points.shape[0], nodes))
                masses = jnp.broadcast_to(mass[None, :], lines.shape)
            else:
                lines, masses = _cut_lines(where, nodes)
            count = lines.shape[1]
            points = jnp.concatenate([jnp.repeat(points, count, axis=0), lines.reshape(-1, 1)], axis=1)
            weights = (weights[:, None] * masses).reshape(-1)
        return points, weights


@checked
@dataclass(frozen=True)
class QuasiMonteCarlo(AbstractQuadrature):
    """Scrambled Sobol points with their mirror images: for many dimensions, any loss.

    Args:
        log2_points: the rule uses ``2**log2_points`` points in mirrored pairs; the error falls
            about like 1/points for smooth losses.
        seed: of the scrambling; two seeds give two independent estimates.
    """

    log2_points: int = 14
    seed: int = 0

    def __post_init__(self) -> None:
        check = Arguments("QuasiMonteCarlo")
        check.count("log2_points", self.log2_points, 2, MOST_LOG2_POINTS)
        check.count("seed", self.seed, 0)

    @override
    def points(self, smooth: tuple[bool, ...], cut: Cut = no_cut) -> PointsAndWeights:
        # Equal weights everywhere, whatever is cut: a jump costs accuracy, not correctness.
        points = jnp.asarray(sobol_normals(len(smooth), self.log2_points, self.seed))
        return points, jnp.full(points.shape[0], 1 / points.shape[0])


@checked
@dataclass(frozen=True)
class AutoQuadrature:
    """Ask for an accuracy instead of a rule; ``integrate`` finds the cheapest rule that has it.

    Args:
        accuracy: of the drift, relative to its size (at least 0.1).
        points: evaluations of the loss in one expectation at most.
    """

    accuracy: float = 1e-7
    points: int = 300_000

    def __post_init__(self) -> None:
        check = Arguments("AutoQuadrature")
        if not check.number("accuracy", self.accuracy, 0.0, open_below=True) < 1:
            check.fail("accuracy", self.accuracy, "must be above 0 and below 1")
        check.count("points", self.points, 256)


@lru_cache(maxsize=64)
def hermite_line(nodes: int) -> tuple[Float[np.ndarray, " nodes"], Float[np.ndarray, " nodes"]]:
    """Gauss-Hermite nodes and weights for one standard normal."""
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    return points, weights / weights.sum()


@lru_cache(maxsize=64)
def _legendre_line(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    points, weights = np.polynomial.legendre.leggauss(nodes)
    return (points + 1) / 2, weights / 2


@lru_cache(maxsize=8)
def sobol_normals(dimension: int, log2_points: int, seed: int) -> Float[np.ndarray, "P dimension"]:
    """(2**log2_points, dimension) quasi-random standard normals in mirrored pairs."""
    from scipy.special import ndtri
    from scipy.stats import qmc

    if dimension == 0:
        return np.zeros((1, 0))
    uniform = qmc.Sobol(dimension, seed=seed).random_base2(log2_points - 1)
    # A scrambled point may be 0 itself, whose normal is infinite; 2⁻⁴⁰ is 7 standard deviations away.
    normals = ndtri(np.clip(uniform, 2.0**-40, 1 - 2.0**-40))
    return np.concatenate([normals, -normals])


def _ascending(columns: list[Array]) -> list[Array]:
    """A few columns, put in order in each row (by exchanges, which CasADi has too)."""
    for last in range(len(columns) - 1, 0, -1):
        for i in range(last):
            low, high = columns[i], columns[i + 1]
            columns[i], columns[i + 1] = jnp.minimum(low, high), jnp.maximum(low, high)
    return columns


def _cut_lines(where: Array, nodes: int) -> tuple[Array, Array]:
    """Gauss-Legendre under the normal density between cuts (P, c) and beyond: (P, (c + 1) nodes) each."""
    line, mass = _legendre_line(nodes)
    reach = min(REACH, 1.2 * float(np.sqrt(nodes)))
    # A jump out of reach is none; cut in the middle, where each half has as few waves as can be.
    where = jnp.where(jnp.abs(where) < reach, where, 0.0)
    ends = jnp.full(where.shape[0], reach)
    edges = jnp.stack([-ends, *_ascending(list(where.T)), ends], axis=1)
    widths = (edges[:, 1:] - edges[:, :-1])[:, :, None]
    lines = (edges[:, :-1, None] + widths * line[None, None, :]).reshape(where.shape[0], -1)
    lengths = (widths * mass[None, None, :]).reshape(lines.shape)
    return lines, lengths * jnp.exp(-(lines**2) / 2) / np.sqrt(2 * np.pi)


@float64
def wrong_rows(batch: int = 20_000, size: int = 3, activation: str = "tanh") -> int:
    """How many of ``batch`` matrix-vector products, summed after an activation, are wrong; 0 is right.

    jax-ml/jax#39103: on CPU, a vmapped matrix-vector product followed by a reduction, under jit, is wrong
    from row 16384 on for some batch sizes. This is what every Gaussian expectation over samples of the local
    fields looks like. JAX 0.10.2 has the fault: 3,616 of 20,000 rows. The matrix is ``size`` by ``size``; an
    activation is the name of a function that NumPy and JAX have.
    """
    apply, apply_jax = getattr(np, activation), getattr(jnp, activation)
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((size, size))
    samples = rng.standard_normal((batch, size))
    rows = jax.jit(lambda A, x: jax.vmap(lambda row: jnp.sum(apply_jax(A @ row)))(x))
    expected = np.sum(apply(samples @ matrix.T), axis=-1)
    return int(np.sum(~np.isclose(rows(matrix, samples), expected, rtol=1e-10, atol=1e-10)))
