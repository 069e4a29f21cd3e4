"""The best schedule of a family with one or two parameters: what baselines are made of.

Trial schedules are integrated with fixed Runge-Kutta steps, which costs about a millisecond and is
smooth in the parameters; values that are reported come from ``evaluate``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from optlearn._control.compiled import CompiledProblem, Rollout, compile_problem
from optlearn._control.effort import guessing
from optlearn._control.problem import Problem
from optlearn._errors import UnphysicalStateError
from optlearn._precision import float64
from optlearn._schedule import Schedule
from optlearn.scenarios._shared.line_search import least_between

Family = Callable[..., Schedule]

# Runge-Kutta steps over the whole of training for a first look, and how often they become four times as many
# where the dynamics are too fast for them.
COARSE, REFINEMENTS = 120, 3
# By how many more the search then takes: they do not move an optimum by more than 1e-6 of its parameter.
FINER = 4
# Points of the first look in each direction; the search then refines the best one.
SCAN = {1: 17, 2: 6}
# Accuracy of the first number at a kink of the second, in units of that spacing: enough to compare kinks.
ROUGH = 2e-3
# Accuracy of a first guess: of parameters, in units of that spacing, and of the objective.
GUESSED = 0.02
# Shift of a family's parameter: schedules are smooth in theirs, so this is exact to about 1e-10.
DIFFERENCE = 1e-5


@float64
def best_of(
    problem: Problem, family: Family, *bounds: tuple[float, float], kinks: Sequence[float] = ()
) -> Schedule:
    """The schedule ``family(*parameters)`` with the lowest objective.

    Args:
        problem: whose objective counts.
        family: one or two numbers → schedule. Free parameters of the problem that the schedule does
            not carry keep their guess.
        bounds: lowest and highest value of each number, both allowed.
        kinks: values of the second number at which schedules are not smooth in it.
    """
    compiled = compile_problem(problem)
    lower, upper = (np.array(side, dtype=float) for side in zip(*bounds, strict=True))
    axes = [np.linspace(low, high, SCAN[len(bounds)]) for low, high in bounds]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(bounds))
    first, steps = _scan(_Trial(compiled, family, lower, upper, COARSE), points)
    cost = _Trial(compiled, family, lower, upper, steps if guessing() else FINER * steps)
    spacing = (upper - lower) / (SCAN[len(bounds)] - 1)
    if len(bounds) == 1:
        found = _refine_line(cost, first, spacing)
    else:
        found = _refine_plane(cost, first, spacing, lower, upper)
    if len(bounds) == 2 and not guessing():
        found = _beyond_kinks(cost, found, spacing, np.asarray(kinks, dtype=float))
    # A bound itself is among the points of the scan but is not always reached by a refinement.
    return family(*map(float, found if cost(found) < cost(first) else first))


def _scan(trial: "_Trial", points: np.ndarray) -> tuple[np.ndarray, int]:
    """The best of points (P, p), and steps with which its objective is finite."""
    values = np.array([trial(point) for point in points])
    steps = np.full(len(points), trial.total_steps)
    for _ in range(REFINEMENTS):
        if np.all(np.isfinite(values)):
            break
        # An unstable step, or dynamics that run away: finer steps tell.
        trial = replace(trial, total_steps=4 * trial.total_steps)
        for i in np.flatnonzero(~np.isfinite(values)):
            values[i], steps[i] = trial(points[i]), trial.total_steps
    best = int(np.argmin(values))
    if not np.isfinite(values[best]):
        raise UnphysicalStateError(
            f"the dynamics run away under all {len(points)} schedules of the family that were tried"
        )
    return points[best], int(steps[best])


@dataclass(frozen=True)
class _Trial:
    """Objective as a function of a family's parameters (p,)."""

    compiled: CompiledProblem
    family: Family
    lower: np.ndarray
    upper: np.ndarray
    total_steps: int

    def __call__(self, parameters: np.ndarray) -> float:
        schedule, w, theta = self._controls(parameters)
        value = self._rollout(schedule).objective(w, theta)
        return value if np.isfinite(value) else np.inf

    def with_gradient(self, parameters: np.ndarray) -> tuple[float, np.ndarray]:
        """Objective and gradient (p,), for families whose edges do not move.

        The adjoint gives the derivative in all controls; only how these follow the parameters is
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

    def _rollout(self, schedule: Schedule) -> Rollout:
        steps = -(-self.total_steps // schedule.intervals)
        if self.compiled.engine.exact:
            steps = self.compiled.exact_steps(float(np.diff(schedule.grid).max()))
        return Rollout(self.compiled, schedule.grid, steps)


def _refine_line(cost: _Trial, first: np.ndarray, spacing: np.ndarray) -> np.ndarray:
    low, high = cost.lower[0], cost.upper[0]
    around = (max(low, first[0] - spacing[0]), min(high, first[0] + spacing[0]))
    accuracy = GUESSED * spacing[0] if guessing() else 1e-8
    return np.array([least_between(lambda x: cost(np.array([x])), *around, accuracy=accuracy)])


def _refine_plane(
    cost: _Trial, first: np.ndarray, spacing: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> np.ndarray:
    """The minimum between ``lower`` and ``upper``, downhill from ``first``."""
    from scipy.optimize import minimize

    # In units of the scan's spacing and of the objective there, so that tolerances mean something.
    scale = abs(cost(first)) or 1.0

    def scaled(z: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = cost.with_gradient(np.clip(z * spacing, lower, upper))
        return value / scale, slope * spacing / scale

    found = minimize(
        scaled,
        first / spacing,
        bounds=list(zip(lower / spacing, upper / spacing, strict=True)),
        jac=True,
        method="L-BFGS-B",
        # Nearer to round-off, line searches fail, and try twenty times each.
        options={"ftol": GUESSED, "gtol": GUESSED} if guessing() else {"ftol": 1e-13, "gtol": 1e-9},
    )
    return np.asarray(np.clip(found.x * spacing, lower, upper))


def _beyond_kinks(cost: _Trial, found: np.ndarray, spacing: np.ndarray, kinks: np.ndarray) -> np.ndarray:
    """The best minimum near one that was found: each kink may hide another behind it."""
    near = kinks[(np.abs(kinks - found[1]) <= spacing[1]) & (kinks > cost.lower[1]) & (kinks < cost.upper[1])]
    if not len(near):
        return found
    edges = np.unique([cost.lower[1], *near, cost.upper[1]])

    def best_at(second: float) -> np.ndarray:
        low, high = (np.clip(found[0] + side * spacing[0], cost.lower[0], cost.upper[0]) for side in (-1, 1))
        along = least_between(lambda x: cost(np.array([x, second])), low, high, ROUGH * spacing[0])
        return np.array([along, second])

    best = min([found, *map(best_at, edges)], key=cost)
    # From there downhill, in the smooth pieces on both sides.
    place = np.searchsorted(edges, best[1])
    pieces = edges[max(place - 1, 0) : place + 2]
    candidates = [best]
    for low, high in pairwise(pieces):
        lower, upper = np.array([cost.lower[0], low]), np.array([cost.upper[0], high])
        candidates.append(_refine_plane(cost, np.clip(best, lower, upper), spacing, lower, upper))
    return min(candidates, key=cost)


@float64
def best_of_linear(problem: Problem, control: str, grid: np.ndarray, basis: np.ndarray) -> Schedule:
    """The best schedule B p on a grid, for a problem with one continuous control and nothing free.

    The adjoint gives the gradient in p, so this suits drifts that are costly to evaluate.

    Args:
        problem: whose objective counts.
        control: name of its control.
        grid: (I + 1,) edges.
        basis: B (I, p); each of the p parameters may have any value that the control may have.
    """
    from scipy.optimize import minimize

    rollout, limits = Rollout(compile_problem(problem), len(grid) - 1), problem.continuous[control]

    def cost(values: np.ndarray) -> tuple[float, np.ndarray]:
        rolled = rollout.run((basis @ values)[:, None], np.zeros(0))
        return scale * rolled.objective, scale * basis.T @ rolled.gradient[:, 0]

    start = np.full(basis.shape[1], limits.start)
    scale = 1 / abs(rollout.objective((basis @ start)[:, None], np.zeros(0)))
    bounds = [(limits.lower, limits.upper)] * len(start)
    accuracy = {"ftol": GUESSED if guessing() else 1e-9}
    found = minimize(cost, start, jac=True, method="L-BFGS-B", bounds=bounds, options=accuracy)
    return Schedule.piecewise(grid, {control: basis @ found.x})


def phases(horizon: float, *parts: tuple[float, dict[str, float]]) -> Schedule:
    """A schedule of phases (duration, values), up to the horizon; empty phases are left out."""
    kept = [(length, values) for length, values in parts if length > 1e-12 * horizon]
    edges = np.concatenate([[0.0], np.cumsum([length for length, _ in kept])])
    edges[-1] = horizon
    names: Sequence[str] = tuple(kept[0][1])
    return Schedule.piecewise(edges, {n: [values[n] for _, values in kept] for n in names})


def plateau_kinks(intervals: int) -> list[float]:
    """Shares of training at which the decay after a plateau reaches the middle of one more interval."""
    return [(k + 0.5) / intervals for k in range(intervals)]
