"""Pontryagin's minimum principle: the Hamiltonian on each interval, minimised over the controls.

On an interval the control w is constant while the state x and the costate λ move, so what a control costs
there is H averaged over the interval, H̄(w) = mean of λ·f(x, w) + ℓ(x, w). The mean is a quadrature
(Simpson, or trapezoid), and its slope at the present control is replaced by the exact gradient of the
discretised objective: then H̄ is stationary exactly where the objective is, on any grid.

Budgets add ν·a·w with one constant ν each. The multipliers have the unit of H, so those of the direct
method, which belong to the *mean* of a·w over training, are the horizon times ν.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Generic, TypeVar

import casadi
import numpy as np
from scipy import sparse
from scipy.optimize import linprog, minimize

from optlearn.control.controls import Continuous
from optlearn.control.dynamics import Dynamics, Functions
from optlearn.control.relaxation import Relaxation
from optlearn.control.sweep import Swept

_CACHE: dict[Hashable, tuple[Any, Any, Any]] = {}

# Points of the coarse search in each continuous control, by the number of such controls.
_GRID_POINTS = {0: 1, 1: 17, 2: 9}
_GRID_POINTS_MANY = 5
_PRECISE = 1e-9  # of a control, relative to its range; Newton's last step is far better than that
_NEWTON_STEPS = 60
_CYCLES = 40  # of coordinate-wise minimisation
_COLUMN_ROUNDS = 40
_COLUMN_ACCURACY = 0.01  # of the gap

Payload = TypeVar("Payload")


# --- the Hamiltonian on intervals -------------------------------------------------------------------


@dataclass(frozen=True)
class IntervalHamiltonian:
    """H̄ on each interval as a function of the control there.

    Attributes:
        dynamics: the problem.
        states: (I, p, n) at the p quadrature points of each interval.
        costates: (I, p, n) there.
        weights: (p,) of the quadrature, adding up to 1.
        theta: (k,) free parameters.
        tilt: (I, m) added slope.
        origin: (I, m) where the added slope adds nothing.
    """

    dynamics: Dynamics
    states: np.ndarray
    costates: np.ndarray
    weights: np.ndarray
    theta: np.ndarray
    tilt: np.ndarray
    origin: np.ndarray

    @classmethod
    def at_point(
        cls, dynamics: Dynamics, state: np.ndarray, costate: np.ndarray, theta: np.ndarray
    ) -> "IntervalHamiltonian":
        """H at one state (n,) and costate (n,): a single interval without extent."""
        none = np.zeros((1, dynamics.sizes[1]))
        return cls(
            dynamics, state[None, None], costate[None, None], np.ones(1), theta, none, none
        )

    @classmethod
    def along(
        cls, dynamics: Dynamics, swept: Swept, w: np.ndarray, theta: np.ndarray, steps: int
    ) -> "IntervalHamiltonian":
        """H̄ along a sweep under controls w (I, m), with the exact slope at w."""
        points = np.arange(len(w))[:, None] * steps + np.arange(steps + 1)[None, :]
        arguments = (
            dynamics, swept.states[points], swept.costates[points], quadrature(steps), theta,
        )  # fmt: skip
        plain = cls(*arguments, np.zeros_like(w), w)
        _, slope, _ = plain.expand(w, np.arange(len(w)))
        exact = swept.gradient * len(w) / dynamics.problem.horizon
        return cls(*arguments, exact - slope, w)

    @property
    def intervals(self) -> int:
        """I."""
        return len(self.states)

    def value(self, w: np.ndarray, of: np.ndarray) -> np.ndarray:
        """(P,) values of H̄ at controls w (P, m) on the intervals ``of`` (P,)."""
        value, _, _ = _functions(self.dynamics.functions)
        (mean,) = self._averages([value(*self._columns(w, of))])
        return mean[:, 0] + self._added(w, of)

    def expand(self, w: np.ndarray, of: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """H̄ (P,), its gradient (P, m) and the diagonal of its Hessian (P, m)."""
        _, expansion, _ = _functions(self.dynamics.functions)
        value, slope, curvature = self._averages(expansion(*self._columns(w, of)))
        return value[:, 0] + self._added(w, of), slope + self.tilt[of], curvature

    def free(self, w: np.ndarray, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Mean over all intervals of H under controls w (I, m), and its gradient (k,) in θ."""
        _, _, free = _functions(self.dynamics.functions)
        columns = replace(self, theta=theta)._columns(w, np.arange(self.intervals))
        value, slope = self._averages(free(*columns))
        return float(value.mean()), slope.mean(axis=0)

    def _added(self, w: np.ndarray, of: np.ndarray) -> np.ndarray:
        return np.asarray(np.einsum("pm,pm->p", self.tilt[of], w - self.origin[of]))

    def _columns(self, w: np.ndarray, of: np.ndarray) -> tuple[np.ndarray, ...]:
        """Arguments of the CasADi functions: one column for each pair of control and point."""
        n = self.states.shape[2]
        return (
            self.dynamics.constants,
            self.states[of].reshape(-1, n).T,
            np.repeat(w, len(self.weights), axis=0).T,
            self.theta,
            self.costates[of].reshape(-1, n).T,
        )

    def _averages(self, outputs: Any) -> list[np.ndarray]:
        """(P, size) averages over an interval's points of outputs with one column for each."""
        points = len(self.weights)
        arrays = [np.array(output).T for output in outputs]
        return [
            np.einsum("q,pqs->ps", self.weights, a.reshape(-1, points, a.shape[1])) for a in arrays
        ]


