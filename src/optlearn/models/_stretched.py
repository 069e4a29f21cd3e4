"""Points for integrals over Gaussian fields in which soft steps are seen at any sharpness.

A step of width δ needs points at distance δ; a Gaussian of width 1 needs few beyond that. The variable
t = asinh(pξ − a) + asinh(qξ − b) has both, around two steps of sharpness p and q: points equally spaced in t
lie 1/p apart at the first step, 1/q at the second, and thin out geometrically away from them. So the number
of points that an accuracy needs grows only with the logarithm of the sharpness. The inverse is a quadratic
equation, sinh² t = A² + B² + 2AB cosh t with A = pξ − a and B = qξ − b. The equally spaced (trapezoidal) sum
converges exponentially, since the integrand is smooth in t and vanishes at both ends.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array

# How far points reach, over the fourth root of their number: what lies beyond falls with the error within.
REACH = 2.3
# How close points lie at a step, in its widths, and the sharpness below which a step is no reason for any:
# the best of those tried, for products of up to four steps and slopes of sharpness 0 to 60.
DENSITY, SOFT = 0.7, 0.5


class Step(NamedTuple):
    """A soft step f(sξ − z) in a standard normal ξ: sharpness s (any sign) and shift z, of one shape."""

    sharpness: Array
    shift: Array


def stretched_line(first: Step, second: Step, nodes: int) -> tuple[Array, Array]:
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
    """One step (P,) in the place of several (P, S), close to the sharpest of them; smooth in all."""
    size = (steps.sharpness**2 + 1e-3) ** 2
    share = size / jnp.sum(size, axis=-1, keepdims=True)
    # The sign of a step does not matter to where it is: turn all the same way before taking a mean.
    up = steps.sharpness / jnp.sqrt(steps.sharpness**2 + 1e-6)
    return Step(*(jnp.sum(share * up * part, axis=-1) for part in steps))


def _scale(step: Step) -> tuple[Array, Array]:
    """(P, 1) density of points at a step, and that times its place."""
    size = jnp.sqrt(SOFT**2 + step.sharpness**2)
    return DENSITY * size[:, None], (DENSITY * step.shift * step.sharpness / size)[:, None]
