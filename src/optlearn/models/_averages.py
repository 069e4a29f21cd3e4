"""Gaussian averages that several models share: of activation functions, of signs, of soft steps.

Activation functions. ``gram`` is the covariance matrix (n, n) of zero-mean Gaussian fields λ; indices are
integer arrays that broadcast against each other, so that one call makes a whole table.

    I2(i, j)       = E[g(λ_i) g(λ_j)]
    J2(i, j)       = E[g'(λ_i) g'(λ_j)]
    bend(i, j)     = E[g''(λ_i) g(λ_j)]
    I3(i, n, j)    = E[g'(λ_i) λ_n g(λ_j)] = G_nj J2(i, j) + G_in bend(i, j)    (Stein's lemma)
    I4(i, k, j, l) = E[g'(λ_i) g'(λ_k) g(λ_j) g(λ_l)]

The form of I3 separates the index n: a sum over j of I3 is two matrix products with the tables J2
and bend, so the (i, n, j) table itself is never needed in a drift.

Soft steps. ``stretched_line`` gives points for integrals over Gaussian fields that resolve steps of any
sharpness. A step of width δ needs points at distance δ; a Gaussian of width 1 needs few beyond that. The
variable t = asinh(pξ − a) + asinh(qξ − b) provides both, around two steps of sharpness p and q: points
equally spaced in t lie 1/p apart at the first step, 1/q at the second, and thin out geometrically away from
them. So the number of points for a given accuracy grows only with the logarithm of the sharpness. The inverse
is a
quadratic equation, sinh² t = A² + B² + 2AB cosh t with A = pξ − a and B = qξ − b. The equally spaced
(trapezoidal) sum converges exponentially, since the integrand is smooth in t and vanishes at both ends.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, Float

# (gram, i, j) → table over the broadcast indices.
PairAverage = Callable[[Array, Array, Array], Array]
# Two index arrays of equal length: the pairs (i[a], k[a]).
Pairs = tuple[np.ndarray, np.ndarray]

# Added under square roots of norms and angles, whose derivatives are infinite at zero and at parallel
# weights. It changes averages and errors by at most 3e-11.
FLOOR = 1e-20
# Reach of the points over the fourth root of their number: the part beyond shrinks along with the error
# inside.
REACH = 2.3
# Distance of points at a step, in units of its width, and the sharpness below which a step needs no points of
# its own: the best values tried, for products of up to four steps and slopes of sharpness 0 to 60.
DENSITY, SOFT = 0.7, 0.5


@dataclass(frozen=True)
class Activation:
    """An activation function with its Gaussian averages.

    Attributes:
        name: key in ``ACTIVATIONS``.
        function: g, elementwise.
        breaks: where g or its derivative jumps; quadratures are cut there.
        I2, J2, bend: pair averages, see the module.
        fourth: (gram, pairs (i, k), pairs (j, l)) → (P, P') table of I4; None without a closed form,
            and then the drift has none either.
    """

    name: str
    function: Callable[[Array], Array]
    breaks: tuple[float, ...]
    I2: PairAverage
    J2: PairAverage
    bend: PairAverage
    fourth: Callable[[Array, Pairs, Pairs], Array] | None

    def I3(self, gram: Array, i: Array, n: Array, j: Array) -> Array:
        """E[g'(λ_i) λ_n g(λ_j)], a table over the broadcast indices."""
        return entries(gram, n, j) * self.J2(gram, i, j) + entries(gram, i, n) * self.bend(gram, i, j)

    def I4(self, gram: Array, first: Pairs, second: Pairs) -> Array:
        """E[g'(λ_i) g'(λ_k) g(λ_j) g(λ_l)]: a row for each (i, k), a column for each (j, l)."""
        if self.fourth is None:
            raise NotImplementedError(f"I4 of {self.name!r} has no closed form")
        return self.fourth(gram, first, second)


def entries(array: Array, *indices: np.ndarray) -> Array:
    """``array[indices]`` for index tables made at trace time: without code for negative indices."""
    return jnp.asarray(array).at[indices].get(mode="promise_in_bounds", wrap_negative_indices=False)


def _columns(array: Array, columns: np.ndarray) -> Array:
    return jnp.asarray(array).at[:, columns].get(mode="promise_in_bounds", wrap_negative_indices=False)


def _diagonal(gram: Array) -> Array:
    every = np.arange(gram.shape[0])
    return entries(gram, every, every)


# --- erf(λ/√2) --------------------------------------------------------------------------------


def _erf(field: Array) -> Array:
    return jax.scipy.special.erf(field / np.sqrt(2))


def _erf_I2(gram: Array, i: Array, j: Array) -> Array:
    scale = jax.lax.rsqrt(1 + _diagonal(gram))
    return 2 / np.pi * jnp.arcsin(entries(gram, i, j) * entries(scale, i) * entries(scale, j))


def _erf_J2(gram: Array, i: Array, j: Array) -> Array:
    widened = 1 + _diagonal(gram)
    return 2 / np.pi * jax.lax.rsqrt(entries(widened, i) * entries(widened, j) - entries(gram, i, j) ** 2)


def _erf_bend(gram: Array, i: Array, j: Array) -> Array:
    return -_erf_J2(gram, i, j) * entries(gram, i, j) / (1 + entries(gram, i, i))


def _erf_I4(gram: Array, first: Pairs, second: Pairs) -> Array:
    """I4, using that g'(λ_i) g'(λ_k) is a Gaussian weight that reduces the covariance of the fields.

    That covariance is G_jl − G_(j,ik) (1 + G_(ik,ik))⁻¹ G_(ik,l); its diagonal and the projections
    are made once for each pair (i, k) and node, then combined for each pair (j, l).
    """
    (i, k), (j, m) = first, second
    widened = 1 + _diagonal(gram)
    rows_i, rows_k, between = entries(gram, i), entries(gram, k), entries(gram, i, k)[:, None]
    wide_i, wide_k = entries(widened, i)[:, None], entries(widened, k)[:, None]
    determinant = wide_i * wide_k - between**2
    on_i = (wide_k * rows_i - between * rows_k) / determinant
    on_k = (wide_i * rows_k - between * rows_i) / determinant
    scale = jax.lax.rsqrt(widened[None, :] - on_i * rows_i - on_k * rows_k)
    removed = _columns(on_i, j) * _columns(rows_i, m) + _columns(on_k, j) * _columns(rows_k, m)
    covariance = entries(gram, j, m)[None, :] - removed
    angle = jnp.arcsin(covariance * _columns(scale, j) * _columns(scale, m))
    return 4 / np.pi**2 * jax.lax.rsqrt(determinant) * angle


# --- max(λ, 0) --------------------------------------------------------------------------------


def _relu(field: Array) -> Array:
    return jnp.maximum(field, 0.0)


def _relu_area(gram: Array, i: Array, j: Array) -> Array:
    determinant = entries(gram, i, i) * entries(gram, j, j) - entries(gram, i, j) ** 2
    return safe_root(determinant)


def _relu_J2(gram: Array, i: Array, j: Array) -> Array:
    return 0.25 + jnp.arctan2(entries(gram, i, j), _relu_area(gram, i, j)) / (2 * np.pi)


def _relu_I2(gram: Array, i: Array, j: Array) -> Array:
    return _relu_area(gram, i, j) / (2 * np.pi) + entries(gram, i, j) * _relu_J2(gram, i, j)


def _relu_bend(gram: Array, i: Array, j: Array) -> Array:
    # g'' is a Dirac delta at λ_i = 0.
    return _relu_area(gram, i, j) / (2 * np.pi * (entries(gram, i, i) + FLOOR))


# --- λ ----------------------------------------------------------------------------------------


def _linear(field: Array) -> Array:
    return field


def _linear_J2(gram: Array, i: Array, j: Array) -> Array:
    return jnp.ones(np.broadcast_shapes(np.shape(i), np.shape(j)))


def _linear_bend(gram: Array, i: Array, j: Array) -> Array:
    return jnp.zeros(np.broadcast_shapes(np.shape(i), np.shape(j)))


def _linear_I4(gram: Array, first: Pairs, second: Pairs) -> Array:
    (i, _), (j, m) = first, second
    return jnp.broadcast_to(entries(gram, j, m)[None, :], (len(i), len(j)))


ACTIVATIONS = {
    activation.name: activation
    for activation in (
        Activation("erf", _erf, (), _erf_I2, _erf_J2, _erf_bend, _erf_I4),
        Activation("relu", _relu, (0.0,), _relu_I2, _relu_J2, _relu_bend, None),
        Activation("linear", _linear, (), entries, _linear_J2, _linear_bend, _linear_I4),
    )
}


# --- the normal law, and cosines ----------------------------------------------------------------


def safe_root(square: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """The square root of a number that round-off may make negative; its derivative is always finite."""
    return jnp.sqrt(jnp.maximum(square, 0.0) + FLOOR)


def diagonal(matrix: Float[Array, "n n"]) -> Float[Array, " n"]:
    """The diagonal; ``jnp.diagonal`` is a gather, and this is cheaper to trace for a few nodes."""
    return jnp.sum(jnp.asarray(matrix) * np.eye(matrix.shape[0]), axis=1)


def density(z: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """φ(z) of a standard normal."""
    return jnp.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)


def below(z: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Φ(z), the probability that a standard normal is below z."""
    return (1 + jax.scipy.special.erf(z / np.sqrt(2))) / 2


def both_below(h: Array, k: Array, angle: Array, nodes: int) -> Array:
    """P(X < h, Y < k) for standard normals with correlation sin(angle); shapes broadcast.

    Plackett's identity: the value at independence plus an integral over the angle, whose integrand
    is smooth up to |angle| = π/2. With 24 ``nodes`` (Gauss-Legendre) it is accurate to 1e-11 up to a
    correlation of 0.99 (measured); for h = k, a few nodes are enough.
    """
    points, masses = np.polynomial.legendre.leggauss(nodes)
    h, k, half = (jnp.asarray(part) for part in (h, k, angle / 2))
    # Depends on the angle alone, so it is computed once if many h and k share it.
    theta = half[..., None] * jnp.reshape(points + 1, (1,) * half.ndim + (-1,))
    inverse = 1 / jnp.cos(theta) ** 2
    tilt, mass = inverse * jnp.sin(theta), half[..., None] * jnp.reshape(masses, (1,) * half.ndim + (-1,))
    exponent = (h * k)[..., None] * tilt - ((h**2 + k**2) / 2)[..., None] * inverse
    return below(h) * below(k) + jnp.sum(jnp.exp(exponent) * mass, axis=-1) / (2 * np.pi)


def cosine(overlap: Array, first_norm: Array, second_norm: Array, at_zero: Array = 0.0) -> Array:
    """Cosine similarity from an overlap and two squared norms; ``at_zero`` where a norm is 0."""
    square = jnp.asarray(first_norm * second_norm)
    present = square > 0
    return jnp.where(present, overlap / jnp.sqrt(jnp.where(present, square, 1.0)), at_zero)


# --- soft steps ---------------------------------------------------------------------------------


class Step(NamedTuple):
    """A soft step f(sξ − z) in a standard normal ξ: sharpness s (any sign) and shift z, of one shape."""

    sharpness: Array
    shift: Array


def stretched_line(
    first: Step, second: Step, nodes: int
) -> tuple[Float[Array, "P nodes"], Float[Array, "P nodes"]]:
    """Points and weights (P, nodes) for a standard normal, dense at two steps (P,)."""
    reach = REACH * nodes**0.25
    (p, a), (q, b) = (_scale(step) for step in (first, second))

    def stretch(xi: float) -> Array:
        return jnp.arcsinh(p * xi - a) + jnp.arcsinh(q * xi - b)

    low, high = stretch(-reach), stretch(reach)
    t = low + (high - low) * np.linspace(0, 1, nodes)[None, :]
    cosh, sinh = jnp.cosh(t), jnp.sinh(t)
    square = p**2 + q**2 + 2 * p * q * cosh
    apart = p * b - q * a
    points = (p * a + q * b + cosh * (p * b + q * a) + sinh * jnp.sqrt(square + apart**2)) / square
    rate = p / jnp.sqrt(1 + (p * points - a) ** 2) + q / jnp.sqrt(1 + (q * points - b) ** 2)
    weights = jnp.exp(-(points**2) / 2) / rate
    return points, weights / jnp.sum(weights, axis=1, keepdims=True)


def sharpest(steps: Step) -> Step:
    """One step (P,) that replaces several (P, S), close to the sharpest of them; smooth in all."""
    size = (steps.sharpness**2 + 1e-3) ** 2
    share = size / jnp.sum(size, axis=-1, keepdims=True)
    # A step's sign does not affect its position: align the signs before taking a mean.
    up = steps.sharpness / jnp.sqrt(steps.sharpness**2 + 1e-6)
    return Step(*(jnp.sum(share * up * part, axis=-1) for part in steps))


def _scale(step: Step) -> tuple[Array, Array]:
    """(P, 1) density of points at a step, and density times position."""
    size = jnp.sqrt(SOFT**2 + step.sharpness**2)
    return DENSITY * size[:, None], (DENSITY * step.shift * step.sharpness / size)[:, None]
