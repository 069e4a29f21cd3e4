"""From a problem to its program, and its numbers.

Programs are made from one traced JAX function each (drift with running cost, final cost), once for each
structure of a problem; numbers, horizon and start are arguments. Rates that are too large for expressions,
as wide quadratures are, are compiled by XLA.
"""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array
from optlearn._casadi.trace import UnsupportedPrimitive, trace
from optlearn._control.problem import Problem
from optlearn._control.program.base import Program
from optlearn._control.program.casadi import CasadiProgram
from optlearn._control.program.steps import CLASSICAL, EXACT
from optlearn._control.program.xla import XlaProgram, unpacked
from optlearn._control.relaxation import Relaxation
from optlearn._control.weighing import Weigher
from optlearn._dynamics.flat import FlatSystem
from optlearn._dynamics.on_casadi import pack
from optlearn._dynamics.system import resolved_for
from optlearn._precision import float64

# Scalar operations in one rate up to which expressions beat compiled programs (measured:
# docs/decisions/009-wide-quadratures.md).
EXPRESSION_LIMIT = 150_000

# The same for an exact advance: a power of a matrix is a deep product, and its derivatives, as expressions,
# are far larger than itself (10 modes, 20 squarings: not built after minutes; XLA compiles them in seconds).
EXACT_LIMIT = 10_000

# Positions and weights of Gauss's rule of three points on [0, 1].
_GAUSS = ((0.5 - 0.15**0.5, 0.5, 0.5 + 0.15**0.5), (5 / 18, 8 / 18, 5 / 18))

# By structure. What is derived from a program is kept by the program itself (``Program.once``).
_PROGRAMS: dict[Hashable, Program] = {}


