"""Controls without bounds: the optimum within finite bounds that do not matter.

Solvers, random starts and certificates all need a finite range. So a problem with an unbounded control is
solved within trial bounds, which are widened for as long as the optimum touches one of them.
"""

import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from optlearn._control.controls import Control
from optlearn._control.problem import Problem
from optlearn._control.runs import Outcome
from optlearn._control.solution import NotConvergedWarning, Solution, warn_not_converged
from optlearn._errors import RunawayError
from optlearn._schedule import Schedule

FIRST = 10.0  # half-width of the first trial, beside a guess of order 1
WIDER = 10.0  # factor from trial to trial
TRIALS = 6
TOUCHES = 1e-3  # share of its range within which a value is at a bound

# A problem with finite bounds, and a warm start → its solution.
Solve = Callable[[Problem, Solution | Schedule | None], Solution]


def within_wide_bounds(problem: Problem, solve: Solve, warm_start: Solution | Schedule | None) -> Solution:
    """The solution within bounds that it does not touch; its problem has these bounds.

    Args:
        problem: a problem with unbounded controls.
        solve: solves a problem with bounds.
        warm_start: start of the first solve.

    Raises:
        RunawayError: the optimum grows with the bounds.
    """
    reach, start = FIRST, warm_start
    for trial in range(TRIALS):
        bounded = {name: _bounded(control, reach) for name, control in problem.unbounded.items()}
        with warnings.catch_warnings():
            # Trial bounds may be too tight for limits to be met.
            warnings.simplefilter("ignore", NotConvergedWarning)
            solution = solve(replace(problem, controls={**problem.controls, **bounded}), start)
        touching = [name for name, control in bounded.items() if _touches(problem, name, control, solution)]
        infeasible = solution.outcome is Outcome.INFEASIBLE
        if not touching and (trial == TRIALS - 1 or not infeasible):
            warn_not_converged(problem.name, solution.certificate)
            ranges = ", ".join(f"{n} from {c.lower:g} to {c.upper:g}" for n, c in bounded.items())
            note = f"unbounded controls were given bounds that the optimum does not touch: {ranges}"
            return replace(solution, notes=(*solution.notes, note))
        reach, start = reach * WIDER, solution
    name = next(iter(problem.unbounded))
    raise RunawayError(
        f"the optimum of the unbounded control {name!r} grows with every bound it is given: set bounds, "
        "or a cost that grows with it"
    )


def _bounded(control: Control, reach: float) -> Control:
    """The control with finite bounds at this distance from its start."""
    reach *= max(1.0, abs(control.start))
    lower = control.lower if np.isfinite(control.lower) else control.start - reach
    upper = control.upper if np.isfinite(control.upper) else control.start + reach
    return replace(control, lower=lower, upper=upper, guess=control.start)  # type: ignore[type-var]


def _touches(problem: Problem, name: str, trial: Control, solution: Solution) -> bool:
    """Does a solution come near a bound that exists only for the trial?"""
    values, near = solution.schedule[name], TOUCHES * (trial.upper - trial.lower)
    below = not np.isfinite(problem.controls[name].lower) and values.min() <= trial.lower + near
    above = not np.isfinite(problem.controls[name].upper) and values.max() >= trial.upper - near
    return bool(below or above)
