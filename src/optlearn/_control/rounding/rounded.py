"""Schedules of admissible values from relaxed ones: rounding, then a search nearby."""

from dataclasses import dataclass

import numpy as np

from optlearn._control.controls import Control
from optlearn._control.program.build import Dynamics
from optlearn._control.program.rollout import Sweeper
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
from optlearn._control.solvers.direct import solve_direct
from optlearn._control.solvers.starts import neutral
from optlearn._errors import SpecificationError


@dataclass(frozen=True)
class Rounded:
    """Controls with shares of 0 and 1 only, free parameters, and the objective on the grid."""

    w: np.ndarray
    theta: np.ndarray
    objective: float


def check_grid(dynamics: Dynamics, intervals: int) -> None:
    """Raise if the grid cannot hold the discrete budgets exactly, or within the limits."""
    for name, control in dynamics.problem.discrete.items():
        counts = value_counts(name, control, dynamics.problem.budgets, intervals)
        shares = _shares(dynamics, name, neutral(dynamics, intervals).w)
        nearest_counts(name, control, dynamics.problem.budgets, shares.sum(axis=0))
        check_limits(name, control, counts, _dwell(dynamics, intervals, control))


def round_controls(
    dynamics: Dynamics, sweeper: Sweeper, w: np.ndarray, theta: np.ndarray, polish: bool = True
) -> Rounded:
    """Round every discrete control of w (I, m), re-optimise the rest, and search nearby."""
    problem = dynamics.problem
    levels: dict[str, np.ndarray] = {}
    for name, control in problem.discrete.items():
        levels[name] = _round_one(dynamics, sweeper, name, control, w, theta)
        w = _write(dynamics, name, w, levels[name])
    w, theta = _reoptimise(dynamics, sweeper, w, theta)
    if polish:
        for name in problem.discrete:
            found = _polish_one(dynamics, sweeper, name, w, theta, levels[name])
            if not np.array_equal(found, levels[name]):
                w = _write(dynamics, name, w, found)
                w, theta = _reoptimise(dynamics, sweeper, w, theta)
    return Rounded(w, theta, sweeper.objective(w, theta))


def whole_schedule(dynamics: Dynamics, sweeper: Sweeper, w: np.ndarray, theta: np.ndarray) -> Rounded | None:
    """The best whole numbers for the controls that ask for them, means kept; None: no such."""
    wanted = {name: c for name, c in dynamics.problem.continuous.items() if c.whole_numbers}
    if not wanted:
        return None
    w = w.copy()
    objective = np.inf
    for name, control in wanted.items():
        column = dynamics.relaxation.blocks[name].start
        bounds = (np.ceil(control.lower), np.floor(control.upper))
        w[:, column] = whole_numbers(w[:, column], bounds)
        budgeted = any(b.control == name for b in dynamics.problem.budgets)
        w, objective = shift(sweeper, w, theta, column, bounds, keep_sum=budgeted)
    return Rounded(w, theta, objective)


def _round_one(
    dynamics: Dynamics,
    sweeper: Sweeper,
    name: str,
    control: Control,
    w: np.ndarray,
    theta: np.ndarray,
) -> np.ndarray:
    shares = _shares(dynamics, name, w)
    counts = nearest_counts(name, control, dynamics.problem.budgets, shares.sum(axis=0))
    if not control.limited:
        return sum_up(shares, counts)
    dwell = _dwell(dynamics, sweeper.intervals, control)
    cost = _slopes(dynamics, name, sweeper.run(w, theta).gradient)
    starts = first_schedules(shares, counts, cost, dwell, control.max_switches)
    found = _search(dynamics, sweeper, name, w, theta, starts)
    if found is None:
        raise SpecificationError(
            f"no schedule of {name!r} was found that meets its budget, max_switches and min_dwell "
            f"on {sweeper.intervals} intervals: loosen one of them"
        )
    return found


def _shares(dynamics: Dynamics, name: str, w: np.ndarray) -> np.ndarray:
    """(I, n) shares of all values of a control."""
    return dynamics.problem.controls[name].shares(w[:, dynamics.relaxation.blocks[name]])


def _polish_one(
    dynamics: Dynamics,
    sweeper: Sweeper,
    name: str,
    w: np.ndarray,
    theta: np.ndarray,
    levels: np.ndarray,
) -> np.ndarray:
    control = dynamics.problem.discrete[name]
    if control.limited:
        found = _search(dynamics, sweeper, name, w, theta, [levels])
        return levels if found is None else found
    counts = value_counts(name, control, dynamics.problem.budgets, sweeper.intervals)
    found, _ = exchange(
        sweeper,
        w,
        theta,
        levels,
        lambda w, chosen: _write(dynamics, name, w, chosen),
        lambda gradient: _slopes(dynamics, name, gradient),
        keep_counts=bool(np.all(counts >= 0)),
        admissible=lambda chosen: _admissible(dynamics, name, chosen),
    )
    return found


def _search(
    dynamics: Dynamics,
    sweeper: Sweeper,
    name: str,
    w: np.ndarray,
    theta: np.ndarray,
    starts: list[np.ndarray],
) -> np.ndarray | None:
    found = search_phases(
        sweeper,
        theta,
        starts,
        lambda chosen: _write(dynamics, name, w, chosen),
        lambda gradient: _slopes(dynamics, name, gradient),
        lambda chosen: _admissible(dynamics, name, chosen),
    )
    return None if found is None else found[0]


def _dwell(dynamics: Dynamics, intervals: int, control: Control) -> int:
    step = dynamics.problem.horizon / intervals
    return max(1, int(np.ceil(control.min_dwell / step - 1e-9)))


def _admissible(dynamics: Dynamics, name: str, chosen: np.ndarray) -> bool:
    """Do levels (I,) respect the control's budgets and limits?"""
    control = dynamics.problem.discrete[name]
    if control.max_switches is not None and switches(chosen) > control.max_switches:
        return False
    if shortest_phase(chosen) < _dwell(dynamics, len(chosen), control):
        return False
    shares = np.bincount(chosen, minlength=len(control.values)) / len(chosen)
    for budget in dynamics.problem.budgets:
        for row, target in budget.rows(control) if budget.control == name else []:
            if budget.violation(row @ shares, target) > 1e-9:
                return False
    return True


def _write(dynamics: Dynamics, name: str, w: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    written = w.copy()
    written[:, dynamics.relaxation.blocks[name]] = dynamics.problem.controls[name].vertices[chosen]
    return written


def _slopes(dynamics: Dynamics, name: str, gradient: np.ndarray) -> np.ndarray:
    """(I, n) first-order cost of each value."""
    vertices = dynamics.problem.controls[name].vertices
    return np.asarray(gradient[:, dynamics.relaxation.blocks[name]] @ vertices.T)


def _reoptimise(
    dynamics: Dynamics, sweeper: Sweeper, w: np.ndarray, theta: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Continuous controls and free parameters for fixed discrete values."""
    problem = dynamics.problem
    if not problem.continuous and not problem.free:
        return w, theta
    fixed = np.ones(dynamics.relaxation.size, dtype=bool)
    for name in problem.continuous:
        fixed[dynamics.relaxation.blocks[name]] = False
    result = solve_direct(dynamics, w, theta, steps=sweeper.steps, fixed=fixed)
    better = sweeper.objective(result.w, result.theta) < sweeper.objective(w, theta)
    return (result.w, result.theta) if better else (w, theta)
