"""Direct method: multiple shooting on a sparse nonlinear program, solved by IPOPT.

Variables are the states at all interval ends, the relaxed controls and the free parameters;
constraints are the Runge-Kutta steps and the budgets, with exact sparse derivatives (``shooting``).
The program depends on the problem's structure only and is kept.
"""

from dataclasses import dataclass
from typing import Any

import casadi
import numpy as np

from optlearn._control.program.build import CompiledProblem
from optlearn._control.program.rollout import Rollout
from optlearn._control.solvers.outcome import Outcome, from_ipopt
from optlearn._control.solvers.shooting import shooting_program

TOLERANCE = 1e-10


@dataclass(frozen=True)
class DirectResult:
    """What IPOPT returned.

    Attributes:
        w: (I, m) relaxed controls.
        theta: (k,) free parameters.
        objective: of the discretised problem.
        costates: (I, n) multipliers of the steps: costates at the ends of the intervals.
        budget_multipliers: (b,) of the budgets.
        outcome: how it ended.
        iterations: how many.
    """

    w: np.ndarray
    theta: np.ndarray
    objective: float
    costates: np.ndarray
    budget_multipliers: np.ndarray
    outcome: Outcome
    iterations: int


def solve_direct(
    compiled: CompiledProblem,
    w: np.ndarray,
    theta: np.ndarray,
    *,
    steps: int = 1,
    fixed: np.ndarray | None = None,
    max_iterations: int = 500,
    tolerance: float = TOLERANCE,
) -> DirectResult:
    """Optimise from the relaxed controls w (I, m) and free parameters θ (k,).

    Args:
        compiled: the problem.
        w: (I, m) first guess.
        theta: (k,) first guess.
        steps: Runge-Kutta steps in each interval.
        fixed: (m,) flags of entries of w that keep their values, such as rounded shares.
        max_iterations: of IPOPT.
        tolerance: of IPOPT's optimality conditions.
    """
    intervals = len(w)
    n, m, _ = compiled.sizes
    guess = Rollout(compiled, intervals, steps).run(w, theta)
    solver = _solver(compiled, intervals, steps, max_iterations, tolerance)
    budgets = compiled.relaxation.budget_rows
    rows, targets, _ = budgets
    sums = len(compiled.relaxation.share_sums)
    states = guess.states[steps::steps]
    lower, upper = _variable_bounds(compiled, intervals)
    low, high = compiled.relaxation.bounds
    least, most = budgets.limits
    inside = np.clip(w, low + 1e-3 * (high - low), high - 1e-3 * (high - low))
    if fixed is not None:
        place = n * intervals + np.flatnonzero(np.tile(fixed, intervals))
        lower[place] = upper[place] = w[:, fixed].ravel()
        inside[:, fixed] = w[:, fixed]
        # Budgets of fixed entries alone are met or not; as constraints they would only use up the
        # degrees of freedom that IPOPT asks for.
        idle = ~rows[:, ~fixed].any(axis=1)
        least, most = np.where(idle, -np.inf, least), np.where(idle, np.inf, most)
    solution = solver(
        x0=np.concatenate([states.ravel(), inside.ravel(), theta]),
        lbx=lower,
        ubx=upper,
        lbg=np.concatenate(
            [
                np.zeros(n * intervals),
                least,
                np.full(sums * intervals, -np.inf),
            ]
        ),
        ubg=np.concatenate([np.zeros(n * intervals), most, np.ones(sums * intervals)]),
        p=np.concatenate([compiled.constants, compiled.start, [compiled.problem.horizon], rows.ravel()]),
    )
    stats = solver.stats()
    z = np.array(solution["x"]).ravel()
    multipliers = np.array(solution["lam_g"]).ravel()
    found = z[n * intervals : (n + m) * intervals].reshape(intervals, m)
    if not np.all(np.isfinite(z)):
        found, z = w, np.concatenate([z[: (n + m) * intervals], theta])
    return DirectResult(
        w=np.clip(found, low, high),
        theta=z[(n + m) * intervals :],
        objective=float(solution["f"]),
        costates=multipliers[: n * intervals].reshape(intervals, n),
        budget_multipliers=multipliers[n * intervals : n * intervals + len(targets)],
        outcome=from_ipopt(stats["return_status"]),
        iterations=int(stats["iter_count"]),
    )


def _variable_bounds(compiled: CompiledProblem, intervals: int) -> tuple[np.ndarray, np.ndarray]:
    names = compiled.problem.model.layout.names
    # Squared norms alone have a sign: off-diagonal overlaps may be negative.
    norm = np.array([n[0] == "Q" and n[1 : 1 + len(n) // 2] == n[-(len(n) // 2) :] for n in names])
    low, high = compiled.relaxation.bounds
    free = compiled.problem.free.values()
    return (
        np.concatenate(
            [np.tile(np.where(norm, 0.0, -np.inf), intervals), np.tile(low, intervals)]
            + [[f.lower] for f in free]
        ),
        np.concatenate(
            [np.full(len(names) * intervals, np.inf), np.tile(high, intervals)] + [[f.upper] for f in free]
        ),
    )


def _solver(
    compiled: CompiledProblem, intervals: int, steps: int, max_iterations: int, tolerance: float
) -> Any:
    budgets = len(compiled.relaxation.budget_rows[1])
    sums = compiled.relaxation.share_sums

    def make() -> Any:
        program = shooting_program(compiled, intervals, steps)
        options = {
            "print_time": False,
            # IPOPT backs away from points where the dynamics are not finite; no need to say so.
            "show_eval_warnings": False,
            **program.derivatives,
            # IPOPT needs no other derivatives, and compiled programs have none that CasADi could take.
            "no_nlp_grad": True,
            "calc_lam_p": False,
            "ipopt": {
                "print_level": 0,
                "sb": "yes",
                "max_iter": max_iterations,
                "tol": tolerance,
                "acceptable_tol": 100 * tolerance,
                "mu_strategy": "adaptive",
            },
        }
        return casadi.nlpsol("solver", "ipopt", program.nlp, options)

    key = ("ipopt", intervals, steps, budgets, sums.tobytes(), max_iterations, tolerance)
    return compiled.program.once(key, make)
