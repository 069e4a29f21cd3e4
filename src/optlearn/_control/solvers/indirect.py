"""Indirect method: Pontryagin's minimum principle by forward and backward passes, with a quasi-Newton finish.

Each run is one descent (``descent``); several costs, and limits, are weighted, and the weights are updated.
Where passes take long, most of them use fewer steps or a coarse quadrature (``coarse_to_fine``).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from typing_extensions import override

from optlearn._control.compiled import Rollout, weighing_on
from optlearn._control.runs import Outcome, Run, Solver, Start, is_long
from optlearn._control.solvers.coarse_to_fine import CoarseToFine
from optlearn._control.solvers.descent import MAX_ITERATIONS, Descent
from optlearn._control.solvers.rules import LITTLE, ROUND_OFF, TOLERANCE
from optlearn._control.weighing import Proximal, Violation
from optlearn._progress import Progress, Report, silent

# Where expectations are wide quadratures: a tenth of the certificate's limit, which still distinguishes
# starts.
_COSTLY_TOLERANCE = 1e-6
_STIFFEST = 60  # how often the penalty of limits is quadrupled before they count as out of reach
_STUCK = 3  # rounds in a row without a smaller violation, after which the minimal violation is computed
_LESS = 0.99  # factor by which a violation must shrink to count as smaller
_CLEARLY = 1e-3  # a relative violation above this is not round-off
_MET = 1e-8  # a relative violation up to this counts as met


@dataclass(frozen=True, eq=False)
class Indirect(Solver):
    """Descent by forward and backward passes until the minimum principle holds.

    Iterations are forward-backward passes; the tolerance is the Hamiltonian gap at which the minimum
    principle counts as met, relative to the objective where that is above 1.

    Attributes:
        brief: leave singular arcs, along which passes creep, to another solver.
        rival: another run on the same grid; a descent ends if it stays above the rival by far more than its
            gap, or if the objective falls along a straight line to the rival.
    """

    brief: bool = False
    rival: Run | None = None

    name = "indirect"
    description = "Pontryagin's minimum principle by forward and backward passes with exact adjoints"

    @override
    def run_all(self, rollout: Rollout, starts: Sequence[Start], tell: Report = silent) -> list[Run]:
        compiled, accurate = rollout.compiled, rollout.coarser()
        if accurate is None and is_long(rollout) and not compiled.engine.costly:
            accurate = rollout
        if accurate is None or compiled.problem.weighing is not None:
            return super().run_all(rollout, starts, tell)

        def descend(passes: Rollout, start: Start, *, tolerance: float, rival: Run | None = None) -> Run:
            return replace(self, tolerance=tolerance, rival=rival).run(passes, start, tell)

        descents = CoarseToFine(descend, rollout, accurate, self._tolerance(rollout), self._most)
        if not any(start.near for start in starts):
            return descents.run_all(starts)
        nearer = [min((descents.nearer(start), start), key=_objective_on(rollout)) for start in starts]
        return super().run_all(rollout, nearer, tell)

    def solve(self, rollout: Rollout, start: Start, tell: Report = silent) -> Run:
        """The best result from a start, which is first moved to meet bounds and budgets.

        Reports iteration, objective and gap whenever the gap is known. A KeyboardInterrupt ends the run with
        the best result so far.

        Raises:
            SpecificationError: the start's objective is not finite.
        """
        most, tolerance = self._most, self._tolerance(rollout)

        def report(iteration: int, objective: float, gap: float) -> None:
            text = f"{self.name}, from {start.name}"
            tell(Progress(text, iteration=iteration, objective=objective, gap=gap))

        weights = None
        if rollout.compiled.problem.weighing is None:
            descent = Descent(rollout, start, most, tolerance, report, self.brief, self.rival)
            outcome, done = descent.descend(), descent.iterations
        else:
            descent, outcome, done, weights = _by_weights(rollout, start, most, tolerance, report)
        w, theta = descent.feasible.split(descent.point.v)
        rolled = descent.point.rolled
        objective = rolled.objective if weights is None else rollout.objective(w, theta)
        return Run(
            self.record(rollout, start, objective, outcome, done),
            w=w,
            theta=theta,
            costates=rolled.costates[rollout.steps :: rollout.steps],
            budget_multipliers=descent.nu * rollout.compiled.problem.horizon,
            gap=descent.gap,
            weights=weights,
            curvature=descent.curvature,
        )

    @property
    def _most(self) -> int:
        return MAX_ITERATIONS if self.max_iterations is None else self.max_iterations

    def _tolerance(self, rollout: Rollout) -> float:
        engine = rollout.compiled.engine
        usual = _COSTLY_TOLERANCE if engine.costly and not engine.exact else TOLERANCE
        return usual if self.tolerance is None else self.tolerance


def _objective_on(rollout: Rollout) -> Callable[[Start], float]:
    """Objective of a start; corrections based on few steps may end above where they began."""
    return lambda start: rollout.objective(start.w, start.theta)


def _by_weights(
    rollout: Rollout,
    start: Start,
    max_iterations: int,
    tolerance: float,
    tell: Callable[[int, float, float], None],
) -> tuple["Descent", Outcome, int, np.ndarray]:
    """Descents under weights of several costs, which are updated until they settle (``weighing.Proximal``).

    Returns:
        The last descent, how it ended, passes in all, and the weights (K,).
    """
    weighing = weighing_on(rollout)
    assert weighing is not None
    costs = rollout.costs(start.w, start.theta)
    members, limits = costs[: weighing.members], np.array(weighing.limits)
    size = max(float(np.abs(members).max()), ROUND_OFF)
    spread = max(float(np.ptp(members)), LITTLE * size)
    room = np.maximum(np.abs(costs[weighing.members :] - limits), LITTLE * np.array(weighing.sizes))
    rho = np.concatenate([np.full(len(members), 1 / spread), size / room**2])
    p = weighing.nearest(np.concatenate([np.array(weighing.caps) / sum(weighing.caps), 0.0 * limits]))
    done, before, stiffer, stuck, least = 0, np.inf, 0, 0, np.inf
    while True:
        near = Proximal(weighing, p, rho)
        descent = Descent(rollout.weighted(near), start, max_iterations - done, tolerance, tell)
        outcome = descent.descend()
        done += descent.iterations
        w, theta = descent.feasible.split(descent.point.v)
        start, costs = Start(start.name, w, theta), rollout.costs(w, theta)
        p = near.weights(costs)
        # Violation of complementarity: 0 if every positive weight belongs to an active cost.
        own = weighing.value(costs) - float(p[: len(members)] @ costs[: len(members)])
        left = own + float(np.abs(p[len(members) :] * (costs[len(members) :] - limits)).sum())
        excess = weighing.excess(costs)
        settled = left <= descent.tolerance and excess <= _MET
        if settled or outcome in (Outcome.INTERRUPTED, Outcome.ITERATIONS) or done >= max_iterations:
            return descent, outcome if settled or not outcome.ok else Outcome.ITERATIONS, done, p
        if left > before / 4:
            rho, stiffer = 4 * rho, stiffer + 1
            stuck = stuck + 1 if excess > max(_LESS * least, _CLEARLY) else 0
            reachable = stiffer <= _STIFFEST
            if stuck == _STUCK:
                reachable, passes = _can_fall(rollout, start, max_iterations - done, tolerance, tell)
                done += passes
            if not reachable:
                return descent, Outcome.INFEASIBLE, done, p
        before, least = left, min(least, excess)


def _can_fall(
    rollout: Rollout,
    start: Start,
    max_iterations: int,
    tolerance: float,
    tell: Callable[[int, float, float], None],
) -> tuple[bool, int]:
    """Whether ignoring the objective reduces the violation of limits, and the passes that this check took."""
    weighing = weighing_on(rollout)
    assert weighing is not None
    descent = Descent(rollout.weighted(Violation(weighing)), start, max_iterations, tolerance, tell)
    descent.descend()
    before, after = (
        weighing.excess(rollout.costs(w, theta))
        for w, theta in ((start.w, start.theta), descent.feasible.split(descent.point.v))
    )
    return after < _LESS * before, descent.iterations
