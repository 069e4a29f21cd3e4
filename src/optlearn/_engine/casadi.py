"""An engine on CasADi expressions: no compilation, and derivatives of any order."""

from collections.abc import Callable
from functools import cached_property

import casadi
import numpy as np

from optlearn._engine.adaptive import extrapolated_step
from optlearn._engine.base import (
    ControlledStep,
    Derivatives,
    Engine,
    Expr,
    Expressions,
    Hamiltonians,
    Kernel,
    PathDerivatives,
    PathKernels,
    Slope,
)
from optlearn._engine.functions import Functions
from optlearn._engine.steps import step
from optlearn._engine.tracing.values import Buffered

# Up to this many instructions in an interval, one flat expression is faster than calls of the rate.
FLAT = 600
# Up to this many instructions, eliminating common subexpressions pays off: it saves a tenth of each call, and
# takes as long as hundreds of calls, or thousands for a large expression.
SHARED = 50_000
# Estimated operations of a rate up to which an adaptive step is one function.
SMALL = 3_000


class CasadiEngine(Engine):
    """An engine on a few traced functions.

    Args:
        functions: the traced functions.
        size: estimated scalar operations in one rate.
        rate: (c, x, w, θ, h) → dx/dα, running cost, as a CasADi function.
        final: (c, x, θ) → final cost.
        path: (c, x, w, θ) → quantities with path limits, if any.
    """

    name = "casadi"

    def __init__(self, functions: Functions, size: int, rate: Expr, final: Expr, path: Expr = None) -> None:
        super().__init__(functions, size)
        self._rate, self._final, self._path = rate, final, path

    @property
    def costly(self) -> bool:
        """No: microseconds."""
        return False

    @property
    def operations(self) -> int:
        """Known from the expression."""
        return int(self._rate.n_instructions())

    @property
    def free_in_rate(self) -> bool:
        """Known from the expression."""
        return bool(self._rate.sparsity_jac(3, 0).nnz() + self._rate.sparsity_jac(3, 1).nnz() > 0)

    def prepare(self) -> None:
        """Nothing takes long."""

    @property
    def rate(self) -> Kernel:
        """(c, x, w, θ, h) → dx/dα, running cost."""
        return self._rate

    @property
    def final(self) -> Kernel:
        """(c, x, θ) → final cost."""
        return self._final

    @cached_property
    def final_gradient(self) -> Kernel:
        """(c, x, θ) → final cost, its gradients in x and θ."""
        c, x, _, theta, _, _ = self.symbols()
        cost = self._final(c, x, theta)
        outputs = [cost, casadi.gradient(cost, x), casadi.gradient(cost, theta)]
        return _function("final_gradient", [c, x, theta], outputs)

    @cached_property
    def step(self) -> Kernel:
        """(c, x, w, θ, h) → state and cost after one step of length h."""
        c, x, w, theta, h, _ = self.symbols()
        outputs = step(self.stages, lambda state: self._rate(c, state, w, theta, h), x, h)
        return _function("step", [c, x, w, theta, h], list(outputs))

    @cached_property
    def adjoint_step(self) -> Kernel:
        """(c, x, w, θ, h, λ) → gradients of λ·x_end + cost with respect to x, w, θ."""
        c, x, w, theta, h, costate = self.symbols()
        end, cost = self.step(c, x, w, theta, h)
        total = casadi.dot(costate, end) + cost
        gradients = [casadi.gradient(total, v) for v in (x, w, theta)]
        return _function("adjoint", [c, x, w, theta, h, costate], gradients)

    def chains(self, total: int) -> tuple[Kernel, Kernel]:
        """The step and its adjoint, ``total`` times, each with memory of its own."""

        def make() -> tuple[Expr, Expr]:
            c, x, w, theta, h, costate = self.symbols()
            before, *gradients = self.adjoint_step(c, x, w, theta, h, costate)
            rows = [x, w, h]
            if self.paths is not None:
                jump = casadi.SX.sym("jump", before.shape[0])
                before, rows = before + jump, [*rows, jump]
            return (
                _in_a_row("forward", [x, w, h], [c, theta], self.step(c, x, w, theta, h), total),
                _in_a_row("backward", [costate, *rows], [c, theta], [before, *gradients], total),
            )

        forward, backward = self.once(("chains", total), make)
        return Buffered(forward), Buffered(backward)

    def many_chains(self, total: int, lanes: int) -> tuple[Kernel, Kernel]:
        """All in one call: for small rates, entering Python takes ten times as long as the steps."""

        def make() -> list[Expr]:
            self.chains(total)
            return [
                chain.map(f"many_{chain.name()}", "serial", lanes, [chain.n_in() - 2, chain.n_in() - 1], [])
                for chain in self.once(("chains", total), tuple)
            ]

        forward, backward = self.once(("many chains", total, lanes), make)
        return Buffered(forward), Buffered(backward)

    @cached_property
    def hamiltonians(self) -> Hamiltonians:
        """Kernels for the minimum principle."""
        c, x, w, theta, h, costate = self.symbols()
        inputs = [c, x, w, theta, h, costate]
        slope, cost = self._rate(c, x, w, theta, h)
        H = casadi.dot(costate, slope) + cost
        hessian, gradient = casadi.hessian(H, w)
        bends = casadi.vec(hessian[: self.curved, : self.curved])
        dense = [casadi.densify(v) for v in (H, gradient, bends)]
        return Hamiltonians(
            _function("H", inputs, dense[:1]),
            _function("H_expansion", inputs, dense),
            _function("H_free", inputs, [H, casadi.gradient(H, theta)]),
        )

    @cached_property
    def path_kernels(self) -> PathKernels:
        """Kernels for quantities with path limits."""
        c, x, w, theta, mu, total = self._weighed_path
        hessian, gradient = casadi.hessian(total, w)
        bends = hessian[: self.curved, : self.curved]
        outputs = [casadi.gradient(total, v) for v in (x, w, theta)], [total, gradient, casadi.vec(bends)]
        return PathKernels(
            self._path,
            *(
                _function(name, [c, x, w, theta, mu], [casadi.densify(v) for v in values])
                for name, values in zip(("path_gradient", "path_expansion"), outputs, strict=True)
            ),
        )

    @cached_property
    def path_derivatives(self) -> PathDerivatives:
        """By CasADi's own differentiation."""
        c, x, w, theta, mu, total = self._weighed_path
        own, values = casadi.vertcat(x, w, theta), self._path(c, x, w, theta)
        jacobian, (curvature, _) = casadi.jacobian(values, own), casadi.hessian(total, own)
        return PathDerivatives(
            _function("path_first", [c, x, w, theta], [values, casadi.densify(jacobian)]),
            _function("path_second", [c, x, w, theta, mu], [casadi.densify(curvature)]),
        )

    @property
    def _weighed_path(self) -> tuple[Expr, ...]:
        """Symbols c, x, w, θ, μ, and μ·g."""
        c, x, w, theta, _, _ = self.symbols()
        mu = casadi.SX.sym("mu", self._path.size1_out(0))
        return c, x, w, theta, mu, casadi.dot(mu, self._path(c, x, w, theta))

    def slope(self, constants: np.ndarray) -> Callable[[np.ndarray], Slope]:
        """Evaluated in place: conversions would take as long as a small rate itself."""
        rate = Buffered(self._rate)
        held_constants, state, controls = (argument.reshape(-1) for argument in rate.inputs[:3])
        held_constants[:] = constants

        def at(x: np.ndarray) -> np.ndarray:
            state[:] = x
            rate.evaluate()
            return rate.outputs[0][0].copy()

        def under(w: np.ndarray) -> Slope:
            controls[:] = w
            return at

        return under

    def controlled_step(self, constants: np.ndarray) -> Callable[[np.ndarray], ControlledStep] | None:
        """For small rates: an extrapolated step as one function, so that Python is entered once per step."""
        if self.size > SMALL:
            return None

        def make() -> Expr:
            c, x, w, theta, h, _ = self.symbols()
            ends = extrapolated_step(lambda y: self._rate(c, y, w, theta, h)[0], x, h)
            return casadi.Function("extrapolated_step", [c, x, w, theta, h], list(ends))

        function = Buffered(self.once("extrapolated step", make))
        held_constants, state, controls, _, length = (argument.reshape(-1) for argument in function.inputs)
        held_constants[:] = constants

        def from_state(x: np.ndarray, h: float) -> tuple[np.ndarray, np.ndarray]:
            state[:], length[:] = x, h
            function.evaluate()
            return function.outputs[0][0].copy(), function.outputs[1][0]

        def under(w: np.ndarray) -> ControlledStep:
            controls[:] = w
            return from_state

        return under

    @cached_property
    def derivatives(self) -> Derivatives:
        """By CasADi's own differentiation."""
        c, x, w, theta, h, mu = self.symbols()
        nu = casadi.SX.sym("nu")
        own, end = casadi.vertcat(x, w, theta), casadi.vertcat(x, theta)
        slope, cost = self._rate(c, x, w, theta, h)
        jacobians = [casadi.densify(casadi.jacobian(v, own)) for v in (slope, cost)]
        curvature, _ = casadi.hessian(casadi.dot(mu, slope) + nu * cost, own)
        final, _ = casadi.hessian(self._final(c, x, theta), end)
        return Derivatives(
            self._rate,
            _function("first", [c, x, w, theta, h], [slope, cost, *jacobians]),
            _function("second", [c, x, w, theta, h, mu, nu], [casadi.densify(curvature)]),
            self._final,
            self.final_gradient,
            casadi.Function("final_hessian", [c, x, theta], [casadi.densify(final)]),
        )

    @property
    def expressions(self) -> Expressions:
        """The traced expressions."""
        symbols = self.symbols()
        c, x, w, theta, h, _ = symbols
        slope, cost = self._rate(c, x, w, theta, h)
        return Expressions(symbols, slope, cost, self._final(c, x, theta))

    def better_flat(self, steps: int) -> bool:
        """True for small rates and few steps."""
        return bool(self.operations * steps <= FLAT)

    def symbols(self) -> tuple[Expr, ...]:
        """c, x, w, θ, h, λ."""
        n, m, k = self.sizes
        lengths = {"c": self.constants, "x": n, "w": m, "theta": k, "h": 1, "costate": n}
        return tuple(casadi.SX.sym(name, length) for name, length in lengths.items())


def _function(name: str, inputs: Expr, outputs: Expr) -> Expr:
    plain = casadi.Function(name, inputs, outputs)
    shared: Expr = outputs if plain.n_instructions() > SHARED else casadi.cse(outputs)
    return plain if shared is outputs else casadi.Function(name, inputs, shared)


def _in_a_row(name: str, inputs: list[Expr], shared: list[Expr], outputs: Expr, total: int) -> Expr:
    """Apply a function ``total`` times, passing on its first result; ``shared`` arguments stay fixed."""
    once = casadi.Function(name, [*inputs, *shared], [casadi.densify(output) for output in outputs])
    columns = [1, *[total] * (len(inputs) - 1), *[1] * len(shared)]
    symbols = [casadi.MX.sym(f"x{i}", once.size1_in(i), count) for i, count in enumerate(columns)]
    arguments = [*symbols[: len(inputs)], *(casadi.repmat(v, 1, total) for v in symbols[len(inputs) :])]
    chain: Expr = once.mapaccum(name, total)
    return casadi.Function(name, symbols, list(chain(*arguments)))
