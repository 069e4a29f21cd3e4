"""A step of training: a classical Runge-Kutta step, or the exact step of a system that has one.

Both are stages of slopes; the exact step has a single stage, whose slope is (end − x)/h.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, Float


class Stages(NamedTuple):
    """The stages of a step.

    Attributes:
        nodes: position of each stage in the step, and weight of the slope before it.
        parts: weight of each slope in the step, as whole numbers.
    """

    nodes: tuple[float, ...]
    parts: tuple[int, ...]

    @property
    def weights(self) -> tuple[float, ...]:
        """The parts as shares of the step."""
        return tuple(part / sum(self.parts) for part in self.parts)


CLASSICAL = Stages((0.0, 0.5, 0.5, 1.0), (1, 2, 2, 1))
EXACT = Stages((0.0,), (1,))


def step(stages: Stages, rate: Callable[[Any], tuple[Any, Any]], x: Any, h: Any) -> tuple[Any, Any]:
    """State and cost after one step of length h from x, for a rate x → (slope, running cost).

    The stages are unrolled: arguments may be CasADi expressions, or JAX arrays of many lanes.
    """
    slope: Any = 0.0
    total: Any = 0.0
    costs: Any = 0.0
    # Summed with whole-number weights: one rounding fewer per stage.
    for node, part in zip(*stages, strict=True):
        slope, cost = rate(x + node * h * slope)
        total, costs = total + part * slope, costs + part * cost
    return x + h / sum(stages.parts) * total, h / sum(stages.parts) * costs


def scanned_step(
    stages: Stages,
    rate: Callable[[Array], tuple[Array, Array]],
    x: Float[Array, " n"],
    h: float | Float[Array, ""],
) -> tuple[Float[Array, " n"], Float[Array, ""]]:
    """The same as a loop under JAX, so that a wide rate is compiled once and not four times."""

    def stage(carry: Any, table: Any) -> tuple[Any, None]:
        (slope, total, costs), (node, weight) = carry, table
        slope, cost = rate(x + node * h * slope)
        return (slope, total + weight * slope, costs + weight * cost), None

    table = jnp.asarray(stages.nodes), jnp.asarray(stages.weights)
    none = (jnp.zeros_like(x), jnp.zeros_like(x), jnp.zeros(()))
    (_, total, costs), _ = jax.lax.scan(stage, none, table)
    return x + h * total, h * costs


def interval_weights(steps: int) -> Float[np.ndarray, " points"]:
    """Weights of the mean over an interval, at the ends of its steps: Simpson's rule, or trapezoid."""
    weights = np.ones(steps + 1)
    if steps % 2 == 0:
        weights[1:-1:2], weights[2:-1:2] = 4.0, 2.0
    else:
        weights[1:-1] = 2.0
    return np.asarray(weights / weights.sum())
