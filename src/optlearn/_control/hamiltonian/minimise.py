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
_PRECISE = 1e-7  # of a control, relative to its range; Newton's last step squares that


class PointwiseMinimiser:
    """Minimises H̄(w) + c·w on all intervals at once, for any slope c.

    H̄ is linear in the shares of a discrete control, so a minimum lies at a vertex: all combinations of
    discrete values are tried. For each of them the continuous controls are minimised: the best point
    of a coarse grid, refined by Newton's method: one inside a bracket, several at once inside their bounds.

    Args:
        hamiltonian: what to minimise.
        w: (I, m) controls that are also tried, and kept where nothing is better.
        quick: look for valleys half-way through an interval only, where H is nearly its mean.
    """

    def __init__(self, hamiltonian: IntervalHamiltonian, w: np.ndarray, quick: bool = False) -> None:
        self.hamiltonian, self.w = hamiltonian, w
        relaxation = hamiltonian.compiled.relaxation
        self.vertices = share_vertices(relaxation)
        self.continuous = relaxation.curved
        self.lower, self.upper = (bound[: self.continuous] for bound in relaxation.bounds)
        count = _GRID_POINTS.get(self.continuous, _GRID_POINTS_MANY)
        if hamiltonian.compiled.engine.costly:
            count = min(count, _GRID_POINTS_COSTLY)
        # Denser towards both bounds, where functions such as 1/B and √Δ bend most.
        unit = (1 - np.cos(np.linspace(0.0, np.pi, count))) / 2 if count > 1 else np.zeros(1)
        self._spacing = (self.upper - self.lower) * np.diff(unit).max(initial=0.0)
        grid = self.lower + (self.upper - self.lower) * np.array(
            list(product(unit, repeat=self.continuous))
        ).reshape(count**self.continuous, self.continuous)
        self._candidates = np.array([np.concatenate([g, v]) for v in self.vertices for g in grid])  # (V·G, m)
        self._every = np.arange(hamiltonian.intervals)
        # A grid finds valleys, for which fewer points of an interval will do; vertices are minima themselves.
        of_grid = hamiltonian.coarser(1 if quick else 3) if self.continuous else hamiltonian
        self._table = self._tabulate(of_grid)
        self._present = hamiltonian.value(w, self._every)
        # Where the last refinement ended, (V·I, m): the next one, for a slope nearby, starts there. The first
        # starts at the present controls, which are not far off when there is little left to win.
        self._last = np.tile(w, (len(self.vertices), 1))
        self._last[:, self.continuous :] = np.repeat(self.vertices, len(w), axis=0)
        self._yields = np.zeros(len(self._last))  # how the last minimisers move per unit of an added slope

    def _tabulate(self, hamiltonian: IntervalHamiltonian) -> np.ndarray:
        """(V, G, I) values at all candidates."""
        count, I = len(self._candidates), hamiltonian.intervals  # noqa: E741
        values = hamiltonian.value(np.repeat(self._candidates, I, axis=0), np.tile(self._every, count))
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

    def fall(self, row: np.ndarray) -> float:
        """How much the mean of row·w over the last minimisers falls by, per unit of its multiplier.

        That of a single continuous control, with one combination of discrete values; else 0.
        """
        alone = self.continuous == 1 and len(self.vertices) == 1
        return float(-self._yields.mean() * row[0] ** 2) if alone else 0.0

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
            coarse = w.reshape(V * I, -1)
            refined = self._last = self._refine(coarse, every, slope)
            values, at = (
                (self.hamiltonian.value(w, every) + w @ slope).reshape(V, I) for w in (coarse, refined)
            )
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
        def derivatives(x: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            _, first, second = self.hamiltonian.expand(np.column_stack([x, w[rows, 1:]]), of[rows])
            return first[:, 0] + slope[0], second[:, 0, 0]

        low, high, spacing = self.lower[0], self.upper[0], self._spacing[0]
        found, last = w[:, 0], self._last[:, 0]
        found = np.where(np.abs(last - found) <= spacing, last, found)
        rows = np.arange(len(found))
        while len(rows):
            left, right = np.maximum(found - spacing, low), np.minimum(found + spacing, high)
            found[rows], self._yields[rows] = stationary(
                derivatives, found, left, right, _PRECISE * float(high - low), rows
            )
            # A valley goes on beyond its bracket where the grid, half-way, did not see its bottom.
            ended = (found == left) & (left > low) | (found == right) & (right < high)
            rows = rows[ended[rows]]
        return found

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
