"""Greedy schedules: at every moment the control that lowers the final cost fastest.

This is the locally optimal schedule of the literature: the costate is replaced by the gradient of the final
cost at the present state, so only the budgets, through one multiplier each, take the future into account.
It serves as a baseline and as a start for the other methods.

References:
    D. Saad and M. Rattray, *Globally optimal parameters for on-line learning in multilayer neural
    networks*, Phys. Rev. Lett. 79, 2578 (1997), compare locally and globally optimal schedules.
"""

import numpy as np

from optlearn._control.compiled import CompiledProblem, Rollout
from optlearn._control.hamiltonian.interval import IntervalHamiltonian
from optlearn._control.hamiltonian.minimise import PointwiseMinimiser
from optlearn._control.hamiltonian.multipliers import Trial, bracket_multiplier
from optlearn._control.runs import Outcome, Run, Solver, Start
from optlearn._control.solvers.feasible import FeasibleSet
from optlearn._errors import SpecificationError, count_of
from optlearn._progress import Report, silent

_CYCLES = 2  # over the multipliers of several budgets
_PASSES = 40  # forward passes for one multiplier
_INSISTENT = 1e6  # a multiplier, relative to the Hamiltonian, at which only the budget counts


class Greedy(Solver):
    """The locally optimal schedule with the start's free parameters; the start's controls are ignored."""

    name = "greedy"
    description = "locally optimal: the steepest descent of the error at every moment"
    optimises = False

    def solve(self, rollout: Rollout, start: Start, tell: Report = silent) -> Run:
        """One pass through training (several with budgets)."""
        w = greedy_controls(rollout.compiled, rollout.intervals, start.theta, steps=rollout.steps)
        objective = rollout.objective(w, start.theta)
        if not np.isfinite(objective):
            raise SpecificationError(
                "the objective of the greedy schedule is not finite with "
                f"{count_of(rollout.steps, 'step')} in an interval: take more intervals, or tighten the "
                "bounds of the controls"
            )
        return Run(self.record(rollout, start, objective, Outcome.SOLVED, 1), w, start.theta)


def greedy_controls(
    compiled: CompiledProblem, intervals: int, theta: np.ndarray, *, steps: int = 1
) -> np.ndarray:
    """Locally optimal relaxed controls.

    Each interval takes the control w that minimises ∇φ(x)·f(x, w) + running cost + ν·a·w at the state x
    where it begins. If that does not depend on the control, as at a state where the gradient of the
    final cost vanishes, the previous control is kept. Multipliers ν enforce the budgets up to a remainder
    that no multiplier can remove (steps of discrete controls), which is corrected where the budget would
    otherwise get out of reach.

    Args:
        compiled: the problem.
        intervals: I.
        theta: (k,) free parameters.
        steps: Runge-Kutta steps in each interval.

    Returns:
        (I, m) relaxed controls that meet the budgets. Shares are 0 or 1, but for at most a few
        intervals if a budget does not fit the grid.
    """
    passage = _Passage(compiled, intervals, theta, steps)
    rows, targets, equal = compiled.relaxation.budget_rows
    nu = np.zeros(len(targets))
    for _ in range(_CYCLES if len(nu) > 1 else 1):
        before = nu.copy()
        for b in range(len(nu)):
            nu[b] = _multiplier(passage, rows, nu, b, float(targets[b]), bool(equal[b]))
        if np.allclose(nu, before, rtol=1e-3, atol=0.0):
            break
    w = passage.run(nu, guarded=True)
    if np.any(compiled.relaxation.budget_rows.violation(w.mean(axis=0)) > 1e-9):
        # Several budgets on one control can still conflict.
        w, _ = FeasibleSet(compiled, intervals).nearest(w, theta)
    return w


