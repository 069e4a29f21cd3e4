"""A first guess from a neighbouring problem: the one rule for all that solve problems in a row."""

import numpy as np

from optlearn._control.evaluate import check_schedule
from optlearn._control.problem import Problem
from optlearn._control.solution import Solution
from optlearn._errors import SpecificationError
from optlearn._schedule import Mixture, Schedule


def fits(problem: Problem, schedule: Schedule) -> bool:
    """Can the schedule start this problem: does it have all its controls?"""
    return set(problem.controls) <= set(schedule.controls)


def warm_schedule(problem: Problem, source: Solution | Schedule) -> Schedule:
    """What to start from: stretched to the problem's horizon, with values that are admissible.

    Of a solution it is the relaxed schedule, since solvers work on relaxed controls. Values take the nearest
    admissible ones, of a mixture too; free parameters are clipped to their bounds, those that are missing
    keep their guess.

    Args:
        problem: that is to be solved.
        source: a solution or schedule of a problem with the same controls, whatever its horizon.

    Raises:
        SpecificationError: it lacks a control, or holds values that are not finite.
    """
    if isinstance(source, Solution):
        schedule = source.schedule if source.relaxed is None else source.relaxed.schedule
    else:
        schedule = source
    values: dict[str, np.ndarray] = {}
    mixtures: dict[str, Mixture] = {}
    for name, control in problem.controls.items():
        if name not in schedule.controls:
            continue  # check_schedule says so below
        if not np.all(np.isfinite(schedule[name])):
            raise SpecificationError(f"warm_start: {name!r} holds values that are not finite")
        if name in schedule.mixtures:
            mixture = schedule.mixtures[name]
            mixtures[name] = Mixture(control.nearest(mixture.values), mixture.shares)
        else:
            values[name] = control.nearest(schedule[name])
    parameters = {
        name: float(np.clip(schedule.parameters.get(name, free.start), free.lower, free.upper))
        for name, free in problem.free.items()
    }
    grid = schedule.grid * (problem.horizon / schedule.horizon)
    grid[-1] = problem.horizon
    found = Schedule(grid, values, mixtures, parameters)
    check_schedule(problem, found)
    return found
