"""One descent: damped steps towards the minimiser of the Hamiltonian, and quasi-Newton steps.

A pass integrates the states forward and the costates backward (by the exact adjoint of the steps). Minimising
the Hamiltonian pointwise then says where the controls should go, and a damped step takes them a part γ of the
way there; γ is found by a line search on the objective. Such steps go far in a few iterations and
then zigzag: on a singular arc, where the Hamiltonian does not distinguish controls, u* jumps between them
(these are Frank-Wolfe steps, with an error like 1/k). When they gain little, the same forward and backward
passes feed a projected quasi-Newton method instead: the limited-memory BFGS model of the exact gradients,
minimised over bounds, shares and budgets. It is also a first-order method that uses only states and
costates. Both phases alternate until the minimum principle holds: the Hamiltonian gap is below the tolerance.

References:
    M. Schmidt, E. van den Berg, M. Friedlander, K. Murphy, *Optimizing costly functions with simple
    constraints: a limited-memory projected quasi-Newton algorithm*, AISTATS 2009.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from optlearn._control.certificate import agreement
from optlearn._control.compiled import Rollout
from optlearn._control.hamiltonian.gap import free_gap, minimise_hamiltonian
from optlearn._control.hamiltonian.interval import IntervalHamiltonian
from optlearn._control.hamiltonian.newton import ARMIJO
from optlearn._control.runs import Curvature, Outcome, Run, Start, led_astray
from optlearn._control.solvers.feasible import FeasibleSet
from optlearn._control.solvers.quasi_newton import LONG_MEMORY, MEMORY, QuasiNewton
from optlearn._control.solvers.rules import LITTLE, SMALLEST_STEP, gap_tolerance, lowers, shortened
from optlearn._engine.rollout import RolloutResult
from optlearn._errors import SpecificationError

MAX_ITERATIONS = 2000
_DAMPED = 4  # at most so many damped steps in a row
_DESCENTS = 150  # at most so many quasi-Newton steps in a row
# Steps between evaluations of the gap once the model promises little: initially, and at most.
_CHECK_AFTER = (5, 40)
_DOUBTED = 10  # passes before the first check whether the Runge-Kutta steps are too long
_NEGLIGIBLE = 1e-6  # a promised gain below this share of the tolerance is not worth a step
_NEXT_TO_NOTHING = 1e-4  # of the tolerance: gaps are far above what quasi-Newton steps promise
_CREEPING = 100  # a gap above this many tolerances, with a promised gain below one, indicates a singular arc
_FAR_BEHIND = 4  # times its gap and its recent gains that a descent is above a rival, to be given up
_PACE = 5  # number of passes in these recent gains
_OWN_WAY = 20  # passes before that comparison: earlier gains say little about where a descent leads
_NEARBY = 0.01  # relative distance above a rival up to which a straight line to it is tried
_ON_THE_WAY = tuple(np.arange(1, 9) / 8)  # shares of that line at which the objective has to fall
_NEARLY_ALL = 0.7  # a step that gains this share of what its slope promises was too short
_FARTHER = 10  # maximum factor of a step's length per look ahead
_ACCEPTABLE = 20  # gaps up to so many tolerances, 2e-5 of the objective, are what a certificate accepts


@dataclass(frozen=True)
class _Point:
    """Controls and free parameters, with their passes."""

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
        rival: Run | None = None,
    ) -> None:
        self.rival, self.level = rival, np.inf if rival is None else rival.objective
        self.rollout, self.compiled, self.steps = rollout, rollout.compiled, rollout.steps
        self.max_iterations, self.relative_tolerance, self.tell = max_iterations, tolerance, tell
        w, theta = start.w, start.theta
        self.feasible = FeasibleSet(self.compiled, len(w))
        self.model = QuasiNewton(self.feasible, LONG_MEMORY if self.compiled.engine.costly else MEMORY)
        self.model.recall(start.curvature)
        self.near, self.local, self.brief = start.near, start.near or start.local, brief
        self.iterations = 0
        self._course: list[float] = []
        # Iterations after which the steps are checked again: passes with steps that lead astray are wasted.
        alone = self.compiled.engine.costly and self.compiled.problem.weighing is None
        self.doubted: float = _DOUBTED if alone else np.inf
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
        """Its height above its rival; 0 if the two may agree."""
        behind = self.point.objective - self.level
        return behind if behind > agreement(self.level) else 0.0

    @property
    def _won_lately(self) -> float:
        """Gain of the last passes: gains may compound, which the first-order gap does not show."""
        return self._course[-1 - _PACE] - self._course[-1] if len(self._course) > _PACE else np.inf

    @property
    def _agrees(self) -> bool:
        """Has it come as low as its rival, so that it can stop?"""
        return 0.0 <= self.point.objective - self.level <= agreement(self.level)

    @property
    def at(self) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
        """Controls (I, m), free parameters (k,), the objective, and states (I·s + 1, n)."""
        return *self.feasible.split(self.point.v), self.point.objective, self.point.rolled.states

    @property
    def curvature(self) -> Curvature:
        """Curvature of the objective, as learned so far."""
        return Curvature(self.model.moves, self.model.changes)

    def descend(self) -> Outcome:
        """Alternate damped and quasi-Newton steps until the minimum principle holds."""
        try:
            return self._alternate()
        except KeyboardInterrupt:
            self.tell = lambda iteration, objective, gap: None  # an interrupt may have hit the gap itself
            self._minimise_hamiltonian()  # the gap of the returned point
            return Outcome.INTERRUPTED

    def promise(self, by_w: np.ndarray, by_theta: np.ndarray) -> float:
        """The gain that the model promises from here if the gradients changed by these amounts."""
        rolled = self.point.rolled
        steeper = replace(
            rolled, gradient=rolled.gradient + by_w, free_gradient=rolled.free_gradient + by_theta
        )
        gradient = self.feasible.gradient(steeper)
        direction = self.model.direction(self.point.v, gradient, _NEGLIGIBLE * self.tolerance)
        return -float(gradient @ direction)

    def settle(self, most: int = _DESCENTS) -> float:
        """Quasi-Newton steps alone until they promise almost nothing; returns their gain.

        Or until one gains far less than promised: at kinks of a loss, gradients over samples jump, and
        following them is useless.
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
            # Close to an optimum, long steps only lead away.
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
        """Damped steps while they gain a fair share of the gap; an outcome if they end the descent."""
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
        """Take the full step on the intervals that gain most; returns their share of all intervals, or 0.

        Where the Hamiltonian has several minima in the control, the path between two of them crosses a hill:
        the objective may be lower only at its end.
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
        """The target of v under the minimum principle; sets the gap."""
        w, theta = self.feasible.split(self.point.v)
        rolled = self.point.rolled
        # With a coarse quadrature, if there is one: its slope is made exact, and the certificate checks
        # again.
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
        """Quasi-Newton steps while the model promises enough; an outcome if they end the descent."""
        fresh, checked = False, self.iterations
        wait, longest = _CHECK_AFTER
        wait = 0 if self.near else wait
        # A gap costs as much as ten passes, or as three if each is a wide quadrature.
        longest = 2 * _CHECK_AFTER[0] if self.compiled.engine.costly else longest
        look = max(_OWN_WAY, self.iterations + _CHECK_AFTER[0])
        for _ in range(_DESCENTS):
            if self.iterations >= self.doubted:
                self.doubted = 2 * self.iterations
                if led_astray(self.rollout, *self.feasible.split(self.point.v)):
                    return Outcome.COARSE
            gradient = self.feasible.gradient(self.point.rolled)
            negligible = _NEGLIGIBLE * self.tolerance
            direction = self.model.direction(self.point.v, gradient, 0.01 * negligible)
            promise = -float(gradient @ direction)
            limit = self.iterations >= self.max_iterations
            if self.rival is not None and self.iterations >= look:
                look = self.iterations + _CHECK_AFTER[0]
                if promise < self._behind <= _NEARBY * abs(self.level) and self._falls_to(self.rival):
                    continue
            if self.compiled.engine.costly and self._agrees and promise <= agreement(self.level):
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
                if self._behind > _FAR_BEHIND * max(self.gap, self._won_lately):
                    return Outcome.BEHIND
                if self.brief and self.gap > _CREEPING * self.tolerance:
                    return Outcome.STALLED
            farther = self.compiled.engine.costly
            if promise <= negligible or self._search(direction, 1.0, farther=farther) == 0.0:
                if fresh:
                    break
                # A bad model looks the same: ask a fresh one.
                self.model.forget()
                fresh = True
            else:
                fresh = False
        return None

    def _falls_to(self, rival: Run) -> bool:
        """Whether the objective falls all along a straight line to a rival; if so, moves there.

        The same optimum would be reached along a valley in many short steps. If it falls all the way, there
        is no separate optimum here.
        """
        target, before = self.feasible.join(rival.w, rival.theta), self.point.objective
        for share in _ON_THE_WAY:
            trial = (1 - share) * self.point.v + share * target
            objective, states = self.rollout.forward(*self.feasible.split(trial))
            if not (objective < before and self._is_possible(states)):
                return False
            before = objective
        self.point = self._pass(target)
        return True

    # Both.

    def _search(self, direction: np.ndarray, share: float, *, farther: bool = False) -> float:
        """Move by a share of the direction that lowers the objective enough; returns it, or 0 if none does.

        With ``farther``, continue if the step gains nearly all that its slope promises.
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
        best: tuple[np.ndarray, tuple[float, np.ndarray]],
    ) -> tuple[np.ndarray, tuple[float, np.ndarray]]:
        """Extend a step while it gains nearly all that its slope promises.

        In that case the model is too stiff: curvature from elsewhere prevents long steps along flat valleys
        and only decays by half per pass. A look ahead costs a third of a pass.
        """
        while True:
            rise = best[1][0] - start.objective
            if rise > _NEARLY_ALL * share * slope:
                return best
            # The minimum of the parabola through value, slope and trial.
            share *= min(_FARTHER, 1 / (2 * max(1 - rise / (share * slope), 1e-3)))
            trial = self.feasible.project(start.v + share * direction)
            forward = self.rollout.forward(*self.feasible.split(trial))
            if not (forward[0] < best[1][0] and self._is_possible(forward[1])):
                return best
            best = trial, forward

    def _is_possible(self, states: np.ndarray) -> bool:
        return self.compiled.is_possible(states[:: self.steps])

    def _pass(self, v: np.ndarray, forward: tuple[float, np.ndarray] | None = None) -> _Point:
        self.iterations += 1
        point = _Point(v, self.rollout.run(*self.feasible.split(v), forward))
        self._course.append(point.objective)
        return point
