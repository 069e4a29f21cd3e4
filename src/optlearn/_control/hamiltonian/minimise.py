"""Minimise the Hamiltonian over the controls, interval by interval, at fixed multipliers."""

from collections.abc import Callable
from itertools import product

import numpy as np

from optlearn._control.hamiltonian.interval import IntervalHamiltonian
from optlearn._control.relaxation import Relaxation

# Points of the coarse search in each continuous control, by the number of such controls.
_GRID_POINTS = {0: 1, 1: 17, 2: 9}
_GRID_POINTS_MANY = 5
_GRID_POINTS_COSTLY = 9
_PRECISE = 1e-9  # of a control, relative to its range; Newton's last step is far better than that
_NEWTON_STEPS = 60
_CYCLES = 40  # of coordinate-wise minimisation


class PointwiseMinimiser:
    """Minimises H̄(w) + c·w on all intervals at once, for any slope c.

    H̄ is linear in the shares of a discrete control, so a minimum lies at a vertex: all combinations of
    discrete values are tried. For each of them the continuous controls are minimised: the best point
    of a coarse grid, refined by Newton's method inside a bracket, one control after the other.

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
        """Minimise over the continuous controls near w (P, m), one after the other."""
        for _ in range(_CYCLES if self.continuous > 1 else 1):
            before = w
            for entry in range(self.continuous):
                w = self._refine_entry(w, of, slope, entry)
                self._last = w
            if np.all(np.abs(w - before)[:, : self.continuous] <= 10 * self._precision):
                break
        return w

    @property
    def _precision(self) -> np.ndarray:
        return np.asarray(_PRECISE * (self.upper - self.lower))

    def _refine_entry(self, w: np.ndarray, of: np.ndarray, slope: np.ndarray, entry: int) -> np.ndarray:
        def derivatives(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            moved = w.copy()
            moved[:, entry] = x
            _, first, second = self.hamiltonian.expand(moved, of)
            return first[:, entry] + slope[entry], second[:, entry]

        x = w[:, entry]
        low = np.maximum(x - self._spacing[entry], self.lower[entry])
        high = np.minimum(x + self._spacing[entry], self.upper[entry])
        if self._last is not None:
            x = np.clip(self._last[:, entry], low, high)
        found = w.copy()
        found[:, entry] = _stationary(derivatives, x, low, high, self._precision[entry])
        return found


def share_vertices(relaxation: Relaxation) -> np.ndarray:
    """(V, m − c) shares of all combinations of discrete values: one value each, entirely."""
    options = [control.vertices for control in relaxation.problem.discrete.values()]
    return np.array([np.concatenate([[], *parts]) for parts in product(*options)])


def _stationary(
    derivatives: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    x: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    precision: float,
) -> np.ndarray:
    """Where functions of one variable stop falling inside brackets: Newton's method, safeguarded.

    Args:
        derivatives: x (P,) → first and second derivatives (P,).
        x: (P,) first trial.
        low: (P,) lower ends of brackets.
        high: (P,) upper ends.
        precision: of x.

    Returns:
        (P,) stationary points, or ends of brackets towards which the functions fall.
    """
    tested_low, tested_high, done = (np.zeros(len(x), bool) for _ in range(3))
    for _ in range(_NEWTON_STEPS):
        first, second = derivatives(x)
        rising, falling = first > 0, first < 0
        high, tested_high = np.where(rising, x, high), tested_high | rising
        low, tested_low = np.where(falling, x, low), tested_low | falling
        with np.errstate(divide="ignore", invalid="ignore"):
            newton = np.where(second > 0, x - first / second, np.where(rising, -np.inf, np.inf))
        newton = np.where(first == 0, x, newton)
        trial = np.clip(newton, low, high)
        # An end that was tried already, and lies uphill, is no place to go again.
        again = ((trial <= low) & tested_low) | ((trial >= high) & tested_high)
        near = np.abs(newton - x) <= precision
        trial = np.where(again & ~near, (low + high) / 2, trial)
        x, done = np.where(done, x, trial), done | near | (high - low <= precision)
        if np.all(done):
            break
    return x
