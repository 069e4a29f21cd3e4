"""Run a flat system by its own exact advance over intervals of constant control."""

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._dynamics.executor import Course, Piece, PieceByPiece
from optlearn._dynamics.flat import as_jax
from optlearn._dynamics.on_xla import OnXla, compiled
from optlearn._schedule import Schedule


class Exactly(PieceByPiece, OnXla):
    """Executor that asks the system where it is after a length of time; there are no steps."""

    def intervals(self, schedule: Schedule) -> Schedule:
        """As they stand where values are mixed: their ends are then part of the meaning."""
        return schedule if schedule.mixtures else schedule.merged()

    def piece(self, course: Course, vectors: np.ndarray, shares: np.ndarray) -> Piece:
        """One advance to each time, and one to the end; several where one may not be so long."""
        flat = course.flat
        advance = compiled(("advance", flat.key, vectors.shape[1]), lambda: jax.jit(flat.mixed_advance))
        system, constants = as_jax((flat.system, dict(course.settings)))
        longest = flat.system.longest

        def piece(
            i: int, left: float, right: float, state: np.ndarray, times: np.ndarray
        ) -> tuple[np.ndarray, np.ndarray | None]:
            u, share = jnp.asarray(vectors[i]), jnp.asarray(shares[i])
            found = np.empty((len(times) + 1, len(state)))
            reached, there = left, jnp.asarray(state)
            for j, time in enumerate((*times, right)):
                while time - reached > longest * (1 + 1e-9):
                    there = advance(system, constants, there, u, share, jnp.asarray(longest))
                    reached += longest
                found[j] = advance(system, constants, there, u, share, jnp.asarray(time - reached))
            return found[:-1], found[-1]

        return piece
