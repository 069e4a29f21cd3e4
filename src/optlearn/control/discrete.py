"""Schedules of admissible values from relaxed ones: rounding, then a search among its neighbours."""

from dataclasses import dataclass

import numpy as np

from optlearn.control.controls import Discrete
from optlearn.control.direct import solve_direct
from optlearn.control.dynamics import Dynamics
from optlearn.control.polish import exchange, shift
from optlearn.control.rounding import (
    limit_switches,
    repair,
    shortest_phase,
    sum_up,
    switches,
    value_counts,
    whole_numbers,
)
from optlearn.control.sweep import Sweeper


@dataclass(frozen=True)
class Rounded:
    """Controls with shares of 0 and 1 only, free parameters, and the objective on the grid."""

    w: np.ndarray
    theta: np.ndarray
    objective: float


def check_grid(dynamics: Dynamics, intervals: int) -> None:
    """Raise if the grid cannot hold a discrete budget exactly."""
    for name, control in dynamics.problem.discrete.items():
        value_counts(name, control, dynamics.problem.budgets, intervals)


def round_controls(
    dynamics: Dynamics, sweeper: Sweeper, w: np.ndarray, theta: np.ndarray, polish: bool = True
) -> Rounded:
    """Round every discrete control of w (I, m), re-optimise the rest, and search the neighbourhood."""
    problem = dynamics.problem
    levels: dict[str, np.ndarray] = {}
    for name, control in problem.discrete.items():
        levels[name] = _round_one(dynamics, sweeper, name, control, w, theta)
        w = _write(dynamics, name, w, levels[name])
    w, theta = _reoptimise(dynamics, sweeper, w, theta)
    if polish:
        for name, control in problem.discrete.items():
            counts = value_counts(name, control, problem.budgets, sweeper.intervals)
            found, _ = exchange(
                sweeper,
                w,
                theta,
                levels[name],
                lambda w, chosen, name=name: _write(dynamics, name, w, chosen),
                lambda gradient, name=name: _slopes(dynamics, name, gradient),
                keep_counts=bool(np.any(counts >= 0)),
                admissible=lambda chosen, c=control: _admissible(dynamics, sweeper, c, chosen),
            )
            if not np.array_equal(found, levels[name]):
                w = _write(dynamics, name, w, found)
                w, theta = _reoptimise(dynamics, sweeper, w, theta)
    return Rounded(w, theta, sweeper.objective(w, theta))


def whole_schedule(
    dynamics: Dynamics, sweeper: Sweeper, w: np.ndarray, theta: np.ndarray
) -> Rounded | None:
    """The best whole numbers for the controls that ask for them, with their mean kept; None: no such."""
    wanted = {name: c for name, c in dynamics.problem.continuous.items() if c.whole}
    if not wanted:
        return None
    w = w.copy()
    objective = np.inf
    for name, control in wanted.items():
        column = dynamics.relaxation.blocks[name].start
        bounds = (np.ceil(control.lower), np.floor(control.upper))
        w[:, column] = np.clip(whole_numbers(w[:, column]), *bounds)
        budgeted = any(b.control == name for b in dynamics.problem.budgets)
        w, objective = shift(sweeper, w, theta, column, bounds, keep_sum=budgeted)
    return Rounded(w, theta, objective)


def _round_one(
    dynamics: Dynamics,
    sweeper: Sweeper,
    name: str,
    control: Discrete,
    w: np.ndarray,
    theta: np.ndarray,
) -> np.ndarray:
    part = w[:, dynamics.relaxation.blocks[name]]
    shares = np.column_stack([part, 1 - part.sum(axis=1)])
    counts = value_counts(name, control, dynamics.problem.budgets, sweeper.intervals)
    dwell = _dwell(dynamics, sweeper, control)
    chosen = sum_up(shares, counts, dwell)
    if control.max_switches is not None and switches(chosen) > control.max_switches:
        chosen = limit_switches(chosen, control.max_switches)
        gradient = sweeper.run(w, theta).gradient
        chosen = repair(chosen, counts, _slopes(dynamics, name, gradient))
    return chosen


def _dwell(dynamics: Dynamics, sweeper: Sweeper, control: Discrete) -> int:
    step = dynamics.problem.horizon / sweeper.intervals
    return max(1, int(np.ceil(control.min_dwell / step - 1e-9)))


def _admissible(
    dynamics: Dynamics, sweeper: Sweeper, control: Discrete, chosen: np.ndarray
) -> bool:
    if control.max_switches is not None and switches(chosen) > control.max_switches:
        return False
    return control.min_dwell == 0 or shortest_phase(chosen) >= _dwell(dynamics, sweeper, control)


def _write(dynamics: Dynamics, name: str, w: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    control = dynamics.problem.discrete[name]
    written = w.copy()
    written[:, dynamics.relaxation.blocks[name]] = np.eye(len(control.values))[chosen][:, :-1]
    return written


def _slopes(dynamics: Dynamics, name: str, gradient: np.ndarray) -> np.ndarray:
    """(I, n) first-order cost of each value, that of the last one being zero."""
    part = gradient[:, dynamics.relaxation.blocks[name]]
    return np.column_stack([part, np.zeros(len(part))])


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
