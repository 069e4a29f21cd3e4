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
        """One advance to each time, and one to the end."""
        flat = course.flat
        advance = compiled(("advance", flat.key, vectors.shape[1]), lambda: jax.jit(flat.mixed_advance))
        system, constants = as_jax((flat.system, dict(course.settings)))

        def piece(
            i: int, left: float, right: float, state: np.ndarray, times: np.ndarray
        ) -> tuple[np.ndarray, np.ndarray | None]:
            u, share = jnp.asarray(vectors[i]), jnp.asarray(shares[i])
            ends = [
                np.asarray(advance(system, constants, jnp.asarray(state), u, share, jnp.asarray(time - left)))
                for time in (*times, right)
            ]
            return np.array(ends[:-1]).reshape(len(times), len(state)), ends[-1]

        return piece
