"""The best schedule of a family with a few parameters, as used for baselines.

Trial schedules are integrated with fixed Runge-Kutta steps, which takes about a millisecond and is smooth in
the parameters; reported values come from ``evaluate``. Importing this loads nothing heavy.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import copysign, sqrt
from sys import float_info
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from optlearn._arrays import float64
from optlearn._errors import UnphysicalStateError
from optlearn._schedule import Schedule, uniform_grid

if TYPE_CHECKING:
    from optlearn._control.compiled import CompiledProblem, Rollout
    from optlearn._control.problem import Problem

Bounds = tuple[float, float]
# Parameters → schedule; and the same with problem and number of intervals as first arguments.
Family = Callable[..., Schedule]

# Runge-Kutta steps over the whole of training for a first look, and how often they are quadrupled if the
# dynamics are too fast for them.
COARSE, REFINEMENTS = 120, 3
# Factor of steps in the final search: its steps move the optimal parameter by less than 1e-6.
FINER = 4
# Points of the first look in each direction; the search then refines the best one.
SCAN = {1: 17, 2: 6}
# With more parameters: points in all, spread evenly, and how many of the best are refined.
SPREAD, REFINED = 48, 3
# Accuracy of the first parameter at a kink of the second, in units of that spacing: enough to compare kinks.
ROUGH = 2e-3
# Accuracy of a first guess: of parameters, in units of that spacing, and of the objective.
GUESSED = 0.02
# Shift of a family's parameter: schedules are smooth in theirs, so this is exact to about 1e-10.
DIFFERENCE = 1e-5
# Replaces an invalid objective, in units of the objective at the start of a search.
FAR = 1e3
GOLDEN = (3 - sqrt(5)) / 2
# Relative distance from a minimum within which round-off hides the change of a smooth function.
FLAT = sqrt(float_info.epsilon)


class _Searched(ABC):
    """A baseline with optimised parameters.

    A class rather than a closure, so that a solver can ask for a rough first guess, since it changes the
    schedule anyway.
    """

    def __call__(self, problem: "Problem", intervals: int) -> Schedule:
        return self._search(problem, intervals, rough=False)

    def roughly(self, problem: "Problem", intervals: int) -> Schedule:
        """A rough version as a solver's first guess, see ``_control.problem.first_guess``."""
        return self._search(problem, intervals, rough=True)

    @abstractmethod
    def _search(self, problem: "Problem", intervals: int, rough: bool) -> Schedule:
        """The best schedule, either to many digits or in a fifth of the time."""


class BestOf(_Searched):
    """A baseline: the best schedule in a family with one or two parameters.

    Args:
        family: (problem, intervals, one or two numbers) → schedule. Free parameters of the problem that the
            schedule does not carry keep their guess.
        bounds: lowest and highest value of each parameter, both allowed; or a function of the problem that
            returns them.
        kinks: intervals → values of the second parameter at which schedules are not smooth in it.
        finish: (problem, intervals, best schedule) → the final schedule.
    """

    def __init__(
        self,
        family: Family,
        *bounds: "Bounds | Callable[[Problem], Bounds]",
        kinks: Callable[[int], Sequence[float]] = lambda intervals: (),
        finish: "Callable[[Problem, int, Schedule], Schedule] | None" = None,
    ) -> None:
        self.family, self.bounds, self.kinks, self.finish = family, bounds, kinks, finish

    @override
    def _search(self, problem: "Problem", intervals: int, rough: bool) -> Schedule:
        def family(*parameters: float) -> Schedule:
            return self.family(problem, intervals, *parameters)

        bounds = [limits(problem) if callable(limits) else limits for limits in self.bounds]
        best = best_of(problem, family, *bounds, kinks=self.kinks(intervals), rough=rough)
        return best if self.finish is None else self.finish(problem, intervals, best)


