"""The nonlinear program of multiple shooting, with its derivatives assembled block by block.

Variables z = (X, W, θ): states at the interval ends (n, I), relaxed controls (m, I), free parameters
(k); with several costs of an ensemble also an epigraph variable t and the excess of each member over it.
Constraints: steps, budgets, sums of shares, costs of the final state, and limited values along training.
Every interval depends only on its own (x, w, θ), so Jacobian and Hessian consist of small dense blocks,
each one call of a function that CasADi differentiated once. Passing IPOPT the assembled matrices is
several times faster than letting CasADi detect the structure of the whole program by colouring.
"""

from dataclasses import dataclass
from typing import Any

import casadi
import numpy as np

from optlearn._control.compiled import CompiledProblem
from optlearn._engine.base import Expr
from optlearn._engine.expansion import interval_functions

# Constants, free parameters and step length are the same for all intervals.
_SHARED = [0, 3, 4]


@dataclass(frozen=True)
class NonlinearProgram:
    """Input of ``casadi.nlpsol``: the program and its derivative functions."""

    nlp: dict[str, Any]
    derivatives: dict[str, Any]


def shooting_program(compiled: CompiledProblem, intervals: int, steps: int) -> NonlinearProgram:
    """The program for I intervals of ``steps`` Runge-Kutta steps each."""
    n, m, k = compiled.sizes
    budgets = len(compiled.relaxation.budget_rows[1])
    sums = compiled.relaxation.share_sums
    costs = FinalCosts.of(compiled)
    z = casadi.MX.sym("z", (n + m) * intervals + k + costs.extra)
    X = casadi.reshape(z[: n * intervals], n, intervals)
    W = casadi.reshape(z[n * intervals : (n + m) * intervals], m, intervals)
    theta, above = casadi.vertsplit(z[(n + m) * intervals :], [0, k, k + costs.extra])
    sizes = [0, len(compiled.constants), n, 1, m * budgets, costs.extra]
    p = casadi.MX.sym("p", sum(sizes))
    constants, start, horizon, rows, prices = casadi.vertsplit(p, np.cumsum(sizes).tolist())
    rows = casadi.reshape(rows, m, budgets)
    arguments = (
        constants, casadi.horzcat(start, X[:, :-1]), W, theta, horizon / (intervals * steps),
    )  # fmt: skip
    blocks = _Blocks(compiled, steps, intervals)
    ends, running, along = blocks.interval(*arguments)
    beyond_steps = (
        casadi.mtimes(rows.T, casadi.sum2(W)) / intervals,
        casadi.vec(casadi.mtimes(casadi.DM(sums), W)),
        costs.limited(blocks.derivatives.final, constants, X[:, -1], theta, above),
    )

    def constraints(ends: Expr, along: Expr) -> Expr:
        # With these signs the multipliers are the costates: L = objective + λ·(step − next state).
        return casadi.vertcat(casadi.vec(ends - X), *beyond_steps, casadi.vec(along))

    g = constraints(ends, along)
    f = casadi.dot(prices, above)
    if not costs.extra:
        f = blocks.derivatives.final(costs.weighted(constants, costs.minimised), X[:, -1], theta)
    if compiled.problem.objective.has_running:
        f = f + casadi.sum2(running)
    f = casadi.densify(f)  # an objective that does not depend on the state has no entries
    *values_too, jacobian = blocks.jacobian(arguments, rows, sums, costs, X[:, -1])
    lam_f, lam_g = casadi.MX.sym("lam_f"), casadi.MX.sym("lam_g", g.shape[0])
    hessian = blocks.hessian(arguments, X[:, -1], lam_f, lam_g, costs)
    gradient = blocks.gradient(arguments, X[:, -1], costs, prices)
    derivatives = {
        "jac_g": casadi.Function("jac_g", [z, p], [constraints(*values_too), jacobian]),
        "hess_lag": casadi.Function("hess_lag", [z, p, lam_f, lam_g], [hessian]),
        "grad_f": casadi.Function("grad_f", [z, p], [f, gradient]),
    }
    return NonlinearProgram({"x": z, "p": p, "f": f, "g": g}, derivatives)