def quadrature(steps: int) -> np.ndarray:
    """(steps + 1,) weights for the mean over an interval: Simpson's for even steps, or trapezoid."""
    weights = np.ones(steps + 1)
    if steps % 2 == 0:
        weights[1:-1:2], weights[2:-1:2] = 4.0, 2.0
    else:
        weights[1:-1] = 2.0
    return weights / weights.sum()


def _functions(functions: Functions) -> tuple[Any, Any, Any]:
    """Functions of (constants, x, w, θ, λ).

    The first gives H; the second H, its gradient and the diagonal of its Hessian in w; the third H and
    its gradient in θ.
    """
    if functions.key not in _CACHE:
        rate = functions.rate
        c, x, w, theta = (casadi.SX.sym(n, rate.size1_in(i)) for i, n in enumerate("cxwt"))
        costate = casadi.SX.sym("costate", x.shape[0])
        inputs = [c, x, w, theta, costate]
        slope, cost = rate(c, x, w, theta)
        H = casadi.dot(costate, slope) + cost
        hessian, gradient = casadi.hessian(H, w)
        dense = [casadi.densify(v) for v in (H, gradient, casadi.diag(hessian))]
        _CACHE[functions.key] = (
            casadi.Function("H", inputs, casadi.cse([dense[0]])),
            casadi.Function("H_expansion", inputs, casadi.cse(dense)),
            casadi.Function("H_free", inputs, casadi.cse([H, casadi.gradient(H, theta)])),
        )
    return _CACHE[functions.key]


# --- minimisation at fixed multipliers --------------------------------------------------------------


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
        relaxation = hamiltonian.dynamics.relaxation
        self.vertices = share_vertices(relaxation)
        self.continuous = len(relaxation.problem.continuous)
        self.lower, self.upper = (bound[: self.continuous] for bound in relaxation.bounds)
        count = _GRID_POINTS.get(self.continuous, _GRID_POINTS_MANY)
        # Denser towards both bounds, where functions such as 1/B and √Δ bend most.
        unit = (1 - np.cos(np.linspace(0.0, np.pi, count))) / 2 if count > 1 else np.zeros(1)
        self._spacing = (self.upper - self.lower) * np.diff(unit).max(initial=0.0)
        grid = self.lower + (self.upper - self.lower) * np.array(
            list(product(unit, repeat=self.continuous))
        ).reshape(count**self.continuous, self.continuous)
        self._candidates = np.array(
            [np.concatenate([g, v]) for v in self.vertices for g in grid]
        )  # (V·G, m)
        self._every = np.arange(hamiltonian.intervals)
        self._table = self._tabulate()
        self._present = hamiltonian.value(w, self._every)
        # Where the last refinement ended, (V·I, m): the next one, for a slope nearby, starts there.
        self._last: np.ndarray | None = None

    def _tabulate(self) -> np.ndarray:
        """(V, G, I) values of H̄ at all candidates."""
        count, I = len(self._candidates), self.hamiltonian.intervals  # noqa: E741
        values = self.hamiltonian.value(
            np.repeat(self._candidates, I, axis=0), np.tile(self._every, count)
        )
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
        return _PRECISE * (self.upper - self.lower)

    def _refine_entry(
        self, w: np.ndarray, of: np.ndarray, slope: np.ndarray, entry: int
    ) -> np.ndarray:
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
    options = []
    for name in relaxation.controls:
        control = relaxation.problem.controls[name]
        if not isinstance(control, Continuous):
            count = len(control.values)
            options.append(np.eye(count)[:, : count - 1])
    combinations = [np.concatenate(parts) for parts in product(*options)] if options else [[]]
    return np.array(combinations, dtype=float)


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
        low, high: (P,) brackets.
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


