"""Direct method: multiple shooting on a sparse nonlinear program, solved by IPOPT.

Variables are the states at all interval ends, the relaxed controls and the free parameters;
constraints are the steps and the budgets, with exact sparse derivatives (``shooting``).
"""

from dataclasses import dataclass, replace
from typing import Any

import casadi
import numpy as np

from optlearn._control.compiled import CompiledProblem, Rollout, weighing_on
from optlearn._control.runs import Outcome, Run, Solver, Start, from_ipopt
from optlearn._control.solvers.feasible import FeasibleSet
from optlearn._control.solvers.shooting import shooting_program
from optlearn._progress import Report, silent

MAX_ITERATIONS = 500
TOLERANCE = 1e-10
SMALL_OBJECTIVE = 1e-2
ROUND_OFF = 1e-15  # error of a step, relative to the state
_RELAXED = 1.1e-8  # IPOPT allows bounds to be violated by nearly this much


@dataclass(frozen=True, eq=False)
class Direct(Solver):
    """IPOPT on the program of multiple shooting.

    Attributes:
        fixed: (m,) flags of entries of w that keep their values, such as rounded shares.
        near: whether starts are near an optimum. IPOPT then starts with their costates as multipliers, which
            saves two or three of a dozen iterations.
    """

    name = "direct"
    description = "multiple shooting, IPOPT; discrete controls relaxed, then rounded"

    fixed: np.ndarray | None = None
    near: bool = False

    def solve(self, rollout: Rollout, start: Start, tell: Report = silent) -> Run:
        """IPOPT's result, moved to meet the budgets exactly; or the start, if IPOPT did not improve it."""
        shot = self.shoot(rollout, start)
        # If stopped early, it may not meet the budgets yet; and IPOPT meets them only up to a tolerance.
        w, theta = FeasibleSet(rollout.compiled, rollout.intervals).nearest(shot.w, shot.theta)
        objective = rollout.objective(w, theta)
        before = rollout.objective(start.w, start.theta)
        if not objective <= before and not shot.outcome.ok:
            # A failed run must not lose the schedule that it started from.
            w, theta, objective = start.w, start.theta, before
        return replace(shot, w=w, theta=theta, record=replace(shot.record, objective=objective))

    def shoot(self, rollout: Rollout, start: Start) -> Run:
        """IPOPT's own result: if it converged, budgets are met up to its tolerance."""
        compiled, intervals, steps = rollout.compiled, rollout.intervals, rollout.steps
        w, theta = start.w, start.theta
        n, m, _ = compiled.sizes
        budgets = compiled.relaxation.budget_rows
        rolled = rollout.run(w, theta)
        states, costates = (course[steps::steps] for course in (rolled.states, rolled.costates))
        lower, upper = _variable_bounds(compiled, intervals)
        low, high = compiled.relaxation.bounds
        least, most = budgets.limits
        # An interior-point method cannot start on a bound.
        inside = np.clip(w, low + 1e-3 * (high - low), high - 1e-3 * (high - low))
        if self.fixed is not None:
            place = n * intervals + np.flatnonzero(np.tile(self.fixed, intervals))
            lower[place] = upper[place] = w[:, self.fixed].ravel()
            inside[:, self.fixed] = w[:, self.fixed]
            # Budgets that involve only fixed entries cannot change; as constraints they would only use up the
            # degrees of freedom that IPOPT requires.
            idle = ~budgets.rows[:, ~self.fixed].any(axis=1)
            least, most = np.where(idle, -np.inf, least), np.where(idle, np.inf, most)
        steps_met, sums = np.zeros(n * intervals), len(compiled.relaxation.share_sums) * intervals
        epigraph = _Epigraph.at(rollout, states[-1], theta)
        solver = self._ipopt(rollout, rolled.objective)
        most_values = np.concatenate([steps_met, most, np.ones(sums), epigraph.limits])
        solution = solver(
            x0=np.concatenate([states.ravel(), inside.ravel(), theta, epigraph.start]),
            lbx=np.concatenate([lower, epigraph.lower]),
            ubx=np.concatenate([upper, epigraph.upper]),
            lbg=np.concatenate([steps_met, least, np.full(sums, -np.inf), epigraph.least]),
            ubg=most_values,
            lam_g0=np.concatenate([costates.ravel(), np.zeros(len(most_values) - n * intervals)]),
            p=np.concatenate(
                [
                    compiled.constants,
                    compiled.start,
                    [compiled.problem.horizon],
                    budgets.rows.ravel(),
                    epigraph.prices,
                ]
            ),
        )
        stats = solver.stats()
        z = np.array(solution["x"]).ravel()
        multipliers = np.array(solution["lam_g"]).ravel()
        controls = z[n * intervals : (n + m) * intervals].reshape(intervals, m)
        if not np.all(np.isfinite(z)):
            controls, z = w, np.concatenate([z[: (n + m) * intervals], theta, epigraph.start])
        outcome, iterations = from_ipopt(stats["return_status"]), int(stats["iter_count"])
        if outcome is Outcome.STALLED and self._only_rounded(stats, float(np.abs(z[: n * intervals]).max())):
            outcome = Outcome.ACCEPTABLE
        return Run(
            self.record(rollout, start, float(solution["f"]), outcome, iterations),
            w=np.clip(controls, low, high),
            theta=z[(n + m) * intervals : len(z) - len(epigraph.start)],
            costates=multipliers[: n * intervals].reshape(intervals, n),
            budget_multipliers=multipliers[n * intervals : n * intervals + len(budgets.targets)],
            weights=epigraph.weights(rollout, multipliers),
        )

    def _only_rounded(self, stats: dict[str, Any], largest: float) -> bool:
        """Does only the round-off of large states keep IPOPT from its absolute tolerance?"""
        primal, dual = (stats["iterations"][name][-1] for name in ("inf_pr", "inf_du"))
        tolerance = TOLERANCE if self.tolerance is None else self.tolerance
        return bool(primal <= ROUND_OFF * largest and max(dual, stats["iterations"]["mu"][-1]) <= tolerance)

    def _ipopt(self, rollout: Rollout, objective: float) -> Any:
        """The cached solver for this grid, which depends only on the problem's structure."""
        # IPOPT's tolerances are absolute: an objective far below 1 is scaled by a power of ten.
        small = 0 < abs(objective) < SMALL_OBJECTIVE
        factor = 10.0 ** -np.floor(np.log10(abs(objective))) if small else 1.0
        compiled, intervals, steps = rollout.compiled, rollout.intervals, rollout.steps
        most = MAX_ITERATIONS if self.max_iterations is None else self.max_iterations
        tolerance = TOLERANCE if self.tolerance is None else self.tolerance

        def make() -> Any:
            program = shooting_program(compiled, intervals, steps)
            options = {
                "print_time": False,
                # IPOPT backs away from points where the dynamics are not finite; it need not print this.
                "show_eval_warnings": False,
                **program.derivatives,
                # IPOPT needs no other derivatives, and CasADi could not differentiate compiled programs.
                "no_nlp_grad": True,
                "calc_lam_p": False,
                "ipopt": {
                    "print_level": 0,
                    "sb": "yes",
                    "max_iter": most,
                    "tol": tolerance,
                    "acceptable_tol": 100 * tolerance,
                    "mu_strategy": "adaptive",
                    "obj_scaling_factor": factor,
                    "warm_start_init_point": "yes" if self.near else "no",
                },
            }
            return casadi.nlpsol("solver", "ipopt", program.nlp, options)

        budgets, sums = len(compiled.relaxation.budget_rows.targets), compiled.relaxation.share_sums
        return compiled.engine.once(
            ("ipopt", intervals, steps, budgets, sums.tobytes(), most, tolerance, factor, self.near), make
        )


