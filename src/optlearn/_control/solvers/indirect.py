"""Indirect method: Pontryagin's minimum principle by forward and backward passes, with a quasi-Newton finish.

A pass integrates the states forward and the costates backward (by the exact adjoint of the steps). Minimising
the Hamiltonian pointwise then says where the controls should go, and a damped step takes them a part γ of the
way there; γ is found by a line search on the objective. Such steps go far in a few iterations, and then
zigzag: on a singular arc, where the Hamiltonian does not decide between controls, u* jumps from one to the
other (they are Frank-Wolfe steps, with an error like 1/k). So when they win little, the same forward and
backward passes feed a projected quasi-Newton method instead: the limited-memory BFGS matrix of the exact
gradients, minimised over bounds, shares and budgets. It too is a first-order method that knows the problem
by its states and costates only. Both phases alternate until the minimum principle holds: the Hamiltonian
gap is below the tolerance.

References:
    M. Schmidt, E. van den Berg, M. Friedlander, K. Murphy, *Optimizing costly functions with simple
    constraints: a limited-memory projected quasi-Newton algorithm*, AISTATS 2009.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from optlearn._control.certificate import agreement
from optlearn._control.compiled import Rollout, weighing_on
from optlearn._control.hamiltonian.gap import free_gap, minimise_hamiltonian
from optlearn._control.hamiltonian.interval import IntervalHamiltonian
from optlearn._control.hamiltonian.newton import ARMIJO
from optlearn._control.runs import Curvature, Outcome, Run, Solver, Start, lowest
from optlearn._control.solvers.feasible import FeasibleSet
from optlearn._control.solvers.hops import Hops
from optlearn._control.solvers.quasi_newton import LONG_MEMORY, MEMORY, QuasiNewton
from optlearn._control.solvers.rules import (
    LITTLE,
    ROUND_OFF,
    SMALLEST_STEP,
    TOLERANCE,
    gap_tolerance,
    lowers,
    shortened,
)
from optlearn._control.weighing import Proximal, Violation
from optlearn._engine.rollout import RolloutResult
from optlearn._errors import SpecificationError
from optlearn._progress import Progress, Report, silent

MAX_ITERATIONS = 2000

# Where expectations are wide quadratures: a tenth of what a certificate asks for, and starts are still told
# apart.
_COSTLY_TOLERANCE = 1e-6
_DAMPED = 4  # at most so many damped steps in a row
_DESCENTS = 150  # at most so many quasi-Newton steps in a row
_CHECK_AFTER = (5, 40)  # steps to an evaluation of the gap, once the model promises little: first, most
_NEGLIGIBLE = 1e-6  # a promise below this part of the tolerance is not worth a step
_CORRECTED = 80  # passes at most with a coarse objective whose gradient is corrected by the fine one
_NEXT_TO_NOTHING = 1e-4  # of the tolerance: gaps are far above what quasi-Newton steps promise
_SETTLED = 0.05  # of the tolerance: a correction has won no more, and what follows is less
_MANY_STEPS, _TOLD_APART = 8, 1e-4  # steps in an interval; what half as many may change of an objective
_LOOSE = 5  # times the tolerance, to tell starts apart
_HOP_TOLERANCE = 1e-4  # as coarse as a brief look is
_STIFFEST = 60  # times that limits are enforced four times as hard, before they count as out of reach
_STUCK = 3  # such times in a row that limits are broken as much as before: is there a way to break them less?
_LESS = 0.99  # what is left of a violation that has become smaller
_CLEARLY = 1e-3  # a limit that is broken by this share of itself is not broken for round-off
_MET = 1e-8  # a limit that is broken by this share of itself counts as met
_CREEPING = 100  # gaps above so many tolerances, where the model promises less than one: a singular arc
_FAR_BEHIND = 4  # times its gap that a descent is above another: it will not come down to that
_NEARLY_ALL = 0.7  # of what its slope promises, that a step wins: it was too short
_FARTHER = 10  # times as far at most, with each look ahead
_BESIDE = 0.05  # of a control's range: ends of two runs that are as near as this are in one basin
_ACCEPTABLE = 20  # gaps up to so many tolerances, 2e-5 of the objective, are what a certificate accepts


@dataclass(frozen=True, eq=False)
class Indirect(Solver):
    """Descent by forward and backward passes until the minimum principle holds.

    Iterations are forward-backward passes; the tolerance is the Hamiltonian gap at which the minimum
    principle counts as met, relative to the objective where that is above 1.

    Attributes:
        brief: leave singular arcs, along which passes creep, to another solver.
        rival: objective of another run; a descent ends that stays above it by far more than its gap.
    """

    brief: bool = False
    rival: float = np.inf

    name = "indirect"
    description = "Pontryagin's minimum principle by forward and backward passes with exact adjoints"

    def run_all(self, rollout: Rollout, starts: Sequence[Start], tell: Report = silent) -> list[Run]:
        """One run from each start.

        Where expectations are wide quadratures, all starts are followed with a coarse one, which is enough to
        tell them apart. The best goes on with the fine one, unless a rival was no worse, and so do those that
        the difference of both may have put behind it.
        """
        accurate = rollout.coarser() if rollout.compiled.problem.weighing is None else None
        if accurate is None or any(start.near for start in starts):
            return super().run_all(rollout, starts, tell)
        rival = starts[0].rival
        lowest_before = np.inf if rival is None or rival.coarse is None else rival.coarse
        coarse = _with_fewer_steps(accurate)
        ends = self._followed(coarse, starts, lowest_before, tell)
        if ends[-1].astray and coarse is not accurate:
            coarse = accurate
            ends = self._followed(coarse, starts, lowest_before, tell)
        if not (ends[-1].interrupted or ends[-1].astray):
            ends = self._settled(coarse, ends, lowest_before, tell)
        if ends[-1].interrupted or ends[-1].astray:
            return ends
        first = lowest(ends)
        if rival is not None and lowest_before <= first.objective + agreement(first.objective):
            level, best = lowest_before, rival
            doubt = 2 * abs(best.objective - level)
        else:
            level, best = first.objective, self._refined(rollout, accurate, first, tell)
            doubt = 2 * abs(rollout.objective(first.w, first.theta) - level)
        runs: list[Run] = []
        confirmed = False
        for end in sorted(ends, key=lambda end: end.objective):
            behind = max(0.0, end.objective - level)
            doubtful = end.counts and agreement(level) < behind <= doubt and not best.interrupted
            if end is first and best is not rival:
                runs.append(best)
            elif doubtful and not (confirmed and _is_beside(coarse, end, first)):
                runs.append(self._refined(rollout, accurate, end, tell))
                confirmed |= abs(runs[-1].objective - best.objective) <= agreement(best.objective)
            else:
                confirmed |= end.counts and behind <= agreement(level)
                runs.append(replace(end, record=replace(end.record, objective=best.objective + behind)))
        return sorted(runs, key=lambda run: run.interrupted)

    def _followed(
        self, coarse: Rollout, starts: Sequence[Start], lowest_before: float, tell: Report
    ) -> list[Run]:
        """Runs from all starts, and from beside the best of the first ones; the last one may have failed."""
        ends: list[Run] = []
        for start in starts:
            least = min([lowest_before, *(end.objective for end in ends)])
            ends.append(self._loosely(least).run(coarse, _informed(start, ends), tell))
            if ends[-1].interrupted or ends[-1].astray:
                return ends
        # Where a pass costs less, scouts look; and baselines know their problem.
        costly, known = coarse.compiled.engine.costly, coarse.compiled.problem.baselines
        if costly and not known and len(starts) > 1 and starts[0].rival is None:
            best = lowest(ends)
            ends += self._beside(coarse, best, ends, tell)
            # One that came there alone is no evidence; of two basins, hops may lead from the higher to the
            # lower.
            others = [end for end in ends if not _is_beside(coarse, end, best)]
            alone = lowest(ends) is best and len(others) == len(ends) - 1
            if alone and others and not ends[-1].interrupted:
                ends += self._beside(coarse, lowest(others), ends, tell, goal=best)
        return ends

    def _settled(self, coarse: Rollout, ends: list[Run], lowest_before: float, tell: Report) -> list[Run]:
        """The same ends; where one may still come down to the lowest, both go on to their optima.

        These may be one, and passes with a coarse rule are the cheapest way to see it.
        """
        least = min(lowest_before, lowest(ends).objective)
        if not any(_may_reach(end, least) and end.objective - least > agreement(least) for end in ends):
            return ends
        settled = []
        for end in ends:
            run = end
            if _may_reach(end, least):
                start = Start(end.record.start, end.w, end.theta, near=True, curvature=end.curvature)
                run = replace(_with_work_of(end, self.run(coarse, start, tell)), counts=end.counts)
            settled.append(run)
        return sorted(settled, key=lambda run: run.interrupted)

    def _loosely(self, rival: float = np.inf) -> "Indirect":
        """With a tolerance that suffices to tell starts apart: a gap is far above the improvement left."""
        tolerance = _COSTLY_TOLERANCE if self.tolerance is None else self.tolerance
        return replace(self, rival=rival, tolerance=_LOOSE * tolerance)

    def _beside(
        self, coarse: Rollout, run: Run, ends: Sequence[Run], tell: Report, goal: Run | None = None
    ) -> list[Run]:
        """Runs from hops that keep away from a run; after one below all ends, from hops of other lengths too.

        Where two end alike, they have come there by different ways. Runs that come back all the same are no
        evidence for the run from which they came. With a goal, that hop goes on which leads nearest to it.
        """
        found: list[Run] = []

        def brief(passes: Rollout, start: Start) -> Descent:
            return Descent(passes, start, MAX_ITERATIONS, _HOP_TOLERANCE)

        beside = Hops(coarse, run, brief)
        for hop, start in beside.starts(goal):
            least = lowest([*ends, *found]).objective
            end = self._loosely(least).run(coarse, start, tell)
            if end.astray:
                continue
            found.append(end)
            if end.interrupted:
                break
            if end.objective < least - agreement(least):
                for other in hop.others(coarse.intervals):
                    begin = beside.start(other)
                    if begin is None:
                        continue
                    again = self._loosely(end.objective).run(coarse, begin, tell)
                    found.append(again)
                    if again.interrupted or _may_reach(again, end.objective):
                        break
        close = run.objective - agreement(run.objective)
        return [replace(end, counts=end.objective < close) for end in found]

    def _refined(self, rollout: Rollout, coarse: Rollout, end: Run, tell: Report) -> Run:
        """On from where a coarse quadrature led, by as few passes with the fine one as suffice."""
        start = Start(end.record.start, end.w, end.theta, near=True, curvature=end.curvature)
        run = self.run(rollout, self._corrected(rollout, coarse, start), tell)
        return replace(_with_work_of(end, run), coarse=end.objective)

    def _corrected(self, rollout: Rollout, coarse: Rollout, start: Start) -> Start:
        """Nearer to the optimum under the fine quadrature, by passes of which only a few are with it.

        Both quadratures have almost the same curvature. The coarse objective, tilted so that its gradient is
        right where we are, leads to where the fine one is lowest, up to the difference in curvature; from
        there the tilt is corrected.

        References:
            R. M. Lewis, S. G. Nash, *Model problems for the multigrid optimization of systems governed by
            differential equations*, SIAM J. Sci. Comput. 26 (2005).
        """
        here, most = rollout.run(start.w, start.theta), self.max_iterations or MAX_ITERATIONS
        tolerance = _COSTLY_TOLERANCE if self.tolerance is None else self.tolerance
        left, before = _CORRECTED, np.inf  # in valleys along which passes creep, more of them would not pay
        while left > 0:
            crude = coarse.run(start.w, start.theta)
            tilted = coarse.tilted(here.gradient - crude.gradient, here.free_gradient - crude.free_gradient)
            descent = Descent(tilted, start, most, tolerance)
            won = descent.settle(left)
            left -= descent.iterations
            w, theta = descent.feasible.split(descent.point.v)
            forward = rollout.forward(w, theta)
            if not forward[0] < here.objective:
                break
            here = rollout.run(w, theta, forward)
            start = replace(start, w=w, theta=theta, curvature=descent.curvature)
            # Each wins far less than the one before, unless gradients jump, where a loss bends.
            if won <= _SETTLED * descent.tolerance or won > before / 2:
                break
            before = won
        return start

    def solve(self, rollout: Rollout, start: Start, tell: Report = silent) -> Run:
        """The best found from a start, which is first moved to meet bounds and budgets.

        It tells iteration, objective and gap whenever the gap is known. A KeyboardInterrupt ends the work
        with the best so far.

        Raises:
            SpecificationError: the start's objective is not finite.
        """
        most = MAX_ITERATIONS if self.max_iterations is None else self.max_iterations
        engine = rollout.compiled.engine
        usual = _COSTLY_TOLERANCE if engine.costly and not engine.exact else TOLERANCE
        tolerance = usual if self.tolerance is None else self.tolerance

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


def _is_beside(rollout: Rollout, end: Run, other: Run) -> bool:
    """Whether two runs have come to the same place, as far as a coarse rule can tell."""
    low, high = rollout.compiled.relaxation.bounds
    return bool(np.all(np.abs(end.w - other.w) <= _BESIDE * (high - low)))


def _may_reach(end: Run, level: float) -> bool:
    """Whether what a run may still win would bring it down to a level."""
    return end.objective - level <= max(end.gap or 0.0, agreement(level))


def _with_work_of(before: Run, run: Run) -> Run:
    """A run that went on from another, with the iterations and seconds of both."""
    both = {
        name: getattr(before.record, name) + getattr(run.record, name) for name in ("iterations", "seconds")
    }
    return replace(run, record=replace(run.record, **both))


def _informed(start: Start, ends: Sequence[Run]) -> Start:
    """With the curvature at the best end so far, for a descent of its own: most of it is the same there."""
    known = lowest(ends).curvature if ends and start.curvature is None else start.curvature
    return replace(start, curvature=known)


def _with_fewer_steps(rollout: Rollout) -> Rollout:
    """The same passes with half as many steps, if these are enough to tell starts apart; else as it is."""
    if rollout.compiled.engine.exact or rollout.steps < _MANY_STEPS:
        return rollout
    compiled, half = rollout.compiled, rollout.with_steps(rollout.steps // 2)
    w = np.tile(compiled.relaxation.neutral, (rollout.intervals, 1))
    theta = np.array([free.start for free in compiled.problem.free.values()])
    w, theta = FeasibleSet(compiled, rollout.intervals).nearest(w, theta)
    few, many = (each.objective(w, theta) for each in (half, rollout))
    return half if abs(few - many) <= _TOLD_APART * abs(many) else rollout


def _by_weights(
    rollout: Rollout,
    start: Start,
    max_iterations: int,
    tolerance: float,
    tell: Callable[[int, float, float], None],
) -> tuple["Descent", Outcome, int, np.ndarray]:
    """Descents under weights of several costs, which move until they stay (``weighing.Proximal``).

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
        # What weights and costs disagree by: 0 where every weight above 0 is of a cost that is active.
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
    """Whether limits are broken by less where nothing else counts, and the passes that it took to see."""
    weighing = weighing_on(rollout)
    assert weighing is not None
    descent = Descent(rollout.weighted(Violation(weighing)), start, max_iterations, tolerance, tell)
    descent.descend()
    before, after = (
        weighing.excess(rollout.costs(w, theta))
        for w, theta in ((start.w, start.theta), descent.feasible.split(descent.point.v))
    )
    return after < _LESS * before, descent.iterations


