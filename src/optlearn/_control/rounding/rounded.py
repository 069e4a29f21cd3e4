"""Schedules of admissible values from relaxed ones: rounding, then a search nearby."""

from dataclasses import dataclass

import numpy as np

from optlearn._control.controls import Control
from optlearn._control.program.build import CompiledProblem
from optlearn._control.program.rollout import Rollout
from optlearn._control.rounding.counts import (
    check_limits,
    nearest_counts,
    shortest_phase,
    sum_up,
    switches,
    value_counts,
    whole_numbers,
)
from optlearn._control.rounding.exchange import exchange, shift
from optlearn._control.rounding.phases import first_schedules, search_phases
from optlearn._control.solvers.base import Start
from optlearn._control.solvers.direct import Direct
from optlearn._control.solvers.starts import neutral
from optlearn._errors import SpecificationError


@dataclass(frozen=True)
class Rounded:
    """Controls with shares of 0 and 1 only, free parameters, and the objective on the grid."""

    w: np.ndarray
    theta: np.ndarray
    objective: float


def check_grid(compiled: CompiledProblem, intervals: int) -> None:
    """Raise if the grid cannot hold the discrete budgets exactly, or within the limits."""
    for name, control in compiled.problem.discrete.items():
        counts = value_counts(name, control, compiled.problem.budgets, intervals)
        shares = _shares(compiled, name, neutral(compiled, intervals).w)
        nearest_counts(name, control, compiled.problem.budgets, shares.sum(axis=0))
        check_limits(name, control, counts, _dwell(compiled, intervals, control))


def round_controls(rollout: Rollout, w: np.ndarray, theta: np.ndarray, polish: bool = True) -> Rounded:
    """Round every discrete control of w (I, m), re-optimise the rest, and search nearby."""
    compiled, problem = rollout.compiled, rollout.compiled.problem
    levels: dict[str, np.ndarray] = {}
    for name, control in problem.discrete.items():
        levels[name] = _round_one(compiled, rollout, name, control, w, theta)
        w = _write(compiled, name, w, levels[name])
    w, theta = _reoptimise(compiled, rollout, w, theta)
    if polish:
        for name in problem.discrete:
            found = _polish_one(compiled, rollout, name, w, theta, levels[name])
            if not np.array_equal(found, levels[name]):
                w = _write(compiled, name, w, found)
                w, theta = _reoptimise(compiled, rollout, w, theta)
    return Rounded(w, theta, rollout.objective(w, theta))


def whole_schedule(rollout: Rollout, w: np.ndarray, theta: np.ndarray) -> Rounded | None:
    """The best whole numbers for the controls that ask for them, means kept; None: no such."""
    compiled = rollout.compiled
    wanted = {name: c for name, c in compiled.problem.continuous.items() if c.whole_numbers}
    if not wanted:
        return None
    w = w.copy()
    objective = np.inf
    for name, control in wanted.items():
        column = compiled.relaxation.blocks[name].start
        bounds = (np.ceil(control.lower), np.floor(control.upper))
        w[:, column] = whole_numbers(w[:, column], bounds)
        budgeted = any(b.control == name for b in compiled.problem.budgets)
        w, objective = shift(rollout, w, theta, column, bounds, keep_sum=budgeted)
    return Rounded(w, theta, objective)


def _round_one(
    compiled: CompiledProblem,
    rollout: Rollout,
    name: str,
    control: Control,
    w: np.ndarray,
    theta: np.ndarray,
) -> np.ndarray:
    shares = _shares(compiled, name, w)
    counts = nearest_counts(name, control, compiled.problem.budgets, shares.sum(axis=0))
    if not control.limited:
        return sum_up(shares, counts)
    dwell = _dwell(compiled, rollout.intervals, control)
    cost = _slopes(compiled, name, rollout.run(w, theta).gradient)
    starts = first_schedules(shares, counts, cost, dwell, control.max_switches)
    found = _search(compiled, rollout, name, w, theta, starts)
    if found is None:
        raise SpecificationError(
            f"no schedule of {name!r} was found that meets its budget, max_switches and min_dwell "
            f"on {rollout.intervals} intervals: loosen one of them"
        )
    return found


def _shares(compiled: CompiledProblem, name: str, w: np.ndarray) -> np.ndarray:
    """(I, n) shares of all values of a control."""
    return compiled.problem.controls[name].shares(w[:, compiled.relaxation.blocks[name]])


def _polish_one(
    compiled: CompiledProblem,
    rollout: Rollout,
    name: str,
    w: np.ndarray,
    theta: np.ndarray,
    levels: np.ndarray,
) -> np.ndarray:
    control = compiled.problem.discrete[name]
    if control.limited:
        found = _search(compiled, rollout, name, w, theta, [levels])
        return levels if found is None else found
    counts = value_counts(name, control, compiled.problem.budgets, rollout.intervals)
    found, _ = exchange(
        rollout,
        w,
        theta,
        levels,
        lambda w, chosen: _write(compiled, name, w, chosen),
        lambda gradient: _slopes(compiled, name, gradient),
        keep_counts=bool(np.all(counts >= 0)),
        admissible=lambda chosen: _admissible(compiled, name, chosen),
    )
    return found


def _search(
    compiled: CompiledProblem,
    rollout: Rollout,
    name: str,
    w: np.ndarray,
    theta: np.ndarray,
    starts: list[np.ndarray],
) -> np.ndarray | None:
    found = search_phases(
        rollout,
        theta,
        starts,
        lambda chosen: _write(compiled, name, w, chosen),
        lambda gradient: _slopes(compiled, name, gradient),
        lambda chosen: _admissible(compiled, name, chosen),
    )
    return None if found is None else found[0]


def _dwell(compiled: CompiledProblem, intervals: int, control: Control) -> int:
    step = compiled.problem.horizon / intervals
    return max(1, int(np.ceil(control.min_dwell / step - 1e-9)))


def _admissible(compiled: CompiledProblem, name: str, chosen: np.ndarray) -> bool:
    """Do levels (I,) respect the control's budgets and limits?"""
    control = compiled.problem.discrete[name]
    if control.max_switches is not None and switches(chosen) > control.max_switches:
        return False
    if shortest_phase(chosen) < _dwell(compiled, len(chosen), control):
        return False
    shares = np.bincount(chosen, minlength=len(control.values)) / len(chosen)
    for budget in compiled.problem.budgets:
        for row, target in budget.rows(control) if budget.control == name else []:
            if budget.violation(row @ shares, target) > 1e-9:
                return False
    return True


def _write(compiled: CompiledProblem, name: str, w: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    written = w.copy()
    written[:, compiled.relaxation.blocks[name]] = compiled.problem.controls[name].vertices[chosen]
    return written


def _slopes(compiled: CompiledProblem, name: str, gradient: np.ndarray) -> np.ndarray:
    """(I, n) first-order cost of each value."""
    vertices = compiled.problem.controls[name].vertices
    return np.asarray(gradient[:, compiled.relaxation.blocks[name]] @ vertices.T)


def _reoptimise(
    compiled: CompiledProblem, rollout: Rollout, w: np.ndarray, theta: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Continuous controls and free parameters for fixed discrete values."""
    problem = compiled.problem
    if not problem.continuous and not problem.free:
        return w, theta
    fixed = np.ones(compiled.relaxation.size, dtype=bool)
    for name in problem.continuous:
        fixed[compiled.relaxation.blocks[name]] = False
    result = Direct(fixed=fixed).shoot(rollout, Start("rounded", w, theta))
    better = rollout.objective(result.w, result.theta) < rollout.objective(w, theta)
    return (result.w, result.theta) if better else (w, theta)
