"""What a method of solution is: from starts to runs, and how these end.

A solver goes from one start to one run; a method may also be a strategy over several solvers. Both are
registered in ``methods``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from optlearn._progress import Progress, Report, silent

if TYPE_CHECKING:
    from optlearn._control.compiled import Rollout


# Share of the objective by which a sharper run may end above another, since an interior point stays inside
# bounds, and still be the better schedule.
CLOSE = 1e-8


# And share by which one that has converged may end above one that was cut short.
CUT_SHORT = 1e-6


def is_as_low(objective: float, lowest: float) -> bool:
    """Is an objective no higher than the lowest, up to what an interior point leaves?"""
    return objective <= lowest + CLOSE * abs(lowest)


class Outcome(Enum):
    """Every end of a solver; the value is advice."""

    SOLVED = "solved to tolerance"
    ACCEPTABLE = "solved to the looser, acceptable tolerance: compare with another method or more intervals"
    STALLED = (
        "no further progress although the tolerance is not met: the certificate says how much may "
        "be left to win; try more starts or another method"
    )
    ITERATIONS = "stopped at the iteration limit: raise max_iterations, or warm start from this solution"
    INFEASIBLE = (
        "no schedule was found that meets all budgets and bounds: check that the budget lies "
        "between the controls' bounds"
    )
    DIVERGED = (
        "states or controls ran away: bounds on the controls are too wide for the dynamics to stay "
        "physical; lower the upper bound of the learning rate, or start from a baseline"
    )
    INVALID = (
        "the dynamics gave a number that is not finite: start from a schedule that stays physical, "
        "or tighten the bounds"
    )
    COARSE = (
        "the Runge-Kutta steps are too long for where it led: twice as many of them change the objective by "
        "more than a hundredth; take more steps or intervals"
    )
    BEHIND = "ended early: another start led lower by far more than what was left to be won from this one"
    INTERRUPTED = "stopped by the user; the best schedule so far is returned"
    FAILED = "the solver failed; the best schedule so far is returned; try another method or start"

    @property
    def ok(self) -> bool:
        """Did the solver itself say that it converged?"""
        return self in (Outcome.SOLVED, Outcome.ACCEPTABLE)


_IPOPT = {
    "Solve_Succeeded": Outcome.SOLVED,
    "Solved_To_Acceptable_Level": Outcome.ACCEPTABLE,
    "Search_Direction_Becomes_Too_Small": Outcome.STALLED,
    "Feasible_Point_Found": Outcome.STALLED,
    "Restoration_Failed": Outcome.STALLED,
    "Error_In_Step_Computation": Outcome.STALLED,
    "Maximum_Iterations_Exceeded": Outcome.ITERATIONS,
    "Maximum_CpuTime_Exceeded": Outcome.ITERATIONS,
    "Maximum_WallTime_Exceeded": Outcome.ITERATIONS,
    "Infeasible_Problem_Detected": Outcome.INFEASIBLE,
    "Not_Enough_Degrees_Of_Freedom": Outcome.INFEASIBLE,
    "Diverging_Iterates": Outcome.DIVERGED,
    "Invalid_Number_Detected": Outcome.INVALID,
    "User_Requested_Stop": Outcome.INTERRUPTED,
}


def from_ipopt(status: str) -> Outcome:
    """The outcome that an IPOPT return status stands for."""
    return _IPOPT.get(status, Outcome.FAILED)


class Tilt(NamedTuple):
    """By how much gradients of an objective are steeper under a fine quadrature than under a coarse one.

    Attributes:
        by_w: (I, m) in the controls.
        by_theta: (k,) in the free parameters.
    """

    by_w: np.ndarray
    by_theta: np.ndarray


class Level(NamedTuple):
    """Where a run ended with a coarse quadrature.

    Attributes:
        objective: of the problem with that.
        steps: in each interval.
    """

    objective: float
    steps: int


class Curvature(NamedTuple):
    """What passes have learned of an objective's second derivatives: a problem like it has nearly the same.

    Attributes:
        moves: directions (n,) of length 1 in the scaled controls (``FeasibleSet``).
        changes: of the objective's gradient (n,) along each, per unit of length.
    """

    moves: list[np.ndarray]
    changes: list[np.ndarray]


@dataclass(frozen=True)
class Start:
    """A first guess: relaxed controls (I, m), free parameters (k,), and where it came from.

    Attributes:
        near: it is the optimum of a problem like this one.
        local: descend from where it is. Long steps to the minimum of the Hamiltonian lead starts that have
            nothing in common into one basin, and where they end says nothing of another.
        curvature: of that problem's objective, if it is known.
        rival: the best run before it, from another start.
        tilt: of a coarse quadrature, if it is known.
    """

    name: str
    w: np.ndarray
    theta: np.ndarray
    near: bool = False
    local: bool = False
    curvature: Curvature | None = None
    rival: "Run | None" = None
    tilt: Tilt | None = None


@dataclass(frozen=True)
class RunRecord:
    """The record of one run.

    Attributes:
        start: name of the first guess.
        solver: that went on from there.
        outcome: how it ended.
        iterations: how many.
        objective: of the discretised problem. Of a start that was followed with a coarse quadrature only: as
            far above the best as it ended there.
        seconds: wall-clock time.
        steps: in each interval.
    """

    start: str
    solver: str
    outcome: Outcome
    iterations: int
    objective: float
    seconds: float
    steps: int

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and text, for JSON."""
        return {**vars(self), "outcome": self.outcome.name.lower()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "RunRecord":
        """What ``to_dict`` was made from."""
        return cls(**{**data, "outcome": Outcome[data["outcome"].upper()]})


@dataclass(frozen=True)
class Run:
    """Where a solver ended.

    Attributes:
        record: how it went.
        w: (I, m) relaxed controls.
        theta: (k,) free parameters.
        costates: (I, n) at the ends of the intervals, if the solver has them.
        budget_multipliers: (b,) of the mean of a·w over training, if the solver has them.
        gap: possible improvement, to first order, if the solver knows it.
        counts: it began at a start and was not given up, so that its end says where that start leads.
        weights: (K,) of several costs, if there are; see ``weighing``.
        curvature: of the objective, if the solver has learned it.
        coarse: where it ended with a coarse quadrature, if it has gone on from there.
        tilt: of that quadrature.
    """

    record: RunRecord
    w: np.ndarray
    theta: np.ndarray
    costates: np.ndarray | None = None
    budget_multipliers: np.ndarray | None = None
    gap: float | None = None
    counts: bool = True
    weights: np.ndarray | None = None
    curvature: Curvature | None = None
    coarse: Level | None = None
    tilt: Tilt | None = None

    @property
    def objective(self) -> float:
        """Of the discretised problem."""
        return self.record.objective

    @property
    def outcome(self) -> Outcome:
        """How it ended."""
        return self.record.outcome

    @property
    def iterations(self) -> int:
        """How many."""
        return self.record.iterations

    @property
    def interrupted(self) -> bool:
        """Did the user stop it?"""
        return self.outcome is Outcome.INTERRUPTED

    @property
    def astray(self) -> bool:
        """Were the steps too long for where it led?"""
        return self.outcome is Outcome.COARSE

    @property
    def sharp(self) -> bool:
        """Has it converged to all digits? Passes leave ragged what the objective hardly depends on."""
        return self.outcome.ok and self.record.solver == "direct"

    def multipliers(self, horizon: float) -> np.ndarray | None:
        """(b,) multipliers of the budgets in units of the Hamiltonian, if the solver has them."""
        multipliers = self.budget_multipliers
        return None if multipliers is None or not np.all(np.isfinite(multipliers)) else multipliers / horizon


def lowest(runs: Sequence[Run], rank: Callable[[Run], float] = lambda run: run.objective) -> Run:
    """The run of the lowest rank; if that was cut short, one that has converged to nearly the same."""
    best = min(runs, key=rank)
    value = rank(best)
    converged = [run for run in runs if run.outcome.ok and rank(run) <= value + CUT_SHORT * abs(value)]
    return best if best.outcome.ok or not converged else min(converged, key=rank)


# Steps in an interval, operations of a pass, and states up to which second derivatives are worth their price.
DIRECT_STEPS, DIRECT_OPERATIONS, DIRECT_STATES = 128, 4_000_000, 256
MOST_STEPS = 512  # in an interval: stiff dynamics on long intervals are stable with so many
MOST_COSTLY_STEPS = 16  # where one rate takes a millisecond
MOST_OPERATIONS = 50_000_000  # of a forward pass, which then takes a third of a second
# Share of the objective by which twice as many steps may change it, and these have led to the right place.
ASTRAY = 1e-2


def is_long(rollout: "Rollout") -> bool:
    """Whether forward-backward passes are all that one can afford: no second derivatives, no scouts."""
    states = rollout.compiled.problem.model.layout.size
    return rollout.steps > DIRECT_STEPS or rollout.operations > DIRECT_OPERATIONS or states > DIRECT_STATES


def finer(rollout: "Rollout") -> "Rollout | None":
    """Twice as many steps; None: they are so many that nothing finer is tried."""
    engine = rollout.compiled.engine
    if engine.costly:
        most = rollout.steps >= MOST_COSTLY_STEPS
    else:
        most = rollout.steps >= MOST_STEPS or rollout.operations > MOST_OPERATIONS / 2
    return None if engine.exact or most else rollout.with_steps(2 * rollout.steps)


def quickest(rollout: "Rollout") -> "Rollout":
    """The same steps with the coarsest drift that there is: to see what steps do, it is as good."""
    return rollout.coarser() or rollout


def with_fewer_steps(
    rollout: "Rollout", w: np.ndarray, theta: np.ndarray, parts: Sequence[int] = (4, 2), share: float = ASTRAY
) -> "Rollout":
    """A part of the steps, the first that changes the objective by no more than a share; else as it is."""
    if rollout.compiled.engine.exact:
        return rollout
    quick = quickest(rollout)
    objective = quick.objective(w, theta)
    for part in parts:
        steps = -(-rollout.steps // part)
        if abs(quick.with_steps(steps).objective(w, theta) - objective) <= share * abs(objective):
            return rollout.with_steps(steps)
    return rollout


def led_astray(rollout: "Rollout", w: np.ndarray, theta: np.ndarray) -> bool:
    """Can steps not be trusted here: do they lead to impossible states, or to another objective?"""
    rollout = quickest(rollout)
    objective, states = rollout.forward(w, theta)
    if not rollout.compiled.is_possible(states[:: rollout.steps]):
        return True
    twice = finer(rollout)
    # Written so that a NaN is astray too.
    return twice is not None and not (
        abs(twice.objective(w, theta) - objective) <= ASTRAY * abs(objective) + 1e-9
    )


@dataclass(frozen=True, eq=False)
class Method(ABC):
    """A way to solve a problem.

    Attributes:
        max_iterations: of a solver (default: its own).
        tolerance: of a solver (default: its own).
        name: as in ``solve(method=…)``.
        description: in a line.
        optimises: false for a baseline: it takes the neutral start only, no finer steps, and never warns
            that it has not converged.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    optimises: ClassVar[bool] = True

    max_iterations: int | None = None
    tolerance: float | None = None

    @abstractmethod
    def run_all(self, rollout: "Rollout", starts: Sequence[Start], tell: Report = silent) -> list[Run]:
        """Where the starts end on the rollout's grid; after an interruption, only those until then."""


class Solver(Method):
    """A method that goes from one start to one run."""

    def run_all(self, rollout: "Rollout", starts: Sequence[Start], tell: Report = silent) -> list[Run]:
        """One run from each start, which begins with the curvature that the one before has learned.

        Local descents do not: their ways are to be independent. Nothing follows where steps were too coarse:
        they are so for the others too.
        """
        runs: list[Run] = []
        for start in starts:
            known = runs[-1].curvature if runs and not start.local else start.curvature
            runs.append(self.run(rollout, replace(start, curvature=known), tell))
            if runs[-1].interrupted or runs[-1].astray:
                break
        return runs

    def run(self, rollout: "Rollout", start: Start, tell: Report = silent) -> Run:
        """Go on from a start, and take the time."""
        began = perf_counter()
        tell(Progress(f"{self.name}, from {start.name}"))
        run = self.solve(rollout, start, tell)
        record = replace(run.record, seconds=perf_counter() - began)
        if not run.interrupted and led_astray(rollout, run.w, run.theta):
            record = replace(record, outcome=Outcome.COARSE)
        return replace(run, record=record)

    @abstractmethod
    def solve(self, rollout: "Rollout", start: Start, tell: Report = silent) -> Run:
        """The best that is found from a start; it meets bounds and budgets."""

    def record(
        self, rollout: "Rollout", start: Start, objective: float, outcome: Outcome, iterations: int
    ) -> RunRecord:
        """A record of this solver's, without the time."""
        return RunRecord(start.name, self.name, outcome, iterations, objective, 0.0, rollout.steps)
