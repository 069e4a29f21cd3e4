"""Linear feedback around an optimum: how controls should respond if the state deviates from the plan.

To second order, the cost of a deviation δx of the state is quadratic, and the best response is linear in it:
δu = K δx. The gains K follow from a backward Riccati recursion over the intervals, with the exact first and
second derivatives of the steps, as in the direct method. Controls at a bound stay there.
"""

from dataclasses import dataclass

import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Float, float64
from optlearn._control.compiled import CompiledProblem, Rollout, compile_problem
from optlearn._control.solution import Solution
from optlearn._control.weighing import Fixed
from optlearn._engine.expansion import interval_functions
from optlearn._errors import SpecificationError
from optlearn._planning.replan import measured, state_at
from optlearn._schedule import Schedule

_AT_BOUND = 1e-6  # of a control's range
_FLAT = 1e-9  # curvature below this share of the largest counts as zero


@dataclass(frozen=True)
class Feedback:
    """Controls as a function of the state: u = u*(α) + K(α)(x − x*(α)), clipped to bounds.

    Attributes:
        schedule: u*, the plan.
        controls: names of the continuous controls, which are corrected; the others follow the plan.
        gains: (I, c, n) K on the intervals of the schedule.
        solution: the plan with its trajectory x*.
    """

    schedule: Schedule
    controls: tuple[str, ...]
    gains: Float[np.ndarray, "I c n"]
    solution: Solution

    def __call__(self, alpha: float, state: Array) -> dict[str, float]:
        """The controls at training time α in a measured state.

        Args:
            alpha: training time, from the beginning of the solution's schedule.
            state: the complete state, in the form of ``Problem.start`` or flat (n,).
        """
        alpha = Arguments("feedback").number("alpha", alpha)
        if not 0 <= alpha <= self.schedule.horizon:
            raise SpecificationError(
                f"alpha must be a training time from 0 to {self.schedule.horizon:g}, got {alpha!r}"
            )
        model = self.solution.problem.model
        flat = measured("feedback", model, state)
        planned = np.asarray(model.layout.flatten(state_at(self.solution, alpha)))
        return self.correct(alpha, flat - planned)

    def correct(self, alpha: float, deviation: Float[np.ndarray, " n"]) -> dict[str, float]:
        """The controls at training time α for a deviation (n,) from the planned state."""
        grid = self.schedule.grid
        interval = int(np.clip(np.searchsorted(grid, alpha, side="right") - 1, 0, len(grid) - 2))
        values = {name: float(self.schedule[name][interval]) for name in self.schedule.controls}
        for name, change in zip(self.controls, self.gains[interval] @ deviation, strict=True):
            control = self.solution.problem.controls[name]
            values[name] = float(np.clip(values[name] + change, control.lower, control.upper))
        return values


@float64
def feedback(solution: Solution) -> Feedback:
    """The feedback of a solution; see ``Solution.feedback``."""
    problem, schedule = solution.problem, solution.schedule
    if not problem.continuous:
        raise SpecificationError(
            "feedback corrects continuous controls, and this problem has none: use solution.replan instead"
        )
    for budget in problem.budgets:
        if budget.control in problem.continuous:
            raise SpecificationError(
                f"feedback would break the budget of {budget.control!r}: use solution.replan, which keeps it"
            )
    if problem.paths:
        raise SpecificationError(
            f"feedback would break {problem.paths[0].words}: use solution.replan, which keeps it"
        )
    compiled = compile_problem(problem)
    if solution.weights:
        compiled = compiled.weighted(Fixed(np.array(solution.weights)))
    w = compiled.relaxation.own_vectors(schedule)
    theta = np.array([solution.parameters[name] for name in problem.free])
    gains = _gains(compiled, w, theta, int(solution.options.get("steps", 1)))
    # Continuous controls are the first entries of w.
    names = tuple(name for name in compiled.relaxation.controls if name in problem.continuous)
    return Feedback(schedule, names, gains[:, : len(names)], solution)


def _gains(
    compiled: CompiledProblem, w: Float[np.ndarray, "I m"], theta: Float[np.ndarray, " k"], steps: int
) -> Float[np.ndarray, "I m n"]:
    """(I, m, n) by Riccati's recursion, backward over the intervals."""
    (n, m, _), c, intervals = compiled.sizes, compiled.constants, len(w)
    rolled = Rollout(compiled, intervals, steps).run(w, theta)
    states, costates = rolled.states[::steps], rolled.costates[::steps]
    functions = interval_functions(compiled.engine, steps)
    h = compiled.problem.horizon / (intervals * steps)
    last = c if compiled.weigher is None else compiled.with_weights(compiled.weigher.weights(np.zeros(0)))
    S = np.array(compiled.engine.derivatives.final_hessian(last, states[-1], theta))[:n, :n]
    low, high = compiled.relaxation.bounds
    margin = _AT_BOUND * (high - low)
    free = (w > low + margin) & (w < high - margin)
    free[:, compiled.relaxation.curved :] = False
    gains = np.zeros((intervals, m, n))
    for i in reversed(range(intervals)):
        slope = np.array(functions.slope(c, states[i], w[i], theta, h)[1])[:, : n + m]
        curvature = functions.curvature(c, states[i], w[i], theta, h, costates[i + 1], 1.0, [])
        Q = np.array(curvature)[: n + m, : n + m] + slope.T @ S @ slope
        chosen = n + np.flatnonzero(free[i])
        if len(chosen):
            gains[i, chosen - n] = -_inverse(Q[np.ix_(chosen, chosen)]) @ Q[chosen, :n]
        S = Q[:n, :n] + Q[:n, n:] @ gains[i] + gains[i].T @ Q[n:, :n] + gains[i].T @ Q[n:, n:] @ gains[i]
        S = (S + S.T) / 2
    return gains


def _inverse(curvature: Float[np.ndarray, "c c"]) -> Float[np.ndarray, "c c"]:
    """The inverse on directions of positive curvature; zero on the others."""
    values, vectors = np.linalg.eigh((curvature + curvature.T) / 2)
    sure = values > _FLAT * max(float(np.abs(values).max()), 1e-300)
    inverse = np.where(sure, 1 / np.where(sure, values, 1.0), 0.0)
    return np.asarray((vectors * inverse) @ vectors.T)
