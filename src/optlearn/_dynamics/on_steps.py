"""Run a flat system by SciPy's DOP853 on a drift that XLA has compiled.

For wide quadratures: compiling the drift alone takes a fraction of compiling an adaptive solve, and it is
compiled once, whatever the schedule's grid. A step from Python costs little beside thousands of points.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array
from optlearn._dynamics.flat import FlatSystem, as_jax, control_tables
from optlearn._dynamics.on_casadi import integrate_piece
from optlearn._dynamics.on_xla import OnXla, compiled
from optlearn._schedule import Schedule


class OnSteps(OnXla):
    """Executor that compiles the drift and takes the steps in Python."""

    def solve(
        self,
        flat: FlatSystem,
        settings: Mapping[str, Array],
        start: np.ndarray,
        schedule: Schedule,
        times: np.ndarray,
        tolerances: tuple[float, float],
    ) -> np.ndarray:
        """(T, n) states at increasing ``times``; rows after a failure are NaN."""
        merged = schedule.merged()
        shares, vectors, _ = control_tables(merged, flat.controls)
        key = ("drift", flat.key, vectors.shape[1])
        drift = compiled(key, lambda: jax.jit(flat.mixed_drift))
        model, constants = as_jax((flat.system, dict(settings)))
        states = np.full((len(times), len(start)), np.nan)
        states[times <= 0.0], state = start, start
        guard = flat.system.round_off_guard()
        for i in range(merged.intervals):
            left, right = merged.grid[i], merged.grid[i + 1]
            inside = (times > left) & (times <= right)
            u, share = jnp.asarray(vectors[i]), jnp.asarray(shares[i])

            def rhs(_alpha: float, x: np.ndarray, u: Array = u, share: Array = share) -> np.ndarray:
                return np.asarray(drift(model, constants, x, u, share))

            with np.errstate(over="ignore", invalid="ignore"):  # a state that is not finite is seen
                found, end = integrate_piece(rhs, left, right, state, times[inside], tolerances, guard)
            states[inside] = found
            if end is None:
                break
            state = end
        return states
