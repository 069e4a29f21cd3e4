"""Scouts: many cheap descents on a coarse grid that check whether the starts have missed a basin.

Agreement among starts means little if only one in a hundred would lead elsewhere. A scout has few pieces in
time, and all scouts pass through training together: dozens of them cost about as much as one start. They
begin with controls at their bounds, and at random values in between. The best run, projected to the coarse
grid, descends with them. A scout that ends lower than it has found another basin and becomes a start.
"""

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import numpy as np

from optlearn._arrays import Float
from optlearn._control.certificate import NEGLIGIBLE, ROUND_OFF
from optlearn._control.compiled import CompiledProblem, Rollout
from optlearn._control.hamiltonian.multipliers import project_shares
from optlearn._control.runs import Run, Start
from optlearn._control.solvers.feasible import FeasibleSet
from optlearn._control.solvers.rules import FIRST_MOVE, lowers, shortened
from optlearn._control.weighing import Proximal, Weighing

# Maximum number of pieces in time: with one control and five pieces, the scouts include all corners.
PIECES = 5
# Number of descents, and the smallest useful number where so many are not affordable.
SCOUTS, FEWEST_SCOUTS = 64, 8
# Passes of every scout, and further passes of the best few.
SCOUT_PASSES, MORE_PASSES, KEPT = 24, 60, 12
# Operations of all passes (about a second); fewer where baselines are among the starts.
OPERATIONS, FEW_OPERATIONS = 250_000_000, 10_000_000
RECENT = 4  # recent objectives, the worst of which a step must improve on
LONGEST = 10.0  # first step before projection, in units of a control's range
STILL = 1e-7  # of a control's range: a shorter step counts as no step
COARSE = 1e-4  # accuracy of scouts' integration steps, relative to the objective or the best first guess
# Share of the objective by which a scout must end below the best run: on the grid of the problem itself, and
# on a coarser one, where the best run has to converge again.
LOWER, LOWER_COARSE = 1e-6, 1e-4
MOST_FOUND = 4  # maximum number of scouts that become starts
# For several costs: number of scouts that measure typical violations of limits, the smallest violation
# counted as a share of a limit's size, and the price of such a violation in units of the objective.
PRICED, LEAST_ROOM, STIFF = 8, 1e-3, 1.0
LONGER = 2  # factor of passes, since prices slow descents down

Lanes = Float[np.ndarray, "N I m"]
# Indices of lanes and their controls → objectives (N,) and gradients (N, I, m); or the nearest feasible
# controls.
Passes = Callable[[np.ndarray, Lanes], tuple[np.ndarray, np.ndarray]]
Projection = Callable[[np.ndarray, Lanes], np.ndarray]


class Ends(NamedTuple):
    """Ends of descents: controls (N, I, m) in [0, 1], and objectives (N,)."""

    v: np.ndarray
    objective: np.ndarray