# --- budgets ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial(Generic[Payload]):
    """A multiplier, how much it misses its target by, and what was found with it."""

    multiplier: float
    excess: float
    found: Payload


def bracket_multiplier(
    attempt: Callable[[float], tuple[float, Payload]],
    *,
    start: float = 0.0,
    step: float = 1.0,
    tolerance: float = 1e-13,
    narrow: float = 1e-14,
    at_most: bool = False,
    evaluations: int = 200,
) -> tuple[Trial[Payload], Trial[Payload]]:
    """Two multipliers, as close as possible, between which a falling excess crosses zero.

    Secant steps (Illinois), and bisections where those gain little: the excess may be smooth or jump.

    Args:
        attempt: ν → excess (not rising with ν), and anything to be kept.
        start, step: where to look first, and how far to go from there.
        tolerance: size of an excess that counts as zero.
        narrow: width of the bracket, relative to ν, at which to stop.
        at_most: an excess below zero is allowed, with ν = 0.
        evaluations: at most so many.

    Returns:
        Trials with excess ≥ 0 and with excess ≤ 0; one of them is near zero, or they are close.
    """

    def tried(multiplier: float) -> Trial[Payload]:
        return Trial(multiplier, *attempt(multiplier))

    if at_most:
        zero = tried(0.0)
        if zero.excess <= tolerance:
            return zero, zero
        start = max(start, 0.0)
    low = high = tried(start)
    while low.excess < -tolerance and evaluations > 0:
        high, low = low, tried(low.multiplier - step)
        step, evaluations = 2 * step, evaluations - 1
    while high.excess > tolerance and evaluations > 0:
        low, high = high, tried(high.multiplier + step)
        step, evaluations = 2 * step, evaluations - 1
    return _close_in(tried, low, high, tolerance, narrow, evaluations)


def _close_in(
    tried: Callable[[float], Trial[Payload]],
    low: Trial[Payload],
    high: Trial[Payload],
    tolerance: float,
    narrow: float,
    evaluations: int,
) -> tuple[Trial[Payload], Trial[Payload]]:
    weight_low, weight_high = low.excess, high.excess
    halve, last = False, 0
    for _ in range(evaluations):
        width = high.multiplier - low.multiplier
        if min(low.excess, -high.excess) <= tolerance or width <= narrow * max(
            abs(low.multiplier), abs(high.multiplier)
        ):
            break
        share = 0.5 if halve else weight_low / (weight_low - weight_high)
        middle = low.multiplier + share * width
        if not low.multiplier < middle < high.multiplier:
            middle = (low.multiplier + high.multiplier) / 2
        new = tried(middle)
        least = min(low.excess, -high.excess)
        # Illinois: an end that stays twice counts half, or secants would keep it for ever.
        side = 1 if new.excess >= 0 else -1
        if side > 0:
            low, weight_low = new, new.excess
            weight_high = weight_high / 2 if side == last else weight_high
        else:
            high, weight_high = new, new.excess
            weight_low = weight_low / 2 if side == last else weight_low
        last = side
        halve = abs(new.excess) > least / 4 and high.multiplier - low.multiplier > width / 2
    return low, high


def blend(low: Trial[np.ndarray], high: Trial[np.ndarray]) -> tuple[np.ndarray, float]:
    """The mixture of two trials' finds whose excess is zero, excess being linear in them; and ν."""
    spread = low.excess - high.excess
    share = min(max(low.excess / spread, 0.0), 1.0) if spread > 0 else 0.0
    return (
        low.found + share * (high.found - low.found),
        low.multiplier + share * (high.multiplier - low.multiplier),
    )


