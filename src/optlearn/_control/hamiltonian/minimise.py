"""Minimise the Hamiltonian over the controls, interval by interval, at fixed multipliers."""

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from optlearn._arrays import Array
from optlearn._control.hamiltonian.interval import Hamiltonian
from optlearn._control.hamiltonian.loops import dot, pick_rows, repeat
from optlearn._control.hamiltonian.newton import lowest_in_box, stationary

# Initial and maximum number of grid points along each continuous control, by the number of such controls.
_GRID_POINTS = {0: (1, 1), 1: (17, 257), 2: (9, 33)}
_GRID_POINTS_MANY = (5, 9)
_GRID_POINTS_COSTLY = (9, 65)
# Samples between grid points, on all intervals together: wells that they miss are too narrow to be found.
_SAMPLES = 256
_SAMPLES_COSTLY = 32
_SAMPLES_EACH = 32  # at most, on one of them
_WELLS = {1: 32}  # refined at most, of one interval, by the number of continuous controls
_WELLS_MANY = 8
_PRECISE = 1e-7  # of a control, relative to its range; Newton's last step squares this error
_BESIDE = 2  # intervals on either side that get a finer grid together with one that needs it
_NOTHING = 1e-9  # curvatures and depths below this share of the range of H̄ count as zero
_ROUND_OFF = 1e-9  # the same as a share of its size: on singular arcs its terms cancel to fewer digits


class Minimum(NamedTuple):
    """The minimum of H̄(w) + slope·w.

    Attributes:
        w: (I, m) minimisers.
        values: (I,) minima.
        refined: (V·I, m) where refinements ended, for each combination of discrete values.
        yields: (V·I,) displacement of these per unit of added slope, with one continuous control.
    """

    w: Array
    values: Array
    refined: Array
    yields: Array


class _Wells(NamedTuple):
    """The best of the wells refined so far, P = V·I rows.

    Attributes:
        w: (P, m) the lowest point.
        values: (P,) values there; infinite before the first.
        refined: (P, m) where the refinement of this well ended.
        yields: (P,) displacement of that point per unit of added slope.
        offset: (P,) H̄ minus its value on the grid, which averages fewer points.
        left: (P, G) grid points whose wells have not been refined yet.
    """

    w: Array
    values: Array
    refined: Array
    yields: Array
    offset: Array
    left: Array