def descend(passes: Passes, project: Projection, v: Lanes, most: int) -> Ends:
    """Spectral projected gradients of all lanes in lockstep, from controls v (N, I, m).

    References:
        E. G. Birgin, J. M. Martínez, M. Raydan, *Nonmonotone spectral projected gradient methods on convex
        sets*, SIAM J. Optim. 10 (2000).
    """
    every, axes = np.arange(len(v)), (1, 2)
    v = project(every, v)
    objective, gradient = passes(every, v)
    objective = np.where(np.isfinite(objective), objective, np.inf)
    best = Ends(v.copy(), objective.copy())
    recent = np.tile(objective, (RECENT, 1))
    steepest = np.abs(gradient).max(axis=axes)
    length = FIRST_MOVE / np.where(steepest > 0, steepest, 1.0)
    alive = np.isfinite(objective) & (steepest > 0)
    direction, share = np.zeros_like(v), np.ones(len(v))

    def turn(rows: np.ndarray) -> None:
        """Compute new directions; a lane without one stays where it is."""
        if len(rows) == 0:
            return
        ahead = v[rows] - length[rows, None, None] * gradient[rows]
        direction[rows] = project(rows, ahead) - v[rows]
        alive[rows] &= np.abs(direction[rows]).max(axis=axes) > STILL

    turn(np.flatnonzero(alive))
    for number in range(most):
        rows = np.flatnonzero(alive)
        if len(rows) == 0:
            break
        move = share[rows, None, None] * direction[rows]
        value, slopes = passes(rows, v[rows] + move)
        slope = np.sum(gradient[rows] * direction[rows], axis=axes)
        with np.errstate(invalid="ignore"):
            falls = np.isfinite(value) & lowers(value - recent[:, rows].max(axis=0), share[rows], slope)
            share[rows] = np.where(falls, 1.0, shortened(share[rows], value - objective[rows], slope))
        alive[rows] &= share[rows] * np.abs(direction[rows]).max(axis=axes) > STILL
        moved, move, slopes, value = rows[falls], move[falls], slopes[falls], value[falls]
        bend = np.sum(move * (slopes - gradient[moved]), axis=axes)
        curved = bend > 0
        spectral = np.sum(move**2, axis=axes) / np.where(curved, bend, 1.0)
        steepest = np.abs(slopes).max(axis=axes)
        longest = LONGEST / np.where(steepest > 0, steepest, 1.0)
        length[moved] = np.minimum(np.where(curved, spectral, 10 * length[moved]), longest)
        v[moved] += move
        objective[moved], gradient[moved] = value, slopes
        recent[number % RECENT, moved] = value
        lower = moved[value < best.objective[moved]]
        best.v[lower], best.objective[lower] = v[lower], objective[lower]
        turn(moved)
    return best


def looks(generator: np.random.Generator, count: int, pieces: int, size: int) -> Lanes:
    """Initial controls (N, I, m) of scouts in [0, 1]: half of them at bounds (all corners if few)."""
    numbers, half = pieces * size, count // 2
    if numbers < half.bit_length():
        corners = np.array(list(product((0.0, 1.0), repeat=numbers)))
    else:
        corners = generator.integers(0, 2, size=(half, numbers)).astype(float)
    inside = generator.uniform(size=(count - len(corners), numbers))
    return np.concatenate([corners, inside]).reshape(count, pieces, size)


def lower_ends(ends: Ends, lower: float) -> list[int]:
    """Indices of scouts that ended lower than the last lane, the best run; the best one comes first.

    Up to two of those with the lowest objective, as independent evidence; then one for each higher objective.
    """
    order = np.argsort(ends.objective[:-1])
    below = [int(i) for i in order if ends.objective[i] < ends.objective[-1] - lower]
    chosen: list[int] = []
    for i in below:
        same = [j for j in chosen if ends.objective[i] <= ends.objective[j] + lower]
        if len(same) < (2 if not chosen or ends.objective[chosen[0]] >= ends.objective[i] - lower else 1):
            chosen.append(i)
    return chosen[:MOST_FOUND]


