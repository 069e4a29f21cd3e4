"""First and second derivatives of Runge-Kutta steps from those of the drift.

A step is linear in the slopes k_j = f(X_j, w, θ) of its four stages, and each stage state X_j is
linear in the slopes before it. So with Z_j = ∂(X_j, w, θ)/∂(x, w, θ) and μ_j the adjoint of k_j, the
Hessian of λ·x_end + ν·cost is exactly Σ_j Z_jᵀ ∇²(μ_j·f + ν_j ℓ) Z_j. Only the drift itself is ever
differentiated, once, so the derivative program stays small however many steps an interval has.
"""

from dataclasses import dataclass, replace
from typing import Any

import casadi

from optlearn._control.program.build import Functions
from optlearn._control.program.callbacks import wide_calls
from optlearn._control.program.xla import WideFunctions

NODES = (0.0, 0.5, 0.5, 1.0)  # position of a stage in the step, and weight of the slope before it
WEIGHTS = (1 / 6, 1 / 3, 1 / 3, 1 / 6)

# Below this many instructions in the drift, one flat expression is faster than calls of the drift.
FLAT = 600


@dataclass(frozen=True)
class IntervalFunctions:
    """Functions of one interval of several steps of length h, for y = (x, w, θ).

    Attributes:
        value: (constants, x, w, θ, h) → state at the end, cost.
        slope: (constants, x, w, θ, h) → Jacobian (n, q) of the state at the end in y.
        curvature: (constants, x, w, θ, h, λ, ν) → Hessian (q, q) of λ·end + ν·cost in y.
        cost_slope: (constants, x, w, θ, h) → gradient (q) of the cost in y; for wide problems, which
            CasADi cannot differentiate itself.
    """

    value: Any
    slope: Any
    curvature: Any
    cost_slope: Any = None


def interval_functions(functions: Functions | WideFunctions, steps: int) -> IntervalFunctions:
    """The functions for intervals of ``steps`` classical Runge-Kutta steps."""
    lengths = (functions.constants, *functions.sizes)
    c, x, w, theta = (casadi.MX.sym(n, size) for n, size in zip("cxwt", lengths, strict=True))
    h, costate = casadi.MX.sym("h"), casadi.MX.sym("costate", x.shape[0])
    weight = casadi.MX.sym("weight")
    inputs = [c, x, w, theta, h]
    passage = _Passage(functions, inputs, steps)
    made = IntervalFunctions(
        casadi.Function("value", inputs, [passage.end, passage.cost]),
        casadi.Function("slope", inputs, [passage.Z[: x.shape[0], :]]),
        casadi.Function("curvature", [*inputs, costate, weight], [passage.curvature(costate, weight)]),
    )
    if isinstance(functions, WideFunctions):
        cost_slope = casadi.Function("cost_slope", inputs, [casadi.densify(passage.cost_Z.T)])
        return replace(made, cost_slope=cost_slope)
    if functions.rate.n_instructions() * steps > FLAT:
        return made
    return IntervalFunctions(made.value.expand(), made.slope.expand(), made.curvature.expand())


class _Passage:
    """Forward through the steps of one interval, keeping stages and sensitivities."""

    def __init__(self, functions: Functions | WideFunctions, inputs: list[Any], steps: int) -> None:
        self.c, x, self.w, self.theta, self.h = inputs
        self.first, self.second = _rate_derivatives(functions)
        n, rest = x.shape[0], self.w.shape[0] + self.theta.shape[0]
        self.n = n
        below = casadi.horzcat(casadi.DM(rest, n), casadi.DM.eye(rest))
        S = casadi.MX(casadi.horzcat(casadi.DM.eye(n), casadi.DM(n, rest)))
        self.cost: Any = casadi.MX(0)
        self.cost_Z: Any = casadi.MX(casadi.DM(1, n + rest))
        self.stages: list[list[tuple[Any, Any, Any, Any]]] = []
        for _ in range(steps):
            slope, slope_S = casadi.MX(casadi.DM(n, 1)), casadi.MX(casadi.DM(n, n + rest))
            total, total_S, kept = slope, slope_S, []
            for node, b in zip(NODES, WEIGHTS, strict=True):
                X = x + node * self.h * slope
                Z = casadi.vertcat(S + node * self.h * slope_S, below)
                slope, cost, A, a = self.first(self.c, X, self.w, self.theta)
                slope_S = casadi.mtimes(A, Z)
                total, total_S = total + b * slope, total_S + b * slope_S
                self.cost = self.cost + b * self.h * cost
                self.cost_Z = self.cost_Z + b * self.h * casadi.mtimes(a, Z)
                kept.append((X, Z, A, a))
            x, S = x + self.h * total, S + self.h * total_S
            self.stages.append(kept)
        self.end, self.Z = x, S

    def curvature(self, costate: Any, weight: Any) -> Any:
        """Hessian of costate·end + weight·cost."""
        H: Any = 0
        for kept in reversed(self.stages):
            gathered = costate
            later: Any = casadi.MX(casadi.DM(self.n, 1))  # adjoint of the next stage's state
            following = 0.0
            for (X, Z, A, a), node, b in zip(reversed(kept), reversed(NODES), reversed(WEIGHTS), strict=True):
                mu = b * self.h * costate + following * self.h * later
                nu = b * self.h * weight
                block = self.second(self.c, X, self.w, self.theta, mu, nu)
                H = H + casadi.mtimes(casadi.mtimes(Z.T, block), Z)
                later = casadi.mtimes(A[:, : self.n].T, mu) + nu * a[:, : self.n].T
                gathered = gathered + later
                following = node
            costate = gathered
        return H


def _rate_derivatives(functions: Functions | WideFunctions) -> tuple[Any, Any]:
    """First (c, x, w, θ) → slope, cost and Jacobians; then (…, μ, ν) → Hessian of μ·slope + ν·cost."""
    if isinstance(functions, WideFunctions):
        calls = wide_calls(functions)
        return calls.first, calls.second
    rate = functions.rate
    c, x, w, theta = (casadi.SX.sym(n, rate.size1_in(i)) for i, n in enumerate("cxwt"))
    own = casadi.vertcat(x, w, theta)
    slope, cost = rate(c, x, w, theta)
    jacobians = [casadi.densify(casadi.jacobian(v, own)) for v in (slope, cost)]
    first = casadi.Function("first", [c, x, w, theta], casadi.cse([slope, cost, *jacobians]))
    mu, nu = casadi.SX.sym("mu", x.shape[0]), casadi.SX.sym("nu")
    curvature, _ = casadi.hessian(casadi.dot(mu, slope) + nu * cost, own)
    second = casadi.Function("second", [c, x, w, theta, mu, nu], casadi.cse([casadi.densify(curvature)]))
    return first, second
