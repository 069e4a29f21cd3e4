"""A problem compiled for its engine: functions of relaxed controls, and the problem's numbers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, float64
from optlearn._control.problem import Problem
from optlearn._control.relaxation import Relaxation
from optlearn._control.weighing import Weighing
from optlearn._dynamics.system import resolved_for
from optlearn._engine.build import Backend, Compiled, engine_for
from optlearn._engine.functions import FlatSystem, Functions, PathFunctions, pack
from optlearn._engine.rollout import Rollout as EngineRollout

# Nodes and weights of the three-point Gauss rule on [0, 1].
_GAUSS = ((0.5 - 0.15**0.5, 0.5, 0.5 + 0.15**0.5), (5 / 18, 8 / 18, 5 / 18))
# Relative violation of physical limits that a state on a coarse grid may have. An unstable step violates
# them by more, and its objective is meaningless.
_OUTSIDE = 1e-2


@dataclass(frozen=True, kw_only=True)
class CompiledProblem(Compiled):
    """A problem ready for solvers.

    Attributes:
        problem: the problem.
        relaxation: its controls as vectors.
        rtol: suitable relative tolerance of integrations.
    """

    problem: Problem
    relaxation: Relaxation
    rtol: float

    def is_possible(self, states: np.ndarray) -> bool:
        """Are states (T, n) along a coarse grid finite and physically possible?"""
        finite = bool(np.all(np.isfinite(states)))
        return finite and self.problem.model.first_impossible(states, _OUTSIDE) is None


# Forward and backward passes of a problem.
Rollout: TypeAlias = EngineRollout[CompiledProblem]


def possible_objective(rollout: Rollout, w: np.ndarray, theta: np.ndarray) -> float:
    """The objective of controls; infinite if invalid or if training leads through impossible states."""
    objective, states = rollout.forward(w, theta)
    possible = np.isfinite(objective) and rollout.compiled.is_possible(states[:: rollout.steps])
    return objective if possible else np.inf


def weighing_on(rollout: Rollout) -> Weighing | None:
    """How costs are combined on a grid, where each path has a limit at the end of every step."""
    problem, paths = rollout.compiled.problem, rollout.compiled.engine.paths
    if problem.weighing is None or paths is None:
        return problem.weighing
    at = np.nonzero(paths.points(rollout.steps))[1].tolist() * rollout.intervals
    bounds = problem.path_bounds
    return problem.weighing.along([bounds[i].limit for i in at], [bounds[i].size for i in at])


@float64
def compile_problem(problem: Problem, backend: Backend = "auto") -> CompiledProblem:
    """The problem on a new engine, or on the cached one of a problem with the same structure.

    Args:
        problem: the problem.
        backend: "casadi" for expressions, "xla" for compiled programs; by default the latter if functions are
            large or contain an operation that CasADi lacks.
    """
    functions, relaxation, rtol = problem_functions(problem)
    return CompiledProblem(
        functions=functions,
        engine=engine_for(functions, backend),
        constants=pack(functions.constants),
        start=problem.flat_start,
        horizon=problem.horizon,
        weigher=problem.weighing,
        problem=problem,
        relaxation=relaxation,
        rtol=rtol,
    )


def problem_functions(problem: Problem) -> tuple[Functions, Relaxation, float]:
    """The functions that engines compute, controls as vectors, and a suitable tolerance for integrations.

    Quadratures, if any, are chosen to be accurate at the start.
    """
    relaxation, settings = Relaxation(problem), problem.settings
    u = {**settings, **{n: np.asarray(c.start) for n, c in problem.controls.items()}}
    # Steep gates and sharp attention are the hardest to integrate, so bounds are checked as well as the
    # guess.
    bounds = [(n, v) for n, c in problem.controls.items() for v in (c.lower, c.upper) if np.isfinite(v)]
    ends = [{**u, name: np.asarray(value)} for name, value in bounds]
    model = problem.model.current()
    states, quadrature = model.for_search(problem.start, u, problem.horizon, problem.quadrature)
    resolved = resolved_for(model, states, [u, *ends], quadrature)
    system = FlatSystem(resolved.system, relaxation.vector_names)
    weights = 0 if problem.weighing is None else problem.weighing.size
    constants = (system.system, settings, relaxation.values, np.asarray(problem.horizon))
    parts = {
        "the model": system.key,
        "the controls": tuple((n, type(c), c.size) for n, c in problem.controls.items()),
        "the free parameters": tuple(problem.free),
        "the objective": tuple(o.key(model, settings) for o in problem.objectives),
        "the risk": problem.risk is None,
        "the paths": tuple((bound.sign, bound.path.key(model, settings)) for bound in problem.path_bounds),
    }
    functions = Functions(
        system=system,
        sizes=(model.layout.size, relaxation.size, len(problem.free)),
        curved=relaxation.curved,
        constants=(*constants, np.zeros(weights)) if weights else constants,
        parts=parts,
        make_rate=lambda flat_system: _rate(problem, relaxation, flat_system),
        final=_final(problem),
        weights=weights,
        paths=_paths(problem, relaxation, system) if problem.paths else None,
    )
    return functions, relaxation, resolved.rtol


def _rate(problem: Problem, relaxation: Relaxation, system: FlatSystem) -> Callable[..., tuple[Array, Array]]:
    """(constants, x, w, θ, h) → dx/dα (n,), running cost ()."""
    free, advances = tuple(problem.free), system.system.advances
    # Within an exact step, a running cost is averaged by the Gauss rule.
    moments = list(zip(*_GAUSS, strict=True)) if advances else [(0.0, 1.0)]

    def rate(constants: Any, flat: Array, w: Array, theta: Array, h: Array) -> tuple[Array, Array]:
        model, settings, values, horizon = constants[:4]
        settings = {**settings, **{name: theta[i] for i, name in enumerate(free)}}
        u, shares = relaxation.table(w, values)
        if advances:
            slope = (system.mixed_advance(model, settings, flat, u, shares, h) - flat) / h
        else:
            slope = system.mixed_drift(model, settings, flat, u, shares)
        if not problem.objective.has_running:
            return slope, np.zeros(())
        cost = 0.0
        for part, weight in moments:
            for i in range(u.shape[0]):
                end = system.advance(model, settings, flat, u[i], part * h) if advances else flat
                x, merged = model.layout.unflatten(end), system.merge(settings, u[i])
                cost = cost + weight * shares[i] * problem.running(model, x, merged, horizon)
        return slope, cost / horizon

    return rate


def _paths(problem: Problem, relaxation: Relaxation, system: FlatSystem) -> PathFunctions:
    """Quantities with a limit throughout training; for mixed controls, the mean."""
    free, bounds = tuple(problem.free), problem.path_bounds
    state, controls = zip(*(problem.read_by(bound.path) for bound in bounds), strict=True)

    def values(constants: Any, flat: Array, w: Array, theta: Array) -> Array:
        model, settings, options, _ = constants[:4]
        settings = {**settings, **{name: theta[i] for i, name in enumerate(free)}}
        u, shares = relaxation.table(w, options)
        x, rows = model.layout.unflatten(flat), []
        for bound, reads in zip(bounds, controls, strict=True):
            each = [
                jnp.asarray(problem.path_value(bound, model, x, system.merge(settings, u[i])))
                for i in range(u.shape[0] if reads else 1)
            ]
            rows.append(jnp.stack(each) @ shares if reads else each[0])
        return jnp.stack(rows)

    return PathFunctions(values, state, controls)


def _final(problem: Problem) -> Callable[..., Array]:
    """(constants, x, θ) → final cost ()."""
    free = tuple(problem.free)

    def final(constants: Any, flat: Array, theta: Array) -> Array:
        model, settings, _, _, *weights = constants
        settings = {**settings, **{name: theta[i] for i, name in enumerate(free)}}
        costs = problem.costs(model, model.layout.unflatten(flat), settings)
        if not weights:
            return costs[0]
        return jnp.stack([jnp.asarray(cost) for cost in costs]) @ weights[0]

    return final