class BestOfLinear(_Searched):
    """A baseline: the best schedule B p, for a problem with one continuous control and nothing free.

    The adjoint gives the gradient in p, so this suits expensive drifts.

    Args:
        control: name of the control.
        basis: edges (I + 1,) → B (I, p); each of the p parameters has the range of the control.
    """

    def __init__(self, control: str, basis: Callable[[np.ndarray], np.ndarray]) -> None:
        self.control, self.basis = control, basis

    @override
    @float64
    def _search(self, problem: "Problem", intervals: int, rough: bool) -> Schedule:
        from scipy.optimize import minimize

        from optlearn._control.compiled import Rollout, compile_problem

        grid = uniform_grid(problem.horizon, intervals)
        basis, limits = self.basis(grid), problem.continuous[self.control]
        rollout = Rollout(compile_problem(problem), intervals)

        def cost(values: np.ndarray) -> tuple[float, np.ndarray]:
            rolled = rollout.run((basis @ values)[:, None], np.zeros(0))
            return scale * rolled.objective, scale * basis.T @ rolled.gradient[:, 0]

        start = np.full(basis.shape[1], limits.start)
        scale = 1 / abs(rollout.objective((basis @ start)[:, None], np.zeros(0)))
        bounds = [(limits.lower, limits.upper)] * len(start)
        accuracy = {"ftol": GUESSED if rough else 1e-9}
        optimum = minimize(cost, start, jac=True, method="L-BFGS-B", bounds=bounds, options=accuracy)
        return Schedule.piecewise(grid, {self.control: basis @ optimum.x})


@float64
def best_of(
    problem: "Problem", family: Family, *bounds: Bounds, kinks: Sequence[float] = (), rough: bool = False
) -> Schedule:
    """The schedule ``family(*parameters)`` with the lowest objective; see ``BestOf``.

    A first guess, which a solver improves anyway, may be ``rough``.
    """
    from optlearn._control.compiled import compile_problem

    compiled = compile_problem(problem)
    tolerance = GUESSED if rough else None
    return family(*map(float, best_parameters(compiled, family, bounds, kinks=kinks, tolerance=tolerance)))


def best_parameters(
    compiled: "CompiledProblem",
    family: Family,
    bounds: Sequence[Bounds],
    *,
    first: np.ndarray | None = None,
    kinks: Sequence[float] = (),
    tolerance: float | None = None,
    steps: int = COARSE,
) -> np.ndarray:
    """(p,) parameters of the best schedule of a family.

    Args:
        compiled: the problem.
        family: p parameters → schedule; only families with one parameter may move edges with it.
        bounds: bounds of each parameter.
        first: (P, p) parameters of a first look (default: spread over their whole range).
        kinks: see ``BestOf``.
        tolerance: relative tolerance in the objective, and in the range of a parameter (default: limited by
            round-off, with finer steps).
        steps: steps over the whole of training in the first look.
    """
    lower, upper = (np.array(side, dtype=float) for side in zip(*bounds, strict=True))
    points, spacing = spread(lower, upper)
    ranked, steps = _scan(Trial(compiled, family, lower, upper, steps), points if first is None else first)
    cost = Trial(compiled, family, lower, upper, FINER * steps if tolerance is None else steps)
    best = ranked[0]
    if len(bounds) == 1:
        refined = _best_first(cost, best, spacing, 1e-8 if tolerance is None else tolerance * spacing[0])
    elif len(bounds) == 2:
        refined = _downhill(cost, best, spacing, lower, upper, tolerance)
        if tolerance is None:
            refined = _beyond_kinks(cost, refined, spacing, np.asarray(kinks, dtype=float))
    else:
        ends = [_downhill(cost, point, spacing, lower, upper, tolerance) for point in ranked[:REFINED]]
        refined = min(ends, key=cost)
    # Bounds are points of the scan, but a refinement does not always reach them.
    return refined if cost(refined) < cost(best) else best


