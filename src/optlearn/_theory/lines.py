"""Nodes and weights along one coordinate of a Gaussian expectation.

Where a loss has a jump or kink, Gauss-Hermite converges only like 1/n, so the line is cut there: its two ends
get Gauss rules for half a normal density, and segments between two cuts get Gauss-Legendre rules.
"""

import math
from functools import lru_cache

import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, Float

# A cut line reaches this much beyond the last node of its half.
BEYOND_LAST = 1.02
# Cuts are made up to this share of its reach. Farther out, a segment has too few nodes for its length, and a
# jump so little weight that ignoring it costs less (n = 12: 4e-5 at most, instead of 4e-2).
FAR_OUT = 0.6
# With few nodes a jump still has weight there, and an objective becomes rough as nodes pass it, so cuts are
# made up to at least so many standard deviations.
RARE = 4.0

# Number of nodes up to which Gauss-Hermite is better than stretched steps.
GAUSS_NODES = 8


@lru_cache(maxsize=64)
def hermite_line(nodes: int) -> tuple[Float[np.ndarray, " nodes"], Float[np.ndarray, " nodes"]]:
    """Gauss-Hermite nodes and weights for one standard normal."""
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    return points, weights / weights.sum()


@lru_cache(maxsize=64)
def stretched_steps(nodes: int) -> tuple[Float[np.ndarray, " nodes"], Float[np.ndarray, " nodes"]]:
    """Nodes x = a sinh(bt) at equal steps of t, for one standard normal, and weights.

    Steps at the centre, of 2 √(π σ/n), are fine enough for integrands whose product with the density has a
    standard deviation of σ = 0.3, that of a steep unit. Steps grow outwards, so that the last nodes lie far
    enough out for growing integrands, whose tails equal steps would miss.
    """
    number = np.arange(nodes) - (nodes - 1) / 2
    rate = 1.6 / number[-1]
    points = 2 * np.sqrt(0.3 * np.pi / nodes) / rate * np.sinh(rate * number)
    weights = np.exp(-(points**2) / 2) * np.cosh(rate * number)
    return points, weights / weights.sum()


@lru_cache(maxsize=64)
def _legendre_line(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    points, weights = np.polynomial.legendre.leggauss(nodes)
    return (points + 1) / 2, weights / 2


@lru_cache(maxsize=64)
def _half_line(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions in [0, 1), and weights without the density, of a line from a cut outwards.

    For a cut at 0 this is the Gauss rule for half a normal density, exact for polynomials even with few
    nodes. A Gauss-Legendre rule with n nodes would have to stop short of 1.2 √n standard deviations.
    """
    points, weights = _half_gauss(nodes)
    return points / line_reach(nodes), weights / line_reach(nodes)


@lru_cache(maxsize=64)
def _half_gauss(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss nodes y > 0 for the density exp(−y²/2), and weights without it, that is times exp(y²/2).

    Nodes are eigenvalues of the Jacobi matrix (Golub and Welsch). Squares of its eigenvectors, the usual
    weights, are accurate to 1e-32 of the largest, so without the density the outer ones would be pure
    round-off. Christoffel's sums of squares of the orthonormal functions are accurate for each node.
    """
    line, mass = _legendre_line(32)
    far = math.ceil(8 + 2.2 * math.sqrt(nodes))  # beyond the last node, and 1e-14 of the mass
    # Nodes cluster at 0 like 1/nodes², and so do panels.
    edges = far * np.linspace(0, 1, 2 * far + nodes // 4 + 1) ** 2
    points = (edges[:-1, None] + np.diff(edges)[:, None] * line).ravel()
    roots = np.sqrt((np.diff(edges)[:, None] * mass).ravel()) * np.exp(-(points**2) / 4)
    basis = np.zeros((nodes + 1, len(points)))
    basis[0] = roots / np.linalg.norm(roots)
    diagonal, beside = np.zeros(nodes), np.zeros(nodes)
    for i in range(nodes):
        image = points * basis[i]
        diagonal[i] = image @ basis[i]
        for _twice in range(2):  # a single pass leaves round-off that grows
            image = image - (basis[: i + 1] @ image) @ basis[: i + 1]
        beside[i] = np.linalg.norm(image)
        basis[i + 1] = image / beside[i]
    jacobi = np.diag(diagonal) + np.diag(beside[:-1], 1) + np.diag(beside[:-1], -1)
    at = np.linalg.eigvalsh(jacobi)
    before, function = np.zeros(nodes), np.exp(-(at**2) / 4) / np.linalg.norm(roots)
    squares = np.zeros(nodes)
    for i in range(nodes):
        squares += function**2
        following = (at - diagonal[i]) * function - (beside[i - 1] if i else 0.0) * before
        before, function = function, following / beside[i]
    return at, np.where(squares > 0, 1 / np.where(squares > 0, squares, 1.0), 0.0)  # no density so far out


def segmented_line(segments: int, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions and weights along a coordinate with so many segments."""
    if segments < 2:
        return hermite_line(nodes)
    inner, inner_mass = _legendre_line(nodes)
    outer, outer_mass = _half_line(nodes)
    lines = [1 - outer[::-1], *(inner + i for i in range(1, segments - 1)), outer + segments - 1]
    return np.concatenate(lines), np.concatenate(
        [outer_mass[::-1], *[inner_mass] * (segments - 2), outer_mass]
    )


def _ascending(columns: list[Array]) -> list[Array]:
    """A few columns sorted within each row, by exchanges, which CasADi supports too."""
    for last in range(len(columns) - 1, 0, -1):
        for i in range(last):
            low, high = columns[i], columns[i + 1]
            columns[i], columns[i + 1] = jnp.minimum(low, high), jnp.maximum(low, high)
    return columns


def line_reach(nodes: int) -> float:
    """Reach of a cut line with so many nodes on each side."""
    return BEYOND_LAST * float(_half_gauss(nodes)[0][-1])


def segment_edges(where: Array, reach: float | Array) -> Array:
    """(P, c + 2) edges of the segments between cuts (P, c) and beyond, up to a reach."""
    # A jump far out is ignored and the cut placed in the middle, where each half oscillates least.
    far = jnp.maximum(FAR_OUT * reach, jnp.minimum(RARE, reach))
    where = jnp.where(jnp.abs(where) < far, where, 0.0)
    ends = jnp.full(where.shape[0], reach)
    return jnp.stack([-ends, *_ascending(list(where.T)), ends], axis=1)


def cut_lines(where: Array, nodes: int) -> tuple[Array, Array]:
    """Rules under the normal density between cuts (P, c) and beyond: (P, (c + 1) nodes) each."""
    positions, masses = segmented_line(where.shape[1] + 1, nodes)
    edges, segment = segment_edges(where, line_reach(nodes)), np.floor(positions).astype(int)
    low, high = edges[:, segment], edges[:, segment + 1]
    lines = low + (high - low) * (positions - segment)[None, :]
    return lines, (high - low) * masses[None, :] * jnp.exp(-(lines**2) / 2) / np.sqrt(2 * np.pi)
