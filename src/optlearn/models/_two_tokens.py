"""Averages of dot-product attention with two tokens and one head, over the queries alone.

Given the query q of the student and q* of the teacher (of slot 1, the contrast of both tokens), each output
token sees σ² (s(X) − s(Y))² with X = √2 β q k, Y = √2 q* k*, the logistic function s, and keys k, k* of its
own. With s as a mixture of normal distribution functions, every average over the keys has a closed form:
n = 1 + (var of a component's argument), Δ = n n* − (covariance)². Only an integral over (q, q*) remains.

The mixture. With the Pólya-Gamma law of order b, 1/cosh(x/2)^b = E[exp(−ω x²/2)]. So the slope s' = 1/(4
cosh(x/2)²) of the logistic function s, and its powers, are mixtures of Gaussians, and s itself is one of
distribution functions: Gaussian averages of products of them have closed forms. A Gauss quadrature in log ω
makes the mixture finite; each additional component divides its error by about 5 (3e-5 for s with 4
components, 1e-6 with 6).
"""

from functools import cache
from math import factorial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array
from optlearn.models._averages import Step, stretched_line

# A fine grid of log ω: beyond its ends the laws of order 2, 4 and 6 have no mass.
GRID = np.linspace(np.log(0.02), np.log(12.0), 4001)
# Effective sharpness of a logistic function for the choice of points: the best value tried.
STEEP = 2.0


class Fineness(NamedTuple):
    """Components of a mixture, and points in each of the two queries."""

    components: int
    nodes: int


class Pair(NamedTuple):
    """Variances of a student's and the teacher's field, and their covariance."""

    student: Array
    cross: Array
    teacher: Array


class KeyMeans(NamedTuple):
    """Means over the keys, given the queries: of ℓ, and with D = ∂ℓ/∂X of kD, k*D, D² and k²D²."""

    loss: Array
    pull: Array
    their_pull: Array
    square: Array
    key_square: Array


def query_points(queries: Pair, keys: Pair, temperature: Array, nodes: int) -> tuple[Array, Array, Array]:
    """q, q* and weights (P,), with q > 0 only: mirror images contribute equally."""
    # Tiny numbers under the roots, since derivatives are infinite at zero weights and at perfect alignment.
    root = jnp.sqrt(queries.student + 1e-20)
    slope = queries.cross / root
    beside = jnp.sqrt(jnp.maximum(queries.teacher - slope**2, 0.0) + 1e-20)
    student_scale, teacher_scale = (
        STEEP * np.sqrt(2) * jnp.sqrt(v + 1e-20) for v in (temperature**2 * keys.student, keys.teacher)
    )
    none = jnp.zeros(1)
    line, mass = stretched_line(
        Step((student_scale * root)[None], none), Step((teacher_scale * slope)[None], none), nodes
    )
    half = nodes // 2
    first, at_first = line[0, half:], 2 * mass[0, half:]
    second, at_second = stretched_line(
        Step(teacher_scale * beside * jnp.ones(half), -teacher_scale * slope * first),
        Step(jnp.zeros(half), jnp.zeros(half)),
        nodes,
    )
    q = jnp.repeat(root * first, nodes)
    return (
        q,
        jnp.repeat(slope * first, nodes) + beside * second.reshape(-1),
        (at_first[:, None] * at_second).reshape(-1),
    )


def mean_loss(a: Array, b: Array, keys: Pair, components: int) -> Array:
    """(P,) mean of (s(ak) − s(bk*))² over the keys, at (P,) points."""
    w, c = logistic_mixture(components)
    (student, teacher), cross = _spreads(a, b, keys, c**2, c**2)
    pairs = np.outer(w, w)

    def correlated(first: Array, second: Array, covariance: Array) -> Array:
        sine = covariance / jnp.sqrt((1 + first)[:, :, None] * (1 + second)[:, None, :])
        return 2 / np.pi * jnp.sum(pairs[None] * jnp.arcsin(sine), axis=(1, 2))

    alone = [correlated(v, v, jnp.sqrt(v)[:, :, None] * jnp.sqrt(v)[:, None, :]) for v in (student, teacher)]
    return (alone[0] + alone[1] - 2 * correlated(student, teacher, cross)) / 4