def spread(lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points (P, p) between bounds (p,), and how far apart they are in each direction (p,)."""
    p = len(lower)
    if p in SCAN:
        axes = [np.linspace(low, high, SCAN[p]) for low, high in zip(lower, upper, strict=True)]
        points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, p)
        return points, (upper - lower) / (SCAN[p] - 1)
    # An additive recurrence with a maximally irrational vector, modulo 1: its entries are powers of the root
    # of g^(p + 1) = g + 1.
    root = 2.0
    for _ in range(30):
        root = (1 + root) ** (1 / (p + 1))
    units = np.outer(np.arange(1, SPREAD + 1), root ** -np.arange(1.0, p + 1)) % 1
    return lower + units * (upper - lower), (upper - lower) / SPREAD ** (1 / p)


def _scan(trial: "Trial", points: np.ndarray) -> tuple[np.ndarray, int]:
    """The points among (P, p) with a finite objective, best first; and the steps that the best one needs."""
    values = np.array([trial(point) for point in points])
    steps = np.full(len(points), trial.total_steps)
    for _ in range(REFINEMENTS):
        if np.all(np.isfinite(values)):
            break
        # Either an unstable step or diverging dynamics: finer steps tell them apart.
        trial = replace(trial, total_steps=4 * trial.total_steps)
        for i in np.flatnonzero(~np.isfinite(values)):
            values[i], steps[i] = trial(points[i]), trial.total_steps
    order = np.argsort(values, kind="stable")
    if not np.isfinite(values[order[0]]):
        raise UnphysicalStateError(
            f"the dynamics run away under all {len(points)} schedules of the family that were tried"
        )
    return points[order[np.isfinite(values[order])]], int(steps[order[0]])


@dataclass(frozen=True)
class Trial:
    """Objective as a function of a family's parameters (p,)."""

    compiled: "CompiledProblem"
    family: Family
    lower: np.ndarray
    upper: np.ndarray
    total_steps: int

    def __call__(self, parameters: np.ndarray) -> float:
        from optlearn._control.compiled import possible_objective

        schedule, w, theta = self._controls(parameters)
        return possible_objective(self._rollout(schedule), w, theta)

    def with_gradient(self, parameters: np.ndarray) -> tuple[float, np.ndarray]:
        """Objective and gradient (p,), for families whose edges do not move.

        The adjoint gives the derivative in all controls; only the dependence of these on the parameters is
        differenced.
        """
        schedule, w, theta = self._controls(parameters)
        rolled = self._rollout(schedule).run(w, theta)
        slope = np.zeros(len(parameters))
        for i, shift in enumerate(DIFFERENCE * np.eye(len(parameters))):
            up = np.minimum(parameters + shift, self.upper)
            down = np.maximum(parameters - shift, self.lower)
            _, w_up, theta_up = self._controls(up)
            _, w_down, theta_down = self._controls(down)
            slope[i] = np.sum(rolled.gradient * (w_up - w_down))
            slope[i] += rolled.free_gradient @ (theta_up - theta_down)
            slope[i] /= up[i] - down[i]
        return rolled.objective, slope

    def _controls(self, parameters: np.ndarray) -> tuple[Schedule, np.ndarray, np.ndarray]:
        schedule = self.family(*map(float, parameters))
        free = self.compiled.problem.free
        theta = [float(schedule.parameters.get(name, f.start)) for name, f in free.items()]
        return schedule, self.compiled.relaxation.own_vectors(schedule), np.array(theta)

    def _rollout(self, schedule: Schedule) -> "Rollout":
        from optlearn._control.compiled import Rollout

        steps = -(-self.total_steps // schedule.intervals)
        if self.compiled.engine.exact:
            steps = self.compiled.exact_steps(float(np.diff(schedule.grid).max()))
        return Rollout(self.compiled, schedule.grid, steps)


def _best_first(cost: Trial, point: np.ndarray, spacing: np.ndarray, accuracy: float) -> np.ndarray:
    """The point with the best first parameter within one spacing; a second one stays as it is."""
    low, high = (np.clip(point[0] + side * spacing[0], cost.lower[0], cost.upper[0]) for side in (-1, 1))
    first = least_between(lambda x: cost(np.append(x, point[1:])), low, high, accuracy)
    return np.append(first, point[1:])


def _downhill(
    cost: Trial,
    first: np.ndarray,
    spacing: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    tolerance: float | None = None,
) -> np.ndarray:
    """The minimum between ``lower`` and ``upper``, downhill from ``first``."""
    from scipy.optimize import minimize

    # In units of the scan's spacing and of the objective there, so that tolerances mean something.
    scale = abs(cost(first)) or 1.0

    def scaled(z: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = cost.with_gradient(np.clip(z * spacing, lower, upper))
        if not (np.isfinite(value) and np.all(np.isfinite(slope))):
            return FAR, np.zeros(len(z))  # so that the line search comes back
        return value / scale, slope * spacing / scale

    optimum = minimize(
        scaled,
        first / spacing,
        bounds=list(zip(lower / spacing, upper / spacing, strict=True)),
        jac=True,
        method="L-BFGS-B",
        # Closer to round-off, line searches fail after twenty trials each.
        options={"ftol": tolerance or 1e-13, "gtol": tolerance or 1e-9},
    )
    return np.asarray(np.clip(optimum.x * spacing, lower, upper))


def _beyond_kinks(cost: Trial, refined: np.ndarray, spacing: np.ndarray, kinks: np.ndarray) -> np.ndarray:
    """The best minimum near the refined one: each kink may hide another behind it."""
    close = np.abs(kinks - refined[1]) <= spacing[1]
    near = kinks[close & (kinks > cost.lower[1]) & (kinks < cost.upper[1])]
    if not len(near):
        return refined
    edges = np.unique([cost.lower[1], *near, cost.upper[1]])
    at_edges = [_best_first(cost, np.array([refined[0], e]), spacing, ROUGH * spacing[0]) for e in edges]
    best = min([refined, *at_edges], key=cost)
    # From there downhill, in the smooth pieces on both sides.
    place = np.searchsorted(edges, best[1])
    pieces = edges[max(place - 1, 0) : place + 2]
    candidates = [best]
    for low, high in pairwise(pieces):
        lower, upper = np.array([cost.lower[0], low]), np.array([cost.upper[0], high])
        candidates.append(_downhill(cost, np.clip(best, lower, upper), spacing, lower, upper))
    return min(candidates, key=cost)


def least_between(function: Callable[[float], float], low: float, high: float, accuracy: float) -> float:
    """The minimiser of a function between ``low`` and ``high``; any one of several local minima.

    Brent's method: a step to the minimum of the parabola through the best three points, or a golden section
    step if the parabola leads outside or does not converge. SciPy's ``minimize_scalar`` does the same, but
    takes longer to import than a search needs. Both ends are approached but not evaluated; infinite values
    are allowed.
    """
    start = low + GOLDEN * (high - low)
    best = [(function(start), start)]
    step = before = 0.0
    while True:
        (value, x), middle = best[0], (low + high) / 2
        closest = FLAT * abs(x) + accuracy / 3
        if abs(x - middle) <= 2 * closest - (high - low) / 2:
            return x
        over, under = _lowest_of_parabola(best)
        if abs(before) > closest and abs(over) < abs(under * before / 2) and low < x + over / under < high:
            before, step = step, over / under
            if min(x + step - low, high - x - step) < 2 * closest:
                step = copysign(closest, middle - x)
        else:
            before = (high if x < middle else low) - x
            step = GOLDEN * before
        trial = x + copysign(max(abs(step), closest), step)
        trial_value = function(trial)
        # The minimum lies between the neighbours of the lower of the two points.
        edge = x if trial_value <= value else trial
        if (trial > x) == (trial_value <= value):
            low = edge
        else:
            high = edge
        best = sorted([(trial_value, trial), *best], key=lambda point: point[0])[:3]


def _lowest_of_parabola(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Distance of the parabola's minimum from the first of three points (value, place), as a fraction."""
    if len(points) < 3:
        return 0.0, 0.0
    (value, x), (second_value, second), (third_value, third) = points
    right, left = (x - second) * (value - third_value), (x - third) * (value - second_value)
    return (x - second) * right - (x - third) * left, 2 * (left - right)
