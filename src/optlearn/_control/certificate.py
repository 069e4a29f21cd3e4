"""How optimal a solution is: evidence, not a guarantee."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from optlearn._control.path import KEPT, Excess
from optlearn._control.problem import Problem
from optlearn._control.runs import Outcome
from optlearn._engine.adaptive import EXPLODED

# Gaps up to this share of the objective count as small, …
SMALL = 2e-5
# … and so does the error of the accurate integration itself, …
ROUND_OFF = 1e-12
# … and this share of the best first guess: an optimum may be exactly 0, and shares of it are then useless.
NEGLIGIBLE = 1e-7
# A quadrature error of this share of the objective leaves three digits.
QUADRATURE = 1e-3
LIMITS_MET = 1e-6  # share of itself by which a limit may be broken
STEPS = 4  # in an interval, at least, along which the minimum principle is checked


def agreement(best: float, negligible: float = 0.0) -> float:
    """How far the end of a start may be above the best one and still agree with it."""
    return min(1e-6 * max(1.0, abs(best)), 1e-5 * abs(best)) + max(ROUND_OFF, negligible)


@dataclass(frozen=True)
class Starts:
    """Summary of the starts.

    Attributes:
        tried: how many starts were optimised.
        agreeing: how many ended within 1e-6 of the best (1e-5 of the objective where that is less).
        spread: worst minus best.
        dropped: how many further starts had no finite initial objective.
        unscouted: why no scouts looked for a basin that all starts missed, which makes agreement of the
            starts weaker evidence; "" if they did, or if this is unknown.
    """

    tried: int
    agreeing: int
    spread: float
    dropped: int = 0
    unscouted: str = ""

    @classmethod
    def of(
        cls,
        objectives: Sequence[float],
        dropped: int = 0,
        negligible: float = 0.0,
        unscouted: str = "",
    ) -> "Starts":
        """From the final objectives of the starts; negligible differences do not count."""
        best = min(objectives)
        close = agreement(best, negligible)
        agreeing = sum(v - best <= close for v in objectives)
        return cls(len(objectives), agreeing, max(objectives) - best, dropped, unscouted)

    @property
    def lone(self) -> bool:
        """Did only one of several starts reach the best?"""
        return self.tried > 1 and self.agreeing == 1

    @property
    def scattered(self) -> bool:
        """Do at most half of several starts agree? Others may then reach a lower optimum."""
        return 1 < self.tried >= 2 * self.agreeing


@dataclass(frozen=True)
class Certificate:
    """Evidence of optimality; gaps are in units of the objective.

    Attributes:
        hamiltonian_gap: ∫ [H(u) − min H] dα along the returned trajectory, budget multipliers
            included, and the same for the free parameters: a first-order estimate of the possible
            improvement on this grid. It ignores limits on switches and dwell. For the worst case of an
            ensemble it is the gap under the members' weights, plus the duality gap of these weights.
        relaxation_gap: objective minus that of the best mixed schedule; None without discrete
            controls. With ``max_switches`` or ``min_dwell`` it includes their price and then never
            counts against convergence.
        integration_error: the solver's own objective minus the re-integrated one.
        quadrature_error: twice the change of the same schedule's objective under a finer, independent
            quadrature; None where expectations are in closed form.
        starts: how many starts were tried and how well they agree.
        budget_error: largest violation of a budget.
        converged: the solver said so, and all gaps are small.
        mixed_gap: with discrete controls, the Hamiltonian gap of the best mixed schedule; None without. Only
            the smaller of the two gaps must be small: the additional cost of pure values is known exactly, as
            the relaxation gap.
        reasons: why it has not converged; empty if it has.
        lower_bound: value that no schedule beats, computed independently of the solver (``ol.bound``).
        lower_bound_kind: method of the bound: "convex", "sos" or "hjb".
        negligible: improvement that does not matter, in units of the objective; see ``solve``.
        path_error: with paths, the largest excess of any of them over its limit, also between the points of
            the solver's grid, as a share of the limit; None without. Up to 1e-5 counts as kept.
        path_at: training time of this excess, or where a path is closest to its limit.
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
    negligible: float = 0.0
    path_error: float | None = None
    path_at: float | None = None

    @property
    def may_still_be_won(self) -> float:
        """How much better any schedule, pure or mixed, could be (first-order estimate)."""
        if self.mixed_gap is None:
            return self.hamiltonian_gap
        # The cost of rounding is known exactly; the gap of a rounded schedule also counts improvements that
        # no schedule on this grid can achieve.
        return min(self.hamiltonian_gap, max(self.relaxation_gap or 0.0, 0.0) + self.mixed_gap)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON."""
        return {"may_still_be_won": self.may_still_be_won, **asdict(self)}


def limits(objective: float, negligible: float = 0.0) -> dict[str, float]:
    """Name of each gap → the largest value that counts as small: a share of the objective, or ``negligible``.

    An objective below 1e-7 is known only to ROUND_OFF, which is then more than that share.
    """
    small = SMALL * abs(objective) + max(ROUND_OFF, negligible)
    return {
        "hamiltonian_gap": small,
        "relaxation_gap": 10 * small,
        "integration_error": small,
        "quadrature_error": QUADRATURE * abs(objective) + ROUND_OFF,
        "budget_error": 1e-7,
        "path_error": KEPT,
    }


def unmet_limits(problem: Problem, costs: np.ndarray) -> list[str]:
    """Limits of a problem that final costs (K,) violate, in words."""
    weighing = problem.weighing
    if weighing is None:
        return []
    shares = weighing.broken(costs) / np.array(weighing.sizes)
    ends = zip(costs[weighing.members :].tolist(), shares.tolist(), problem.limits, strict=True)
    return [limit.broken_by(value) for value, share, limit in ends if share > LIMITS_MET]


def wrong_derivatives(share: float) -> str:
    """Explains a derivative that differs by this share from finite differences, with advice."""
    return (
        f"the derivative of the objective differs by {100 * share:.2g} % from finite differences: if the "
        "loss, its gradient or the error jumps at a place that no breaks=… names, a quadrature does not see "
        "the place move; name it, or ask for more accuracy if all are named"
    )


def judged(
    problem: Problem,
    *,
    objective: float,
    hamiltonian_gap: float,
    mixed_gap: float | None,
    relaxed_objective: float | None,
    integration_error: float,
    budget_error: float,
    outcome: Outcome,
    starts: Starts,
    largest: float,
    quadrature_error: float | None = None,
    broken: Sequence[str] = (),
    negligible: float = 0.0,
    blind: bool = False,
    misled: float = 0.0,
    path: Excess | None = None,
    path_kept_on_grid: bool = False,
) -> Certificate:
    """The certificate that sums up the evidence.

    Args:
        problem: the solved problem.
        objective: re-integrated objective.
        hamiltonian_gap: gap of the schedule.
        mixed_gap: gap of the relaxed optimum, with discrete controls.
        relaxed_objective: re-integrated objective of the relaxed optimum.
        integration_error: see ``Certificate``.
        budget_error: see ``Certificate``.
        outcome: how the solver ended.
        starts: summary of the starts.
        largest: largest number in a state along training.
        quadrature_error: see ``Certificate``.
        broken: limits that the schedule violates, in words.
        negligible: see ``Certificate``.
        blind: the objective, a function of the final state, has no derivative with respect to any state.
        misled: relative difference between the objective's derivative and finite differences.
        path: the worst point of the worst path, if there are paths.
        path_kept_on_grid: whether all paths are kept at the ends of the solver's steps.
    """
    solver_gap = hamiltonian_gap if mixed_gap is None else min(hamiltonian_gap, mixed_gap)
    relaxation = None if relaxed_objective is None else objective - relaxed_objective
    small = limits(objective, negligible)
    # A broken limit is one that no schedule was found to meet.
    reasons = [] if outcome.ok or (outcome is Outcome.INFEASIBLE and broken) else [outcome.value]
    # The cost of limits on switches and dwell is a price that the user asked for, not a gap.
    limited = any(control.limited for control in problem.discrete.values())
    # NaN is wrong too.
    if np.isposinf(solver_gap):
        reasons.append(
            "hamiltonian_gap is not known: the Hamiltonian varies on a finer scale than any grid on which "
            "its minimum is sought; tighten the bounds of the controls"
        )
    elif np.isnan(solver_gap):
        reasons.append(
            "hamiltonian_gap is not known: along this schedule the error, the drift or one of their "
            "derivatives is not a number"
        )
    elif solver_gap > small["hamiltonian_gap"]:
        reasons.append(f"hamiltonian_gap {solver_gap:.1e} exceeds {small['hamiltonian_gap']:.1e}")
    if relaxation is not None and relaxation > small["relaxation_gap"] and not limited:
        reasons.append(
            f"relaxation_gap {relaxation:.1e} exceeds {small['relaxation_gap']:.1e}: the optimum "
            "mixes values, and with one value per interval this grid may allow nothing better; use more "
            "intervals, or the mixed schedule (solution.relaxed)"
        )
    if not abs(integration_error) <= small["integration_error"]:
        reasons.append(
            f"integration_error {integration_error:.1e} exceeds "
            f"{small['integration_error']:.1e}: use more intervals or steps"
        )
    if blind:
        reasons.append(
            "the derivative of the objective is 0 in all directions, so the gaps are meaningless: if the "
            "error jumps, as a sign or a comparison does, say where (breaks=…)"
        )
    if misled and not blind:
        reasons.append(f"the gaps are unreliable: {wrong_derivatives(misled)}")
    # Where limits are out of reach, starts end differently, and more starts would not help.
    if starts.lone and not broken and (path is None or path.kept):
        reasons.append(
            f"only one of {starts.tried} starts reached this objective, so another may reach a lower one: "
            "try more starts"
        )
    if budget_error > small["budget_error"]:
        reasons.append(f"budget_error {budget_error:.1e}")
    together = " and all paths" if path is not None else ""
    reasons += [f"{limit}: no schedule was found that keeps this limit{together}" for limit in broken]
    if path is not None and not path.kept:
        advice = "no schedule was found that keeps it"
        if path_kept_on_grid:
            advice = "it is kept only at the ends of steps; use more intervals or steps"
        elif relaxed_objective is not None and outcome.ok:
            advice = "pure values overshoot it; use more intervals, or the mixed schedule (solution.relaxed)"
        reasons.append(f"a path is broken by {path.share:.1e} of its limit, {path.words}: {advice}")
    if quadrature_error is not None and np.isnan(quadrature_error):
        reasons.append("quadrature_error is not known: a finer quadrature gives NaN")
    elif quadrature_error is not None and quadrature_error > small["quadrature_error"]:
        reasons.append(
            f"quadrature_error {quadrature_error:.1e} exceeds {small['quadrature_error']:.1e}: expectations "
            "are not accurate enough here; ask for more (quadrature=ol.AutoQuadrature(accuracy=…, points=…))"
        )
    if not largest <= EXPLODED * max(1.0, float(np.abs(problem.flat_start).max())):
        reasons.append(
            f"the state grows to {largest:.1e}: the dynamics diverge under every schedule that was tried; "
            "lower the learning rate or its bounds"
        )
    return Certificate(
        hamiltonian_gap,
        relaxation,
        integration_error,
        starts,
        budget_error,
        not reasons,
        tuple(reasons),
        quadrature_error,
        mixed_gap,
        negligible=negligible,
        path_error=None if path is None else path.share,
        path_at=None if path is None else path.at,
    )
