"""How many steps an interval needs."""

import numpy as np

from optlearn._control.certificate import ROUND_OFF, limits
from optlearn._control.program.build import CompiledProblem
from optlearn._control.program.rollout import Rollout
from optlearn._control.solvers.base import Run
from optlearn._control.solvers.starts import neutral

MOST_STEPS = 512  # in an interval: stiff dynamics on long intervals are stable with so many
MOST_COSTLY_STEPS = 16  # where one rate takes a millisecond


def most_steps(compiled: CompiledProblem) -> int:
    """Steps in an interval after which nothing finer is tried."""
    return MOST_COSTLY_STEPS if compiled.program.costly else MOST_STEPS


def enough_steps(compiled: CompiledProblem, intervals: int) -> int:
    """Steps in an interval after which the objective changes by less than 1e-8, or 1e-5 of itself.

    Or 1e-7 where expectations are wide quadratures, which are no more accurate than that. An objective that
    is not finite may be an unstable step and not the dynamics: finer ones are tried. This is under the
    neutral guess; the optimum may need more, see ``too_coarse``.
    """
    if compiled.program.exact:
        return 1
    guess = neutral(compiled, intervals)
    small = 1e-7 if compiled.program.costly else 1e-8
    coarse, steps = Rollout(compiled, intervals, 1).objective(guess.w, guess.theta), 1
    while steps < most_steps(compiled):
        fine = Rollout(compiled, intervals, 2 * steps).objective(guess.w, guess.theta)
        if abs(fine - coarse) <= min(small * max(1.0, abs(fine)), 1e-5 * abs(fine) + ROUND_OFF):
            return steps
        coarse, steps = fine, 2 * steps
    return steps


def too_coarse(rollout: Rollout, best: Run) -> bool:
    """Whether twice as many steps would change the objective by more than a certificate allows."""
    if rollout.compiled.program.exact or rollout.steps >= most_steps(rollout.compiled):
        return False
    finer = Rollout(rollout.compiled, rollout.intervals, 2 * rollout.steps)
    fine = finer.objective(best.w, best.theta)
    change = abs(fine - best.objective)
    return bool(np.isfinite(fine) and change > limits(best.objective)["integration_error"] / 2)
