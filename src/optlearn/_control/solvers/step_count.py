"""How many steps an interval needs."""

import numpy as np

from optlearn._control.certificate import limits
from optlearn._control.program.build import CompiledProblem
from optlearn._control.program.rollout import Rollout
from optlearn._control.solvers.base import Run
from optlearn._control.solvers.starts import neutral

MOST_STEPS = 16  # in an interval


def enough_steps(compiled: CompiledProblem, intervals: int) -> int:
    """Steps in an interval after which the objective changes by less than 1e-8.

    Or 1e-7 where expectations are wide quadratures, which are no more accurate than that. This is under the
    neutral guess; the optimum may need more, see ``too_coarse``.
    """
    if compiled.program.exact:
        return compiled.exact_steps(compiled.problem.horizon / intervals)
    guess = neutral(compiled, intervals)
    small = 1e-7 if compiled.program.costly else 1e-8
    coarse = Rollout(compiled, intervals, 1).objective(guess.w, guess.theta)
    for steps in (1, 2, 4, 8):
        fine = Rollout(compiled, intervals, 2 * steps).objective(guess.w, guess.theta)
        if abs(fine - coarse) <= small * max(1.0, abs(fine)) or not np.isfinite(fine):
            return steps
        coarse = fine
    return MOST_STEPS


def too_coarse(rollout: Rollout, best: Run) -> bool:
    """Whether twice as many steps would change the objective by more than a certificate allows."""
    if rollout.compiled.program.exact or rollout.steps >= MOST_STEPS:
        return False
    finer = Rollout(rollout.compiled, rollout.intervals, 2 * rollout.steps)
    fine = finer.objective(best.w, best.theta)
    change = abs(fine - best.objective)
    return bool(np.isfinite(fine) and change > limits(best.objective)["integration_error"] / 2)
