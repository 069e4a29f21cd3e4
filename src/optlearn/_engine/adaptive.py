"""Integration of a system under piecewise constant controls to a stated tolerance, on any engine.

There are three methods for an interval: a system with an exact ``advance`` uses it; a cheap rate takes
extrapolated steps, each one call of a compiled function; an expensive one uses SciPy's DOP853 or RK45, which
need fewer rates. All stop exactly at the edges of intervals, where the rate jumps.

Gragg's midpoint rule with n substeps has an error in even powers of the step. Rules with n = 2, 4, 6 …,
combined so that the first powers cancel, reach any order without a table of coefficients (Bulirsch and
Stoer).

References:
    E. Hairer, S. P. Nørsett, G. Wanner, *Solving Ordinary Differential Equations I*, section II.9.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from optlearn._arrays import Float
from optlearn._engine.base import ControlledStep, Engine, Slope
from optlearn._engine.functions import Constants, Controls, State

# Maximum number of steps in one interval of constant control (about 20 s): dynamics that are so fast compared
# to the horizon come from an absurd learning rate. Ordinary runs take 20 to 500 steps.
MAX_STEPS = 50_000
# A state that grows beyond this, relative to the start, diverges: the integration stops after so many steps.
EXPLODED, EXPLODED_STEPS = 1e6, 2_000
# Relative tolerance above which a low-order method is better. At kinks of a loss, the rate over quasi-random
# points has small jumps, each of which ends a high-order step: 10,600 rates instead of 1,300.
ROUGH = 1e-7
# Maximum number of output times for extrapolated steps, which do not interpolate and must end at each of
# them.
FEW = 5_000

_SUBSTEPS = (2, 4, 6, 8, 10)
_ORDER = 2 * len(_SUBSTEPS) - 2  # order of the second best rule, which estimates the error
_LEAST, _MOST, _SAFETY = 0.2, 8.0, 0.8  # limits of a step's change, and its safety factor
_SETTLED = 5  # steps between checks of round-off, which cannot grow much in so few
_SHORTEST = 1e-14  # smallest step, as a share of the time

# (interval, left, right, state, times in it) → states at the times, and at the end (None if it failed).
_Piece = Callable[[int, float, float, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray | None]]


@dataclass(frozen=True)
class Course:
    """An integration task: states of a system at given times.

    Attributes:
        constants: (c,) numbers of the system.
        start: (n,) state at α = 0.
        edges: (I + 1,) of the intervals.
        controls: (I, m) on them.
        tolerances: relative and absolute tolerance of the local error.
        guard: removes round-off from a state if it would grow; see ``System.round_off_guard``.
        longest: longest stretch that an exact step takes at once.
    """

    constants: Constants
    start: State
    edges: Float[np.ndarray, " edges"]
    controls: Controls
    tolerances: tuple[float, float] = (1e-12, 1e-13)
    guard: Callable[[np.ndarray], np.ndarray] | None = None
    longest: float = np.inf

    def hopeless(self, steps: int, state: np.ndarray) -> bool:
        """Whether to give up after so many steps in an interval, at state (n,)."""
        far = EXPLODED * max(1.0, float(np.abs(self.start).max()))
        return steps > MAX_STEPS or (steps > EXPLODED_STEPS and float(np.abs(state).max()) > far)


def states_along(engine: Engine, course: Course, times: Float[np.ndarray, " T"]) -> Float[np.ndarray, "T n"]:
    """States at increasing ``times``; rows after a failure are NaN."""
    step = engine.controlled_step(course.constants) if len(times) <= FEW else None
    if engine.exact:
        piece = _exact(engine, course)
    elif step is not None:
        piece = _extrapolated(course, step)
    else:
        piece = _runge_kutta(course, engine.slope(course.constants))
    state = course.start
    states = np.full((len(times), len(state)), np.nan)
    states[times <= 0.0] = state
    for i, (left, right) in enumerate(zip(course.edges[:-1], course.edges[1:], strict=True)):
        inside = (times > left) & (times <= right)
        with np.errstate(over="ignore", invalid="ignore"):  # detected afterwards
            states[inside], end = piece(i, left, right, state, times[inside])
        if end is None:
            break
        state = end
    return states


def _exact(engine: Engine, course: Course) -> _Piece:
    """One exact step to each time and one to the end; several if a single one would be too long."""
    none, longest = np.zeros(0), course.longest

    def piece(
        i: int, left: float, right: float, state: np.ndarray, times: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None]:
        def after(x: np.ndarray, length: float) -> np.ndarray:
            end, _ = engine.step(course.constants, x, course.controls[i], none, length)
            return np.array(end).ravel()

        states = np.empty((len(times) + 1, len(state)))
        reached, current = left, state
        for j, time in enumerate((*times, right)):
            while time - reached > longest * (1 + 1e-9):
                current = after(current, longest)
                reached += longest
            states[j] = after(current, time - reached)
        return states[:-1], states[-1]

    return piece


def extrapolated_step(rate: Callable[[Any], Any], start: Any, length: Any) -> tuple[Any, Any]:
    """State after a step and an error estimate, for numbers or expressions."""
    first = rate(start)
    row: list[Any] = []
    for j, n in enumerate(_SUBSTEPS):
        h = length / n
        before, x = start, start + h * first
        for _ in range(n - 1):
            before, x = x, before + 2 * h * rate(x)
        above, row = row, [x]
        for i, higher in enumerate(above):
            row.append(row[i] + (row[i] - higher) / ((n / _SUBSTEPS[j - 1 - i]) ** 2 - 1))
    return row[-1], row[-1] - row[-2]


def _extrapolated(course: Course, step_under: Callable[[np.ndarray], ControlledStep]) -> _Piece:
    """Extrapolated steps with error control that end at the requested times."""
    rtol, atol = course.tolerances
    proposed, accepted = np.inf, 0

    def piece(
        i: int, left: float, right: float, state: np.ndarray, times: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None]:
        nonlocal proposed, accepted
        step = step_under(course.controls[i])
        states = np.full((len(times), len(state)), np.nan)
        alpha, steps = left, 0
        for k, goal in enumerate([*times, right]):
            while alpha < goal:
                h = min(proposed, goal - alpha)
                new, error = step(state, h)
                steps += 1
                worst = float(np.max(np.abs(error) / (atol + rtol * np.maximum(np.abs(state), np.abs(new)))))
                ideal = h * min(max(_SAFETY * max(worst, 1e-30) ** (-1 / (_ORDER + 1)), _LEAST), _MOST)
                if worst <= 1.0:  # NaN is rejected
                    accepted += 1
                    alpha = goal if h == goal - alpha else alpha + h
                    settled = course.guard if accepted % _SETTLED == 0 else None
                    state = new if settled is None else settled(new)
                    # A step that was shortened only to end at a requested time is no reason for short steps.
                    proposed = max(ideal, proposed) if h < proposed else ideal
                else:
                    proposed = ideal if np.isfinite(ideal) else _LEAST * h
                if course.hopeless(steps, state) or proposed < _SHORTEST * max(abs(alpha), right - left):
                    return states, None
            if k < len(times):
                states[k] = state
        return states, state

    return piece


def _runge_kutta(course: Course, slope_under: Callable[[np.ndarray], Slope]) -> _Piece:
    """SciPy's DOP853, which interpolates between its steps; RK45 for low accuracy."""
    from scipy.integrate import DOP853, RK45

    rtol, atol = course.tolerances
    method = RK45 if rtol > ROUGH else DOP853
    proposed: float | None = None

    def piece(
        i: int, left: float, right: float, state: np.ndarray, times: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None]:
        nonlocal proposed
        slope = slope_under(course.controls[i])
        states = np.full((len(times), len(state)), np.nan)
        # The last step of the previous interval is a better first step than SciPy's guess, and costs nothing.
        first = None if proposed is None else min(proposed, right - left)
        solver = method(
            lambda _alpha, x: slope(x), left, state, right, rtol=rtol, atol=atol, first_step=first
        )
        if not np.isfinite(solver.h_abs):  # rates overflow; SciPy would search for a step for ever
            return states, None
        reached = steps = 0
        while solver.status == "running":
            solver.step()
            steps += 1
            stuck = solver.status == "failed" or course.hopeless(steps, solver.y)
            if stuck or not np.all(np.isfinite(solver.y)):
                return states, None
            count = int(np.searchsorted(times, solver.t, side="right"))
            if count > reached:
                states[reached:count] = solver.dense_output()(times[reached:count]).T
                reached = count
            if course.guard is not None and (settled := course.guard(solver.y)) is not solver.y:
                solver.y, solver.f = settled, slope(settled)
        states[times == right] = solver.y
        proposed = solver.h_abs
        return states, solver.y

    return piece
