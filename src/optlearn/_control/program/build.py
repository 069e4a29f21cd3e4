"""From a problem to its program, and its numbers.

Programs are made once for each structure of a problem: its functions, traced into expressions. Rates that are
too large for that, as wide quadratures are, are compiled by XLA.
"""

from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np

from optlearn._control.problem import Problem
from optlearn._control.program.base import Program
from optlearn._control.program.casadi import CasadiProgram
from optlearn._control.program.functions import Functions
from optlearn._control.program.stages import EXACT
from optlearn._control.program.xla import XlaProgram
from optlearn._control.relaxation import Relaxation
from optlearn._control.weighing import Weigher
from optlearn._dynamics.flat import FlatSystem, pack, unpacked
from optlearn._engine.tracing.trace import UnsupportedPrimitive, trace
from optlearn._precision import float64

# Scalar operations in one rate up to which expressions beat compiled programs (measured:
# docs/decisions/009-wide-quadratures.md).
EXPRESSION_LIMIT = 150_000

# The same for an exact advance: a power of a matrix is a deep product, and its derivatives, as expressions,
# are far larger than itself (10 modes, 20 squarings: not built after minutes; XLA compiles them in seconds).
EXACT_LIMIT = 10_000

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
    functions = Functions.of(problem)
    key = (*functions.key.values(), xla)
    if key not in _PROGRAMS:
        _PROGRAMS[key] = _program(functions, key, xla)
    return CompiledProblem(
        problem,
        functions.relaxation,
        functions.system,
        _PROGRAMS[key],
        pack(functions.constants),
        problem.flat_start,
        functions.rtol,
        problem.weighing,
    )


def _program(functions: Functions, key: Hashable, xla: bool | None) -> Program:
    n, m, k = functions.sizes
    constants, stages, theta = functions.constants, functions.stages, np.zeros(k)
    curved = functions.relaxation.curved
    traced = trace(functions.rate, constants, np.zeros(n), np.zeros(m), theta, np.ones(()))
    traced_final = trace(functions.final, constants, np.zeros(n), theta)
    limit = EXACT_LIMIT if stages is EXACT else EXPRESSION_LIMIT
    small = max(traced.size, traced_final.size) <= limit
    if xla is False or (xla is None and small):
        try:
            return CasadiProgram(traced.function("rate"), traced_final.function("final"), curved, key, stages)
        except UnsupportedPrimitive:
            # XLA knows all operations, CasADi does not.
            if xla is False:
                raise
    rate, final = unpacked(functions.rate, constants), unpacked(functions.final, constants)
    return XlaProgram(rate, final, (n, m, k), curved, pack(constants).size, traced.size, key, stages)