@dataclass(frozen=True)
class FinalCosts:
    """Costs of the final state as objective and constraints: one to minimise, some with limits.

    The worst of several members is t, the least upper bound of all of them: min t + Σ caps·s subject to
    J ≤ t + s, s ≥ 0, where s are the members' allowed excesses over t.

    Attributes:
        size: K, number of weighted costs; 0 for a single unweighted cost.
        members: M, number of those that are members of an ensemble.
    """

    size: int
    members: int

    @classmethod
    def of(cls, compiled: CompiledProblem) -> "FinalCosts":
        """Of a problem."""
        weighing = compiled.problem.weighing
        return cls(0, 1) if weighing is None else cls(weighing.size, weighing.members)

    @property
    def extra(self) -> int:
        """Number of variables: t and s, if there is more than one member."""
        return 1 + self.members if self.members > 1 else 0

    @property
    def minimised(self) -> np.ndarray:
        """(K,) weights of the objective, if there is one member."""
        return np.eye(self.size)[0] if self.size else np.zeros(0)

    @property
    def constrained(self) -> np.ndarray:
        """(C, K) weights of each cost that has a constraint."""
        return np.eye(self.size)[0 if self.extra else 1 :] if self.size else np.zeros((0, 0))

    def weighted(self, constants: Expr, weights: Expr) -> Expr:
        """The constants with these weights of the costs."""
        if not self.size:
            return constants
        return casadi.vertcat(constants[: -self.size], weights)

    def limited(self, final: Expr, constants: Expr, x: Expr, theta: Expr, above: Expr) -> Expr:
        """(C,) constrained values: J − t − s of members, J of limits."""
        limited = [final(self.weighted(constants, unit), x, theta) for unit in self.constrained]
        for j in range(self.extra - 1):
            limited[j] = limited[j] - above[0] - above[1 + j]
        return casadi.vertcat(*limited)

    def lagrangian(self, constants: Expr, lam_f: Expr, own: Expr) -> tuple[Expr, Expr]:
        """A factor and constants that turn the final cost into its part of the Lagrangian."""
        if not self.size:
            return lam_f, constants
        return 1, self.weighted(constants, own if self.extra else casadi.vertcat(lam_f, own))