def key_means(a: Array, b: Array, keys: Pair, components: int) -> KeyMeans:
    """Means over the keys at (P,) points, with σ² = 1 in the loss."""
    w, c = logistic_mixture(components)
    (student, teacher), cross = _spreads(a, b, keys, c**2, c**2)
    n = 1 + student
    determinant = _determinant(student, teacher, cross)
    alone = n**-1.5 @ (w * c**3) * a / np.sqrt(2 * np.pi)
    # d/(π √Δ), shares and sharpnesses of the two included.
    together = (
        (w * c)[None, :, None] * (w * c)[None, None, :] * b[:, None, None] / (np.pi * jnp.sqrt(determinant))
    )
    narrowed = keys.teacher - np.square(c)[None, :] * (a**2)[:, None] * keys.cross**2 / n
    square, key_square = _squares(a, b, keys, components)
    return KeyMeans(
        loss=mean_loss(a, b, keys, components),
        pull=alone * keys.student - keys.cross * jnp.sum(together / n[:, :, None], axis=(1, 2)),
        their_pull=alone * keys.cross - jnp.sum(together * narrowed[:, :, None], axis=(1, 2)),
        square=square,
        key_square=key_square,
    )


def _squares(a: Array, b: Array, keys: Pair, components: int) -> tuple[Array, Array]:
    """(P,) means of D² and k²D², D² = s'(X)² (2 − 4s'(X) − 4s'(Y) − 2τ(X)τ(Y)) with τ = 2s − 1."""
    w, c = logistic_mixture(components)
    square, key_square = jnp.zeros_like(a), jnp.zeros_like(a)
    for power, factor in ((2, 2.0), (3, -4.0)):
        v, omega = slope_mixture(power, components)
        n = 1 + omega[None, :] * (a**2 * keys.student)[:, None]
        square = square + factor * n**-0.5 @ v
        key_square = key_square + factor * keys.student * n**-1.5 @ v
    v, omega = slope_mixture(2, components)
    # s'(X)² s'(Y)
    v_star, omega_star = slope_mixture(1, components)
    (student, teacher), cross = _spreads(a, b, keys, omega, omega_star)
    inverse = np.outer(v, v_star)[None] / jnp.sqrt(_determinant(student, teacher, cross))
    left = keys.student * (1 + teacher) - omega_star[None, :] * (b**2)[:, None] * keys.cross**2
    square = square - 4 * jnp.sum(inverse, axis=(1, 2))
    key_square = key_square - 4 * jnp.sum(
        inverse * left[:, None, :] / _determinant(student, teacher, cross), axis=(1, 2)
    )
    # s'(X)² τ(X) τ(Y), where s'² τ is −½ times the derivative of s'².
    (student, teacher), cross = _spreads(a, b, keys, omega, c**2)
    determinant, n = _determinant(student, teacher, cross), (1 + student)[:, :, None]
    sizes = np.outer(v * omega, w * c) / np.sqrt(2 * np.pi)
    mixed = sizes[None] * (a * b)[:, None, None] * keys.cross / (n * jnp.sqrt(determinant))
    third = 3 * keys.student / n - (c[None, :] * b[:, None])[:, None, :] ** 2 * keys.cross**2 / (
        n * determinant
    )
    return (square - 2 * jnp.sum(mixed, axis=(1, 2)), key_square - 2 * jnp.sum(mixed * third, axis=(1, 2)))


def _spreads(
    a: Array, b: Array, keys: Pair, omega: np.ndarray, omega_star: np.ndarray
) -> tuple[tuple[Array, Array], Array]:
    """Variances (P, C) and covariances (P, C, C) of √ω a k and √ω* b k*."""
    student = omega[None, :] * (a**2 * keys.student)[:, None]
    teacher = omega_star[None, :] * (b**2 * keys.teacher)[:, None]
    both = np.sqrt(np.outer(omega, omega_star))
    return (student, teacher), both[None] * (a * b * keys.cross)[:, None, None]


def _determinant(student: Array, teacher: Array, cross: Array) -> Array:
    return (1 + student)[:, :, None] * (1 + teacher)[:, None, :] - cross**2


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
