"""The states that training can reach, and values on a grid over them.

States are often confined: students that start equal stay equal, and constants do not change. Relevant is the
space filled by trajectories of many random schedules. At every time its principal axes are the coordinates,
and a box around the reached states, with a margin, is scaled to [−1, 1] in each of them. Between the nodes of
a grid over [−1, 1]^d values are interpolated, in ``jax.numpy``.
"""

from dataclasses import dataclass
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, Bool, Float
from optlearn._control.relaxation import Relaxation

TRAJECTORIES = 600
# Margin beyond the reached states, in units of a box's half-width.
MARGIN = 0.1
# Training diverges if states exceed those under a typical schedule by this factor.
DIVERGED = 100.0
# Axes along which states differ by less than this share of the largest state are round-off.
THIN = 1e-8


@dataclass(frozen=True)
class Charts:
    """Coordinates z (d,) of states x (n,) at N + 1 times: x = centre + axes z, and z = inverse (x − centre).

    Axes have half the length of the box.
    """

    centres: Float[np.ndarray, "times n"]
    axes: Float[np.ndarray, "times n d"]
    inverse: Float[np.ndarray, "times d n"]

    @property
    def dimension(self) -> int:
        """The number d of coordinates."""
        return int(self.axes.shape[2])


def random_controls(
    relaxation: Relaxation, intervals: int, seed: int = 0
) -> Float[np.ndarray, "S {intervals} m"]:
    """(S, I, m) controls with a few levels in time, mostly at a bound, since these reach furthest."""
    generator = np.random.default_rng(seed)
    low, high = relaxation.bounds
    controls = np.empty((TRAJECTORIES, intervals, len(low)))
    for w in controls:
        pieces = int(generator.integers(1, 6))
        ends = np.sort(generator.integers(0, intervals + 1, pieces - 1))
        levels = generator.uniform(low, high, (pieces, len(low)))
        pure = np.where(generator.random(levels.shape) < 0.5, low, high)
        levels = np.where(generator.random(levels.shape) < 0.7, pure, levels)
        for row in relaxation.share_sums:
            levels[:, row > 0] /= np.maximum(levels[:, row > 0].sum(axis=1, keepdims=True), 1.0)
        w[...] = levels[np.searchsorted(ends, np.arange(intervals), side="right")]
    return controls


def kept(states: Float[np.ndarray, "... S"]) -> Bool[np.ndarray, " S"]:
    """(S,) flags of courses (…, S) under which training does not diverge.

    Diverging schedules are far from the optimum, and a box around their states would hold all others in a
    corner.
    """
    sizes = np.abs(states).reshape(-1, states.shape[-1]).max(axis=0)
    finite = np.isfinite(sizes)
    return np.asarray(finite & (sizes <= DIVERGED * np.median(sizes[finite])))


def charts(states: Float[np.ndarray, "times S n"]) -> Charts:
    """Charts around reached states (N + 1, S, n)."""
    middle = states.mean(axis=1, keepdims=True)
    _, sizes, directions = np.linalg.svd(states - middle, full_matrices=False)
    thin = THIN * np.abs(states).max() * states.shape[1] ** 0.5
    d = int((sizes > thin).sum(axis=1).max())
    axes = directions[:, :d].transpose(0, 2, 1)
    along = (states - middle) @ axes
    low, high = along.min(axis=1), along.max(axis=1)
    half = (1 + MARGIN) * (high - low) / 2
    wide = sizes[:, :d] > thin
    centres = middle[:, 0] + np.einsum("tnd,td->tn", axes, np.where(wide, (low + high) / 2, 0.0))
    inverse = np.where(wide, 1 / np.where(wide, half, 1.0), 0.0)[:, :, None] * axes.transpose(0, 2, 1)
    return Charts(centres, axes * np.where(wide, half, 0.0)[:, None, :], inverse)


def nodes(count: int, dimension: int) -> Float[np.ndarray, "nodes {dimension}"]:
    """(count^d, d) nodes of the grid, the last coordinate varying fastest."""
    return np.array(list(product(np.linspace(-1.0, 1.0, count), repeat=dimension))).reshape(-1, dimension)


def interpolate(table: Float[Array, "..."], z: Float[Array, " d"]) -> Float[Array, ""]:
    """The value at z (d,) of a table with ``count`` nodes along each of its d axes.

    Cubic through four nodes along each axis, limited to the range of values at the corners of the cell:
    without this limit, errors of cubic interpolation grow from step to step. Points outside get the nearest
    value of the box.
    """
    count = table.shape[0]
    place = (jnp.clip(z, -1.0, 1.0) + 1) / 2 * (count - 1)
    cell = jnp.clip(jnp.floor(place).astype(int), 0, count - 2)
    first = jnp.clip(cell - 1, 0, count - 4)
    t = (place - first.astype(float))[:, None]
    # Lagrange's polynomials through 0, 1, 2, 3.
    a, b, c = t - 1, t - 2, t - 3
    weights = jnp.concatenate([-a * b * c / 6, t * b * c / 2, -t * a * c / 2, t * a * b / 6], axis=1)
    near = jax.lax.dynamic_slice(table, first, (4,) * table.ndim)
    corners = jax.lax.dynamic_slice(near, cell - first, (2,) * table.ndim)
    value = near
    for row in weights:
        value = jnp.tensordot(row, value, axes=1)
    return jnp.clip(value, corners.min(), corners.max())
