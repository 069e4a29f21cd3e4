"""The shortest training that reaches a given objective.

V(T), the best objective at horizon T, comes from plain solves, each started from the stretched schedule of
the previous one, so every horizon tried has its own certificate, whatever the method. The smallest T with
V(T) ≤ reach is bracketed and then refined by false position with the Illinois correction.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from optlearn._control.problem import Problem
from optlearn._control.solution import NotConvergedWarning, Solution, warn_not_converged
from optlearn._errors import SpecificationError

ACCURACY = 1e-9  # of the horizon, relative
_MOST = 60  # solves
_DOUBLINGS = 8  # of the horizon, up to the longest

# A plain problem, and a solution to start from → its solution.
Solve = Callable[[Problem, Solution | None], Solution]


def shortest(problem: Problem, solve: Solve) -> Solution:
    """The solution at the smallest horizon that reaches the target, from ``problem.shortest`` upwards.

    Args:
        problem: a problem with ``reach``.
        solve: solves a plain problem.

    Raises:
        SpecificationError: no horizon reaches it; the message says what is reached at best.
    """
    reach = problem.reach
    assert reach is not None
    tried: list[Solution] = []

    def at(horizon: float) -> Solution:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConvergedWarning)  # ``_finished`` warns instead
            tried.append(solve(problem.at_horizon(horizon), tried[-1] if tried else None))
        return tried[-1]

    low_end = at(problem.shortest)
    if low_end.objective <= reach:
        return _finished(problem, low_end, tried)
    # From below, since far beyond the shortest horizon the objective may be flat.
    horizons = [problem.horizon / 2**k for k in reversed(range(_DOUBLINGS))]
    for horizon in [h for h in horizons if h > problem.shortest]:
        high = at(horizon)
        if high.objective <= reach:
            break
        low_end = high
    else:
        best = min(tried, key=lambda one: one.objective)
        raise SpecificationError(
            f"reach must be an objective that training can reach, got {reach:g}: the best up to "
            f"α = {problem.horizon:g} is {best.objective:.6g}, at α = {best.problem.horizon:.4g}"
        )
    low, below, above = low_end.problem.horizon, _distance(low_end, reach), _distance(high, reach)
    last = 0
    while above < 0 and high.problem.horizon - low > ACCURACY * high.problem.horizon and len(tried) < _MOST:
        end = high.problem.horizon
        middle = (low * above - end * below) / (above - below)
        # A trial closer to either end than the accuracy gains nothing.
        middle = float(np.clip(middle, low + 0.3 * ACCURACY * end, end - 0.3 * ACCURACY * end))
        solution = at(middle)
        value = _distance(solution, reach)
        if value <= 0:
            high, above = solution, value
            below = below / 2 if last < 0 else below
            last = -1
        else:
            low, below = middle, value
            above = above / 2 if last > 0 else above
            last = 1
    return _finished(problem, high, tried)


def _distance(solution: Solution, reach: float) -> float:
    """Distance of the objective from its target; a logarithm, which is closer to linear, if possible."""
    if reach > 0 and solution.objective > 0:
        return float(np.log(solution.objective / reach))
    return solution.objective - reach


def _finished(problem: Problem, solution: Solution, tried: Sequence[Solution]) -> Solution:
    warn_not_converged(problem.name, solution.certificate)
    horizon = solution.problem.horizon
    note = (
        f"the shortest training that reaches {problem.reach:g} is α_F = {horizon:.10g}, "
        f"found by {len(tried)} solves"
    )
    doubtful = sum(one.problem.horizon < horizon and not one.certificate.converged for one in tried)
    if doubtful:
        note += f"; {doubtful} of them, at shorter horizons, did not converge: a shorter one may reach it too"
    return replace(solution, notes=(*solution.notes, note))