@dataclass(frozen=True)
class _Point:
    """Controls and free parameters, and the passes under them."""

    v: np.ndarray
    rolled: RolloutResult

    @property
    def objective(self) -> float:
        return self.rolled.objective


class Descent:
    """One descent from one start; every accepted step lowers the objective."""

    def __init__(
        self,
        rollout: Rollout,
        start: Start,
        max_iterations: int,
        tolerance: float,
        tell: Callable[[int, float, float], None] = lambda *_: None,
        brief: bool = False,
        rival: float = np.inf,
    ) -> None:
        self.rival = rival
        self.rollout, self.compiled, self.steps = rollout, rollout.compiled, rollout.steps
        self.max_iterations, self.relative_tolerance, self.tell = max_iterations, tolerance, tell
        w, theta = start.w, start.theta
        self.feasible = FeasibleSet(self.compiled, len(w))
        self.model = QuasiNewton(self.feasible, LONG_MEMORY if self.compiled.engine.costly else MEMORY)
        self.model.recall(start.curvature)
        self.near, self.local, self.brief = start.near, start.near or start.local, brief
        self.iterations = 0
        self.gap = np.inf
        self.gains = np.zeros(len(w))
        self.nu = np.zeros(len(self.compiled.relaxation.budget_rows.targets))
        self.point = self._pass(self.feasible.project(self.feasible.join(w, theta)))
        if not np.isfinite(self.point.objective):
            raise SpecificationError(
                f"the objective of the start is {self.point.objective}: start from a schedule under "
                "which the dynamics stay physical, or take more intervals or steps"
            )

    @property
    def tolerance(self) -> float:
        """Absolute tolerance of the gap: a share of the objective, ten times that of a small one."""
        tolerance: float = gap_tolerance(self.point.objective, self.relative_tolerance)
        return tolerance

    @property
    def _behind(self) -> float:
        """How far above its rival it is; 0 if it may agree with it."""
        behind = self.point.objective - self.rival
        return behind if behind > agreement(self.rival) else 0.0

    @property
    def _agrees(self) -> bool:
        """Has it come as low as its rival, from which it need not go on?"""
        return 0.0 <= self.point.objective - self.rival <= agreement(self.rival)

    @property
    def at(self) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
        """Controls (I, m), free parameters (k,), the objective, and states (I·s + 1, n)."""
        return *self.feasible.split(self.point.v), self.point.objective, self.point.rolled.states

    @property
    def curvature(self) -> Curvature:
        """Of the objective, as far as it has learned it."""
        return Curvature(self.model.moves, self.model.changes)

    def descend(self) -> Outcome:
        """Alternate damped and quasi-Newton steps until the minimum principle holds."""
        try:
            return self._alternate()
        except KeyboardInterrupt:
            self.tell = lambda iteration, objective, gap: None  # it may be what interrupted
            self._minimise_hamiltonian()  # the gap of what is returned
            return Outcome.INTERRUPTED

    def settle(self, most: int = _DESCENTS) -> float:
        """Quasi-Newton steps alone, until they promise next to nothing; what they have won.

        Or until one wins far less than promised: where a loss bends, gradients over samples jump, and to
        follow them is in vain.
        """
        first = self.point.objective
        for _ in range(most):
            gradient, little = self.feasible.gradient(self.point.rolled), _NEXT_TO_NOTHING * self.tolerance
            direction, before = (
                self.model.direction(self.point.v, gradient, 0.01 * little),
                self.point.objective,
            )
            promise = -float(gradient @ direction)
            if promise <= little or self._search(direction, 1.0) == 0.0:
                break
            if before - self.point.objective < LITTLE**2 * promise:
                break
        return first - self.point.objective

    def _alternate(self) -> Outcome:
        while True:
            before = self.point.objective
            # From near an optimum, long steps only lead away.
            for phase in (self._quasi_newton, self._damped_steps)[:: 1 if self.local else -1]:
                outcome = phase()
                if outcome is not None:
                    return outcome
            if before - self.point.objective <= 0.01 * self.tolerance:
                self._minimise_hamiltonian()
                if self.gap <= _ACCEPTABLE * self.tolerance:
                    return Outcome.SOLVED if self.gap <= self.tolerance else Outcome.ACCEPTABLE
                return Outcome.STALLED

    # Damped steps towards the minimiser of the Hamiltonian.

    def _damped_steps(self) -> Outcome | None:
        """Damped steps while they win a fair part of the gap; an outcome if they end the descent."""
        damping = 1.0
        for _ in range(_DAMPED):
            target = self._minimise_hamiltonian()
            if self.gap <= self.tolerance:
                return Outcome.SOLVED
            if self.iterations >= self.max_iterations:
                return Outcome.ITERATIONS
            before = self.point.objective
            damping = self._search(target - self.point.v, min(1.0, 4 * damping))
            if damping == 0.0:
                damping = self._switch(target)
            if before - self.point.objective < LITTLE * self.gap:
                break
        return None

    def _switch(self, target: np.ndarray) -> float:
        """Go all the way on the intervals that gain most; the share of them that was taken, or 0.

        Where the Hamiltonian has several minima in the control, a way between two of them leads over a
        hill: the objective falls along none of it, but may be lower at its end.
        """
        goal, _ = self.feasible.split(target)
        order = np.argsort(-self.gains)
        count = len(order)
        while count > 0:
            w, theta = self.feasible.split(self.point.v)
            w[order[:count]] = goal[order[:count]]
            trial = self.feasible.project(self.feasible.join(w, theta))
            forward = self.rollout.forward(*self.feasible.split(trial))
            lower = forward[0] < self.point.objective - ARMIJO * self.tolerance
            if lower and self._is_possible(forward[1]):
                self.point = self._pass(trial, forward)
                self.model.forget()
                return count / len(order)
            count //= 2
        return 0.0

    def _minimise_hamiltonian(self) -> np.ndarray:
        """Where the minimum principle sends v; sets the gap."""
        w, theta = self.feasible.split(self.point.v)
        rolled = self.point.rolled
        # With a coarse quadrature, if there is one: its slope is made exact, and a certificate looks again.
        shape = self.compiled.coarser() or self.compiled
        hamiltonian = IntervalHamiltonian.along(shape, rolled, w, theta, self.steps)
        if self.model.multipliers is not None:
            self.nu = self.model.multipliers / self.compiled.problem.horizon
        gap, w_star, self.nu = minimise_hamiltonian(hamiltonian, w, self.nu, quick=True)
        every = np.arange(len(w))
        slope = self.nu @ self.compiled.relaxation.budget_rows[0]
        self.gains = hamiltonian.value(w, every) - hamiltonian.value(w_star, every) + (w - w_star) @ slope
        free, theta_star = free_gap(self.compiled, rolled, w, theta, self.steps)
        self.gap = float(gap) + free
        self.tell(self.iterations, self.point.objective, self.gap)
        return self.feasible.join(w_star, theta_star)

    # Quasi-Newton steps.

    def _quasi_newton(self) -> Outcome | None:
        """Quasi-Newton steps while the model promises more; an outcome if they end the descent."""
        fresh, checked = False, self.iterations
        wait, longest = _CHECK_AFTER
        wait = 0 if self.near else wait
        # A gap costs as much as ten passes, or as three if each is a wide quadrature.
        longest = 2 * _CHECK_AFTER[0] if self.compiled.engine.costly else longest
        for _ in range(_DESCENTS):
            gradient = self.feasible.gradient(self.point.rolled)
            negligible = _NEGLIGIBLE * self.tolerance
            direction = self.model.direction(self.point.v, gradient, 0.01 * negligible)
            promise = -float(gradient @ direction)
            limit = self.iterations >= self.max_iterations
            if self.compiled.engine.costly and self._agrees and promise <= agreement(self.rival):
                self._minimise_hamiltonian()
                return Outcome.SOLVED if self.gap <= _ACCEPTABLE * self.tolerance else Outcome.ACCEPTABLE
            little = max(self.tolerance, self._behind / _FAR_BEHIND)
            if limit or (promise < little and self.iterations >= checked + wait):
                self._minimise_hamiltonian()
                checked, wait = self.iterations, min(max(1, 2 * wait), longest)
                if self.gap <= self.tolerance:
                    return Outcome.SOLVED
                if limit:
                    return Outcome.ITERATIONS
                if self._behind > _FAR_BEHIND * self.gap:
                    return Outcome.BEHIND
                if self.brief and self.gap > _CREEPING * self.tolerance:
                    return Outcome.STALLED
            farther = self.compiled.engine.costly
            if promise <= negligible or self._search(direction, 1.0, farther=farther) == 0.0:
                if fresh:
                    break
                # A model gone wrong looks like this too: ask a fresh one.
                self.model.forget()
                fresh = True
            else:
                fresh = False
        return None

    # Both.

    def _search(self, direction: np.ndarray, share: float, *, farther: bool = False) -> float:
        """Move a share of the direction that lowers the objective enough; 0 if there is none.

        Or farther, where the whole direction wins nearly all that its slope promises.
        """
        start = self.point
        gradient = self.feasible.gradient(start.rolled)
        slope = float(gradient @ direction)
        if not slope < 0:
            return 0.0
        while share > SMALLEST_STEP:
            trial = start.v + share * direction
            forward = self.rollout.forward(*self.feasible.split(trial))
            rise = forward[0] - start.objective
            if np.isfinite(rise) and lowers(rise, share, slope) and self._is_possible(forward[1]):
                if farther:
                    trial, forward = self._farther(start, direction, share, slope, (trial, forward))
                self.point = self._pass(trial, forward)
                change = self.feasible.gradient(self.point.rolled) - gradient
                self.model.learn(trial - start.v, change)
                return share
            share = float(shortened(share, rise, slope))
        return 0.0

    def _farther(
        self,
        start: _Point,
        direction: np.ndarray,
        share: float,
        slope: float,
        found: tuple[np.ndarray, tuple[float, np.ndarray]],
    ) -> tuple[np.ndarray, tuple[float, np.ndarray]]:
        """Beyond a share that wins nearly all that its slope promises, while that holds.

        There the model is too stiff: curvature from elsewhere forbids long steps along flat valleys, and is
        forgotten by halves, a pass each. A look ahead costs a third of one.
        """
        while True:
            rise = found[1][0] - start.objective
            if rise > _NEARLY_ALL * share * slope:
                return found
            # The minimum of the parabola through what is known.
            share *= min(_FARTHER, 1 / (2 * max(1 - rise / (share * slope), 1e-3)))
            trial = self.feasible.project(start.v + share * direction)
            forward = self.rollout.forward(*self.feasible.split(trial))
            if not (forward[0] < found[1][0] and self._is_possible(forward[1])):
                return found
            found = trial, forward

    def _is_possible(self, states: np.ndarray) -> bool:
        return self.compiled.is_possible(states[:: self.steps])

    def _pass(self, v: np.ndarray, forward: tuple[float, np.ndarray] | None = None) -> _Point:
        self.iterations += 1
        return _Point(v, self.rollout.run(*self.feasible.split(v), forward))
