"""Any schedule under a problem, re-integrated to full accuracy."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import float64
from optlearn._control.compiled import CompiledProblem, Rollout, compile_problem
from optlearn._control.kept import with_paths
from optlearn._control.problem import Problem
from optlearn._engine.integrate import integrate
from optlearn._errors import SpecificationError, UnphysicalStateError
from optlearn._schedule import Schedule
from optlearn._signatures import checked
from optlearn._trajectory import Trajectory

_RUNNING_ACCURACY = 1e-12  # of a piece of a running cost, relative to the whole
_HALVINGS = 12
# Largest tolerance: a certificate needs the objective to 2e-5, whatever its quadrature error.
LEAST_ACCURATE = 1e-6
STATE_SHOWN = 6  # numbers of a state in a message


@checked
@float64
def evaluate(
    problem: Problem,
    schedule: Schedule,
    parameters: Mapping[str, float] | None = None,
    *,
    record: int = 201,
) -> Trajectory:
    """Train under ``schedule``; the trajectory's ``objective`` is the problem's.

    Args:
        problem: the problem.
        schedule: admissible values of all its controls up to its horizon. Budgets are not enforced.
        parameters: values of model parameters, free ones included. A free parameter named neither
            here nor in ``schedule.parameters`` is optimised for this schedule.
        record: number of equally spaced training times to record.
    """
    Arguments("evaluate").count("record", record, 2)
    check_values(problem, schedule)
    return evaluate_anyway(problem, schedule, parameters, record=record)


@float64
def evaluate_anyway(
    problem: Problem,
    schedule: Schedule,
    parameters: Mapping[str, float] | None = None,
    *,
    record: int = 201,
    rtol: float = 1e-10,
) -> Trajectory:
    """``evaluate`` for any values of the controls, admissible or not.

    A costly drift is integrated to ``rtol`` or its own suitable tolerance, whichever is larger.
    """
    return evaluate_compiled(*with_best_free(problem, schedule, parameters), schedule, record, rtol)


def evaluate_compiled(
    compiled: CompiledProblem,
    free: Mapping[str, float],
    schedule: Schedule,
    record: int = 201,
    rtol: float = 1e-10,
) -> Trajectory:
    """``evaluate`` for a compiled problem, with the quadratures that were chosen when compiling."""
    problem = compiled.problem
    trajectory = integrate(
        schedule=schedule,
        start=problem.start,
        parameters={**compiled.problem.parameters, **free},
        record=record,
        **_integrator(compiled, rtol),
    )
    theta = np.array(list(free.values()))
    trajectory = with_paths(compiled, schedule, theta, trajectory)
    objective = _objective(compiled, schedule, theta, trajectory)
    if not np.isfinite(objective):
        raise UnphysicalStateError(_not_finite(problem, objective, trajectory))
    info = {**trajectory.info, "objective": objective, "parameters": dict(free)}
    return replace(trajectory, info=info)


def _not_finite(problem: Problem, objective: float, trajectory: Trajectory) -> str:
    """The message about an objective that is not finite although all states are."""
    model, aim, errors = problem.model, problem.objective, trajectory["error"]
    where, value = -1, objective
    part = "integral" if aim.integral is not None else "cost" if aim.has_running else "terminal"
    blamed = "the error" if aim.tests else f"Objective.{part}"
    counted = errors if aim.average else errors[-1:] if aim.final else errors[:0]
    if not np.all(np.isfinite(counted)):
        where = int(np.flatnonzero(~np.isfinite(errors))[0])
        blamed, value = f"{type(model).__name__}.error", errors[where]
    pairs = zip(model.layout.names, trajectory.states[where], strict=True)
    state = ", ".join(f"{name} = {number:.4g}" for name, number in list(pairs)[:STATE_SHOWN])
    return (
        f"{blamed} is {value:g} and must be finite; the state is finite throughout ({state} at "
        f"α = {trajectory.alpha[where]:.4g})."
    )


def _integrator(compiled: CompiledProblem, rtol: float) -> dict[str, Any]:
    """Model and options of an integration; a costly drift is integrated far below its quadrature error.

    All schedules are compared under the solver's own quadrature, so its error is the same for all.
    """
    if not compiled.engine.costly:
        return {"model": compiled.problem.model, "quadrature": compiled.problem.quadrature}
    model, backend = compiled.functions.system.system, compiled.engine.name
    return {"model": model, "backend": backend, "rtol": min(max(rtol, compiled.rtol), LEAST_ACCURATE)}


def with_best_free(
    problem: Problem, schedule: Schedule, parameters: Mapping[str, float] | None
) -> tuple[CompiledProblem, dict[str, float]]:
    """The problem with the given parameters, and its free parameters: as given, or best for the schedule."""
    problem = _ending_with(problem, schedule)
    check_schedule(problem, schedule)
    given_values = {**schedule.parameters, **(parameters or {})}
    unknown = sorted(set(given_values) - set(problem.settings))
    if unknown:
        raise SpecificationError(
            f"unknown parameter {unknown[0]!r}; the model has {', '.join(sorted(problem.settings))}"
        )
    fixed = {name: value for name, value in given_values.items() if name not in problem.free}
    compiled = compile_problem(problem.with_parameters(**fixed))
    return compiled, best_free(
        compiled, schedule, {n: v for n, v in given_values.items() if n in problem.free}
    )


def _ending_with(problem: Problem, schedule: Schedule) -> Problem:
    """The problem; a free horizon is set to that of the schedule."""
    free = problem.free_horizon
    if free is None:
        return problem
    if not free.lower * (1 - 1e-9) <= schedule.horizon <= free.upper * (1 + 1e-9):
        raise SpecificationError(
            f"the schedule ends at α = {schedule.horizon:g}, the problem's horizon is from {free.lower:g} to "
            f"{free.upper:g}"
        )
    return problem.at_horizon(schedule.horizon)


def check_values(problem: Problem, schedule: Schedule) -> None:
    """Raise unless the schedule has all controls, with admissible values; its horizon does not matter."""
    check_controls(problem, schedule)
    for name, control in problem.controls.items():
        for broken in control.broken_bounds(name, schedule):
            raise SpecificationError(f"the schedule is not admissible: {broken}")


def check_schedule(problem: Problem, schedule: Schedule) -> None:
    """Raise unless the schedule has all controls and the problem's horizon."""
    if abs(schedule.horizon - problem.horizon) > 1e-9 * problem.horizon:
        raise SpecificationError(
            f"the schedule ends at α = {schedule.horizon:g}, the problem at {problem.horizon:g}"
        )
    check_controls(problem, schedule)


