"""Averages of dot-product attention with two tokens and one head, over the queries alone.

Given the query q of the student and q* of the teacher (of slot 1, the contrast of both tokens), each output
token sees σ² (s(X) − s(Y))² with X = √2 β q k, Y = √2 q* k*, the logistic function s, and keys k, k* of its
own. With s as a mixture of normal distribution functions, every average over the keys is a closed form:
n = 1 + (var of a component's argument), Δ = n n* − (covariance)². What is left is an integral over (q, q*).
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array
from optlearn.models._logistic import logistic_mixture, slope_mixture
from optlearn.models._stretched import Step, stretched_line

# How sharp a step the points take a logistic function for: the best of those tried.
STEEP = 2.0


class Fineness(NamedTuple):
    """Components of a mixture, and points in each of the two queries."""

    components: int
    nodes: int


class Pair(NamedTuple):
    """Variances of a student's and the teacher's field, and their covariance."""

    own: Array
    cross: Array
    theirs: Array


class KeyMeans(NamedTuple):
    """Means over the keys, given the queries: of ℓ, and with D = ∂ℓ/∂X of kD, k*D, D² and k²D²."""

    loss: Array
    pull: Array
    their_pull: Array
    square: Array
    key_square: Array


def query_points(queries: Pair, keys: Pair, temperature: Array, nodes: int) -> tuple[Array, Array, Array]:
    """q, q* and weights (P,), with q > 0 only: mirror images count the same."""
    root = jnp.sqrt(queries.own + 1e-20)
    slope = queries.cross / root
    rest = jnp.sqrt(jnp.maximum(queries.theirs - slope**2, 0.0) + 1e-20)
    own_scale, their_scale = (
        STEEP * np.sqrt(2) * jnp.sqrt(v + 1e-20) for v in (temperature**2 * keys.own, keys.theirs)
    )
    none = jnp.zeros(1)
    line, mass = stretched_line(
        Step((own_scale * root)[None], none), Step((their_scale * slope)[None], none), nodes
    )
    half = nodes // 2
    first, at_first = line[0, half:], 2 * mass[0, half:]
    second, at_second = stretched_line(
        Step(their_scale * rest * jnp.ones(half), -their_scale * slope * first),
        Step(jnp.zeros(half), jnp.zeros(half)),
        nodes,
    )
    q = jnp.repeat(root * first, nodes)
    return (
        q,
        jnp.repeat(slope * first, nodes) + rest * second.reshape(-1),
        (at_first[:, None] * at_second).reshape(-1),
    )


def mean_loss(a: Array, b: Array, keys: Pair, components: int) -> Array:
    """(P,) mean of (s(ak) − s(bk*))² over the keys, at (P,) points."""
    w, c = logistic_mixture(components)
    (own, theirs), cross = _spreads(a, b, keys, c**2, c**2)
    pairs = np.outer(w, w)

    def correlated(first: Array, second: Array, covariance: Array) -> Array:
        sine = covariance / jnp.sqrt((1 + first)[:, :, None] * (1 + second)[:, None, :])
        return 2 / np.pi * jnp.sum(pairs[None] * jnp.arcsin(sine), axis=(1, 2))

    alone = [correlated(v, v, jnp.sqrt(v)[:, :, None] * jnp.sqrt(v)[:, None, :]) for v in (own, theirs)]
    return (alone[0] + alone[1] - 2 * correlated(own, theirs, cross)) / 4


def key_means(a: Array, b: Array, keys: Pair, components: int) -> KeyMeans:
    """Means over the keys at (P,) points, with σ² = 1 in the loss."""
    w, c = logistic_mixture(components)
    (own, theirs), cross = _spreads(a, b, keys, c**2, c**2)
    n = 1 + own
    determinant = _determinant(own, theirs, cross)
    alone = n**-1.5 @ (w * c**3) * a / np.sqrt(2 * np.pi)
    # d/(π √Δ), shares and sharpnesses of the two included.
    together = (
        (w * c)[None, :, None] * (w * c)[None, None, :] * b[:, None, None] / (np.pi * jnp.sqrt(determinant))
    )
    narrowed = keys.theirs - np.square(c)[None, :] * (a**2)[:, None] * keys.cross**2 / n
    square, key_square = _squares(a, b, keys, components)
    return KeyMeans(
        loss=mean_loss(a, b, keys, components),
        pull=alone * keys.own - keys.cross * jnp.sum(together / n[:, :, None], axis=(1, 2)),
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
        n = 1 + omega[None, :] * (a**2 * keys.own)[:, None]
        square = square + factor * n**-0.5 @ v
        key_square = key_square + factor * keys.own * n**-1.5 @ v
    v, omega = slope_mixture(2, components)
    # s'(X)² s'(Y)
    v_star, omega_star = slope_mixture(1, components)
    (own, theirs), cross = _spreads(a, b, keys, omega, omega_star)
    inverse = np.outer(v, v_star)[None] / jnp.sqrt(_determinant(own, theirs, cross))
    left = keys.own * (1 + theirs) - omega_star[None, :] * (b**2)[:, None] * keys.cross**2
    square = square - 4 * jnp.sum(inverse, axis=(1, 2))
    key_square = key_square - 4 * jnp.sum(
        inverse * left[:, None, :] / _determinant(own, theirs, cross), axis=(1, 2)
    )
    # s'(X)² τ(X) τ(Y), where s'² τ is −½ times the derivative of s'².
    (own, theirs), cross = _spreads(a, b, keys, omega, c**2)
    determinant, n = _determinant(own, theirs, cross), (1 + own)[:, :, None]
    sizes = np.outer(v * omega, w * c) / np.sqrt(2 * np.pi)
    mixed = sizes[None] * (a * b)[:, None, None] * keys.cross / (n * jnp.sqrt(determinant))
    third = 3 * keys.own / n - (c[None, :] * b[:, None])[:, None, :] ** 2 * keys.cross**2 / (n * determinant)
    return (
        square - 2 * jnp.sum(mixed, axis=(1, 2)),
        key_square - 2 * jnp.sum(mixed * third, axis=(1, 2)),
    )


def _spreads(
    a: Array, b: Array, keys: Pair, omega: np.ndarray, omega_star: np.ndarray
) -> tuple[tuple[Array, Array], Array]:
    """Variances (P, C) and covariances (P, C, C) of √ω a k and √ω* b k*."""
    own = omega[None, :] * (a**2 * keys.own)[:, None]
    theirs = omega_star[None, :] * (b**2 * keys.theirs)[:, None]
    both = np.sqrt(np.outer(omega, omega_star))
    return (own, theirs), both[None] * (a * b * keys.cross)[:, None, None]


def _determinant(own: Array, theirs: Array, cross: Array) -> Array:
    return (1 + own)[:, :, None] * (1 + theirs)[:, None, :] - cross**2
