"""A control as a function of the optimisation step, for JAX."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from optlearn._schedule import Schedule
from optlearn.practice.steps import step_table


def step_function(
    schedule: Schedule,
    control: str,
    *,
    steps: int | None = None,
    N: float | None = None,
    scale: float | None = None,
    peak: float | None = None,
) -> Callable[[Any], Any]:
    """Step (a whole number, traced or not) → value; after the last step, the last value.

    An ``optax.Schedule``: for a learning rate, ``optax.sgd(f)``; for any numeric argument of an
    optimiser, ``optax.inject_hyperparams(optimiser)(name=f)``; and for noise or dropout, a plain
    function inside the user's own step. See ``Schedule.to_optax`` for the arguments.
    """
    table = step_table(
        schedule, control, steps=steps, N=N, scale=scale, peak=peak,
        is_rate=control == "learning_rate", purpose="to_optax",
    )  # fmt: skip
    first, values = np.array(table.first, dtype=np.int32), np.array(table.values)

    def value(step: Any) -> Any:
        # Made here, so that the precision is that of the caller's configuration.
        index = jnp.searchsorted(jnp.asarray(first), jnp.asarray(step, dtype=jnp.int32), side="right")
        return jnp.asarray(values, dtype=float)[jnp.maximum(index - 1, 0)]

    return value
