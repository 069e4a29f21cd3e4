"""Runs of the methods: from which starts, in which order, and with how fine steps."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optlearn._control.certificate import limits
from optlearn._control.program.build import Dynamics
from optlearn._control.program.rollout import Sweeper
from optlearn._control.program.xla import WideFunctions
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


def greedy_run(ready: Dynamics, sweeper: Sweeper) -> Run:
    """The locally optimal schedule from the neutral guess of free parameters."""
    guess = neutral(ready, sweeper.intervals)
    w = greedy_controls(ready, sweeper.intervals, guess.theta, steps=sweeper.steps)
    objective = sweeper.objective(w, guess.theta)
    if not np.isfinite(objective):
        raise SpecificationError(
            "the objective of the greedy schedule is not finite: the dynamics leave the physical "
            "region. Tighten the bounds of the controls."
        )
    return Run("greedy", w, guess.theta, objective, Outcome.SOLVED, 1)


def optimise(
    ready: Dynamics,
    sweeper: Sweeper,
    method: str,
    chosen: list[Start],
    options: dict[str, Any],
    notes: list[str],
    tell: Progress,
) -> list[Run]:
    """Where the starts end, under a method other than "greedy"; ``notes`` gets a line for each."""
    wide = isinstance(ready.functions, WideFunctions)
    if method == "direct":
        runs = _direct_from_all(ready, sweeper, chosen, options, tell)
    else:
        tell(f"indirect, from {', '.join(start.name for start in chosen)}")
        limit = {} if wide else {"max_iterations": MOST_SWEEPS}
        runs = _indirect(ready, sweeper, chosen, options if method == "indirect" else limit)
    if wide and method == "auto" and any(run.outcome.ok for run in runs):
        notes.append("sweeps alone: with a quadrature this wide, a direct run takes several times as long")
    elif method == "auto" and runs[-1].outcome is not Outcome.INTERRUPTED:
        # Where the objective hardly depends on a control, as on singular arcs, sweeps leave that ragged.
        best = min(runs, key=lambda run: run.objective)
        tell(f"direct, from the best of them ({best.start})")
        start = Start("the best of them, direct", best.w, best.theta)
        runs.append(replace(_direct(ready, sweeper, start, options), polish=True))
        if not any(run.outcome.ok for run in runs):
            notes.append("nothing converged yet: direct runs from all starts were tried as well")
            runs += _direct_from_all(ready, sweeper, chosen, options, tell)
    for run in runs:
        notes.append(
            f"from {run.start}: {run.objective:.10g} after {run.iterations} iterations "
            f"({run.outcome.name.lower()})"
        )
    return runs


def _indirect(ready: Dynamics, sweeper: Sweeper, starts: list[Start], options: dict[str, Any]) -> list[Run]:
    pairs = [(start.w, start.theta) for start in starts]
    results = solve_indirect(ready, pairs, steps=sweeper.steps, **options)
    return [
        Run(start.name, r.w, r.theta, r.objective, r.outcome, r.iterations)
        for start, r in zip(starts, results, strict=False)  # fewer after Ctrl-C
    ]


def _direct_from_all(
    ready: Dynamics, sweeper: Sweeper, starts: list[Start], options: dict[str, Any], tell: Progress
) -> list[Run]:
    runs: list[Run] = []
    for start in starts:
        tell(f"direct, from {start.name}")
        runs.append(_direct(ready, sweeper, start, options))
        if runs[-1].outcome is Outcome.INTERRUPTED:
            break
    return runs


def _direct(ready: Dynamics, sweeper: Sweeper, start: Start, options: dict[str, Any]) -> Run:
    result = solve_direct(ready, start.w, start.theta, steps=sweeper.steps, **options)
    # Stopped on its way, it may not meet the budgets yet; and IPOPT meets them up to a tolerance only.
    feasible = FeasibleSet(ready, sweeper.intervals)
    w, theta = feasible.split(feasible.project(feasible.join(result.w, result.theta)))
    objective = sweeper.objective(w, theta)
    before = sweeper.objective(start.w, start.theta)
    if not objective <= before and not result.outcome.ok:
        # A failed run must not lose the schedule that it started from.
        return Run(start.name, start.w, start.theta, before, result.outcome, result.iterations)
    return Run(start.name, w, theta, objective, result.outcome, result.iterations)


def enough_steps(ready: Dynamics, intervals: int) -> int:
    """Runge-Kutta steps in an interval after which the objective changes by less than 1e-8.

    Or 1e-7 where expectations are wide quadratures, which are no more accurate than that. This is under the
    neutral guess; the optimum may need more, see ``too_coarse``.
    """
    guess = neutral(ready, intervals)
    small = 1e-7 if isinstance(ready.functions, WideFunctions) else 1e-8
    coarse = Sweeper(ready, intervals, 1).objective(guess.w, guess.theta)
    for steps in (1, 2, 4, 8):
        fine = Sweeper(ready, intervals, 2 * steps).objective(guess.w, guess.theta)
        if abs(fine - coarse) <= small * max(1.0, abs(fine)) or not np.isfinite(fine):
            return steps
        coarse = fine
    return MOST_STEPS


def too_coarse(ready: Dynamics, sweeper: Sweeper, best: Run) -> bool:
    """Whether twice as many steps would change the objective by more than a certificate allows."""
    if sweeper.steps >= MOST_STEPS:
        return False
    fine = Sweeper(ready, sweeper.intervals, 2 * sweeper.steps).objective(best.w, best.theta)
    change = abs(fine - best.objective)
    return bool(np.isfinite(fine) and change > limits(best.objective)["integration_error"] / 2)