class _Blocks:
    """Functions of one interval, mapped over all, and their places in the large matrices."""

    def __init__(self, compiled: CompiledProblem, steps: int, intervals: int) -> None:
        self.compiled, self.intervals = compiled, intervals
        n, m, k = self.sizes = compiled.sizes
        functions = interval_functions(compiled.engine, steps)
        self.interval, self._slope, self._cost_slope, self._curvature = (
            function.map(f"{name}_all", "serial", intervals, shared, [])
            for name, function, shared in (
                ("value", functions.value, _SHARED),
                ("slope", functions.slope, _SHARED),
                ("cost_slope", functions.cost_slope, _SHARED),
                ("curvature", functions.curvature, [*_SHARED, 6]),
            )
        )
        self.along = functions.value.size1_out(2)  # values along an interval
        self.derivatives = compiled.engine.derivatives
        # Columns of z for an interval's (x, w, θ); its x is the state before it, which for the first
        # interval is the fixed start.
        i = np.arange(intervals)
        self.own = np.concatenate(
            [
                (i[:, None] - 1) * n + np.arange(n)[None, :],
                n * intervals + i[:, None] * m + np.arange(m)[None, :],
                np.broadcast_to((n + m) * intervals + np.arange(k), (intervals, k)),
            ],
            axis=1,
        )
        self.own[0, :n] = -1

    def gradient(self, arguments: tuple[Expr, ...], last: Expr, costs: "FinalCosts", prices: Expr) -> Expr:
        """Gradient of the objective."""
        n, m, k = self.sizes
        by_x, by_theta = casadi.MX(casadi.DM(n, 1)), casadi.MX(casadi.DM(k, 1))
        if not costs.extra:
            constants = costs.weighted(arguments[0], costs.minimised)
            _, by_x, by_theta = self.derivatives.final_gradient(constants, last, arguments[3])
        own = casadi.MX(casadi.DM(n + m + k, self.intervals))
        if self.compiled.problem.objective.has_running:
            own = self._cost_slope(*arguments)
        return casadi.densify(
            casadi.vertcat(
                casadi.vec(own[:n, 1:]),
                by_x,
                casadi.vec(own[n : n + m, :]),
                by_theta + casadi.sum2(own[n + m :, :]),
                prices,
            )
        )

    def jacobian(
        self, arguments: tuple[Expr, ...], rows: Expr, sums: np.ndarray, costs: "FinalCosts", last: Expr
    ) -> tuple[Expr, Expr, Expr]:
        """States at the ends of intervals, values along them, and the Jacobian, all from one call."""
        n, m, k = self.sizes
        I = self.intervals  # noqa: E741
        steps = np.arange(n * I).reshape(I, n)
        # Entry (r, c) of block i is at i·n·q + c·n + r of the mapped output (column-major).
        row = [np.repeat(steps[:, None, :], self.own.shape[1], axis=1).ravel(), steps.ravel()]
        column = [np.repeat(self.own[:, :, None], n, axis=2).ravel(), steps.ravel()]
        ends, slopes, along, along_slopes = self._slope(*arguments)
        values = [casadi.vec(slopes), -casadi.MX(casadi.DM.ones(n * I, 1))]
        controls = n * I + np.arange(m * I).reshape(I, m)
        budgets = rows.shape[1]
        for b in range(budgets):
            row.append(np.full(m * I, n * I + b))
            column.append(controls.ravel())
            values.append(casadi.repmat(rows[:, b], I, 1) / I)
        for s, sum_row in enumerate(sums):
            row.append(np.repeat(n * I + budgets + np.arange(I) * len(sums) + s, m))
            column.append(controls.ravel())
            values.append(casadi.MX(casadi.DM(np.tile(sum_row, I))))
        total = n * I + budgets + len(sums) * I
        of_final = np.concatenate([(I - 1) * n + np.arange(n), (n + m) * I + np.arange(k)])
        for j, unit in enumerate(costs.constrained):
            constants = costs.weighted(arguments[0], unit)
            _, by_x, by_theta = self.derivatives.final_gradient(constants, last, arguments[3])
            above = [0, 1 + j] if costs.extra and j < costs.extra - 1 else []
            row.append(np.full(len(of_final) + len(above), total + j))
            column.append(np.concatenate([of_final, (n + m) * I + k + np.array(above, dtype=int)]))
            values += [by_x, by_theta, -casadi.MX(casadi.DM.ones(len(above), 1))]
        total += len(costs.constrained)
        points = total + np.arange(self.along * I).reshape(I, self.along)
        row.append(np.repeat(points[:, None, :], self.own.shape[1], axis=1).ravel())
        column.append(np.repeat(self.own[:, :, None], self.along, axis=2).ravel())
        values.append(casadi.vec(along_slopes))
        shape = (total + points.size, (n + m) * I + k + costs.extra)
        return ends, along, _sparse(shape, np.concatenate(row), np.concatenate(column), values)

    def hessian(
        self, arguments: tuple[Expr, ...], last: Expr, lam_f: Expr, lam_g: Expr, costs: "FinalCosts"
    ) -> Expr:
        """Upper triangle of the Hessian of the Lagrangian."""
        n, m, k = self.sizes
        I, q = self.intervals, n + m + k  # noqa: E741
        costates = casadi.reshape(lam_g[: n * I], n, I)
        along = lam_g.shape[0] - self.along * I
        of_costs, of_along = lam_g[along - len(costs.constrained) : along], lam_g[along:]
        of_along = casadi.reshape(of_along, self.along, I)
        blocks = casadi.vec(self._curvature(*arguments, costates, lam_f, of_along))
        scaled, constants = costs.lagrangian(arguments[0], lam_f, of_costs)
        final = casadi.vec(self.derivatives.final_hessian(constants, last, arguments[3])) * scaled
        first, second = (a.ravel() for a in np.meshgrid(np.arange(q), np.arange(q), indexing="ij"))
        # Blocks of θ with itself overlap between intervals: they are summed.
        upper = (first <= second) & (first < n + m)
        first, second = first[upper], second[upper]
        row, column = self.own[:, first].ravel(), self.own[:, second].ravel()
        place = (np.arange(I)[:, None] * q * q + (second * q + first)[None, :]).ravel()
        values = [blocks[place.tolist()]]
        rows, columns = [row], [column]
        size = n + k
        ends = np.concatenate([(I - 1) * n + np.arange(n), (n + m) * I + np.arange(k)])
        for a in range(size):
            for b in range(a, size):
                value = final[b * size + a]
                if a >= n:
                    inner = np.arange(I) * q * q + (b + m) * q + (a + m)
                    value = value + casadi.sum1(blocks[inner.tolist()])
                rows.append(ends[[a]])
                columns.append(ends[[b]])
                values.append(value)
        total = (n + m) * I + k + costs.extra
        return _sparse((total, total), np.concatenate(rows), np.concatenate(columns), values)


def _sparse(shape: tuple[int, int], row: np.ndarray, column: np.ndarray, values: Expr) -> Expr:
    """Sparse MX from triplets without repetition; columns or rows of −1 are left out."""
    kept = np.flatnonzero((row >= 0) & (column >= 0))
    order = kept[np.lexsort((row[kept], column[kept]))]
    starts = np.searchsorted(column[order], np.arange(shape[1] + 1))
    pattern = casadi.Sparsity(*shape, starts.tolist(), row[order].tolist())
    stacked: Expr = casadi.vertcat(*values)
    return casadi.MX(pattern, stacked[order.tolist()])
