"""Runs of the methods: from which starts, in which order, and with how fine steps."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optlearn._control.certificate import limits
from optlearn._control.program.build import CompiledProblem
from optlearn._control.program.rollout import Rollout
from optlearn._control.solvers.direct import solve_direct
from optlearn._control.solvers.feasible import FeasibleSet
from optlearn._control.solvers.greedy import greedy_controls
from optlearn._control.solvers.indirect import solve_indirect
from optlearn._control.solvers.outcome import Outcome
from optlearn._control.solvers.starts import Start, neutral
from optlearn._errors import SpecificationError

Progress = Callable[[str], None]

MOST_STEPS = 16  # Runge-Kutta steps in an interval
MOST_SWEEPS = 400  # where a direct run follows: it ends within a dozen iterations what sweeps creep towards


@dataclass(frozen=True)
class Run:
    """Where one start ended."""

    start: str
    w: np.ndarray
    theta: np.ndarray
    objective: float
    outcome: Outcome
    iterations: int
    polish: bool = False  # it went on from where another run ended


def greedy_run(compiled: CompiledProblem, rollout: Rollout) -> Run:
    """The locally optimal schedule from the neutral guess of free parameters."""
    guess = neutral(compiled, rollout.intervals)
    w = greedy_controls(compiled, rollout.intervals, guess.theta, steps=rollout.steps)
    objective = rollout.objective(w, guess.theta)
    if not np.isfinite(objective):
        raise SpecificationError(
            "the objective of the greedy schedule is not finite: the dynamics leave the physical "
            "region. Tighten the bounds of the controls."
        )
    return Run("greedy", w, guess.theta, objective, Outcome.SOLVED, 1)


def optimise(
    compiled: CompiledProblem,
    rollout: Rollout,
    method: str,
    chosen: list[Start],
    options: dict[str, Any],
    notes: list[str],
    tell: Progress,
) -> list[Run]:
    """Where the starts end, under a method other than "greedy"; ``notes`` gets a line for each."""
    costly = compiled.program.costly
    if method == "direct":
        runs = _direct_from_all(compiled, rollout, chosen, options, tell)
    else:
        tell(f"indirect, from {', '.join(start.name for start in chosen)}")
        limit = {} if costly else {"max_iterations": MOST_SWEEPS}
        runs = _indirect(compiled, rollout, chosen, options if method == "indirect" else limit)
    if costly and method == "auto" and any(run.outcome.ok for run in runs):
        notes.append("sweeps alone: with a quadrature this wide, a direct run takes several times as long")
    elif method == "auto" and runs[-1].outcome is not Outcome.INTERRUPTED:
        # Where the objective hardly depends on a control, as on singular arcs, sweeps leave that ragged.
        best = min(runs, key=lambda run: run.objective)
        tell(f"direct, from the best of them ({best.start})")
        start = Start("the best of them, direct", best.w, best.theta)
        runs.append(replace(_direct(compiled, rollout, start, options), polish=True))
        if not any(run.outcome.ok for run in runs):
            notes.append("nothing converged yet: direct runs from all starts were tried as well")
            runs += _direct_from_all(compiled, rollout, chosen, options, tell)
    for run in runs:
        notes.append(
            f"from {run.start}: {run.objective:.10g} after {run.iterations} iterations "
            f"({run.outcome.name.lower()})"
        )
    return runs


def _indirect(
    compiled: CompiledProblem, rollout: Rollout, starts: list[Start], options: dict[str, Any]
) -> list[Run]:
    pairs = [(start.w, start.theta) for start in starts]
    results = solve_indirect(compiled, pairs, steps=rollout.steps, **options)
    return [
        Run(start.name, r.w, r.theta, r.objective, r.outcome, r.iterations)
        for start, r in zip(starts, results, strict=False)  # fewer after Ctrl-C
    ]


def _direct_from_all(
    compiled: CompiledProblem, rollout: Rollout, starts: list[Start], options: dict[str, Any], tell: Progress
) -> list[Run]:
    runs: list[Run] = []
    for start in starts:
        tell(f"direct, from {start.name}")
        runs.append(_direct(compiled, rollout, start, options))
        if runs[-1].outcome is Outcome.INTERRUPTED:
            break
    return runs


def _direct(compiled: CompiledProblem, rollout: Rollout, start: Start, options: dict[str, Any]) -> Run:
    result = solve_direct(compiled, start.w, start.theta, steps=rollout.steps, **options)
    # Stopped on its way, it may not meet the budgets yet; and IPOPT meets them up to a tolerance only.
    feasible = FeasibleSet(compiled, rollout.intervals)
    w, theta = feasible.split(feasible.project(feasible.join(result.w, result.theta)))
    objective = rollout.objective(w, theta)
    before = rollout.objective(start.w, start.theta)
    if not objective <= before and not result.outcome.ok:
        # A failed run must not lose the schedule that it started from.
        return Run(start.name, start.w, start.theta, before, result.outcome, result.iterations)
    return Run(start.name, w, theta, objective, result.outcome, result.iterations)


def enough_steps(compiled: CompiledProblem, intervals: int) -> int:
    """Runge-Kutta steps in an interval after which the objective changes by less than 1e-8.

    Or 1e-7 where expectations are wide quadratures, which are no more accurate than that. This is under the
    neutral guess; the optimum may need more, see ``too_coarse``.
    """
    guess = neutral(compiled, intervals)
    small = 1e-7 if compiled.program.costly else 1e-8
    coarse = Rollout(compiled, intervals, 1).objective(guess.w, guess.theta)
    for steps in (1, 2, 4, 8):
        fine = Rollout(compiled, intervals, 2 * steps).objective(guess.w, guess.theta)
        if abs(fine - coarse) <= small * max(1.0, abs(fine)) or not np.isfinite(fine):
            return steps
        coarse = fine
    return MOST_STEPS


def too_coarse(compiled: CompiledProblem, rollout: Rollout, best: Run) -> bool:
    """Whether twice as many steps would change the objective by more than a certificate allows."""
    if rollout.steps >= MOST_STEPS:
        return False
    fine = Rollout(compiled, rollout.intervals, 2 * rollout.steps).objective(best.w, best.theta)
    change = abs(fine - best.objective)
    return bool(np.isfinite(fine) and change > limits(best.objective)["integration_error"] / 2)
