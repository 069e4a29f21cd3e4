"""How optimal a solution is: evidence, not a promise."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from optlearn._control.hamiltonian.gap import free_gap, hamiltonian_gap
from optlearn._control.program.build import CompiledProblem
from optlearn._control.program.rollout import Rollout, RolloutResult
from optlearn._control.solvers.outcome import Outcome

# Gaps up to this share of the objective count as small.
SMALL = 2e-5
STEPS = 4


@dataclass(frozen=True)
class Starts:
    """What became of the starts.

    Attributes:
        tried: how many starts were optimised.
        agreeing: how many ended within 1e-6 of the best.
        spread: worst minus best.
    """

    tried: int
    agreeing: int
    spread: float


@dataclass(frozen=True)
class Certificate:
    """Evidence of optimality; gaps are in units of the objective.

    Attributes:
        hamiltonian_gap: ∫ [H(u) − min H] dα along the returned trajectory, budget multipliers
            included, and the same for the free parameters: a first-order estimate of what is still
            to be won on this grid. Limits on switches and dwell are not taken into account.
        relaxation_gap: objective minus that of the best mixed schedule; None without discrete
            controls.
        integration_error: the solver's own objective minus the re-integrated one.
        starts: how many starts were tried and how well they agree.
        budget_error: largest violation of a budget.
        converged: the solver said so, and all gaps are small.
        reasons: why not, if not.
    """

    hamiltonian_gap: float
    relaxation_gap: float | None
    integration_error: float
    starts: Starts
    budget_error: float
    converged: bool
    reasons: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return asdict(self)


def limits(objective: float) -> dict[str, float]:
    """Name of each gap → up to what it counts as small."""
    small = SMALL * max(abs(objective), 1e-3)
    return {
        "hamiltonian_gap": small,
        "relaxation_gap": 10 * small,
        "integration_error": small,
        "budget_error": 1e-7,
    }


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
            Hamiltonian gap that must be small: what rounding costs is known exactly, as the
            relaxation gap, while the Hamiltonian gap of a rounded schedule also counts what no
            schedule on this grid can win.
    """
    gap, rolled = _gap(compiled, w, theta)
    solver_gap = gap if relaxed_controls is None else min(gap, _gap(compiled, *relaxed_controls)[0])
    relaxation = None if relaxed_objective is None else objective - relaxed_objective
    best = min(objectives)
    starts = Starts(
        len(objectives),
        sum(value - best <= 1e-6 * max(1.0, abs(best)) for value in objectives),
        max(objectives) - best,
    )
    violation = compiled.relaxation.budget_rows.error(w)
    small = limits(objective)
    reasons = [] if outcome.ok else [outcome.value]
    limited = any(control.limited for control in compiled.problem.discrete.values())
    price = ", which includes the price of max_switches and min_dwell" if limited else ""
    if solver_gap > small["hamiltonian_gap"]:
        reasons.append(f"hamiltonian_gap {solver_gap:.1e} exceeds {small['hamiltonian_gap']:.1e}")
    if relaxation is not None and relaxation > small["relaxation_gap"]:
        reasons.append(
            f"relaxation_gap {relaxation:.1e} exceeds {small['relaxation_gap']:.1e}{price}: the optimum "
            "mixes values; use more intervals, or the mixed schedule (solution.relaxed)"
        )
    if abs(solver_objective - objective) > small["integration_error"]:
        reasons.append(
            f"integration_error {solver_objective - objective:.1e} exceeds "
            f"{small['integration_error']:.1e}: use more intervals or steps"
        )
    if violation > small["budget_error"]:
        reasons.append(f"budget_error {violation:.1e}")
    certificate = Certificate(
        gap,
        relaxation,
        solver_objective - objective,
        starts,
        violation,
        not reasons,
        tuple(reasons),
    )
    return certificate, rolled


def _gap(compiled: CompiledProblem, w: np.ndarray, theta: np.ndarray) -> tuple[float, RolloutResult]:
    """What the minimum principle says is to be won by controls and free parameters; and the rollout."""
    steps = compiled.exact_steps(compiled.problem.horizon / len(w)) if compiled.program.exact else STEPS
    rolled = Rollout(compiled, len(w), steps).run(w, theta)
    gap, _, _ = hamiltonian_gap(compiled, rolled, w, theta, steps)
    return max(float(gap), 0.0) + free_gap(compiled, rolled, w, theta, steps)[0], rolled
