"""Solution methods: from starts to runs, and how runs end.

A solver turns one start into one run; a method may also be a strategy over several solvers. Both are
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


# Share of the objective by which a sharper run may end above another and still be the better schedule, since
# an interior point stays inside bounds.
CLOSE = 1e-8


# Share by which a converged run may end above one that was cut short.
CUT_SHORT = 1e-6


def is_as_low(objective: float, lowest: float) -> bool:
    """Is an objective no higher than the lowest, up to the distance that an interior point keeps?"""
    return objective <= lowest + CLOSE * abs(lowest)


class Outcome(Enum):
    """All ways in which a solver can end; the value is advice."""

    SOLVED = "solved to tolerance"
    ACCEPTABLE = "solved to the looser, acceptable tolerance: compare with another method or more intervals"
    STALLED = (
        "no further progress although the tolerance is not met: the certificate estimates the possible "
        "improvement; try more starts or another method"
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
        "the Runge-Kutta steps are too long for the dynamics that it reached: twice as many change the "
        "objective by more than 1 %; take more steps or intervals"
    )
    BEHIND = "ended early: another start reached an objective far below what this one could still reach"
    INTERRUPTED = "stopped by the user; the best schedule so far is returned"
    FAILED = "the solver failed; the best schedule so far is returned; try another method or start"

    @property
    def ok(self) -> bool:
        """Did the solver itself report convergence?"""
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
    """The outcome for an IPOPT return status."""
    return _IPOPT.get(status, Outcome.FAILED)


class Tilt(NamedTuple):
    """Gradient of an objective under a fine quadrature minus that under a coarse one.

    Attributes:
        by_w: (I, m) in the controls.
        by_theta: (k,) in the free parameters.
    """

    by_w: np.ndarray
    by_theta: np.ndarray


class Level(NamedTuple):
    """Where a run ended with a coarse quadrature.

    Attributes:
        objective: under that quadrature.
        steps: in each interval.
    """

    objective: float
    steps: int


class Curvature(NamedTuple):
    """Second derivatives of an objective as learned from passes; a similar problem has nearly the same.

    Attributes:
        moves: directions (n,) of length 1 in the scaled controls (``FeasibleSet``).
        changes: changes of the objective's gradient (n,) along each, per unit of length.
    """

    moves: list[np.ndarray]
    changes: list[np.ndarray]


@dataclass(frozen=True)
class Start:
    """A first guess: relaxed controls (I, m), free parameters (k,), and where it came from.

    Attributes:
        near: it is the optimum of a similar problem.
        local: descend locally. Long steps to the minimum of the Hamiltonian lead unrelated starts into one
            basin, so their ends would not be independent evidence.
        curvature: that of the similar problem's objective, if known.
        rival: the best earlier run from another start.
        tilt: that of a coarse quadrature, if known.
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
        solver: name of the solver.
        outcome: how it ended.
        iterations: number of iterations.
        objective: of the discretised problem. If the start was followed with a coarse quadrature only: the
            best objective plus its distance from the best under the coarse quadrature.
        seconds: wall-clock time.
        steps: Runge-Kutta steps in each interval.
    """

    start: str
    solver: str
    outcome: Outcome
    iterations: int
    objective: float
    seconds: float
    steps: int

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and text for JSON."""
        return {**vars(self), "outcome": self.outcome.name.lower()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "RunRecord":
        """The inverse of ``to_dict``."""
        return cls(**{**data, "outcome": Outcome[data["outcome"].upper()]})


@dataclass(frozen=True)
class Run:
    """Where a solver ended.

    Attributes:
        record: the record of the run.
        w: (I, m) relaxed controls.
        theta: (k,) free parameters.
        costates: (I, n) at the ends of the intervals, if the solver has them.
        budget_multipliers: (b,) of the mean of a·w over training, if the solver has them.
        gap: possible improvement, to first order, if the solver knows it.
        counts: it began at a start and was not abandoned, so its end shows where that start leads.
        weights: (K,) of several costs, if there are several; see ``weighing``.
        curvature: of the objective, if the solver has learned it.
        coarse: where it ended with a coarse quadrature, if it continued from there.
        tilt: that of the coarse quadrature.
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
        """Objective of the discretised problem."""
        return self.record.objective

    @property
    def outcome(self) -> Outcome:
        """How it ended."""
        return self.record.outcome

    @property
    def iterations(self) -> int:
        """Number of iterations."""
        return self.record.iterations

    @property
    def interrupted(self) -> bool:
        """Did the user stop it?"""
        return self.outcome is Outcome.INTERRUPTED

    @property
    def astray(self) -> bool:
        """Were the steps too long for the dynamics where it ended?"""
        return self.outcome is Outcome.COARSE

    @property
    def sharp(self) -> bool:
        """Has it converged to all digits? Passes leave controls ragged where they hardly matter."""
        return self.outcome.ok and self.record.solver == "direct"

    def multipliers(self, horizon: float) -> np.ndarray | None:
        """(b,) multipliers of the budgets in units of the Hamiltonian, if the solver has them."""
        multipliers = self.budget_multipliers
        return None if multipliers is None or not np.all(np.isfinite(multipliers)) else multipliers / horizon


def lowest(runs: Sequence[Run], rank: Callable[[Run], float] = lambda run: run.objective) -> Run:
    """The run of lowest rank; if that was cut short, a converged one with nearly the same rank."""
    best = min(runs, key=rank)
    value = rank(best)
    converged = [run for run in runs if run.outcome.ok and rank(run) <= value + CUT_SHORT * abs(value)]
    return best if best.outcome.ok or not converged else min(converged, key=rank)


# Up to so many steps in an interval, operations of a pass, and states, second derivatives pay off.
DIRECT_STEPS, DIRECT_OPERATIONS, DIRECT_STATES = 128, 4_000_000, 256
MOST_STEPS = 512  # in an interval: enough for stability of stiff dynamics on long intervals
MOST_COSTLY_STEPS = 16  # where one evaluation of the drift takes a millisecond
MOST_OPERATIONS = 50_000_000  # of a forward pass, which then takes a third of a second
# Relative change of the objective with twice as many steps up to which a run has led to the right place.
ASTRAY = 1e-2


def is_long(rollout: "Rollout") -> bool:
    """Whether only forward-backward passes are affordable: no second derivatives, no scouts."""
    states = rollout.compiled.problem.model.layout.size
    return rollout.steps > DIRECT_STEPS or rollout.operations > DIRECT_OPERATIONS or states > DIRECT_STATES


def finer(rollout: "Rollout") -> "Rollout | None":
    """The same rollout with twice as many steps; None at the maximum."""
    engine = rollout.compiled.engine
    if engine.costly:
        most = rollout.steps >= MOST_COSTLY_STEPS
    else:
        most = rollout.steps >= MOST_STEPS or rollout.operations > MOST_OPERATIONS / 2
    return None if engine.exact or most else rollout.with_steps(2 * rollout.steps)


def quickest(rollout: "Rollout") -> "Rollout":
    """The same steps with the coarsest drift available, which is good enough to judge the steps."""
    return rollout.coarser() or rollout


def with_fewer_steps(
    rollout: "Rollout", w: np.ndarray, theta: np.ndarray, parts: Sequence[int] = (4, 2), share: float = ASTRAY
) -> "Rollout":
    """Fewer steps, if these change the objective by no more than a given share; else the same."""
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
    """Are the steps unreliable here: do they lead to impossible states, or to another objective?"""
    rollout = quickest(rollout)
    objective, states = rollout.forward(w, theta)
    if not rollout.compiled.is_possible(states[:: rollout.steps]):
        return True
    twice = finer(rollout)
    # Written so that NaN counts as astray too.
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
        description: in one line.
        optimises: false for a baseline, which takes only the neutral start, no finer steps, and never warns
            that it has not converged.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    optimises: ClassVar[bool] = True

    max_iterations: int | None = None
    tolerance: float | None = None

    @abstractmethod
    def run_all(self, rollout: "Rollout", starts: Sequence[Start], tell: Report = silent) -> list[Run]:
        """Runs from the starts on the rollout's grid; after an interruption, only those until then."""


class Solver(Method):
    """A method that turns one start into one run."""

    def run_all(self, rollout: "Rollout", starts: Sequence[Start], tell: Report = silent) -> list[Run]:
        """One run from each start; each begins with the curvature that the previous one has learned.

        Local descents do not, because their paths must be independent. If the steps were too coarse, no
        further start is run: they would be too coarse for the others too.
        """
        runs: list[Run] = []
        for start in starts:
            curvature = runs[-1].curvature if runs and not start.local else start.curvature
            runs.append(self.run(rollout, replace(start, curvature=curvature), tell))
            if runs[-1].interrupted or runs[-1].astray:
                break
        return runs

    def run(self, rollout: "Rollout", start: Start, tell: Report = silent) -> Run:
        """Run from a start and record the time."""
        began = perf_counter()
        tell(Progress(f"{self.name}, from {start.name}"))
        run = self.solve(rollout, start, tell)
        record = replace(run.record, seconds=perf_counter() - began)
        if not run.interrupted and led_astray(rollout, run.w, run.theta):
            record = replace(record, outcome=Outcome.COARSE)
        return replace(run, record=record)

    @abstractmethod
    def solve(self, rollout: "Rollout", start: Start, tell: Report = silent) -> Run:
        """The best result from a start; it meets bounds and budgets."""

    def record(
        self, rollout: "Rollout", start: Start, objective: float, outcome: Outcome, iterations: int
    ) -> RunRecord:
        """A record of this solver without the time."""
        return RunRecord(start.name, self.name, outcome, iterations, objective, 0.0, rollout.steps)
