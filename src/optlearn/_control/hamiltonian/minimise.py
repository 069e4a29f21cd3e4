"""Minimise the Hamiltonian over the controls, interval by interval, at fixed multipliers."""

from itertools import product
from typing import Any, NamedTuple

import numpy as np

from optlearn._arrays import Array
from optlearn._control.hamiltonian.interval import Hamiltonian
from optlearn._control.hamiltonian.loops import dot
from optlearn._control.hamiltonian.newton import lowest_in_box, stationary

# Points of the coarse search in each continuous control, by the number of such controls.
_GRID_POINTS = {0: 1, 1: 17, 2: 9}
_GRID_POINTS_MANY = 5
_GRID_POINTS_COSTLY = 9
_PRECISE = 1e-7  # of a control, relative to its range; Newton's last step squares that


class Minimum(NamedTuple):
    """Where H̄(w) + slope·w is least.

    Attributes:
        w: (I, m) minimisers.
        values: (I,) minima.
        refined: (V·I, m) where refinements ended, for each combination of discrete values.
        yields: (V·I,) how these move per unit of an added slope, where there is one continuous control.
    """

    w: Array
    values: Array
    refined: Array
    yields: Array


class PointwiseMinimiser:
    """Minimises H̄(w) + c·w on all intervals at once, for any slope c.

    H̄ is linear in the shares of a discrete control, so a minimum lies at a vertex: all combinations of
    discrete values are tried. For each of them the continuous controls are minimised: the best point
    of a coarse grid, refined by Newton's method: one inside a bracket, several at once inside their bounds.

    Args:
        hamiltonian: what to minimise, under NumPy or under XLA.
        w: (I, m) controls that are also tried, and kept where nothing is better.
        quick: look for valleys half-way through an interval only, where H is nearly its mean.
    """

    def __init__(self, hamiltonian: Hamiltonian, w: Array, quick: bool = False) -> None:
        self.hamiltonian, self.w, domain = hamiltonian, w, hamiltonian.domain
        self.lower, self.upper, self.vertices, self.xp = (
            domain.lower,
            domain.upper,
            domain.vertices,
            domain.xp,
        )
        self.continuous = len(self.lower)
        count = _GRID_POINTS.get(self.continuous, _GRID_POINTS_MANY)
        if domain.costly:
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
        shares = np.repeat(self.vertices, len(w), axis=0)
        nearby = self.xp.tile(w[:, : self.continuous], (len(self.vertices), 1))
        self._last = self.xp.concatenate([nearby, shares], axis=1)

    def _tabulate(self, hamiltonian: Hamiltonian) -> Array:
        """(V, G, I) values at all candidates."""
        count, I = len(self._candidates), hamiltonian.intervals  # noqa: E741
        values = hamiltonian.value(np.repeat(self._candidates, I, axis=0), np.tile(self._every, count))
        return values.reshape(len(self.vertices), -1, I)

    @property
    def corners(self) -> np.ndarray:
        """(C, m) vertices of the shares combined with the bounds of the continuous controls."""
        bounds = list(product(*zip(self.lower, self.upper, strict=True)))
        return np.array([np.concatenate([b, v]) for v in self.vertices for b in bounds])

    def scale(self, row: Array) -> Any:
        """Size of a multiplier of row·w (m,) that matters beside H̄."""
        xp, table = self.xp, self._table.reshape(-1, self._table.shape[2])
        spread = xp.max(xp.ptp(table, axis=0))
        reach = xp.ptp(dot(self._candidates, row))
        usable = (reach > 0) & (spread > 0)
        return xp.where(usable, spread / xp.where(usable, reach, 1.0), 1.0)[()]

    def fall(self, row: Array, minimum: Minimum) -> Any:
        """How much the mean of row·w over minimisers falls by, per unit of its multiplier.

        That of a single continuous control, with one combination of discrete values; else 0.
        """
        alone = self.continuous == 1 and len(self.vertices) == 1
        return -minimum.yields.mean() * row[0] ** 2 if alone else 0.0

    def present(self, slope: Array) -> Array:
        """(I,) values of H̄ + slope·w at the present controls."""
        return self._present + dot(self.w, slope)

    def __call__(self, slope: Array) -> tuple[Array, Array]:
        """Minimisers (I, m) of H̄(w) + slope·w, slope (m,), and the minima (I,)."""
        minimum = self.lowest(slope)
        return minimum.w, minimum.values

    def lowest(self, slope: Array) -> Minimum:
        """The minimum of H̄(w) + slope·w, slope (m,). It is never above the value at the present controls."""
        minimum = self._lowest(slope)
        if self.xp is np:  # under XLA, what is found inside a loop stays there
            self._last = minimum.refined
        return minimum

    def _lowest(self, slope: Array) -> Minimum:
        xp, V, m = self.xp, len(self.vertices), len(slope)
        total = self._table + dot(self._candidates, slope).reshape(V, -1, 1)
        best = xp.argmin(total, axis=1)  # (V, I)
        w = xp.asarray(self._candidates).reshape(V, -1, m)[np.arange(V)[:, None], best]
        values, refined, yields = xp.min(total, axis=1), self._last, xp.zeros(len(self._last))
        if self.continuous:
            of, coarse = np.tile(self._every, V), w.reshape(-1, m)
            refine = self._refine_one if self.continuous == 1 else self._refine_all
            best_values, yields = refine(coarse, of, slope)
            refined = xp.concatenate([best_values, coarse[:, self.continuous :]], axis=1)
            values, at = (
                (self.hamiltonian.value(w, of) + dot(w, slope)).reshape(V, -1) for w in (coarse, refined)
            )
            better = at < values
            w = xp.where(better[:, :, None], refined.reshape(V, -1, m), w)
            values = xp.where(better, at, values)
        vertex = xp.argmin(values, axis=0)
        w, values = w[vertex, self._every], xp.min(values, axis=0)
        present = self.present(slope)
        kept = present <= values
        w, values = xp.where(kept[:, None], self.w, w), xp.where(kept, present, values)
        return Minimum(w, values, refined, yields)

    def _refine_one(self, w: Array, of: np.ndarray, slope: Array) -> tuple[Array, Array]:
        """Minimise over the continuous control near w (P, m): (P, 1) minimisers, and how they yield."""

        def derivatives(x: Array, rows: Any) -> tuple[Array, Array]:
            at = self.xp.concatenate([x[:, None], w[rows, 1:]], axis=1)
            _, first, second = self.hamiltonian.expand(at, of[rows])
            return first[:, 0] + slope[0], second[:, 0, 0]

        low, high, spacing = self.lower[0], self.upper[0], self._spacing[0]
        start, last = w[:, 0], self._last[:, 0]
        start = self.xp.where(self.xp.abs(last - start) <= spacing, last, start)
        x, yields = stationary(
            derivatives, start, (low, high), reach=spacing, precision=_PRECISE * (high - low), xp=self.xp
        )
        return x[:, None], yields

    def _refine_all(self, w: Array, of: np.ndarray, slope: Array) -> tuple[Array, Array]:
        """The same for several continuous controls, (P, c)."""
        xp, c, lower = self.xp, self.continuous, self.lower[None]
        width = self.upper[None] - lower

        def expand(x: Array, rows: Any) -> tuple[Array, Array, Array]:
            at = xp.concatenate([lower + width * x, w[rows, c:]], axis=1)
            value, first, second = self.hamiltonian.expand(at, of[rows])
            return (
                value + dot(at, slope),
                (first + slope[None])[:, :c] * width,
                second * width[:, :, None] * width[:, None, :],
            )

        now, last = (self.hamiltonian.value(at, of) + dot(at, slope) for at in (w, self._last))
        start = xp.where((last < now)[:, None], self._last, w)
        size = xp.ptp(self._table, axis=1).ravel() + xp.max(xp.abs(self._table), axis=1).ravel()
        x = lowest_in_box(
            expand,
            (start[:, :c] - lower) / width,
            reach=float(np.max(self._spacing / width)),
            precision=_PRECISE,
            size=size,
            xp=xp,
        )
        return lower + width * x, xp.zeros(len(w))