@dataclass(frozen=True)
class _Epigraph:
    """Epigraph variables of an ensemble, and limits of costs and paths; all empty for a single cost.

    Attributes:
        start, lower, upper: of t and of the members' allowed excesses over it.
        prices: their coefficients in the objective.
        least, limits: lower and upper bounds of the constraints.
    """

    start: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    prices: np.ndarray
    least: np.ndarray
    limits: np.ndarray

    @classmethod
    def at(cls, rollout: Rollout, x: np.ndarray, theta: np.ndarray) -> "_Epigraph":
        """With a start that is strictly feasible at a final state x (n,)."""
        compiled, weighing, none = rollout.compiled, weighing_on(rollout), np.zeros(0)
        if weighing is None:
            return cls(none, none, none, none, none, none)
        limits, equal = np.array(weighing.limits), np.array(weighing.equal, dtype=bool)
        limits = np.where(equal, limits, limits - _RELAXED * np.maximum(1.0, np.abs(limits)))
        least = np.where(equal, limits, -np.inf)
        if weighing.members == 1:
            return cls(none, none, none, none, least, limits)
        costs, caps = compiled.costs(x, theta)[: weighing.members], np.array(weighing.caps)
        return cls(
            np.append(costs.max(), np.zeros(len(caps))),
            np.append(-np.inf, np.zeros(len(caps))),
            # A member whose cap does not bind may not exceed t: otherwise t would not be unique.
            np.append(np.inf, np.where(caps < 1, np.inf, 0.0)),
            np.append(1.0, caps),
            np.append(np.full(len(caps), -np.inf), least),
            np.append(np.zeros(len(caps)), limits),
        )

    def weights(self, rollout: Rollout, multipliers: np.ndarray) -> np.ndarray | None:
        """(K,) weights of the costs: the multipliers of their constraints."""
        weighing = weighing_on(rollout)
        if weighing is None:
            return None
        own = multipliers[len(multipliers) - len(self.limits) :]
        return weighing.nearest(own if len(self.start) else np.append(1.0, own))


def _variable_bounds(compiled: CompiledProblem, intervals: int) -> tuple[np.ndarray, np.ndarray]:
    least = np.where(compiled.problem.model.layout.nonnegative, 0.0, -np.inf)
    low, high = compiled.relaxation.bounds
    free = compiled.problem.free.values()
    return (
        np.concatenate([np.tile(least, intervals), np.tile(low, intervals)] + [[f.lower] for f in free]),
        np.concatenate(
            [np.full(len(least) * intervals, np.inf), np.tile(high, intervals)] + [[f.upper] for f in free]
        ),
    )