def check_controls(problem: Problem, schedule: Schedule) -> None:
    """Raise unless the schedule has all controls."""
    for name in problem.controls:
        if name not in schedule.controls:
            raise SpecificationError(
                f"the schedule lacks the control {name!r}; it has {list(schedule.controls)}"
            )


def best_free(compiled: CompiledProblem, schedule: Schedule, given: Mapping[str, float]) -> dict[str, float]:
    """All free parameters in the problem's order: ``given`` values, and the best values of the others."""
    free = compiled.problem.free
    missing = [i for i, name in enumerate(free) if name not in given]
    theta = np.array([float(given.get(name, f.start)) for name, f in free.items()])
    if missing:
        from scipy.optimize import minimize

        w, rollout = _on_fine_grid(compiled, schedule)

        def cost(values: np.ndarray) -> tuple[float, np.ndarray]:
            theta[missing] = values
            rolled = rollout.run(w, theta)
            return rolled.objective, rolled.free_gradient[missing]

        limits = list(free.values())
        optimum = minimize(
            cost,
            theta[missing],
            jac=True,
            bounds=[(limits[i].lower, limits[i].upper) for i in missing],
            method="L-BFGS-B",
            options={"ftol": 1e-16, "gtol": 1e-11},
        )
        theta[missing] = optimum.x
    return dict(zip(free, map(float, theta), strict=True))


def _on_fine_grid(compiled: CompiledProblem, schedule: Schedule) -> tuple[np.ndarray, Rollout]:
    """The schedule's relaxed controls and a rollout on its own edges, refined."""
    merged = schedule.merged()
    longest = compiled.problem.horizon / 200
    pieces = np.maximum(1, np.ceil(np.diff(merged.grid) / longest).astype(int))
    edges = [
        np.linspace(left, right, count, endpoint=False)
        for left, right, count in zip(merged.grid[:-1], merged.grid[1:], pieces, strict=True)
    ]
    grid = np.concatenate([*edges, merged.grid[-1:]])
    w = np.repeat(compiled.relaxation.own_vectors(merged), pieces, axis=0)
    return w, Rollout(compiled, grid, 2)


def _objective(
    compiled: CompiledProblem, schedule: Schedule, theta: np.ndarray, trajectory: Trajectory
) -> float:
    engine, constants = compiled.engine, compiled.constants
    total = compiled.final(trajectory.states[-1], theta)
    if not compiled.problem.objective.has_running:
        return total
    controls = compiled.relaxation.own_vectors(schedule)

    def cost(times: np.ndarray) -> np.ndarray:
        states = np.stack(list(trajectory.at(times).values()), axis=1)
        w = controls[np.searchsorted(schedule.grid, times, side="right") - 1]
        columns = [np.tile(v[:, None], len(times)) for v in (constants, theta)]
        return np.array(engine.rate(columns[0], states.T, w.T, columns[1], 0.0)[1]).ravel()

    edges = np.unique(np.concatenate([schedule.merged().grid, np.linspace(0, schedule.horizon, 65)]))
    return total + integral(cost, edges)


def integral(function: Callable[[np.ndarray], np.ndarray], edges: np.ndarray) -> float:
    """∫ function dα from the first of ``edges`` to the last, to a relative accuracy of about 1e-11.

    Gauss-Legendre on every piece between two edges; a piece whose integral changes when it is halved is
    halved again. All such pieces are evaluated in one call, since every call may integrate a trajectory.
    """
    left, right, total = edges[:-1], edges[1:], 0.0
    whole = _on_pieces(function, left, right)
    scale = max(float(np.abs(whole).sum()), 1e-300)
    for _ in range(_HALVINGS):
        middle = (left + right) / 2
        halves = _on_pieces(function, np.concatenate([left, middle]), np.concatenate([middle, right]))
        first, second = np.split(halves, 2)
        doubtful = np.abs(first + second - whole) > _RUNNING_ACCURACY * scale
        total += float((first + second)[~doubtful].sum())
        if not doubtful.any():
            return total
        left, middle, right = left[doubtful], middle[doubtful], right[doubtful]
        left, right = np.concatenate([left, middle]), np.concatenate([middle, right])
        whole = np.concatenate([first[doubtful], second[doubtful]])
    return total + float(whole.sum())


def _on_pieces(
    function: Callable[[np.ndarray], np.ndarray], left: np.ndarray, right: np.ndarray
) -> np.ndarray:
    """Gauss-Legendre integrals over pieces from ``left`` (P,) to ``right`` (P,)."""
    nodes, weights = np.polynomial.legendre.leggauss(6)
    half = (right - left)[:, None] / 2
    times = (left + right)[:, None] / 2 + half * nodes
    return np.asarray((half * weights * function(times.ravel()).reshape(times.shape)).sum(axis=1))