def minimise_hamiltonian(
    hamiltonian: IntervalHamiltonian, w: np.ndarray, start: np.ndarray | None = None
) -> tuple[float, np.ndarray, np.ndarray]:
    """Minimise H̄ over all controls that meet the budgets.

    The gap is that of the Lagrange dual, Σ_i h [L_i(w_i) − min L_i] + horizon·ν·(t − mean a·w) with
    L = H̄ + ν a·w. It is never negative for controls w that meet the budgets, and where H̄ is linear in
    w, as in shares, it is the Frank-Wolfe gap of the discretised problem.

    Args:
        hamiltonian: H̄ on I intervals.
        w: (I, m) present controls.
        start: (b,) multipliers to look near.

    Returns:
        gap: horizon · mean over intervals of what H̄ could fall by.
        w_star: (I, m) minimisers that meet the budgets; intervals at which the multiplier makes
            several controls equally good may have a mixture.
        nu: (b,) multipliers ν, in units of H.
    """
    minimiser = PointwiseMinimiser(hamiltonian, w)
    rows, targets, equal = hamiltonian.dynamics.relaxation.budget_rows
    start = np.zeros(len(targets)) if start is None else start
    if len(targets) == 0:
        nu = np.zeros(0)
        w_star, _ = minimiser(np.zeros(w.shape[1]))
    elif len(targets) == 1:
        nu, w_star = _one_budget(minimiser, rows[0], targets[0], bool(equal[0]), float(start[0]))
    else:
        nu, w_star = _many_budgets(minimiser, rows, targets, equal, start)
    slope = nu @ rows
    won = minimiser.present(slope) - minimiser(slope)[1]
    slack = nu @ (targets - rows @ w.mean(axis=0))
    return float(hamiltonian.dynamics.problem.horizon * (won.mean() + slack)), w_star, nu


def hamiltonian_gap(
    dynamics: Dynamics,
    swept: Swept,
    w: np.ndarray,
    theta: np.ndarray,
    steps: int,
    start: np.ndarray | None = None,
) -> tuple[float, np.ndarray, np.ndarray]:
    """What the minimum principle says is still to be won, to first order.

    Args:
        dynamics: the problem.
        swept: sweep under w and θ with ``steps`` Runge-Kutta steps in each interval.
        w: (I, m) relaxed controls that meet the budgets.
        theta: (k,) free parameters.
        steps: of the sweep.
        start: (b,) multipliers to look near.

    Returns:
        Gap in units of the objective, minimisers (I, m) of the Hamiltonian that meet the budgets, and
        multipliers (b,) in units of the Hamiltonian: the direct method's, divided by the horizon.
    """
    hamiltonian = IntervalHamiltonian.along(dynamics, swept, w, theta, steps)
    return minimise_hamiltonian(hamiltonian, w, start)


