"""Run a flat system by SciPy's DOP853 on a drift that XLA has compiled.

For wide quadratures: compiling the drift alone takes a fraction of compiling an adaptive solve, and it is
compiled once, whatever the schedule's grid. A step from Python costs little beside thousands of points.
"""

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._dynamics.executor import Course, Piece, PieceByPiece, RightHandSide, adaptive
from optlearn._dynamics.flat import as_jax
from optlearn._dynamics.on_xla import OnXla, compiled


class OnSteps(PieceByPiece, OnXla):
    """Executor that compiles the drift and takes the steps in Python."""

    def piece(self, course: Course, vectors: np.ndarray, shares: np.ndarray) -> Piece:
        """Adaptive steps on the compiled drift."""
        flat = course.flat
        drift = compiled(("drift", flat.key, vectors.shape[1]), lambda: jax.jit(flat.mixed_drift))
        system, constants = as_jax((flat.system, dict(course.settings)))

        def right_hand_side(i: int) -> RightHandSide:
            u, share = jnp.asarray(vectors[i]), jnp.asarray(shares[i])
            return lambda _alpha, x: np.asarray(drift(system, constants, x, u, share))

        return adaptive(course, right_hand_side)