def _multiplier(
    passage: "_Passage", rows: np.ndarray, nu: np.ndarray, b: int, target: float, equal: bool
) -> float:
    """The multiplier under which budget b is met most closely, given the others."""

    def attempt(multiplier: float) -> tuple[float, None]:
        trial = nu.copy()
        trial[b] = multiplier
        return float((passage.run(trial) @ rows[b]).mean() - target), None

    reach = np.ptp(passage.corners @ rows[b])
    ends: tuple[Trial[None], Trial[None]] = bracket_multiplier(
        attempt,
        start=float(nu[b]),
        step=passage.scale(rows[b]),
        tolerance=1e-7 * reach,
        narrow=1e-4,
        at_most=not equal,
        evaluations=_PASSES,
    )
    return min(ends, key=lambda trial: abs(trial.excess)).multiplier


class _Passage:
    """Forward through training, choosing controls on the way."""

    def __init__(self, compiled: CompiledProblem, intervals: int, theta: np.ndarray, steps: int) -> None:
        self.compiled, self.intervals, self.theta, self.steps = compiled, intervals, theta, steps
        self.length = compiled.problem.horizon / intervals
        self.rows, self.targets, self.equal = compiled.relaxation.budget_rows
        blocks = compiled.relaxation.blocks.values()
        # (b, m) entries of w that belong to each budget's control.
        self._same_control = np.array(
            [
                [any(b.start <= e < b.stop and row[b].any() for b in blocks) for e in range(len(row))]
                for row in self.rows
            ]
        )
        self._first = self._minimiser(compiled.start, compiled.relaxation.neutral)
        self.corners = self._first.corners

    def scale(self, row: np.ndarray) -> float:
        """Scale at which a multiplier of row·w matters at the start."""
        return self._first.scale(row)

    def run(self, nu: np.ndarray, *, guarded: bool = False) -> np.ndarray:
        """(I, m) controls under multipliers ν; ``guarded``: budgets are kept within reach."""
        x, before = self.compiled.start, self.compiled.relaxation.neutral
        left = self.targets * self.intervals
        chosen = []
        for i in range(self.intervals):
            minimise = self._minimiser(x, before) if i else self._first
            w = minimise(nu @ self.rows)[0][0]
            if guarded:
                w = self._keep_in_reach(minimise, w, nu, left, self.intervals - 1 - i)
                left = left - self.rows @ w
            chosen.append(w)
            before = w
            x = self._advance(x, w)
        return np.array(chosen)

    def _minimiser(self, x: np.ndarray, before: np.ndarray) -> PointwiseMinimiser:
        _, costate, _ = self.compiled.final_gradient(x, self.theta)
        hamiltonian = IntervalHamiltonian.at_point(self.compiled, x, costate, self.length, self.theta)
        return PointwiseMinimiser(hamiltonian, before[None])

    def _advance(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        h = self.length / self.steps
        for _ in range(self.steps):
            end, _ = self.compiled.engine.step(self.compiled.constants, x, w, self.theta, h)
            x = np.array(end).ravel()
        return x

    def _keep_in_reach(
        self,
        minimise: PointwiseMinimiser,
        w: np.ndarray,
        nu: np.ndarray,
        left: np.ndarray,
        rest: int,
    ) -> np.ndarray:
        """Change w as little as needed so that the remaining intervals can still meet the budgets.

        Args:
            minimise: minimiser of the Hamiltonian on this interval.
            w: (m,) the control that it would take.
            nu: (b,) multipliers.
            left: (b,) budgets left for this interval and those after it.
            rest: number of intervals after it.
        """
        for b, row in enumerate(self.rows):
            values = self.corners @ row
            least = left[b] - rest * values.max() if self.equal[b] else -np.inf
            most = left[b] - rest * values.min()
            used = float(row @ w)
            needed = min(max(used, least), most)
            if abs(needed - used) <= 1e-12 * np.ptp(values):
                continue
            # The best control among those that use most, or least, of the budget.
            push = -np.sign(needed - used) * _INSISTENT * minimise.scale(row)
            extreme = np.where(self._same_control[b], minimise(nu @ self.rows + push * row)[0][0], w)
            distance = float(row @ extreme) - used
            share = min(max((needed - used) / distance, 0.0), 1.0) if distance else 0.0
            w = w + (1.0 if share > 1 - 1e-9 else share) * (extreme - w)
        return w
