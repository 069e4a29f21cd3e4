"""Forward and backward through training: the objective, costates and gradients of a control.

The backward pass is the exact adjoint of the steps of the forward pass, so the gradient is exact for the
discretised objective and its costates are those of Pontryagin to the order of the method.
"""

from copy import copy
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from optlearn._arrays import Float
from optlearn._engine.build import Compiled, Weigher
from optlearn._engine.functions import Controls, FreeValues
from optlearn._schedule import uniform_grid

C = TypeVar("C", bound=Compiled)


@dataclass(frozen=True)
class RolloutResult:
    """One forward and one backward pass, on I intervals of s steps each.

    Attributes:
        objective: value of the objective.
        states: (I·s + 1, n) at the ends of all steps.
        costates: (I·s + 1, n) derivative of the objective with respect to the state there.
        gradient: (I, m) derivative of the objective with respect to the controls.
        free_gradient: (k,) derivative with respect to the free parameters.
    """

    objective: float
    states: Float[np.ndarray, "points n"]
    costates: Float[np.ndarray, "points n"]
    gradient: Controls
    free_gradient: FreeValues


class Rollout(Generic[C]):
    """Forward and backward passes over training on a fixed grid.

    Args:
        compiled: the problem.
        grid: I, a number of equal control intervals, or (I + 1,) their edges.
        steps: s, steps in each interval.
    """

    def __init__(self, compiled: C, grid: int | np.ndarray, steps: int = 1) -> None:
        edges = uniform_grid(compiled.horizon, grid) if isinstance(grid, int) else grid
        self.compiled, self.edges, self.steps = compiled, edges, steps
        self.intervals = len(edges) - 1
        self._total = self.intervals * steps
        self._h = np.repeat(np.diff(edges) / steps, steps)
        self._forward, self._backward = compiled.engine.chains(self._total)

    def weighted(self, weigher: Weigher) -> "Rollout[C]":
        """The same passes, with another cost of several costs."""
        other = copy(self)
        other.compiled = self.compiled.weighted(weigher)
        return other

    def with_steps(self, steps: int) -> "Rollout[C]":
        """The same passes with so many steps in each interval."""
        return type(self)(self.compiled, self.edges, steps)

    def coarser(self) -> "Rollout[C] | None":
        """The same passes with a coarser drift; None: there is none."""
        compiled = self.compiled.coarser()
        if compiled is None:
            return None
        other = copy(self)
        other.compiled = compiled
        return other

    def costs(self, w: Controls, theta: FreeValues) -> np.ndarray:
        """(K,) the costs of which there are several, under controls w (I, m)."""
        return self.compiled.costs(self.forward(w, theta)[1][-1], theta)

    @property
    def operations(self) -> int:
        """Scalar operations of a forward pass; a backward pass takes about three times as many."""
        engine = self.compiled.engine
        return self._total * len(engine.stages.nodes) * engine.operations

    def forward(self, w: Controls, theta: FreeValues) -> tuple[float, np.ndarray]:
        """Objective, and (I·s + 1, n) states, under controls w (I, m)."""
        start, constants = self.compiled.start, self.compiled.constants
        X, cost = self._forward(start, np.repeat(w, self.steps, axis=0), self._h, constants, theta)
        states = np.vstack([start, X])
        return self.compiled.final(states[-1], theta) + float(np.sum(cost)), states

    def objective(self, w: Controls, theta: FreeValues) -> float:
        """Objective alone."""
        return self.forward(w, theta)[0]

    def run(
        self,
        w: Controls,
        theta: FreeValues,
        forward: tuple[float, np.ndarray] | None = None,
    ) -> RolloutResult:
        """A forward pass, unless what it gives is known, and a backward pass."""
        objective, states = self.forward(w, theta) if forward is None else forward
        _, end, by_theta = self.compiled.final_gradient(states[-1], theta)
        W = np.repeat(w[::-1], self.steps, axis=0)
        L, G, F = self._backward(end, states[-2::-1], W, self._h[::-1], self.compiled.constants, theta)
        costates = np.vstack([L[::-1], end])
        gradient = G[::-1].reshape(self.intervals, self.steps, -1).sum(axis=1)
        return RolloutResult(objective, states, costates, gradient, by_theta + F.sum(axis=0))
