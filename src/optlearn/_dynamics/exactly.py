"""Run a flat system by its own exact advance over intervals of constant control."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array
from optlearn._dynamics.flat import FlatSystem, as_jax, control_tables
from optlearn._dynamics.on_xla import OnXla, compiled
from optlearn._schedule import Schedule


class Exactly(OnXla):
    """Executor that asks the system where it is after a length of time; there are no steps."""

    def solve(
        self,
        flat: FlatSystem,
        settings: Mapping[str, Array],
        start: np.ndarray,
        schedule: Schedule,
        times: np.ndarray,
        tolerances: tuple[float, float],
    ) -> np.ndarray:
        """(T, n) states at increasing ``times``."""
        del tolerances
        # Where values are mixed, the ends of the intervals as they stand are part of the meaning.
        merged = schedule if schedule.mixtures else schedule.merged()
        shares, vectors, _ = control_tables(merged, flat.controls)
        key = ("advance", flat.key, vectors.shape[1])
        advance = compiled(key, lambda: jax.jit(flat.mixed_advance))
        system, constants = as_jax((flat.system, dict(settings)))
        states = np.full((len(times), len(start)), np.nan)
        states[times <= 0.0], state = start, jnp.asarray(start)
        longest = flat.system.longest
        for i in range(merged.intervals):
            reached, right = merged.grid[i], merged.grid[i + 1]
            u, share = jnp.asarray(vectors[i]), jnp.asarray(shares[i])

            def after(state: Array, length: float, u: Array = u, share: Array = share) -> Array:
                return advance(system, constants, state, u, share, jnp.asarray(length))

            for j in (*np.flatnonzero((times > reached) & (times <= right)), None):
                stop = right if j is None else times[j]
                while stop - reached > longest * (1 + 1e-9):
                    state, reached = after(state, longest), reached + longest
                if j is None:
                    state = after(state, stop - reached)
                else:
                    states[j] = after(state, stop - reached)
        return states
