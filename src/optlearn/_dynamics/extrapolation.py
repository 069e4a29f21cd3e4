"""Adaptive steps of a small drift, each one call of a compiled function: extrapolated midpoint rules.

Gragg's midpoint rule with n substeps has an error in even powers of the step. Rules with n = 2, 4, 6 …,
combined so that the first powers vanish, have any order wanted, without a table of coefficients (Bulirsch and
Stoer). All of them are one CasADi function of some twenty drifts, so that Python is entered once a step: for
drifts of few operations that is most of what a step costs.

References:
    E. Hairer, S. P. Nørsett, G. Wanner, *Solving Ordinary Differential Equations I*, section II.9.
"""

from collections.abc import Callable
from typing import Any

import casadi
import numpy as np

from optlearn._dynamics.executor import Course, Piece, hopeless

_SUBSTEPS = (2, 4, 6, 8, 10)
_ORDER = 2 * len(_SUBSTEPS) - 2  # of the second best rule, which tells the error
_LEAST, _MOST, _SAFETY = 0.2, 8.0, 0.8  # change of a step, and how much below the limit it aims
_SETTLED = 5  # steps between looks at round-off: it cannot grow much in so few
_SHORTEST = 1e-14  # step, as a share of the time

# state (n,) and step → state after it and an estimate of its error, (n,) each.
Step = Callable[[np.ndarray, float], tuple[np.ndarray, np.ndarray]]


def step_function(drift: Any) -> Any:
    """CasADi function (constants, state, …, h) → (state after it, error) of a drift (constants, state, …)."""
    arguments = [casadi.SX.sym(f"a{i}", *drift.size_in(i)) for i in range(drift.n_in())]
    length = casadi.SX.sym("step")
    constants, start, *rest = arguments

    def rate(x: Any) -> Any:
        return drift(constants, x, *rest)

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
    return casadi.Function("step", [*arguments, length], [row[-1], row[-1] - row[-2]])


def extrapolated(course: Course, step_of: Callable[[int], Step]) -> Piece:
    """Pieces by extrapolation, with the step of each interval's control; steps end at the times wanted."""
    guard = course.flat.system.round_off_guard()
    rtol, atol = course.tolerances
    given_up = hopeless(course)
    proposed, accepted = np.inf, 0

    def piece(
        i: int, left: float, right: float, state: np.ndarray, times: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None]:
        nonlocal proposed, accepted
        step = step_of(i)
        found = np.full((len(times), len(state)), np.nan)
        alpha, steps = left, 0
        for k, goal in enumerate([*times, right]):
            while alpha < goal:
                h = min(proposed, goal - alpha)
                new, error = step(state, h)
                steps += 1
                worst = float(np.max(np.abs(error) / (atol + rtol * np.maximum(np.abs(state), np.abs(new)))))
                ideal = h * min(max(_SAFETY * max(worst, 1e-30) ** (-1 / (_ORDER + 1)), _LEAST), _MOST)
                if worst <= 1.0:  # NaN is not
                    accepted += 1
                    alpha = goal if h == goal - alpha else alpha + h
                    settled = guard if accepted % _SETTLED == 0 else None
                    state = new if settled is None else settled(new)
                    # A step that was short only to end at a time wanted says nothing against longer ones.
                    proposed = max(ideal, proposed) if h < proposed else ideal
                else:
                    proposed = ideal if np.isfinite(ideal) else _LEAST * h
                if given_up(steps, state) or proposed < _SHORTEST * max(abs(alpha), right - left):
                    return found, None
            if k < len(times):
                found[k] = state
        return found, state

    return piece