class Scouting:
    """Scouts of one problem.

    Args:
        rollout: rollout of the problem itself.
        few: are baselines among the starts?
        negligible: improvement that does not matter.

    Attributes:
        obstacle: what prevents scouting; "" if nothing does.
    """

    def __init__(self, rollout: Rollout, few: bool, negligible: float) -> None:
        self.rollout, self.compiled, self.negligible = rollout, rollout.compiled, negligible
        self.pieces = min(PIECES, rollout.intervals)
        self._set = _Box(self.compiled)
        self._operations = FEW_OPERATIONS if few else OPERATIONS
        self.obstacle = self._first_obstacle()

    @property
    def on_the_grid(self) -> bool:
        """Do scouts cover all schedules of the problem?"""
        return self.pieces == self.rollout.intervals

    def _first_obstacle(self) -> str:
        problem = self.compiled.problem
        if problem.paths:
            return "path limits"
        if self.compiled.engine.costly:
            return "wide quadratures"
        return "" if self._set.simple else "several budgets of one control"

    def starts(self, best: Run, seed: tuple[int, ...]) -> list[Start]:
        """Starts that lead elsewhere than the best run and end lower on the coarse grid.

        Empty if there is an ``obstacle``.
        """
        if self.obstacle:
            return []
        ours = self._set.scaled(coarsened(best.w, self.pieces))
        coarse = self._rollout(ours, best.theta)
        # A backward pass takes three times the operations of a forward pass.
        times = 1 if self.compiled.problem.weighing is None else LONGER
        affordable = self._operations // (4 * times * SCOUT_PASSES * max(1, coarse.operations))
        count = min(SCOUTS, affordable // FEWEST_SCOUTS * FEWEST_SCOUTS)
        if count < FEWEST_SCOUTS:
            self.obstacle = "long passes"
            return []

        def passes(_: np.ndarray, v: Lanes) -> tuple[np.ndarray, np.ndarray]:
            objective, gradient = coarse.many(self._set.values(v), best.theta)
            return objective, gradient * self._set.width

        def project(_: np.ndarray, v: Lanes) -> np.ndarray:
            return self._set.nearest(v)

        first = looks(np.random.default_rng(seed), count, self.pieces, ours.shape[1])
        if self.compiled.problem.weighing is not None:
            coarse = self._priced(coarse, self.compiled.problem.weighing, first[-PRICED:], best)
        ends = descend(passes, project, np.concatenate([first, ours[None]]), times * SCOUT_PASSES)
        kept = np.append(np.argsort(ends.objective[:-1])[:KEPT], count)
        last = descend(passes, project, ends.v[kept], times * MORE_PASSES)
        share = LOWER if self.on_the_grid else LOWER_COARSE
        numbers = lower_ends(last, share * abs(last.objective[-1]) + self.negligible)
        return [self._start(f"scout {kept[i] + 1}", last.v[i], best.theta) for i in numbers]

    def _priced(self, coarse: Rollout, weighing: Weighing, v: Lanes, best: Run) -> Rollout:
        """Passes with a smooth combination of several costs that equals the cost of the best run at its end.

        It never exceeds the cost of controls that keep all limits, so a lower basin of such controls is lower
        here too. So may be one that breaks limits; this shows when it becomes a start.
        """
        costs = np.array([coarse.costs(w, best.theta) for w in self._set.values(self._set.nearest(v))])
        costs = costs[np.all(np.isfinite(costs), axis=1)]
        if len(costs) == 0:
            return coarse
        members, limits = costs[:, : weighing.members], np.array(weighing.limits)
        even = np.concatenate([np.array(weighing.caps) / sum(weighing.caps), 0.0 * limits])
        p = weighing.nearest(even) if best.weights is None else best.weights
        size = float(np.median(np.abs(members).max(axis=1)))
        spread = np.full(weighing.members, np.median(np.ptp(members, axis=1)))
        away = np.median(np.abs(costs[:, weighing.members :] - limits), axis=0)
        sizes = np.concatenate([np.full(weighing.members, size), weighing.sizes])
        room = np.maximum(np.concatenate([spread, away]), LEAST_ROOM * sizes + ROUND_OFF)
        rho = STIFF * np.maximum(size, np.abs(p) * room) / room**2
        return coarse.weighted(Proximal(weighing, p, rho))

    def _rollout(self, ours: np.ndarray, theta: np.ndarray) -> Rollout:
        """Pieces with as many steps as the best run needs; on the problem's own grid, its own steps."""
        if self.on_the_grid:
            return self.rollout
        if self.compiled.engine.exact:
            steps = self.compiled.exact_steps(self.compiled.problem.horizon / self.pieces)
            return Rollout(self.compiled, self.pieces, steps)
        rollout, w = Rollout(self.compiled, self.pieces, 1), self._set.values(ours)
        value, most = rollout.objective(w, theta), self.rollout.intervals * self.rollout.steps / self.pieces
        while rollout.steps < most:
            twice = rollout.with_steps(2 * rollout.steps)
            before, value = value, twice.objective(w, theta)
            if abs(value - before) <= COARSE * (abs(value) + self.negligible / NEGLIGIBLE):
                break
            rollout = twice
        return rollout

    def _start(self, name: str, v: np.ndarray, theta: np.ndarray) -> Start:
        intervals = self.rollout.intervals
        w = self._set.values(v)[np.arange(intervals) * self.pieces // intervals]
        return Start(name, *FeasibleSet(self.compiled, intervals).nearest(w, theta), local=True)


class _Box:
    """Controls v (…, I, m) in [0, 1], and projection of many at once, as accurately as scouts need."""

    trials, met = 120, 1e-10

    def __init__(self, compiled: CompiledProblem) -> None:
        relaxation = compiled.relaxation
        self.low, high = relaxation.bounds
        self.width = high - self.low
        controls = compiled.problem.controls
        self._controls = list(relaxation.blocks.values())
        self._blocks = [block for name, block in relaxation.blocks.items() if controls[name].sum_limited]
        rows, targets, self._equal = relaxation.budget_rows
        self._rows, self._targets = rows * self.width, targets - rows @ self.low

    @property
    def simple(self) -> bool:
        """Does every control have at most one budget?"""
        about = [np.any(self._rows[:, block] != 0, axis=1) for block in self._controls]
        return all(np.count_nonzero(budgets) <= 1 for budgets in about)

    def values(self, v: np.ndarray) -> np.ndarray:
        """Controls w of v."""
        return np.asarray(self.low + self.width * v)

    def scaled(self, w: np.ndarray) -> np.ndarray:
        """Controls v of w."""
        return np.asarray((w - self.low) / self.width)

    def nearest(self, v: Lanes) -> np.ndarray:
        """The nearest controls that meet bounds, shares and budgets."""
        moved = v
        for row, target, equal in zip(self._rows, self._targets, self._equal, strict=True):
            row, target = row / np.abs(row).max(), target / np.abs(row).max()
            smallest = np.abs(row[row != 0]).min()
            reach = 2 * (np.abs(v).max(axis=(1, 2)) + 1) / smallest
            price = self._price(v, row, target, reach)
            price = price if equal else np.maximum(price, 0.0)
            moved = moved - price[:, None, None] * row
        return self._inside(moved)

    def _price(self, v: Lanes, row: np.ndarray, target: float, reach: np.ndarray) -> np.ndarray:
        """(N,) multipliers at which the mean of row·v meets its target: Newton's steps inside a bracket."""
        price, low, high = np.zeros(len(v)), -reach, reach
        for number in range(self.trials):
            inside = self._inside(v - price[:, None, None] * row)
            excess = (inside @ row).mean(axis=1) - target
            if np.all(np.abs(excess) <= self.met):
                break
            low, high = np.where(excess > 0, price, low), np.where(excess > 0, high, price)
            fall = ((inside > 0) & (inside < 1)) @ row**2
            fall = fall.mean(axis=1)
            ahead = price + excess / np.where(fall > 0, fall, 1.0)
            # Shares that add up to 1 fall more slowly than this slope, so every third step halves the
            # bracket.
            usable = (fall > 0) & (ahead > low) & (ahead < high) & (number % 3 < 2)
            price = np.where(usable, ahead, (low + high) / 2)
        return price

    def _inside(self, v: np.ndarray) -> np.ndarray:
        inside: np.ndarray = np.clip(v, 0.0, 1.0)
        for block in self._blocks:
            shares = v[..., block]
            inside[..., block] = project_shares(shares.reshape(-1, shares.shape[-1])).reshape(shares.shape)
        return inside


def coarsened(w: np.ndarray, pieces: int) -> np.ndarray:
    """Means (pieces, m) of controls (I, m) over pieces of nearly equal length."""
    place = np.arange(len(w)) * pieces // len(w)
    return np.array([w[place == piece].mean(axis=0) for piece in range(pieces)])
