"""One interval of constant control as expressions: several steps in a row, with exact derivatives."""

from dataclasses import dataclass
from typing import Any

import casadi

from optlearn._control.program.base import Program


@dataclass(frozen=True)
class IntervalFunctions:
    """Functions of one interval of several steps of length h, for y = (x, w, θ), q = n + m + k.

    Attributes:
        value: (c, x, w, θ, h) → state at the end, cost.
        slope: (c, x, w, θ, h) → Jacobian (n, q) of the state at the end in y.
        cost_slope: (c, x, w, θ, h) → gradient (q) of the cost in y.
        curvature: (c, x, w, θ, h, λ, ν) → Hessian (q, q) of λ·end + ν·cost in y.
    """

    value: Any
    slope: Any
    cost_slope: Any
    curvature: Any


def interval_functions(program: Program, steps: int) -> IntervalFunctions:
    """The functions for intervals of so many steps."""
    lengths = (program.constants, *program.sizes)
    c, x, w, theta = (casadi.MX.sym(n, size) for n, size in zip("cxwt", lengths, strict=True))
    h, weight = casadi.MX.sym("h"), casadi.MX.sym("weight")
    n, rest = x.shape[0], w.shape[0] + theta.shape[0]
    costate = casadi.MX.sym("costate", n)
    below = casadi.horzcat(casadi.DM(rest, n), casadi.DM.eye(rest))
    slope = casadi.MX(casadi.horzcat(casadi.DM.eye(n), casadi.DM(n, rest)))
    end, cost, cost_slope = x, casadi.MX(0), casadi.MX(casadi.DM(1, n + rest))
    passed = []
    for _ in range(steps):
        end, own_cost, slope, own_slope, kept = program.step_expansion.forward(
            c, end, w, theta, h, slope, below
        )
        cost, cost_slope = cost + own_cost, cost_slope + own_slope
        passed.append(kept)
    hessian, adjoint = 0, costate
    for kept in reversed(passed):
        own, adjoint = program.step_expansion.backward(kept, adjoint, weight)
        hessian = hessian + own
    inputs = [c, x, w, theta, h]
    made = (
        casadi.Function("value", inputs, [end, cost]),
        casadi.Function("slope", inputs, [slope]),
        casadi.Function("cost_slope", inputs, [casadi.densify(cost_slope.T)]),
        casadi.Function("curvature", [*inputs, costate, weight], [hessian]),
    )
    return IntervalFunctions(*(f.expand() for f in made) if program.better_flat(steps) else made)
