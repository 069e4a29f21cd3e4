"""The problem as CasADi functions of vectors: one Runge-Kutta step, its adjoint, the Hamiltonian.

All are made from one traced JAX function each (drift, running cost, final cost), once for each
structure of a problem; numbers, horizon and start are arguments. Functions that are too large for
expressions, as wide quadratures are, are compiled by XLA instead (``wide``).
"""

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import casadi
import numpy as np

from optlearn._arrays import Array
from optlearn._casadi.trace import UnsupportedPrimitive, trace
from optlearn._control.problem import Problem
from optlearn._control.program.xla import WideFunctions, unpacked
from optlearn._control.relaxation import Relaxation
from optlearn._dynamics.flat import FlatSystem, flat_system
from optlearn._dynamics.on_casadi import pack
from optlearn._precision import float64
from optlearn._theory.quadrature import probe_states

# Scalar operations in one rate up to which expressions beat compiled programs (measured:
# docs/decisions/009-wide-quadratures.md).
WIDE_LIMIT = 150_000

_CACHE: dict[Hashable, "Functions | WideFunctions"] = {}


@dataclass(frozen=True)
class Functions:
    """CasADi functions of a problem; arguments are columns.

    Attributes:
        rate: (constants, x, w, θ) → dx/dα, running cost.
        final: (constants, x, θ) → final cost.
        key: identifies the structure.
    """

    rate: Any
    final: Any
    key: Hashable

    @cached_property
    def step(self) -> Any:
        """(constants, x, w, θ, h) → x and cost after one classical Runge-Kutta step of length h."""
        c, x, w, theta = (casadi.SX.sym(n, s) for n, s in self._shapes())
        h = casadi.SX.sym("h")
        k1, l1 = self.rate(c, x, w, theta)
        k2, l2 = self.rate(c, x + h / 2 * k1, w, theta)
        k3, l3 = self.rate(c, x + h / 2 * k2, w, theta)
        k4, l4 = self.rate(c, x + h * k3, w, theta)
        end = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        cost = h / 6 * (l1 + 2 * l2 + 2 * l3 + l4)
        return casadi.Function("step", [c, x, w, theta, h], casadi.cse([end, cost]))

    @cached_property
    def adjoint_step(self) -> Any:
        """(constants, x, w, θ, h, λ) → gradients of λ·x_end + cost with respect to x, w, θ."""
        c, x, w, theta = (casadi.SX.sym(n, s) for n, s in self._shapes())
        h, costate = casadi.SX.sym("h"), casadi.SX.sym("costate", x.shape[0])
        end, cost = self.step(c, x, w, theta, h)
        total = casadi.dot(costate, end) + cost
        gradients = [casadi.gradient(total, v) for v in (x, w, theta)]
        return casadi.Function("adjoint", [c, x, w, theta, h, costate], casadi.cse(gradients))

    @cached_property
    def hamiltonian(self) -> Any:
        """(constants, x, w, θ, λ) → H = λ·dx/dα + running cost, and its gradient in w."""
        c, x, w, theta = (casadi.SX.sym(n, s) for n, s in self._shapes())
        costate = casadi.SX.sym("costate", x.shape[0])
        rate, cost = self.rate(c, x, w, theta)
        H = casadi.dot(costate, rate) + cost
        outputs = casadi.cse([H, casadi.gradient(H, w)])
        return casadi.Function("hamiltonian", [c, x, w, theta, costate], outputs)

    @cached_property
    def final_gradient(self) -> Any:
        """(constants, x, θ) → final cost, its gradients in x and θ."""
        (c, x, _, theta) = (casadi.SX.sym(n, s) for n, s in self._shapes())
        cost = self.final(c, x, theta)
        outputs = [cost, casadi.gradient(cost, x), casadi.gradient(cost, theta)]
        return casadi.Function("final_gradient", [c, x, theta], casadi.cse(outputs))

    @property
    def constants(self) -> int:
        """How many constants."""
        return int(self.rate.size1_in(0))

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Lengths of x, w, θ."""
        return self.rate.size1_in(1), self.rate.size1_in(2), self.rate.size1_in(3)

    @property
    def free_in_rate(self) -> bool:
        """Whether the rate, and not only the final cost, reads free parameters."""
        return bool(self.rate.sparsity_jac(3, 0).nnz() + self.rate.sparsity_jac(3, 1).nnz() > 0)

    def _shapes(self) -> list[tuple[str, int]]:
        names = ("c", "x", "w", "theta")
        return [(name, self.rate.size1_in(i)) for i, name in enumerate(names)]


@dataclass(frozen=True)
class Dynamics:
    """A problem ready for solvers: its functions and its numbers."""

    problem: Problem
    relaxation: Relaxation
    system: FlatSystem
    functions: Functions | WideFunctions
    constants: np.ndarray
    start: np.ndarray

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Lengths of x, w, θ."""
        return self.functions.sizes


