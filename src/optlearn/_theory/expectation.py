"""Rules for Gaussian expectations: where to evaluate, and with which weights.

A rule turns "d independent standard normals" into points (P, d) and weights (P,) that sum to 1. Where a loss
has jumps or kinks, lines are cut (``lines``); the cut of a coordinate may depend on the coordinates before
it.
``wrong_rows`` shows whether the installed JAX computes such expectations wrongly.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from typing_extensions import override

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Derivatives, Float, float64
from optlearn._errors import SpecificationError
from optlearn._pytrees import Pytree, field
from optlearn._signatures import checked
from optlearn._theory.lines import (
    GAUSS_NODES,
    cut_lines,
    hermite_line,
    line_reach,
    segment_edges,
    segmented_line,
    stretched_steps,
)

# Default accuracy for each number of points.
FEW, MANY_POINTS = 1_000, 65_536
ACCEPTED = ((FEW, 1e-7), (10_000, 2e-5), (MANY_POINTS, 2e-4), (np.inf, 1e-3))

# 2**24 points of ten coordinates fill 1.3 GB.
MOST_LOG2_POINTS = 24

# cut(j, prefix (P, j)) → where coordinate j is cut, (P, cuts), or None where nothing jumps.
Cut = Callable[[int, Float[Array, "P j"]], Float[Array, "P cuts"] | None]
# Points and weights of a quadrature.
PointsAndWeights = tuple[Float[Array, "P d"], Float[Array, " P"]]


def no_cut(_coordinate: int, _prefix: Array) -> None:
    """No cuts: nothing jumps."""
    return


@dataclass(frozen=True)
class AbstractQuadrature:
    """A quadrature rule for standard normals."""

    @abstractmethod
    def points(self, smooth: tuple[bool, ...], cut: Cut = no_cut) -> PointsAndWeights:
        """Points (P, d) and weights (P,).

        Args:
            smooth: one flag per coordinate: true for the label noise, which enters a square loss
                quadratically, so that few nodes may be enough.
            cut: where the integrand jumps.
        """


@dataclass(frozen=True)
class GridRule(AbstractQuadrature):
    """A rule that is defined before the positions of cuts are known."""

    @abstractmethod
    def grid(self, segments: tuple[int, ...]) -> tuple[Float[np.ndarray, "P d"], Float[np.ndarray, " P"]]:
        """Positions and weights in the form of a ``Table``, for coordinates with so many segments."""

    @abstractmethod
    def size(self, segments: tuple[int, ...]) -> int:
        """P, the number of points in such coordinates."""

    @abstractmethod
    def reach(self, segments: tuple[int, ...]) -> Float[np.ndarray, " d"]:
        """Reach of lines in each cut coordinate; infinite in others."""

    @property
    @abstractmethod
    def numbers(self) -> tuple[int, ...]:
        """Numbers from which the rule can be rebuilt, its kind first."""

    @classmethod
    @abstractmethod
    def from_numbers(cls, numbers: Sequence[int]) -> "GridRule":
        """Rebuild from these numbers, without the kind."""


@checked
@dataclass(frozen=True)
class GaussHermite(GridRule):
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
                lines, masses = cut_lines(where, nodes)
            count = lines.shape[1]
            points = jnp.concatenate([jnp.repeat(points, count, axis=0), lines.reshape(-1, 1)], axis=1)
            weights = (weights[:, None] * masses).reshape(-1)
        return points, weights

    @override
    def grid(self, segments: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        return _product([segmented_line(count, self._nodes(count)) for count in segments])

    @override
    def size(self, segments: tuple[int, ...]) -> int:
        return math.prod(max(count, 1) * self._nodes(count) for count in segments)

    def _nodes(self, segments: int) -> int:
        return (self.noise_nodes or self.nodes) if segments == 0 else self.nodes

    @override
    def reach(self, segments: tuple[int, ...]) -> np.ndarray:
        return np.array([line_reach(self.nodes) if count > 1 else np.inf for count in segments])

    @property
    @override
    def numbers(self) -> tuple[int, ...]:
        return 0, self.nodes, self.noise_nodes or 0

    @classmethod
    @override
    def from_numbers(cls, numbers: Sequence[int]) -> "GaussHermite":
        return cls(numbers[0], numbers[1] or None)


@checked
@dataclass(frozen=True)
class Grid(GridRule):
    """Tensor product of lines with a separate number of nodes in each dimension.

    Lines with few nodes are Gauss-Hermite rules; lines with many are trapezoidal rules with stretched steps.
    The trapezoidal rule converges exponentially if an integrand is smooth and decays. Its nodes lie closer
    together than those of Gauss-Hermite, half of which are so far out that they hardly contribute. It needs
    half as many nodes for integrands that are narrow compared to the normal density, such as squared slopes
    of steep units, and also for the units themselves, which are not polynomials.

    Two nodes ±1 of the label noise cost nothing: neighbours on the grid of the other lines have opposite
    signs, so terms that are odd in the noise cancel like sums of alternating signs.

    Args:
        nodes: in each dimension (on each side of a cut).
    """

    nodes: tuple[int, ...]

    def __post_init__(self) -> None:
        for count in self.nodes:
            Arguments("Grid").count("nodes", count)

    @override
    def points(self, smooth: tuple[bool, ...], cut: Cut = no_cut) -> PointsAndWeights:
        segments = []
        for coordinate in range(len(smooth)):
            where = cut(coordinate, jnp.zeros((1, coordinate)))
            segments.append(1 if where is None else where.shape[1] + 1)
        table = Table.of(self, tuple(segments))
        return replace(table, positions=table.positions[0], weights=table.weights[0]).points(smooth, cut)

    @override
    def grid(self, segments: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        self._check(segments)
        pairs = zip(segments, self.nodes, strict=True)
        lines = [stretched_steps(n) if s == 1 and n > GAUSS_NODES else segmented_line(s, n) for s, n in pairs]
        signed = self._signed(segments)
        if not signed:
            return _product(lines)
        positions, weights = _product(lines[:-1])
        places = np.indices([len(line) for line, _ in lines[:-1]]).reshape(len(lines) - 1, -1)
        signs = 1.0 - 2.0 * (places[signed].sum(axis=0) % 2)
        return np.concatenate([positions, signs[:, None]], axis=1), weights

    @override
    def size(self, segments: tuple[int, ...]) -> int:
        self._check(segments)
        points = math.prod(max(s, 1) * n for s, n in zip(segments, self.nodes, strict=True))
        return points // 2 if self._signed(segments) else points

    def _signed(self, segments: tuple[int, ...]) -> list[int]:
        """Lines along which two nodes of the label noise alternate; empty if the noise has its own line.

        Mirrored points must have opposite signs: an odd number of these lines has an even number of nodes.
        """
        counts = [max(s, 1) * n for s, n in zip(segments, self.nodes, strict=True)][:-1]
        even = sorted((count, line) for line, count in enumerate(counts) if count % 2 == 0)
        if segments[-1:] != (0,) or self.nodes[-1] != 2 or not even:
            return []
        left_out = None if len(even) % 2 else even[0][1]
        return [line for line in range(len(counts)) if line != left_out]

    @override
    def reach(self, segments: tuple[int, ...]) -> np.ndarray:
        pairs = zip(segments, self.nodes, strict=True)
        return np.array([line_reach(nodes) if count > 1 else np.inf for count, nodes in pairs])

    @property
    @override
    def numbers(self) -> tuple[int, ...]:
        return 1, *self.nodes

    @classmethod
    @override
    def from_numbers(cls, numbers: Sequence[int]) -> "Grid":
        return cls(tuple(numbers))

    def _check(self, segments: tuple[int, ...]) -> None:
        if len(self.nodes) != len(segments):
            raise SpecificationError(f"{self}: the expectation has {len(segments)} dimensions")


@checked
@dataclass(frozen=True)
class QuasiMonteCarlo(GridRule):
    """Scrambled Sobol points with their mirror images: for many dimensions, any loss.

    Args:
        log2_points: the rule uses ``2**log2_points`` points in mirrored pairs; the error falls
            about like 1/points for smooth losses.
        seed: seed of the scrambling; two seeds give two independent estimates.
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
        points, weights = self.grid((1,) * len(smooth))
        return jnp.asarray(points), jnp.asarray(weights)

    @override
    def grid(self, segments: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        points = sobol_normals(len(segments), self.log2_points, self.seed)
        return points, np.full(len(points), 1 / len(points))

    @override
    def size(self, segments: tuple[int, ...]) -> int:
        return 2**self.log2_points

    @override
    def reach(self, segments: tuple[int, ...]) -> np.ndarray:
        return np.full(len(segments), np.inf)

    @property
    @override
    def numbers(self) -> tuple[int, ...]:
        return 2, self.log2_points, self.seed

    @classmethod
    @override
    def from_numbers(cls, numbers: Sequence[int]) -> "QuasiMonteCarlo":
        return cls(*numbers[:2])


# For JAX, a rule is part of a model's static structure; a ``Table`` consists of numbers only.
for _rule in (GaussHermite, Grid, QuasiMonteCarlo):
    jax.tree_util.register_pytree_node(_rule, lambda rule: ((), rule), lambda rule, _: rule)


@checked
@dataclass(frozen=True)
class AutoQuadrature:
    """A requested accuracy instead of a rule; ``integrate`` finds the cheapest rule that reaches it.

    Args:
        accuracy: accuracy of the drift, relative to its size (at least 0.1). Default: 1e-7 if a thousand
            points suffice for it, else 2e-5 with up to ten thousand, else 2e-4 with up to 65,536; if more
            would be needed, 1e-3.
        points: maximum number of evaluations of the loss in one expectation.
    """

    accuracy: float | None = None
    points: int = 100_000

    levels: ClassVar[tuple[tuple[float, float], ...]] = ACCEPTED

    def __post_init__(self) -> None:
        check = Arguments("AutoQuadrature")
        if self.accuracy is not None and not (
            check.number("accuracy", self.accuracy, 0.0, open_below=True) < 1
        ):
            check.fail("accuracy", self.accuracy, "must be above 0 and below 1")
        check.count("points", self.points, 256)

    def accepted(self, points: float) -> float:
        """Largest accepted error of a rule with so many points."""
        if self.accuracy is not None:
            return self.accuracy
        return next(accuracy for most, accuracy in self.levels if points <= most)


class SearchQuadrature(AutoQuadrature):
    """The accuracy for a search, half of the error that the certificate's finer quadrature allows."""

    levels = ((FEW, 1e-7), (np.inf, 5e-4))


class Table(Pytree):
    """A rule as numbers, in blocks: a compiled program works for all rules with the same number of blocks.

    Cut coordinates hold a segment and the position in it, 1.25 being a quarter into the second segment; the
    cuts, which move with the state, are applied when points are computed.

    Attributes:
        positions: (B, C, d) C points in each of B blocks.
        weights: (B, C), without the normal density of cut coordinates; zero where a block is not full.
        reach: (d,) reach of cut lines.
        used: number of leading blocks that hold points.
        numbers: (3 + d,) numbers that identify the rule; programs must not depend on them.
        segments: number of segments of each coordinate; 0 for the label noise.
        mirrored: whether only one of each pair of mirrored points is stored.
        cut: whether any line is cut; quasi-random points ignore cuts.
        derivatives: kind of derivatives that sums support.
    """

    positions: Float[Array, "B C d"]
    weights: Float[Array, "B C"]
    reach: Float[Array, " d"]
    used: Float[Array, ""]
    numbers: Float[Array, " numbers"]
    segments: tuple[int, ...] = field(static=True)
    mirrored: bool = field(static=True)
    cut: bool = field(static=True)
    derivatives: Derivatives = field(static=True)

    # Too many numbers for expressions: compiled programs only.
    wide: ClassVar[bool] = True

    @classmethod
    def of(
        cls,
        rule: "GridRule",
        segments: tuple[int, ...],
        *,
        mirrored: bool = False,
        block: int | None = None,
        blocks: int | None = None,
        derivatives: Derivatives = "backwards",
    ) -> "Table":
        """A rule in blocks of so many points; as few blocks as possible, unless more are requested."""
        positions, weights = rule.grid(segments)
        if mirrored:
            positions, weights = _half(positions, weights)
        total, size = len(weights), block or len(weights)
        needed = -(-total // size)
        count = max(needed, blocks or needed)
        missing = count * size - total
        # Unused places hold finite positions: halves of a cut line, or the middle of a whole one.
        filled = np.concatenate([positions, np.full((missing, positions.shape[1]), 0.5)])
        return cls(
            filled.reshape(count, size, -1),
            np.append(weights, np.zeros(missing)).reshape(count, size),
            rule.reach(segments),
            np.asarray(float(needed)),
            np.resize([*rule.numbers, *[0.0] * (3 + len(segments))], 3 + len(segments)),
            segments,
            mirrored,
            max(segments, default=0) > 1 and not isinstance(rule, QuasiMonteCarlo),
            derivatives,
        )

    @property
    def rule(self) -> "GridRule":
        """The original rule."""
        kind, *numbers = map(int, np.asarray(self.numbers))
        if kind == 1:
            return Grid.from_numbers(numbers[:-2])
        return (QuasiMonteCarlo if kind else GaussHermite).from_numbers(numbers)

    def holding(self, rule: "GridRule") -> "Table":
        """A table with another rule, of the same shape if that needs no more blocks."""
        blocks, block = self.weights.shape
        return Table.of(
            rule,
            self.segments,
            mirrored=self.mirrored,
            block=block,
            blocks=blocks,
            derivatives=self.derivatives,
        )

    def points(self, smooth: tuple[bool, ...], cut: Cut = no_cut) -> PointsAndWeights:
        """Points (C, d) and weights (C,) of a block with positions (C, d), as given by ``summed_over``."""
        if not self.cut:
            return self.positions, self.weights
        weights, points = self.weights, self.positions[:, :0]
        for coordinate in range(len(smooth)):
            column = self.positions[:, coordinate]
            where = cut(coordinate, points)
            if where is not None:
                edges = segment_edges(where, self.reach[coordinate])
                segment = jnp.floor(column)
                low, high = edges[:, 0], edges[:, 1]
                for i in range(1, edges.shape[1] - 1):
                    low = jnp.where(segment == i, edges[:, i], low)
                    high = jnp.where(segment == i, edges[:, i + 1], high)
                column = low + (high - low) * (column - segment)
                weights = weights * (high - low) * jnp.exp(-(column**2) / 2) / np.sqrt(2 * np.pi)
            points = jnp.concatenate([points, column[:, None]], axis=1)
        return points, weights


def summed_over(quadrature: "Quadrature", function: Callable[["Quadrature"], Any]) -> Any:
    """The value of ``function`` under a quadrature; for a table, the sum over its blocks.

    Unused blocks take no time, and derivatives recompute a block instead of storing it.
    """
    if not isinstance(quadrature, Table):
        return function(quadrature)
    table = quadrature

    def of_block(positions: Array, weights: Array) -> Any:
        return function(replace(table, positions=positions, weights=weights))

    first = table.positions[0], table.weights[0]
    blocks = jnp.asarray(table.positions), jnp.asarray(table.weights), jnp.asarray(table.used)
    shapes = jax.eval_shape(of_block, *first)
    if table.derivatives != "backwards":
        return (_sum_of_used if table.derivatives == "forwards" else _sum_of_all)(blocks, of_block, shapes)
    # Closed-over values become arguments, so that the sum can be differentiated with respect to them.
    converted, read = jax.closure_convert(of_block, *first)
    return _differentiable_sum(converted, shapes, blocks, read)


def _sum_of_used(blocks: tuple[Array, Array, Array], of_block: Callable[..., Any], shapes: Any) -> Any:
    """The sum over blocks; only used blocks are copied, one at a time."""
    positions, weights, used = blocks

    def add(number: Array, total: Any) -> Any:
        return jax.tree.map(jnp.add, total, of_block(positions[number], weights[number]))

    return jax.lax.fori_loop(0, used.astype(int), add, _nothing(shapes))


def _sum_of_all(blocks: tuple[Array, Array, Array], of_block: Callable[..., Any], shapes: Any) -> Any:
    """The same by a loop of fixed length; unused blocks have zero weight."""

    def add(total: Any, block: tuple[Array, Array]) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, of_block(*block)), None

    return jax.lax.scan(add, _nothing(shapes), blocks[:2])[0]


def _nothing(shapes: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def _differentiable_sum(
    of_block: Callable[..., Any], shapes: Any, blocks: tuple[Array, Array, Array], read: list[Array]
) -> Any:
    """The same with reverse-mode derivatives with respect to closed-over values: another sum over blocks.

    Differentiating the loop directly would store a copy of all blocks for the backward pass.
    """

    def total(blocks: tuple[Array, Array, Array], read: list[Array]) -> Any:
        return _sum_of_used(blocks, lambda *block: of_block(*block, *read), shapes)

    def forward(blocks: tuple[Array, Array, Array], read: list[Array]) -> tuple[Any, Any]:
        return total(blocks, read), (blocks, read)

    def backward(kept: Any, pull: Any) -> tuple[None, list[Array]]:
        blocks, read = kept

        def pulled(*block: Array) -> list[Array]:
            _, back = jax.vjp(lambda read: of_block(*block, *read), read)
            return list(back(pull)[0])

        return None, _sum_of_used(blocks, pulled, jax.eval_shape(lambda: read))

    # Both passes support forward-mode derivatives, so that second derivatives exist.
    differentiable = jax.custom_vjp(total)
    differentiable.defvjp(forward, backward)
    return differentiable(blocks, read)


def _product(lines: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Positions (P, d) and weights (P,) of a tensor product."""
    positions, weights = np.zeros((1, 0)), np.ones(1)
    for line, mass in lines:
        further = np.tile(line, len(positions))[:, None]
        positions = np.concatenate([np.repeat(positions, len(line), axis=0), further], axis=1)
        weights = np.outer(weights, mass).ravel()
    return positions, weights


def _half(positions: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One of each pair of points ±ξ of a symmetric rule, with the weight of both."""
    first = np.argmax(positions != 0, axis=1)
    leading = positions[np.arange(len(positions)), first]
    kept = leading >= 0
    return positions[kept], (weights * np.where(leading > 0, 2.0, 1.0))[kept]


Quadrature = AbstractQuadrature | Table


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
