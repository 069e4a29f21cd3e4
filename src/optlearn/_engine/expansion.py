"""A step of training, and an interval of several, as expressions with exact derivatives.

A step is linear in the slopes k_j = f(X_j, w, θ, h) of its stages, and each stage state X_j is linear in
the slope before it. So with Z_j = ∂(X_j, w, θ)/∂y and μ_j the adjoint of k_j, the Hessian of λ·x_end + ν·cost
in y is exactly Σ_j Z_jᵀ ∇²(μ_j·f + ν_j ℓ) Z_j. Only the rate itself is ever differentiated, once, so the
derivative program stays small however many steps an interval has.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import casadi
import numpy as np

from optlearn._engine.base import Engine, Expr
from optlearn._engine.steps import Stages, step


class Expanded(NamedTuple):
    """One step in an expression, with derivatives in y.

    Attributes:
        end: (n) state after the step.
        cost: of the step.
        end_slope: (n, p) derivative of the end in y.
        cost_slope: (1, p) derivative of the cost in y.
        kept: intermediate results for ``StepExpansion.backward``.
    """

    end: Expr
    cost: Expr
    end_slope: Expr
    cost_slope: Expr
    kept: Expr


@dataclass(frozen=True)
class StepExpansion:
    """One step of length h with first and second derivatives, from those of the rate (``Derivatives``).

    Attributes:
        stages: of the step.
        rate: (c, x, w, θ, h) → slope, cost.
        first: (c, x, w, θ, h) → slope, cost and their Jacobians in (x, w, θ).
        second: (c, x, w, θ, h, μ, ν) → Hessian of μ·slope + ν·cost.
    """

    stages: Stages
    rate: Expr
    first: Expr
    second: Expr

    def plain(self, c: Expr, x: Expr, w: Expr, theta: Expr, h: Expr) -> tuple[Expr, Expr]:
        """State and cost after the step from x, without derivatives."""
        return step(self.stages, lambda state: self.rate(c, state, w, theta, h)[:2], x, h)

    def forward(self, c: Expr, x: Expr, w: Expr, theta: Expr, h: Expr, slope: Expr, below: Expr) -> Expanded:
        """The step from x, where slope (n, p) = ∂x/∂y and below (m + k, p) = ∂(w, θ)/∂y."""
        k: Expr = casadi.MX(casadi.DM(*x.shape))
        k_slope: Expr = casadi.MX(casadi.DM(*slope.shape))
        total, total_slope = k, k_slope
        cost: Expr = casadi.MX(0)
        cost_slope: Expr = casadi.MX(casadi.DM(1, slope.shape[1]))
        passed = []
        for node, b in zip(self.stages.nodes, self.stages.weights, strict=True):
            X = x + node * h * k
            Z = casadi.vertcat(slope + node * h * k_slope, below)
            k, running, A, a = self.first(c, X, w, theta, h)
            k_slope = casadi.mtimes(A, Z)
            total, total_slope = total + b * k, total_slope + b * k_slope
            cost, cost_slope = cost + b * h * running, cost_slope + b * h * casadi.mtimes(a, Z)
            passed.append((X, Z, A, a))
        kept = (c, w, theta, h, passed)
        return Expanded(x + h * total, cost, slope + h * total_slope, cost_slope, kept)

    def backward(self, kept: Expr, costate: Expr, weight: Expr) -> tuple[Expr, Expr]:
        """Hessian (p, p) in y of costate·end + weight·cost, and the costate (n) before the step."""
        c, w, theta, h, passed = kept
        nodes, weights = reversed(self.stages.nodes), reversed(self.stages.weights)
        n = costate.shape[0]
        hessian: Expr = 0
        before = costate
        later: Expr = casadi.MX(casadi.DM(n, 1))  # adjoint of the next stage's state
        following = 0.0
        for (X, Z, A, a), node, b in zip(reversed(passed), nodes, weights, strict=True):
            mu = b * h * costate + following * h * later
            nu = b * h * weight
            block = self.second(c, X, w, theta, h, mu, nu)
            hessian = hessian + casadi.mtimes(casadi.mtimes(Z.T, block), Z)
            later = casadi.mtimes(A[:, :n].T, mu) + nu * a[:, :n].T
            before = before + later
            following = node
        return hessian, before


@dataclass(frozen=True)
class IntervalFunctions:
    """Functions of one interval of several steps of length h, for y = (x, w, θ), q = n + m + k.

    With paths there are also g values along the interval, at the points of ``PathFunctions.points``.

    Attributes:
        value: (c, x, w, θ, h) → state at the end, cost, values along the way (g).
        slope: (c, x, w, θ, h) → state at the end and its Jacobian (n, q) in y, and so for these (g), (g, q).
        cost_slope: (c, x, w, θ, h) → gradient (q) of the cost in y.
        curvature: (c, x, w, θ, h, λ, ν, μ) → Hessian (q, q) of λ·end + ν·cost + μ·values in y.
    """

    value: Expr
    slope: Expr
    cost_slope: Expr
    curvature: Expr


def interval_functions(engine: Engine, steps: int) -> IntervalFunctions:
    """The functions for intervals of so many steps."""
    expansion = StepExpansion(engine.stages, *engine.derivatives[:3])
    lengths = (engine.constants, *engine.sizes)
    c, x, w, theta = (casadi.MX.sym(n, size) for n, size in zip("cxwt", lengths, strict=True))
    h, weight = casadi.MX.sym("h"), casadi.MX.sym("weight")
    n, others = x.shape[0], w.shape[0] + theta.shape[0]
    costate = casadi.MX.sym("costate", n)
    below = casadi.horzcat(casadi.DM(others, n), casadi.DM.eye(others))
    slope = casadi.MX(casadi.horzcat(casadi.DM.eye(n), casadi.DM(n, others)))
    paths = _Paths(engine, steps, c, w, theta, below)
    plain, cost = x, casadi.MX(0)
    for _ in range(steps):
        plain, own_cost = expansion.plain(c, plain, w, theta, h)
        cost = cost + own_cost
    end, cost_slope = x, casadi.MX(casadi.DM(1, n + others))
    paths.pass_by(end, slope)
    passed = []
    for _ in range(steps):
        end, _, slope, own_slope, kept = expansion.forward(c, end, w, theta, h, slope, below)
        cost_slope = cost_slope + own_slope
        paths.pass_by(end, slope)
        passed.append(kept)
    hessian, jump = paths.backward(steps)
    adjoint = costate + jump
    for place, kept in reversed(list(enumerate(passed))):
        own, adjoint = expansion.backward(kept, adjoint, weight)
        there, jump = paths.backward(place)
        hessian, adjoint = hessian + own + there, adjoint + jump
    # In a flat expression, the part below the diagonal is then not computed twice.
    symmetric = casadi.triu2symm(casadi.triu(hessian))
    inputs = [c, x, w, theta, h]
    made = (
        casadi.Function("value", inputs, [plain, cost, paths.values]),
        casadi.Function("slope", inputs, [end, slope, paths.values, paths.slopes]),
        casadi.Function("cost_slope", inputs, [casadi.densify(cost_slope.T)]),
        casadi.Function("curvature", [*inputs, costate, weight, paths.multipliers], [symmetric]),
    )
    return IntervalFunctions(*(f.expand() for f in made) if engine.better_flat(steps) else made)


class _Paths:
    """Values along an interval, at the ends of its steps, with derivatives; empty without paths."""

    def __init__(self, engine: Engine, steps: int, c: Expr, w: Expr, theta: Expr, below: Expr) -> None:
        self._given, self._below = (c, w, theta), below
        self._passed: list[tuple[Expr, Expr, Expr]] = []
        self._used = np.zeros((steps + 1, 0), dtype=bool)
        if engine.paths is not None:
            self._derivatives, self._used = engine.path_derivatives, engine.paths.points(steps)
        self.multipliers: Expr = casadi.MX.sym("mu", int(self._used.sum()))
        self.values: Expr = casadi.MX(0, 1)
        self.slopes: Expr = casadi.MX(0, below.shape[1])

    def pass_by(self, x: Expr, slope: Expr) -> None:
        """Add the state x, with slope = ∂x/∂y, at the next end of a step."""
        (c, w, theta), Z = self._given, casadi.vertcat(slope, self._below)
        used = np.flatnonzero(self._used[len(self._passed)]).tolist()
        jacobian = None
        if used:
            values, jacobian = self._derivatives.first(c, x, w, theta)
            self.values = casadi.vertcat(self.values, values[used])
            self.slopes = casadi.vertcat(self.slopes, casadi.mtimes(jacobian, Z)[used, :])
        self._passed.append((x, Z, jacobian))

    def backward(self, place: int) -> tuple[Expr, Expr]:
        """Hessian in y, and gradient in x, of the weighted sum of the values after so many steps."""
        (c, w, theta), (x, Z, jacobian) = self._given, self._passed[place]
        if jacobian is None:
            return 0, 0
        before, here = int(self._used[:place].sum()), self._used[place]
        # Its multipliers, at the positions that count here.
        chosen = casadi.DM(np.eye(len(here))[:, here])
        mu = casadi.mtimes(chosen, self.multipliers[before : before + int(here.sum())])
        block = self._derivatives.second(c, x, w, theta, mu)
        gradient = casadi.mtimes(jacobian[:, : x.shape[0]].T, mu)
        return casadi.mtimes(casadi.mtimes(Z.T, block), Z), gradient


# Number of cached results: values, Jacobian and Hessian of a program use the same points in turn.
_KEPT_POINTS = 4096


class Callback(casadi.Callback):
    """A function of columns of numbers as a CasADi function without derivatives.

    CasADi does not keep a callback alive: the user of its expressions must.

    Args:
        name: of the function.
        inputs: lengths of its arguments.
        outputs: shapes of its results.
        function: the function; its results are columns with the entries in C order.
    """

    def __init__(
        self, name: str, inputs: list[int], outputs: list[tuple[int, int]], function: Callable[..., Any]
    ) -> None:
        casadi.Callback.__init__(self)
        self._inputs, self._outputs, self._function = inputs, outputs, function
        self._known: OrderedDict[bytes, list[Expr]] = OrderedDict()
        self.construct(name, {})

    def get_n_in(self) -> int:
        """How many arguments."""
        return len(self._inputs)

    def get_n_out(self) -> int:
        """How many results."""
        return len(self._outputs)

    def get_sparsity_in(self, i: int) -> Expr:
        """A dense column."""
        return casadi.Sparsity.dense(self._inputs[i], 1)

    def get_sparsity_out(self, i: int) -> Expr:
        """A dense matrix."""
        return casadi.Sparsity.dense(*self._outputs[i])

    def eval(self, arg: Sequence[Expr]) -> list[Expr]:
        """The results for columns of numbers."""
        arrays = [np.array(column) for column in arg]
        # A hash instead of the numbers: constants hold quadratures of up to 2^18 points.
        point = blake2b(b"".join(array.tobytes() for array in arrays)).digest()
        if point not in self._known:
            results = self._function(*arrays)
            results = results if isinstance(results, tuple) else (results,)
            self._known[point] = [
                casadi.DM(np.array(part).reshape(shape))
                for part, shape in zip(results, self._outputs, strict=True)
            ]
            if len(self._known) > _KEPT_POINTS:
                self._known.popitem(last=False)
        return self._known[point]
