"""Minimise the Hamiltonian over the controls, interval by interval, at fixed multipliers."""

from itertools import product

import numpy as np

from optlearn._control.hamiltonian.interval import IntervalHamiltonian
from optlearn._control.hamiltonian.newton import lowest_in_box, stationary
from optlearn._control.relaxation import Relaxation

# Points of the coarse search in each continuous control, by the number of such controls.
_GRID_POINTS = {0: 1, 1: 17, 2: 9}
_GRID_POINTS_MANY = 5
_GRID_POINTS_COSTLY = 9
_PRECISE = 1e-9  # of a control, relative to its range; Newton's last step is far better than that


class PointwiseMinimiser:
    """Minimises H̄(w) + c·w on all intervals at once, for any slope c.

    H̄ is linear in the shares of a discrete control, so a minimum lies at a vertex: all combinations of
    discrete values are tried. For each of them the continuous controls are minimised: the best point
    of a coarse grid, refined by Newton's method: one inside a bracket, several at once inside their bounds.

    Args:
        hamiltonian: what to minimise.
        w: (I, m) controls that are also tried, and kept where nothing is better.
    """

    def __init__(self, hamiltonian: IntervalHamiltonian, w: np.ndarray) -> None:
        self.hamiltonian, self.w = hamiltonian, w
        relaxation = hamiltonian.compiled.relaxation
        self.vertices = share_vertices(relaxation)
        self.continuous = relaxation.curved
        self.lower, self.upper = (bound[: self.continuous] for bound in relaxation.bounds)
        count = _GRID_POINTS.get(self.continuous, _GRID_POINTS_MANY)
        if hamiltonian.compiled.program.costly:
            count = min(count, _GRID_POINTS_COSTLY)
        # Denser towards both bounds, where functions such as 1/B and √Δ bend most.
        unit = (1 - np.cos(np.linspace(0.0, np.pi, count))) / 2 if count > 1 else np.zeros(1)
        self._spacing = (self.upper - self.lower) * np.diff(unit).max(initial=0.0)
        grid = self.lower + (self.upper - self.lower) * np.array(
            list(product(unit, repeat=self.continuous))
        ).reshape(count**self.continuous, self.continuous)
        self._candidates = np.array([np.concatenate([g, v]) for v in self.vertices for g in grid])  # (V·G, m)
        self._every = np.arange(hamiltonian.intervals)
        self._table = self._tabulate()
        self._present = hamiltonian.value(w, self._every)
        # Where the last refinement ended, (V·I, m): the next one, for a slope nearby, starts there.
        self._last: np.ndarray | None = None

    def _tabulate(self) -> np.ndarray:
        """(V, G, I) values of H̄ at all candidates."""
        count, I = len(self._candidates), self.hamiltonian.intervals  # noqa: E741
        values = self.hamiltonian.value(np.repeat(self._candidates, I, axis=0), np.tile(self._every, count))
        return values.reshape(len(self.vertices), -1, I)

    @property
    def corners(self) -> np.ndarray:
        """(C, m) vertices of the shares combined with the bounds of the continuous controls."""
        bounds = list(product(*zip(self.lower, self.upper, strict=True)))
        return np.array([np.concatenate([b, v]) for v in self.vertices for b in bounds])

    def scale(self, row: np.ndarray) -> float:
        """Size of a multiplier of row·w (m,) that matters beside H̄."""
        spread = np.ptp(self._table.reshape(-1, self._table.shape[2]), axis=0).max()
        reach = np.ptp(self._candidates @ row)
        return float(spread / reach) if reach > 0 and spread > 0 else 1.0

    def __call__(self, slope: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Minimisers (I, m) of H̄(w) + slope·w, slope (m,), and the minima (I,)."""
        I, V = self.hamiltonian.intervals, len(self.vertices)  # noqa: E741
        linear = (self._candidates @ slope).reshape(V, -1, 1)
        total = self._table + linear
        best = np.argmin(total, axis=1)  # (V, I)
        w = self._candidates.reshape(V, -1, len(slope))[np.arange(V)[:, None], best]
        values = np.take_along_axis(total, best[:, None], axis=1)[:, 0]
        if self.continuous:
            every = np.tile(self._every, V)
            refined = self._last = self._refine(w.reshape(V * I, -1), every, slope)
            at = (self.hamiltonian.value(refined, every) + refined @ slope).reshape(V, I)
            better = at < values
            w = np.where(better[:, :, None], refined.reshape(V, I, -1), w)
            values = np.where(better, at, values)
        vertex = np.argmin(values, axis=0)
        w, values = w[vertex, self._every], values[vertex, self._every]
        present = self._present + self.w @ slope
        kept = present <= values
        return np.where(kept[:, None], self.w, w), np.where(kept, present, values)

    def present(self, slope: np.ndarray) -> np.ndarray:
        """(I,) values of H̄ + slope·w at the present controls."""
        return np.asarray(self._present + self.w @ slope)

    def _refine(self, w: np.ndarray, of: np.ndarray, slope: np.ndarray) -> np.ndarray:
        """Minimise over the continuous controls near w (P, m)."""
        found = w.copy()
        if self.continuous == 1:
            found[:, 0] = self._refine_one(w, of, slope)
        else:
            found[:, : self.continuous] = self._refine_all(w, of, slope)
        return found

    def _refine_one(self, w: np.ndarray, of: np.ndarray, slope: np.ndarray) -> np.ndarray:
        def derivatives(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            _, first, second = self.hamiltonian.expand(np.column_stack([x, w[:, 1:]]), of)
            return first[:, 0] + slope[0], second[:, 0, 0]

        x = w[:, 0]
        low = np.maximum(x - self._spacing[0], self.lower[0])
        high = np.minimum(x + self._spacing[0], self.upper[0])
        if self._last is not None:
            x = np.clip(self._last[:, 0], low, high)
        return stationary(derivatives, x, low, high, _PRECISE * float(self.upper[0] - self.lower[0]))

    def _refine_all(self, w: np.ndarray, of: np.ndarray, slope: np.ndarray) -> np.ndarray:
        c, width = self.continuous, self.upper - self.lower

        def place(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
            return np.concatenate([self.lower + width * x, w[rows, c:]], axis=1)

        def expand(x: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            at = place(x, rows)
            value, first, second = self.hamiltonian.expand(at, of[rows])
            return (
                value + at @ slope,
                (first + slope)[:, :c] * width,
                second * width[:, None] * width[None, :],
            )

        start = w
        if self._last is not None:
            now, last = (self.hamiltonian.value(at, of) + at @ slope for at in (w, self._last))
            start = np.where((last < now)[:, None], self._last, w)
        size = np.ptp(self._table, axis=1).ravel() + np.abs(self._table).max(axis=1).ravel()
        found = lowest_in_box(
            expand,
            (start[:, :c] - self.lower) / width,
            reach=float(np.max(self._spacing / width)),
            precision=_PRECISE,
            size=size,
        )
        return place(found, np.arange(len(w)))[:, :c]


def share_vertices(relaxation: Relaxation) -> np.ndarray:
    """(V, m − c) shares of all combinations of discrete values: one value each, entirely."""
    options = [control.vertices for control in relaxation.problem.discrete.values()]
    return np.array([np.concatenate([[], *parts]) for parts in product(*options)])
