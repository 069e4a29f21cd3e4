"""From problems to lanes: checks that they can be solved together, and stacks their numbers."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from optlearn._control.compiled import problem_functions
from optlearn._control.problem import Problem
from optlearn._control.relaxation import Relaxation
from optlearn._engine.functions import Functions, pack
from optlearn._engine.lanes import Lanes, LaneStructure
from optlearn._errors import SpecificationError


def stack(problems: Sequence[Problem], intervals: int | None = None) -> tuple[LaneStructure, Lanes]:
    """The problems as lanes.

    Args:
        problems: problems that differ only in numbers.
        intervals: number of equal intervals (default: the problems').

    Raises:
        SpecificationError: they differ in more than numbers, or are of a kind that can only be solved one by
            one.
    """
    rows = []
    first = problems[0]
    leading, first_relaxation, _ = problem_functions(first)
    count = intervals or first.intervals
    required = _traits(first, leading, first_relaxation, count)
    for problem in problems:
        functions, relaxation, _ = problem_functions(problem)
        _check_kind(problem, relaxation)
        traits = _traits(problem, functions, relaxation, intervals or problem.intervals)
        differing = [name for name, value in traits.items() if value != required[name]]
        if differing:
            raise SpecificationError(
                f"problems that are solved in a batch must differ in numbers only, got {differing[0]} of "
                f"{_called(problem)} unlike that of {_called(first)}: {_shown(traits[differing[0]])} and "
                f"{_shown(required[differing[0]])}; solve them one by one (executor='serial' or 'processes')"
            )
        rows.append(_lane(problem, functions, relaxation))
    discrete = next(iter(first.discrete.values()), None)
    structure = LaneStructure(
        key=tuple(required.values()),
        functions=leading.on_vectors,
        intervals=count,
        size=first_relaxation.size,
        curved=first_relaxation.curved,
        budgets=_senses(first_relaxation),
        vertices=np.zeros((1, 0)) if discrete is None else discrete.vertices,
        sum_limited=discrete is not None and discrete.sum_limited,
    )
    return structure, Lanes(*(np.array(column) for column in zip(*rows, strict=True)))


def _check_kind(problem: Problem, relaxation: Relaxation) -> None:
    """Raise for features that only the one-by-one solvers support."""
    limited = [name for name, control in problem.discrete.items() if control.limited]
    whole = [name for name, control in problem.controls.items() if control.whole_numbers]
    rows = relaxation.budget_rows.rows
    refusals = {
        "a horizon to be found (reach)": problem.reach is not None,
        "a free horizon": problem.free_horizon is not None,
        f"controls without bounds ({', '.join(problem.unbounded)})": bool(problem.unbounded),
        "several costs or constraints (a worst case, rivals, limits or paths)": problem.weighing is not None,
        f"free parameters ({', '.join(problem.free)})": bool(problem.free),
        "several discrete controls": len(problem.discrete) > 1,
        "a discrete and a continuous control together": bool(problem.discrete and problem.continuous),
        f"max_switches or min_dwell of {limited}": bool(limited),
        f"whole numbers of {whole}": bool(whole),
        "several budgets of one control": bool(np.any(np.count_nonzero(rows, axis=0) > 1)),
        "expectations by quadrature": problem.model.current().refined() is not None,
    }
    for what, refused in refusals.items():
        if refused:
            raise SpecificationError(
                "problems that are solved in a batch must have continuous controls or one discrete control, "
                f"at most one budget of each, and one cost, got {what} in {_called(problem)}; solve them one "
                "by one (executor='serial' or 'processes')"
            )


def _traits(
    problem: Problem, functions: Functions, relaxation: Relaxation, intervals: int
) -> dict[str, Hashable]:
    """Features that must be equal, by name: structure of the functions and of the grid."""
    values = {n: len(c.values) for n, c in problem.discrete.items()}
    return {
        **functions.parts,
        "the values of the controls": tuple(values.items()),
        "the budgets": _senses(relaxation),
        "the number of intervals": intervals,
    }


def _senses(relaxation: Relaxation) -> tuple[str, ...]:
    return tuple("equal" if equal else "at most" for equal in relaxation.budget_rows.equal)


def _lane(problem: Problem, functions: Functions, relaxation: Relaxation) -> Lanes:
    low, high = relaxation.bounds
    rows, targets, _ = relaxation.budget_rows
    return Lanes(
        constants=pack(functions.constants),
        start=problem.flat_start,
        horizon=np.asarray(problem.horizon),
        lower=low,
        width=high - low,
        rows=rows * (high - low),
        targets=targets - rows @ low,
        neutral=(relaxation.neutral - low) / (high - low),
    )


def _called(problem: Problem) -> str:
    call = problem.made_by
    return problem.name if call is None else f"{problem.name} ({call.arguments})"


def _shown(trait: Any) -> str:
    text = str(trait)
    return text if len(text) <= 120 else text[:117] + "…"
