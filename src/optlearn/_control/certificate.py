"""How optimal a solution is: evidence, not a promise."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from optlearn._control.hamiltonian.gap import free_gap, hamiltonian_gap
from optlearn._control.program.build import CompiledProblem
from optlearn._control.program.rollout import Rollout, RolloutResult
from optlearn._control.solvers.base import Outcome
from optlearn._control.weighing import Fixed
from optlearn._dynamics.executor import EXPLODED

# Gaps up to this share of the objective count as small, …
SMALL = 2e-5
# … and so does what the accurate integration itself may be off by.
ROUND_OFF = 1e-12
# Expectations that are this share of the objective off leave three digits.
QUADRATURE = 1e-3
LIMITS_MET = 1e-6  # share of itself by which a limit may be broken
STEPS = 4  # in an interval, at least, along which the minimum principle is checked


@dataclass(frozen=True)
class Starts:
    """What became of the starts.

    Attributes:
        tried: how many starts were optimised.
        agreeing: how many ended within 1e-6 of the best (1e-5 of the objective, where that is less).
        spread: worst minus best.
    """

    tried: int
    agreeing: int
    spread: float

    @classmethod
    def of(cls, objectives: Sequence[float]) -> "Starts":
        """From where each start ended."""
        best = min(objectives)
        close = min(1e-6 * max(1.0, abs(best)), 1e-5 * abs(best)) + ROUND_OFF
        return cls(len(objectives), sum(v - best <= close for v in objectives), max(objectives) - best)

    @property
    def lone(self) -> bool:
        """Has one start alone reached the best, of several?"""
        return self.tried > 1 and self.agreeing == 1


@dataclass(frozen=True)
class Certificate:
    """Evidence of optimality; gaps are in units of the objective.

    Attributes:
        hamiltonian_gap: ∫ [H(u) − min H] dα along the returned trajectory, budget multipliers
            included, and the same for the free parameters: a first-order estimate of what is still
            to be won on this grid. Limits on switches and dwell are not taken into account. Of the worst case
            of an ensemble it is the gap under the members' weights, plus what these leave out.
        relaxation_gap: objective minus that of the best mixed schedule; None without discrete
            controls.
        integration_error: the solver's own objective minus the re-integrated one.
        quadrature_error: twice what a finer, independent quadrature changes of the objective of the same
            schedule; None where expectations are in closed form.
        starts: how many starts were tried and how well they agree.
        budget_error: largest violation of a budget.
        converged: the solver said so, and all gaps are small.
        mixed_gap: with discrete controls, the Hamiltonian gap of the best mixed schedule; None without. The
            smaller of the two must be small: what pure values cost beyond it is known exactly, as the
            relaxation gap.
        reasons: why not, if not.
        lower_bound: what no schedule beats, by another road than the solver's (``ol.bound``).
        lower_bound_kind: what it rests on: "convex", "sos" or "hjb".
    """

    hamiltonian_gap: float
    relaxation_gap: float | None
    integration_error: float
    starts: Starts
    budget_error: float
    converged: bool
    reasons: tuple[str, ...] = ()
    quadrature_error: float | None = None
    mixed_gap: float | None = None
    lower_bound: float | None = None
    lower_bound_kind: str | None = None

    @property
    def may_still_be_won(self) -> float:
        """By how much any schedule, pure or mixed, may be better, to first order."""
        if self.mixed_gap is None:
            return self.hamiltonian_gap
        # What rounding costs is known exactly; the gap of a rounded schedule also counts what no schedule on
        # this grid can win.
        return min(self.hamiltonian_gap, max(self.relaxation_gap or 0.0, 0.0) + self.mixed_gap)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return {"may_still_be_won": self.may_still_be_won, **asdict(self)}


def limits(objective: float) -> dict[str, float]:
    """Name of each gap → up to what it counts as small: a share of the objective.

    An objective below 1e-7 is known to ROUND_OFF and no better, which is then more than that share.
    """
    small = SMALL * abs(objective) + ROUND_OFF
    return {
        "hamiltonian_gap": small,
        "relaxation_gap": 10 * small,
        "integration_error": small,
        "quadrature_error": QUADRATURE * abs(objective) + ROUND_OFF,
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
    steps: int = STEPS,
    quadrature_error: float | None = None,
    weights: np.ndarray | None = None,
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
    """
    weighing = compiled.problem.weighing
    slack = excess = 0.0
    if weighing is not None:
        costs = Rollout(compiled, len(w), steps).costs(w, theta)
        weights = weighing.weights(costs) if weights is None else weights
        slack, excess = max(0.0, weighing.slack(costs, weights)), weighing.excess(costs)
        compiled = compiled.weighted(Fixed(weights))
    steps = steps if compiled.program.exact else max(STEPS, steps)
    gap, rolled = _gap(compiled, w, theta, steps)
    gap += slack
    mixed = None if relaxed_controls is None else _gap(compiled, *relaxed_controls, steps)[0] + slack
    solver_gap = gap if mixed is None else min(gap, mixed)
    relaxation = None if relaxed_objective is None else objective - relaxed_objective
    violation = compiled.relaxation.budget_rows.error(w)
    small = limits(objective)
    reasons = [] if outcome.ok else [outcome.value]
    limited = any(control.limited for control in compiled.problem.discrete.values())
    price = ", which includes the price of max_switches and min_dwell" if limited else ""
    # Written so that a NaN is wrong too.
    if not solver_gap <= small["hamiltonian_gap"]:
        reasons.append(f"hamiltonian_gap {solver_gap:.1e} exceeds {small['hamiltonian_gap']:.1e}")
    if relaxation is not None and relaxation > small["relaxation_gap"]:
        reasons.append(
            f"relaxation_gap {relaxation:.1e} exceeds {small['relaxation_gap']:.1e}{price}: the optimum "
            "mixes values; use more intervals, or the mixed schedule (solution.relaxed)"
        )
    if not abs(solver_objective - objective) <= small["integration_error"]:
        reasons.append(
            f"integration_error {solver_objective - objective:.1e} exceeds "
            f"{small['integration_error']:.1e}: use more intervals or steps"
        )
    if violation > small["budget_error"]:
        reasons.append(f"budget_error {violation:.1e}")
    if excess > LIMITS_MET:
        reasons.append(f"a limit is broken by {excess:.1e} of itself: no schedule was found that keeps it")
    if quadrature_error is not None and not quadrature_error <= small["quadrature_error"]:
        reasons.append(
            f"quadrature_error {quadrature_error:.1e} exceeds {small['quadrature_error']:.1e}: expectations "
            "are not accurate enough here; ask for more (rule=ol.AutoRule(accuracy=…, points=…))"
        )
    largest = float(np.abs(rolled.states).max())
    if not largest <= EXPLODED * max(1.0, float(np.abs(compiled.start).max())):
        reasons.append(
            f"the state grows to {largest:.1e}: the dynamics diverge under every schedule that was tried; "
            "lower the learning rate or its bounds"
        )
    certificate = Certificate(
        gap,
        relaxation,
        solver_objective - objective,
        Starts.of(objectives),
        violation,
        not reasons,
        tuple(reasons),
        quadrature_error,
        mixed,
    )
    return certificate, rolled


def _gap(
    compiled: CompiledProblem, w: np.ndarray, theta: np.ndarray, steps: int
) -> tuple[float, RolloutResult]:
    """What the minimum principle says is to be won by controls and free parameters; and the rollout."""
    rolled = Rollout(compiled, len(w), steps).run(w, theta)
    gap, _, _ = hamiltonian_gap(compiled, rolled, w, theta, steps)
    return max(float(gap), 0.0) + free_gap(compiled, rolled, w, theta, steps)[0], rolled