@dataclass(frozen=True)
class CompiledProblem:
    """A problem ready for solvers: its program and its numbers.

    Attributes:
        problem: what was compiled.
        relaxation: its controls as vectors.
        system: its drift and error.
        program: functions of vectors, shared by all problems of its structure.
        constants: (c,) the numbers that these read.
        start: (n,) state at α = 0.
        weigher: of several costs, if there are; the program's final cost is then their sum with the weights
            that are the last of its constants.
    """

    problem: Problem
    relaxation: Relaxation
    system: FlatSystem
    program: Program
    constants: np.ndarray
    start: np.ndarray
    rtol: float
    weigher: Weigher | None = None

    def weighted(self, weigher: Weigher) -> "CompiledProblem":
        """The same with another cost of the costs."""
        return replace(self, weigher=weigher)

    def costs(self, x: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """(K,) the costs of which there are several, at the final state x (n,)."""
        assert self.problem.weighing is not None
        units = np.eye(self.problem.weighing.size)
        return np.array([float(self.program.final(self.with_weights(unit), x, theta)) for unit in units])

    def with_weights(self, weights: np.ndarray) -> np.ndarray:
        """(c,) constants with these weights (K,) of the costs."""
        return np.concatenate([self.constants[: -len(weights)], weights])

    def final(self, x: np.ndarray, theta: np.ndarray) -> float:
        """Cost of the final state x (n,)."""
        if self.weigher is None:
            return float(self.program.final(self.constants, x, theta))
        return self.weigher.value(self.costs(x, theta))

    def final_gradient(self, x: np.ndarray, theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Cost of the final state x (n,), and its gradients in x and θ."""
        constants, cost = self.constants, None
        if self.weigher is not None:
            costs = self.costs(x, theta)
            constants, cost = self.with_weights(self.weigher.weights(costs)), self.weigher.value(costs)
        total, by_x, by_theta = self.program.final_gradient(constants, x, theta)
        return float(total) if cost is None else cost, np.array(by_x).ravel(), np.array(by_theta).ravel()

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Lengths of x, w, θ."""
        return self.program.sizes

    def exact_steps(self, length: float) -> int:
        """Steps that a system with its own exact ``advance`` asks for in an interval."""
        return max(1, int(np.ceil(length / self.system.system.longest * (1 - 1e-9))))


@float64
def compile_problem(problem: Problem, *, xla: bool | None = None) -> CompiledProblem:
    """Trace a problem's drift and costs, or reuse those of a problem of the same structure.

    Args:
        problem: the problem.
        xla: run them under XLA (true) or as CasADi expressions (false); by default under XLA if they
            are large, or have an operation that CasADi does not know.
    """
    relaxation = Relaxation(problem)
    settings = problem.settings
    u = {**settings, **{n: np.asarray(c.start) for n, c in problem.controls.items()}}
    # Steep gates and sharp attention are the hardest to integrate: the bounds count as much as the guess.
    ends = [{**u, n: np.asarray(v)} for n, c in problem.controls.items() for v in (c.lower, c.upper)]
    model = problem.model.current()
    resolved = resolved_for(model, model.probes(problem.start), [u, *ends], problem.rule)
    system = FlatSystem(resolved.system, relaxation.controls)
    columns = tuple((n, type(c), c.size) for n, c in problem.controls.items())
    minimised = tuple(objective.key(model, settings) for objective in problem.objectives)
    weighing = problem.weighing
    key = (system.key, columns, tuple(problem.free), minimised, problem.risk is None, xla)
    constants: tuple[Any, ...] = (
        system.system,
        settings,
        relaxation.values,
        np.asarray(problem.horizon),
    )
    if weighing is not None:
        constants = (*constants, np.zeros(weighing.size))
    if key not in _PROGRAMS:
        _PROGRAMS[key] = _program(problem, relaxation, system, constants, key, xla)
    return CompiledProblem(
        problem,
        relaxation,
        system,
        _PROGRAMS[key],
        pack(constants),
        problem.flat_start,
        resolved.rtol,
        weighing,
    )


def _program(
    problem: Problem,
    relaxation: Relaxation,
    system: FlatSystem,
    constants: Any,
    key: Hashable,
    xla: bool | None,
) -> Program:
    free = tuple(problem.free)
    n, m = problem.model.layout.size, relaxation.size

    advances = system.system.advances
    # Within an exact step a running cost is averaged by Gauss's rule.
    moments = [(part, weight) for part, weight in zip(*_GAUSS, strict=True)] if advances else [(0.0, 1.0)]

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
                there = system.advance(model, settings, flat, u[i], part * h) if advances else flat
                x, merged = model.layout.unflatten(there), system.merge(settings, u[i])
                cost = cost + weight * shares[i] * problem.running(model, x, merged)
        return slope, cost / horizon

    def final(constants: Any, flat: Array, theta: Array) -> Array:
        model, settings, _, _, *weights = constants
        settings = {**settings, **{name: theta[i] for i, name in enumerate(free)}}
        x = model.layout.unflatten(flat)
        costs = problem.costs(model, x, settings)
        if not weights:
            return costs[0]
        return jnp.stack([jnp.asarray(cost) for cost in costs]) @ weights[0]

    stages = EXACT if advances else CLASSICAL
    theta = np.zeros(len(free))
    traced = trace(rate, constants, np.zeros(n), np.zeros(m), theta, np.ones(()))
    traced_final = trace(final, constants, np.zeros(n), theta)
    limit = EXACT_LIMIT if advances else EXPRESSION_LIMIT
    small = max(traced.size, traced_final.size) <= limit
    if xla is False or (xla is None and small):
        try:
            return CasadiProgram(traced.function("rate"), traced_final.function("final"), key, stages)
        except UnsupportedPrimitive:
            # XLA knows all operations, CasADi does not.
            if xla is False:
                raise
    sizes = (n, m, len(free))
    rates, finals = unpacked(rate, constants), unpacked(final, constants)
    return XlaProgram(rates, finals, sizes, pack(constants).size, traced.size, key, stages)
