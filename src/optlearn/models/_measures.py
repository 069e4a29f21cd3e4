"""Measures of similarity between weight vectors, safe at zero weights."""

import jax.numpy as jnp

from optlearn._arrays import Array


def cosine(overlap: Array, first_norm: Array, second_norm: Array, at_zero: Array = 0.0) -> Array:
    """Cosine similarity from an overlap and two squared norms; ``at_zero`` where a norm is 0."""
    square = jnp.asarray(first_norm * second_norm)
    present = square > 0
    return jnp.where(present, overlap / jnp.sqrt(jnp.where(present, square, 1.0)), at_zero)