@float64
def dynamics(problem: Problem, *, wide: bool | None = None) -> Dynamics:
    """Trace a problem's drift and costs, or reuse those of a problem of the same structure.

    Args:
        problem: the problem.
        wide: run them under XLA (true) or as CasADi expressions (false); by default under XLA if they
            are large, or have an operation that CasADi does not know.
    """
    relaxation = Relaxation(problem)
    settings = problem.settings
    u = {**settings, **{n: np.asarray(c.start) for n, c in problem.controls.items()}}
    probes = probe_states(problem.model, problem.start)
    system, _ = flat_system(problem.model, relaxation.controls, probes, u, problem.rule)
    columns = tuple((n, type(c), c.size) for n, c in problem.controls.items())
    key = (system.key, columns, tuple(problem.free), problem.objective, wide)
    constants = (problem.model, settings, relaxation.values, np.asarray(problem.horizon))
    if key not in _CACHE:
        _CACHE[key] = _functions(problem, relaxation, system, constants, key, wide)
    return Dynamics(
        problem,
        relaxation,
        system,
        _CACHE[key],
        pack(constants),
        np.asarray(problem.model.layout.flatten(problem.start)),
    )


def _functions(
    problem: Problem,
    relaxation: Relaxation,
    system: FlatSystem,
    constants: Any,
    key: Hashable,
    wide: bool | None,
) -> Functions | WideFunctions:
    free = tuple(problem.free)
    n, m = problem.model.layout.size, relaxation.size

    def rate(constants: Any, flat: Array, w: Array, theta: Array) -> tuple[Array, Array]:
        model, settings, values, horizon = constants
        settings = {**settings, **{name: theta[i] for i, name in enumerate(free)}}
        u, shares = relaxation.table(w, values)
        drift = system.mixed_drift(model, settings, flat, u, shares)
        if not problem.objective.has_running:
            return drift, np.zeros(())
        x = model.layout.unflatten(flat)
        cost = sum(
            shares[i] * problem.running(model, x, system.merge(settings, u[i]), system.error_rule)
            for i in range(u.shape[0])
        )
        return drift, cost / horizon

    def final(constants: Any, flat: Array, theta: Array) -> Array:
        model, settings, _, _ = constants
        settings = {**settings, **{name: theta[i] for i, name in enumerate(free)}}
        x = model.layout.unflatten(flat)
        return problem.terminal(model, x, settings, system.error_rule)

    theta = np.zeros(len(free))
    traced = trace(rate, constants, np.zeros(n), np.zeros(m), theta)
    traced_final = trace(final, constants, np.zeros(n), theta)
    small = max(traced.size, traced_final.size) <= WIDE_LIMIT
    if wide is False or (wide is None and small):
        try:
            return Functions(traced.function("rate"), traced_final.function("final"), key)
        except UnsupportedPrimitive:
            # XLA knows all operations, CasADi does not.
            if wide is False:
                raise
    sizes = (n, m, len(free))
    return WideFunctions(
        unpacked(rate, constants), unpacked(final, constants), sizes, pack(constants).size, key
    )