def free_gap(
    dynamics: Dynamics, swept: Swept, w: np.ndarray, theta: np.ndarray, steps: int
) -> tuple[float, np.ndarray]:
    """The same for free parameters: φ(x_F, θ) + ∫H(x, λ, w, θ) dα, minimised over θ within bounds.

    States and costates are held fixed, and as with controls the slope at the present θ is made exact.

    Args:
        dynamics: the problem.
        swept: sweep under w and θ with ``steps`` Runge-Kutta steps in each interval.
        w: (I, m) relaxed controls.
        theta: (k,) free parameters.
        steps: of the sweep.

    Returns:
        Gap in units of the objective, and the minimiser (k,).
    """
    if len(theta) == 0:
        return 0.0, theta
    functions = dynamics.functions
    along = IntervalHamiltonian.along(dynamics, swept, w, theta, steps)
    # Parameters that only the final cost reads need no integral.
    integral = functions.rate.sparsity_jac(3, 0).nnz() + functions.rate.sparsity_jac(3, 1).nnz() > 0

    def total(trial: np.ndarray) -> tuple[float, np.ndarray]:
        cost, _, slope = functions.final_gradient(dynamics.constants, swept.states[-1], trial)
        value, gradient = float(cost), np.array(slope).ravel()
        if integral:
            H, H_gradient = along.free(w, trial)
            value = value + dynamics.problem.horizon * H
            gradient = gradient + dynamics.problem.horizon * H_gradient
        return value, gradient

    present, slope = total(theta)
    tilt = swept.free_gradient - slope

    def tilted(trial: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = total(trial)
        return value - present + float(tilt @ (trial - theta)), gradient + tilt

    bounds = [(free.lower, free.upper) for free in dynamics.problem.free.values()]
    options = {"ftol": 0.0, "gtol": 1e-12}
    found = minimize(tilted, theta, jac=True, bounds=bounds, method="L-BFGS-B", options=options)
    return (-float(found.fun), found.x) if found.fun < 0 else (0.0, theta)


def _one_budget(
    minimiser: PointwiseMinimiser, row: np.ndarray, target: float, equal: bool, start: float
) -> tuple[np.ndarray, np.ndarray]:
    def attempt(nu: float) -> tuple[float, np.ndarray]:
        w, _ = minimiser(nu * row)
        return float((w @ row).mean() - target), w

    scale = minimiser.scale(row)
    reach = np.ptp(minimiser.corners @ row)
    low, high = bracket_multiplier(
        attempt,
        start=start,
        step=scale / 8,
        tolerance=1e-12 * reach,
        narrow=1e-12,
        at_most=not equal,
    )
    w_star, nu = blend(low, high)
    return np.array([nu]), w_star


def _many_budgets(
    minimiser: PointwiseMinimiser,
    rows: np.ndarray,
    targets: np.ndarray,
    equal: np.ndarray,
    start: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Column generation: a linear program mixes the minimisers found so far, its duals find new ones.

    Every interval mixes its own columns, budgets tie the intervals together. Corners are columns from
    the start: with them every feasible budget can be met.
    """
    I = minimiser.hamiltonian.intervals  # noqa: E741
    every = np.arange(I)
    columns = [np.tile(corner, (I, 1)) for corner in minimiser.corners]
    columns += [minimiser.w, minimiser(start @ rows)[0]]
    values = [minimiser.hamiltonian.value(column, every) for column in columns]
    present = float(minimiser.present(np.zeros(rows.shape[1])).sum())
    best, nu, w_star = -np.inf, start, minimiser.w
    for _ in range(_COLUMN_ROUNDS):
        master, trial, w_star = _master_program(columns, values, rows, targets, equal)
        column, minima = minimiser(trial @ rows)
        bound = float(minima.sum() - I * trial @ targets)
        if bound > best:
            best, nu = bound, trial
        if master - best <= max(_COLUMN_ACCURACY * (present - best), 1e-13 * abs(present)):
            break
        columns.append(column)
        values.append(minimiser.hamiltonian.value(column, every))
    return nu, w_star


def _master_program(
    columns: list[np.ndarray],
    values: list[np.ndarray],
    rows: np.ndarray,
    targets: np.ndarray,
    equal: np.ndarray,
) -> tuple[float, np.ndarray, np.ndarray]:
    """Best mixture of columns: its value, multipliers (b,) of the budgets, and controls (I, m)."""
    I, count = len(columns[0]), len(columns)  # noqa: E741
    stacked = np.array(columns)  # (count, I, m)
    used = (stacked @ rows.T).reshape(count * I, -1).T
    one_each = sparse.hstack([sparse.eye_array(I)] * count)
    # Costs of order one, so that the solver's absolute tolerances mean something.
    costs = np.concatenate(values)
    size = max(float(np.ptp(costs)), 1e-300)
    solution = linprog(
        costs / size,
        A_eq=sparse.vstack([one_each, sparse.csr_array(used[equal])], format="csr"),
        b_eq=np.concatenate([np.ones(I), I * targets[equal]]),
        A_ub=used[~equal] if np.any(~equal) else None,
        b_ub=I * targets[~equal] if np.any(~equal) else None,
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    nu = np.zeros(len(targets))
    nu[equal] = -size * solution.eqlin.marginals[I:]
    if np.any(~equal):
        nu[~equal] = np.maximum(-size * solution.ineqlin.marginals, 0.0)
    shares = np.clip(solution.x.reshape(count, I), 0.0, None)
    shares = shares / shares.sum(axis=0)
    return float(size * solution.fun), nu, np.einsum("ci,cim->im", shares, stacked)