class PointwiseMinimiser:
    """Minimises H̄(w) + c·w on all intervals at once, for any slope c.

    H̄ is linear in the shares of a discrete control, so a minimum lies at a vertex: all combinations of
    discrete values are tried. For each of them the continuous controls are minimised: those local minima of a
    grid that may be the lowest are refined by Newton's method, one control inside a bracket, several together
    inside their bounds. If a grid is too coarse for H̄, its points are doubled up to a limit, except under
    XLA, where shapes are fixed.

    Args:
        hamiltonian: what to minimise, under NumPy or under XLA.
        w: (I, m) controls that are also tried, and kept where nothing is better.
        quick: look for valleys only at the midpoint of an interval, where H is close to its mean.

    Attributes:
        resolved: was the grid fine enough for H̄, judging by samples?
        span: (V, I) range of H̄ on the grid.
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
        self._every = np.arange(hamiltonian.intervals)
        # A grid only locates valleys, so fewer points of an interval suffice; vertices are minima themselves.
        of_grid = hamiltonian.coarser(1 if quick else 3) if self.continuous else hamiltonian
        count, most = _GRID_POINTS.get(self.continuous, _GRID_POINTS_MANY)
        if domain.costly:
            count, most = min(count, _GRID_POINTS_COSTLY[0]), min(most, _GRID_POINTS_COSTLY[1])
        self._tabulate(of_grid, count)
        doubtful = self._doubtful(of_grid)
        while self.xp is np and doubtful.any() and count < most:
            count = 2 * count - 1
            self._refine_table(of_grid, count, doubtful)
            doubtful = self._doubtful(of_grid)
        self.resolved: Any = ~self.xp.any(doubtful)
        self._present = hamiltonian.value(w, self._every)
        # Where the last refinement ended, (V·I, m): the next one, for a similar slope, starts there. The
        # first starts at the present controls, which are close when the possible improvement is small.
        shares = np.repeat(self.vertices, len(w), axis=0)
        nearby = self.xp.tile(w[:, : self.continuous], (len(self.vertices), 1))
        self._last = self.xp.concatenate([nearby, shares], axis=1)

    # The grid.

    def _tabulate(self, hamiltonian: Hamiltonian, count: int) -> None:
        """Values (V, G, I) of H̄, and curvatures, on a grid with ``count`` points per continuous control."""
        self._lay_out(count)
        I, candidates = hamiltonian.intervals, self._candidates  # noqa: E741
        values = hamiltonian.value(np.repeat(candidates, I, axis=0), np.tile(self._every, len(candidates)))
        self._table = values.reshape(len(self.vertices), -1, I)
        self._known = np.ones(self._table.shape, dtype=bool)
        self._reach = np.tile(self._spacing, (I, 1))  # (I, c) distance to grid neighbours
        self._measure([self._bend(axis) for axis in range(1, self.continuous + 1)])

    def _refine_table(self, hamiltonian: Hamiltonian, count: int, doubtful: np.ndarray) -> None:
        """Refine the grid to nearly twice as many points, for doubtful (I,) intervals.

        On the others, new points lie on the chord between neighbours, so minima and curvatures do not change.
        """
        tables = [self._on_axes(table) for table in (self._table, self._known, *self._bends)]
        self._lay_out(count)
        for axis in range(1, self.continuous + 1):
            tables = [
                _with_midpoints(tables[0], axis, self._chord),
                _with_midpoints(tables[1], axis, lambda low, _: np.zeros_like(low)),
                *(_with_midpoints(bend, axis, _larger) for bend in tables[2:]),
            ]
        flat = (len(self.vertices), -1, hamiltonian.intervals)
        self._table, self._known = (table.reshape(flat) for table in tables[:2])
        vertex, point, interval = np.nonzero(~self._known & doubtful)
        asked = self._candidates.reshape(len(self.vertices), -1, self._candidates.shape[1])[vertex, point]
        self._table[vertex, point, interval] = hamiltonian.value(asked, interval)
        self._known[vertex, point, interval] = True
        self._reach[doubtful] = self._spacing
        bends = [self._bend(axis) for axis in range(1, self.continuous + 1)]
        self._measure([np.where(doubtful, new, old) for new, old in zip(bends, tables[2:], strict=True)])

    def _lay_out(self, count: int) -> None:
        """Points of a grid with ``count`` of them along each continuous control."""
        c = self.continuous
        # Denser towards both bounds, where functions such as 1/B and √Δ are most curved.
        unit = (1 - np.cos(np.linspace(0.0, np.pi, count))) / 2 if count > 1 else np.zeros(1)
        self._unit, self._spacing = unit, (self.upper - self.lower) * np.diff(unit).max(initial=0.0)
        grid = np.array(list(product(unit, repeat=c))).reshape(count**c, c)
        grid = self.lower + (self.upper - self.lower) * grid
        self._candidates = np.array([np.concatenate([g, v]) for v in self.vertices for g in grid])  # (V·G, m)

    def _chord(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Values (…, points) at midpoints between neighbours, on the line through both."""
        share = (self._unit[1::2] - self._unit[:-1:2]) / (self._unit[2::2] - self._unit[:-1:2])
        return np.asarray(low + share * (high - low))

    def _measure(self, bends: list[Array]) -> None:
        """Set the range of H̄ on the grid, and its possible fall between grid points, from curvatures."""
        xp = self.xp
        finite = xp.isfinite(self._table)
        low, high = xp.where(finite, self._table, np.inf), xp.where(finite, self._table, -np.inf)
        low, high = low.min(axis=1), high.max(axis=1)
        self.span = high - low  # (V, I)
        self._size = self.span + xp.maximum(xp.abs(low), xp.abs(high))
        self._nothing = _NOTHING * self.span + _ROUND_OFF * self._size
        self._bends = bends
        # How far below a grid point H̄ may fall on the way to its neighbours.
        self._dips = xp.zeros_like(self._table)
        for axis, bend in enumerate(bends, start=1):
            self._dips = self._dips + self._around(xp.abs(bend), xp.fmax, [axis])

    def _on_axes(self, table: Array) -> Array:
        """A table (V, G, I) with an axis for each continuous control."""
        return table.reshape(len(self.vertices), *(len(self._unit),) * self.continuous, -1)

    def _bend(self, axis: int) -> Array:
        """(V, …, I) depth of H̄ below the chord of its neighbours along an axis; at bounds, the nearest."""
        f = self.xp.moveaxis(self._on_axes(self._table), axis, -1)
        share = (self._unit[1:-1] - self._unit[:-2]) / (self._unit[2:] - self._unit[:-2])
        share = share.reshape(*(1,) * (f.ndim - 1), -1)
        inside = f[..., :-2] + share * (f[..., 2:] - f[..., :-2]) - f[..., 1:-1]
        inside = self.xp.concatenate([inside[..., :1], inside, inside[..., -1:]], axis=-1)
        return self.xp.moveaxis(inside, -1, axis)

    def _around(self, table: Array, extreme: Callable[[Array, Array], Array], axes: Iterable[int]) -> Array:
        """(V, G, I) minimum or maximum over each grid point and its neighbours along axes."""
        for axis in axes:
            f = self.xp.moveaxis(self._on_axes(table), axis, -1)
            f = self.xp.concatenate([f[..., :1], f, f[..., -1:]], axis=-1)
            f = extreme(extreme(f[..., :-2], f[..., 1:-1]), f[..., 2:])
            table = self.xp.moveaxis(f, -1, axis)
        return table.reshape(self._table.shape)

    def _doubtful(self, hamiltonian: Hamiltonian) -> Any:
        """(I,) flags of intervals for whose H̄ the grid may be too coarse, and of neighbours with a similar H̄.

        On a fine enough grid, the curvature of H̄ keeps its sign over at least three points in a row. If it
        does but samples disagree, all intervals are in doubt.
        """
        xp, nothing = self.xp, self._nothing[:, None]
        doubtful = xp.zeros(hamiltonian.intervals, dtype=bool)
        for axis, bend in enumerate(self._bends, start=1):
            bend = bend.reshape(self._table.shape)
            sign = self._on_axes(xp.where(xp.abs(bend) > nothing, xp.sign(bend), 0.0))
            sign = xp.moveaxis(sign, axis, 0)[1:-1]
            turns, stays = sign[:-1] * sign[1:] < 0, sign[:-1] * sign[1:] > 0
            for lonely in (turns[:-1] & turns[1:], turns[:-2] & stays[1:-1] & turns[2:]):
                doubtful = doubtful | xp.any(lonely.reshape(-1, hamiltonian.intervals), axis=0)
        if xp is np and doubtful.any():
            return np.convolve(doubtful, np.ones(2 * _BESIDE + 1))[_BESIDE:-_BESIDE] > 0
        return doubtful | ~self._is_sampled_well(hamiltonian) if self.continuous else doubtful

    def _is_sampled_well(self, hamiltonian: Hamiltonian) -> Any:
        """Do samples between grid points agree with the values and curvatures around them?

        Each interval is sampled elsewhere. H̄ is similar on many intervals, so a well hidden between grid
        points is seen on one of them.
        """
        xp, c, I = self.xp, self.continuous, hamiltonian.intervals  # noqa: E741
        samples = _SAMPLES_COSTLY if hamiltonian.domain.costly else _SAMPLES
        blocks = min(-(-samples // I), _SAMPLES_EACH)
        number, of = np.arange(blocks * I), np.tile(self._every, blocks)
        vertex = number // I % len(self.vertices)
        # An additive recurrence, uniform also in several dimensions: powers of the root of x^(c + 1) = x + 1.
        root = np.roots([1, *(0,) * (c - 1), -1, -1]).real.max()
        unit = (0.5 + number[:, None] * root ** -np.arange(1.0, c + 1)) % 1.0
        cell = np.searchsorted(self._unit, unit, side="right") - 1
        share = (unit - self._unit[cell]) / (self._unit[cell + 1] - self._unit[cell])
        controls = self.lower + (self.upper - self.lower) * unit
        values = hamiltonian.value(np.concatenate([controls, self.vertices[vertex]], axis=1), of)
        table, between, reach = self._on_axes(self._table), 0.0, 0.0
        for corner in product((0, 1), repeat=c):
            at = (vertex, *(cell + corner).T, of)
            between = between + np.prod(np.where(corner, share, 1 - share), axis=1) * table[at]
            bends = sum(xp.abs(bend[at]) for bend in self._bends)
            reach = xp.maximum(reach, bends)
        far = xp.abs(values - between) > reach + self._nothing[vertex, of]
        return ~xp.any(far)

    @property
    def corners(self) -> np.ndarray:
        """(C, m) vertices of the shares combined with the bounds of the continuous controls."""
        bounds = list(product(*zip(self.lower, self.upper, strict=True)))
        return np.array([np.concatenate([b, v]) for v in self.vertices for b in bounds])

    def scale(self, row: Array) -> Any:
        """Scale at which a multiplier of row·w (m,) matters relative to H̄."""
        xp, table = self.xp, self._table.reshape(-1, self._table.shape[2])
        spread = xp.max(xp.ptp(table, axis=0))
        reach = xp.ptp(dot(self._candidates, row))
        usable = (reach > 0) & (spread > 0)
        return xp.where(usable, spread / xp.where(usable, reach, 1.0), 1.0)[()]

    def fall(self, row: Array, minimum: Minimum) -> Any:
        """Decrease of the mean of row·w over minimisers per unit of its multiplier.

        Known for a single continuous control with one combination of discrete values; else 0.
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
        if self.xp is np:  # under XLA, traced values must not leave the loop
            self._last = minimum.refined
        return minimum

    def _lowest(self, slope: Array) -> Minimum:
        xp, V, m, I = self.xp, len(self.vertices), len(slope), len(self._every)  # noqa: E741
        total = self._table + dot(self._candidates, slope).reshape(V, -1, 1)
        if self.continuous:
            deepest = self._deepest(total, slope)
            w, values = deepest.w.reshape(V, I, m), deepest.values.reshape(V, I)
            refined, yields = deepest.refined, deepest.yields
        else:
            w, values = self._candidates.reshape(V, 1, m), total[:, 0]
            w = xp.broadcast_to(w, (V, I, m))
            refined, yields = self._last, xp.zeros(len(self._last))
        vertex = xp.argmin(values, axis=0)
        w, values = w[vertex, self._every], xp.min(values, axis=0)
        present = self.present(slope)
        kept = present <= values
        w, values = xp.where(kept[:, None], self.w, w), xp.where(kept, present, values)
        return Minimum(w, values, refined, yields)

    def _deepest(self, total: Array, slope: Array) -> _Wells:
        """The lowest local minimum for each combination of discrete values, on each interval.

        Args:
            total: (V, G, I) values on the grid, the slope's among them.
            slope: (m,) added.
        """
        xp, V, m, I = self.xp, len(self.vertices), len(slope), len(self._every)  # noqa: E741
        lowest_near = self._around(total, xp.fmin, range(1, self.continuous + 1))
        on_grid, depths, nearby = (
            xp.moveaxis(table, 1, 2).reshape(V * I, -1) for table in (total, total - self._dips, lowest_near)
        )
        nothing, candidates = self._nothing.ravel(), xp.asarray(self._candidates).reshape(V, -1, m)
        every, points = np.arange(V * I), np.arange(on_grid.shape[1])
        refine = self._refine_one if self.continuous == 1 else self._refine_all

        def once(at: _Wells) -> tuple[_Wells, Any]:
            # Among the wells that may end below the best so far, take the deepest on the grid.
            hopes = at.left & (depths < (at.values - at.offset - nothing)[:, None])
            hope = xp.any(hopes, axis=1)
            rows = every[hope] if xp is np else every
            if len(rows) == 0:
                return at, True
            old, of = _Wells(*(part[rows] for part in at)), rows % I
            node = xp.argmin(xp.where(hopes, on_grid, np.inf)[rows], axis=1)
            coarse, first = candidates[rows // I, node], xp.isinf(old.values)
            ends, yields, from_node = refine(coarse, rows, slope, first)
            ends = xp.concatenate([ends, coarse[:, self.continuous :]], axis=1)
            values, at_ends = (self.hamiltonian.value(w, of) + dot(w, slope) for w in (coarse, ends))
            offset = xp.where(first, values - on_grid[rows, node], old.offset)
            left = old.left & ~(from_node[:, None] & (points[None] == node[:, None]))
            w = xp.where((at_ends < values)[:, None], ends, coarse)
            best = _Wells(w, xp.fmin(at_ends, values), ends, yields, offset, left)
            best = pick_rows(best.values < old.values, best, old._replace(offset=offset, left=left), xp)
            if xp is not np:
                return pick_rows(hope, best, at, xp), ~xp.any(hope)
            for table, part in zip(at, best, strict=True):
                table[rows] = part
            return at, False

        none = xp.zeros(V * I)
        start = _Wells(self._last, none + np.inf, self._last, none, none, on_grid <= nearby)
        if xp is np:
            start = _Wells(*(part.copy() for part in start))
        return repeat(xp, once, start, _WELLS.get(self.continuous, _WELLS_MANY))

    def _refine_one(
        self, w: Array, rows: np.ndarray, slope: Array, first: Array
    ) -> tuple[Array, Array, Array]:
        """Minimise over the continuous control near points w (P, m) of the grid.

        Args:
            w: (P, m) points of the grid.
            rows: (P,) which of the V·I minimisations they belong to.
            slope: (m,) added.
            first: (P,) flags: nothing was refined there yet.

        Returns:
            (P, 1) minimisers, (P,) their displacement per unit of added slope, and whether w itself led
            there.
        """
        of = rows % len(self._every)

        def derivatives(x: Array, rows: Any) -> tuple[Array, Array]:
            at = self.xp.concatenate([x[:, None], w[rows, 1:]], axis=1)
            _, first, second = self.hamiltonian.expand(at, of[rows])
            return first[:, 0] + slope[0], second[:, 0, 0]

        low, high, spacing = self.lower[0], self.upper[0], self._reach[of, 0]
        start, last = w[:, 0], self._last[rows, 0]
        start = self.xp.where(self.xp.abs(last - start) <= spacing, last, start)
        x, yields = stationary(
            derivatives, start, (low, high), reach=spacing, precision=_PRECISE * (high - low), xp=self.xp
        )
        return x[:, None], yields, self.xp.ones_like(first)

    def _refine_all(
        self, w: Array, rows: np.ndarray, slope: Array, first: Array
    ) -> tuple[Array, Array, Array]:
        """The same for several continuous controls, (P, c), starting from the end of the last refinement."""
        xp, c, lower = self.xp, self.continuous, self.lower[None]
        width, of, before = self.upper[None] - lower, rows % len(self._every), self._last[rows]

        def expand(x: Array, rows: Any) -> tuple[Array, Array, Array]:
            at = xp.concatenate([lower + width * x, w[rows, c:]], axis=1)
            value, first, second = self.hamiltonian.expand(at, of[rows])
            return (
                value + dot(at, slope),
                (first + slope[None])[:, :c] * width,
                second * width[:, :, None] * width[:, None, :],
            )

        now, last = (self.hamiltonian.value(at, of) + dot(at, slope) for at in (w, before))
        from_last = first & (last < now)
        start = xp.where(from_last[:, None], before, w)
        x = lowest_in_box(
            expand,
            (start[:, :c] - lower) / width,
            reach=np.max(self._reach[of] / width, axis=1),
            precision=_PRECISE,
            size=self._size.ravel()[rows],
            xp=xp,
        )
        return lower + width * x, xp.zeros(len(w)), ~from_last


def _larger(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The one of two curvatures that is larger in magnitude."""
    return np.where(np.abs(one) >= np.abs(other), one, other)


def _with_midpoints(table: np.ndarray, axis: int, between: Callable[..., np.ndarray]) -> np.ndarray:
    """A table with ``between(left, right)`` inserted between all neighbours along an axis."""
    values = np.moveaxis(table, axis, -1)
    wider = np.empty((*values.shape[:-1], 2 * values.shape[-1] - 1), dtype=table.dtype)
    wider[..., ::2], wider[..., 1::2] = values, between(values[..., :-1], values[..., 1:])
    return np.moveaxis(wider, -1, axis)
