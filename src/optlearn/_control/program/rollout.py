"""Forward and backward through training: the objective, costates and gradients of a control.

The backward pass is the exact adjoint of the Runge-Kutta steps of the forward pass, so the gradient
is exact for the discretised objective and its costates are those of Pontryagin to the order of the
method.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import casadi
import numpy as np

from optlearn._control.program.build import Dynamics
from optlearn._control.program.xla import WideFunctions
from optlearn._schedule import uniform_grid

_CACHE: dict[Hashable, Any] = {}


@dataclass(frozen=True)
class Swept:
    """One pass over training on I intervals of s steps each.

    Attributes:
        objective: value of the objective.
        states: (I·s + 1, n) at the ends of all steps.
        costates: (I·s + 1, n) derivative of the objective with respect to the state there.
        gradient: (I, m) derivative of the objective with respect to the controls.
        free_gradient: (k,) derivative with respect to the free parameters.
    """

    objective: float
    states: np.ndarray
    costates: np.ndarray
    gradient: np.ndarray
    free_gradient: np.ndarray


class Sweeper:
    """Runs sweeps of one problem on a fixed grid.

    Args:
        dynamics: the problem.
        grid: I, a number of equal control intervals, or (I + 1,) their edges.
        steps: s, Runge-Kutta steps in each interval.
    """

    def __init__(self, dynamics: Dynamics, grid: int | np.ndarray, steps: int = 1) -> None:
        edges = uniform_grid(dynamics.problem.horizon, grid) if isinstance(grid, int) else grid
        self.dynamics, self.intervals, self.steps = dynamics, len(edges) - 1, steps
        self._total = self.intervals * steps
        self._h = np.repeat(np.diff(edges) / steps, steps)[None, :]
        self._constants = np.tile(dynamics.constants[:, None], self._total)
        key = (dynamics.functions.key, self._total)
        if key not in _CACHE:
            _CACHE[key] = _rollouts(dynamics, self._total)
        self._forward, self._backward = _CACHE[key]

    def forward(self, w: np.ndarray, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Objective, and (I·s + 1, n) states, under controls w (I, m)."""
        W, Theta = self._columns(w, theta)
        X, cost = self._forward(self.dynamics.start, W, self._h, self._constants, Theta)
        states = np.vstack([self.dynamics.start, np.array(X).T])
        final = self.dynamics.functions.final(self.dynamics.constants, states[-1], theta)
        return float(final) + float(np.sum(np.array(cost))), states

    def objective(self, w: np.ndarray, theta: np.ndarray) -> float:
        """Objective alone."""
        return self.forward(w, theta)[0]

    def run(self, w: np.ndarray, theta: np.ndarray) -> Swept:
        """A forward and a backward pass."""
        objective, states = self.forward(w, theta)
        W, Theta = self._columns(w, theta)
        _, end, by_theta = self.dynamics.functions.final_gradient(self.dynamics.constants, states[-1], theta)
        L, G, F = self._backward(end, states[-2::-1].T, W[:, ::-1], self._h[:, ::-1], self._constants, Theta)
        costates = np.vstack([np.array(L).T[::-1], np.array(end).T])
        gradient = np.array(G).T[::-1].reshape(self.intervals, self.steps, -1).sum(axis=1)
        free = np.array(by_theta).ravel() + np.array(F).sum(axis=1)
        return Swept(objective, states, costates, gradient, free)

    def _columns(self, w: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        W = np.repeat(w, self.steps, axis=0).T
        return W, np.tile(np.reshape(theta, (-1, 1)), self._total)


def _rollouts(dynamics: Dynamics, total: int) -> tuple[Any, Any]:
    """The step and its adjoint, chained ``total`` times."""
    functions = dynamics.functions
    if isinstance(functions, WideFunctions):
        return functions.forward, functions.backward
    n, m, k = dynamics.sizes
    c = casadi.SX.sym("c", len(dynamics.constants))
    x, w, theta = casadi.SX.sym("x", n), casadi.SX.sym("w", m), casadi.SX.sym("theta", k)
    h, costate = casadi.SX.sym("h"), casadi.SX.sym("costate", n)
    step = casadi.Function("step", [x, w, h, c, theta], functions.step(c, x, w, theta, h))
    back = casadi.Function(
        "back",
        [costate, x, w, h, c, theta],
        functions.adjoint_step(c, x, w, theta, h, costate),
    )
    return step.mapaccum("forward", total), back.mapaccum("backward", total)
