"""What runs a flat system: along a schedule, all at once or from one change of the controls to the next."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from optlearn._arrays import Array
from optlearn._dynamics.flat import FlatSystem, control_tables
from optlearn._schedule import Schedule

# Steps in one interval of constant control after which it is given up (about 20 s): dynamics so
# fast beside the horizon are those of an absurd learning rate. Ordinary runs take 20 to 500.
MAX_STEPS = 50_000
# A state that grows beyond this, relative to the start, is on its way to infinity: after so many steps it is
# given up too.
EXPLODED, EXPLODED_STEPS = 1e6, 2_000

RightHandSide = Callable[[float, np.ndarray], np.ndarray]
# (interval, left, right, state, times in it) → states at the times, and at the end (None: it failed).
Piece = Callable[[int, float, float, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray | None]]


@dataclass(frozen=True)
class Course:
    """What is asked of an executor.

    Attributes:
        flat: the system.
        settings: values of its parameters; the schedule's controls override them.
        start: (n,) state at α = 0.
        schedule: controls over training.
        times: (T,) increasing training times at which the state is wanted.
        tolerances: relative and absolute, of the local error.
    """

    flat: FlatSystem
    settings: Mapping[str, Array]
    start: np.ndarray
    schedule: Schedule
    times: np.ndarray
    tolerances: tuple[float, float]


class Executor(ABC):
    """Runs a flat system."""

    @abstractmethod
    def solve(self, course: Course) -> np.ndarray:
        """(T, n) states at the course's times; rows after a failure are NaN."""

    @abstractmethod
    def outputs(
        self, flat: FlatSystem, settings: Mapping[str, Array], states: np.ndarray, u: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Error and observables (T,) at states (T, n) under controls (T, c)."""


class PieceByPiece(Executor):
    """An executor that goes from one change of the controls to the next."""

    def solve(self, course: Course) -> np.ndarray:
        """(T, n) states at the course's times; rows after a failure are NaN."""
        schedule, times, state = self.intervals(course.schedule), course.times, course.start
        shares, vectors, _ = control_tables(schedule, course.flat.controls)
        piece = self.piece(course, vectors, shares)
        states = np.full((len(times), len(state)), np.nan)
        states[times <= 0.0] = state
        for i in range(schedule.intervals):
            left, right = schedule.grid[i], schedule.grid[i + 1]
            inside = (times > left) & (times <= right)
            with np.errstate(over="ignore", invalid="ignore"):  # a state that is not finite is seen
                states[inside], end = piece(i, left, right, state, times[inside])
            if end is None:
                break
            state = end
        return states

    def intervals(self, schedule: Schedule) -> Schedule:
        """The schedule with as few intervals as possible."""
        return schedule.merged()

    @abstractmethod
    def piece(self, course: Course, vectors: np.ndarray, shares: np.ndarray) -> Piece:
        """How to get through an interval, under control vectors (I, m, c) with shares (I, m)."""


def hopeless(course: Course) -> Callable[[int, np.ndarray], bool]:
    """Whether to give up, after so many steps in an interval and in a state (n,)."""
    far = EXPLODED * max(1.0, float(np.abs(course.start).max()))
    return lambda steps, state: (
        steps > MAX_STEPS or (steps > EXPLODED_STEPS and float(np.abs(state).max()) > far)
    )


def adaptive(course: Course, right_hand_side: Callable[[int], RightHandSide]) -> Piece:
    """Pieces by SciPy's DOP853, under the right-hand side of each interval."""
    from scipy.integrate import DOP853

    guard = course.flat.system.round_off_guard()
    rtol, atol = course.tolerances
    given_up = hopeless(course)
    proposed: float | None = None

    def piece(
        i: int, left: float, right: float, state: np.ndarray, times: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None]:
        nonlocal proposed
        rhs = right_hand_side(i)
        found = np.full((len(times), len(state)), np.nan)
        # What the last interval ended with is a better first step than SciPy's guess, and costs nothing.
        first = None if proposed is None else min(proposed, right - left)
        solver = DOP853(rhs, left, state, right, rtol=rtol, atol=atol, first_step=first)
        if not np.isfinite(solver.h_abs):  # rates beyond floating point; SciPy would look for a step for ever
            return found, None
        reached = steps = 0
        while solver.status == "running":
            solver.step()
            steps += 1
            stuck = solver.status == "failed" or given_up(steps, solver.y)
            if stuck or not np.all(np.isfinite(solver.y)):
                return found, None
            count = int(np.searchsorted(times, solver.t, side="right"))
            if count > reached:
                found[reached:count] = solver.dense_output()(times[reached:count]).T
                reached = count
            if guard is not None and (settled := guard(solver.y)) is not solver.y:
                solver.y, solver.f = settled, rhs(solver.t, settled)
        found[times == right] = solver.y
        proposed = solver.h_abs
        return found, solver.y

    return piece
