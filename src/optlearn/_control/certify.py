"""The evidence for a solution that was found one by one."""

import numpy as np

from optlearn._control.certificate import STEPS, Certificate, Starts, judged
from optlearn._control.hamiltonian.gap import free_gap, hamiltonian_gap
from optlearn._control.program.build import CompiledProblem
from optlearn._control.program.rollout import Rollout, RolloutResult
from optlearn._control.solvers.base import Outcome
from optlearn._control.weighing import Fixed


def certify(
    compiled: CompiledProblem,
    w: np.ndarray,
    theta: np.ndarray,
    *,
    objective: float,
    solver_objective: float,
    relaxed_objective: float | None,
    outcome: Outcome,
    objectives: list[float],
    relaxed_controls: tuple[np.ndarray, np.ndarray] | None = None,
    steps: int = STEPS,
    quadrature_error: float | None = None,
    weights: np.ndarray | None = None,
    multipliers: np.ndarray | None = None,
) -> tuple[Certificate, RolloutResult]:
    """Certificate of relaxed controls w (I, m), and the fine rollout that it is based on.

    Args:
        compiled: the problem.
        w: (I, m) controls as returned (shares of 0 or 1 where rounded).
        theta: (k,) free parameters.
        objective: re-integrated objective.
        solver_objective: objective on the solver's grid.
        relaxed_objective: re-integrated objective of the relaxed optimum, with discrete controls.
        outcome: what the solver said.
        objectives: where each start ended.
        relaxed_controls: w (I, m) and θ (k,) of the relaxed optimum. If given, it is *its*
            Hamiltonian gap that counts, if it is smaller: what rounding costs is known exactly, as the
            relaxation gap, while the Hamiltonian gap of a rounded schedule also counts what no
            schedule on this grid can win.
        steps: in each interval, that the solver needed.
        quadrature_error: change of the objective under a finer quadrature, if there is one.
        weights: (K,) of several costs, if there are. The gap is then that of their weighted sum, plus what
            the sum leaves out of the objective.
        multipliers: (b,) of the budgets, in units of the Hamiltonian, near which to look for them.
    """
    weighing = compiled.problem.weighing
    slack = excess = 0.0
    if weighing is not None:
        costs = Rollout(compiled, len(w), steps).costs(w, theta)
        weights = weighing.weights(costs) if weights is None else weights
        slack, excess = max(0.0, weighing.slack(costs, weights)), weighing.excess(costs)
        compiled = compiled.weighted(Fixed(weights))
    steps = steps if compiled.program.exact else max(STEPS, steps)
    gap, rolled = _gap(compiled, w, theta, steps, multipliers)
    gap += slack
    mixed = None
    if relaxed_controls is not None:
        mixed = _gap(compiled, *relaxed_controls, steps, multipliers)[0] + slack
    certificate = judged(
        compiled.problem,
        objective=objective,
        hamiltonian_gap=gap,
        mixed_gap=mixed,
        relaxed_objective=relaxed_objective,
        integration_error=solver_objective - objective,
        budget_error=compiled.relaxation.budget_rows.error(w),
        outcome=outcome,
        starts=Starts.of(objectives),
        largest=float(np.abs(rolled.states).max()),
        quadrature_error=quadrature_error,
        excess=excess,
    )
    return certificate, rolled


def _gap(
    compiled: CompiledProblem, w: np.ndarray, theta: np.ndarray, steps: int, multipliers: np.ndarray | None
) -> tuple[float, RolloutResult]:
    """What the minimum principle says is to be won by controls and free parameters; and the rollout."""
    rolled = Rollout(compiled, len(w), steps).run(w, theta)
    gap, _, _ = hamiltonian_gap(compiled, rolled, w, theta, steps, multipliers)
    return max(float(gap), 0.0) + free_gap(compiled, rolled, w, theta, steps)[0], rolled
