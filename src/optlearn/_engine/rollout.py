"""Forward and backward through training: the objective, costates and gradients of a control.

The backward pass is the exact adjoint of the steps of the forward pass, so the gradient is exact for the
discretised objective and its costates are those of Pontryagin to the order of the method.
"""

from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from optlearn._arrays import Float
from optlearn._engine.base import Kernel
from optlearn._engine.build import NOTHING, Compiled, Weigher
from optlearn._engine.functions import Controls, FreeValues
from optlearn._schedule import uniform_grid

C = TypeVar("C", bound=Compiled)
# Number of controls that pass through training in one call.
LANES = 16
# Number of cached forward passes, and the maximum size of their states.
KEPT, KEPT_BYTES = 4, 2**20
# Whether the drift is coarse, steps in an interval, controls, free parameters.
_Key = tuple[bool, int, bytes, bytes]


@dataclass(frozen=True)
class RolloutResult:
    """One forward and one backward pass, on I intervals of s steps each.

    Attributes:
        objective: value of the objective.
        states: (I·s + 1, n) at the ends of all steps.
        costates: (I·s + 1, n) derivative of the objective with respect to the state there.
        gradient: (I, m) derivative of the objective with respect to the controls.
        free_gradient: (k,) derivative with respect to the free parameters.
        along: (L,) values along training that have limits; empty without paths.
        multipliers: (I, s + 1, p) multipliers of these, at the ends of the steps of every interval; None
            without paths.
        jumps: (I·s + 1, n) increase of the costates just before each of these; None without paths.
    """

    objective: float
    states: Float[np.ndarray, "points n"]
    costates: Float[np.ndarray, "points n"]
    gradient: Controls
    free_gradient: FreeValues
    along: np.ndarray = field(default_factory=lambda: NOTHING)
    multipliers: np.ndarray | None = None
    jumps: np.ndarray | None = None


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
        self._tilt: tuple[Controls, FreeValues] | None = None
        self._h = np.repeat(np.diff(edges) / steps, steps)
        self._forward, self._backward = compiled.engine.chains(self._total)
        # Recent forward passes, shared by a problem and a grid: the ends of runs are evaluated repeatedly.
        self._recent: dict[_Key, tuple[np.ndarray, np.ndarray]] = {}
        # And recent passes both ways, shared if the weights of costs are equal too.
        self._both_ways: dict[_Key, RolloutResult] = {}

    def weighted(self, weigher: Weigher) -> "Rollout[C]":
        """The same passes with another combination of several costs."""
        other = copy(self)
        other.compiled = self.compiled.weighted(weigher)
        other._both_ways = {}
        return other

    def with_steps(self, steps: int) -> "Rollout[C]":
        """The same passes with so many steps in each interval."""
        other = type(self)(self.compiled, self.edges, steps)
        other._recent, other._both_ways = self._recent, self._both_ways
        return other

    def coarser(self) -> "Rollout[C] | None":
        """The same passes with a coarser drift; None without one."""
        compiled = self.compiled.coarser()
        if compiled is None:
            return None
        other = copy(self)
        other.compiled = compiled
        return other

    def tilted(self, by_w: Controls, by_theta: FreeValues) -> "Rollout[C]":
        """The same passes with linear terms in w (I, m) and θ (k,) added to the objective.

        Costates stay those of the original objective.
        """
        other = copy(self)
        other._tilt = by_w, by_theta
        return other

    def costs(self, w: Controls, theta: FreeValues) -> np.ndarray:
        """(K,) the several costs under controls w (I, m)."""
        states = self.forward(w, theta)[1]
        return np.concatenate([self.compiled.costs(states[-1], theta), self.along(states, w, theta)])

    @property
    def operations(self) -> int:
        """Number of scalar operations of a forward pass; a backward pass takes about three times as many."""
        engine = self.compiled.engine
        return self._total * len(engine.stages.nodes) * engine.operations

    def forward(self, w: Controls, theta: FreeValues) -> tuple[float, np.ndarray]:
        """Objective, and (I·s + 1, n) states, under controls w (I, m).

        If a state is not finite, the objective is NaN whatever the error's value: an error that counts
        mistakes would find none.
        """
        states, cost = self._chain(w, theta)
        if not np.all(np.isfinite(states[-1])):
            return np.nan, states
        along = self.along(states, w, theta)
        objective = self.compiled.final(states[-1], theta, along) + float(np.sum(cost))
        if self._tilt is not None:
            objective += float(np.sum(self._tilt[0] * w) + self._tilt[1] @ theta)
        return objective, states

    def _chain(self, w: Controls, theta: FreeValues) -> tuple[np.ndarray, np.ndarray]:
        """(I·s + 1, n) states and (I·s,) costs of the steps."""
        key = self._key(w, theta)
        if key not in self._recent:
            start, constants = self.compiled.start, self.compiled.constants
            X, cost = self._forward(start, np.repeat(w, self.steps, axis=0), self._h, constants, theta)
            states = np.vstack([start, X])
            states.flags.writeable = False
            if states.nbytes > KEPT_BYTES:
                return states, cost
            if len(self._recent) == KEPT:
                self._recent.pop(next(iter(self._recent)))
            self._recent[key] = states, cost
        return self._recent[key]

    def _key(self, w: Controls, theta: FreeValues) -> _Key:
        return self.compiled.is_coarse, self.steps, w.tobytes(), theta.tobytes()

    def along(self, states: np.ndarray, w: Controls, theta: FreeValues) -> np.ndarray:
        """(L,) values with path limits at ends of steps: interval by interval, step by step."""
        paths = self.compiled.engine.paths
        if paths is None:
            return NOTHING
        values = self.compiled.engine.path_kernels.value(*self._at_points(states, w, theta))
        every = np.array(values).T.reshape(self.intervals, self.steps + 1, -1)
        return np.asarray(every[:, paths.points(self.steps)].ravel())

    def _at_points(self, states: np.ndarray, w: Controls, theta: FreeValues) -> tuple[np.ndarray, ...]:
        """Arguments of kernels at the ends of the steps of every interval, one after the other."""
        at = states[self._points.ravel()].T
        return self.compiled.constants, at, np.repeat(w, self.steps + 1, axis=0).T, theta

    @property
    def _points(self) -> np.ndarray:
        """(I, s + 1) indices of the states at the ends of the steps of each interval."""
        return np.arange(self.intervals)[:, None] * self.steps + np.arange(self.steps + 1)[None, :]

    def objective(self, w: Controls, theta: FreeValues) -> float:
        """Objective alone."""
        return self.forward(w, theta)[0]

    def run(
        self,
        w: Controls,
        theta: FreeValues,
        forward: tuple[float, np.ndarray] | None = None,
    ) -> RolloutResult:
        """A forward pass, unless its result is given, and a backward pass."""
        if self._tilt is not None:
            return self._run(w, theta, forward)
        key = self._key(w, theta)
        if key not in self._both_ways:
            result = self._run(w, theta, forward)
            if result.states.nbytes > KEPT_BYTES:
                return result
            if len(self._both_ways) == KEPT:
                self._both_ways.pop(next(iter(self._both_ways)))
            self._both_ways[key] = result
        return self._both_ways[key]

    def _run(self, w: Controls, theta: FreeValues, forward: tuple[float, np.ndarray] | None) -> RolloutResult:
        objective, states = self.forward(w, theta) if forward is None else forward
        along = self.along(states, w, theta)
        _, end, by_theta = self.compiled.final_gradient(states[-1], theta, along)
        rows = [states[-2::-1], np.repeat(w[::-1], self.steps, axis=0), self._h[::-1]]
        weighed = None
        if self.compiled.engine.paths is not None:
            weighed = self._weigh(states, w, theta, along)
            end, by_theta = end + weighed.jumps[-1], by_theta + weighed.by_theta
            rows.append(weighed.jumps[-2::-1])
        L, G, F = self._backward(end, *rows, self.compiled.constants, theta)
        costates = np.vstack([L[::-1], end])
        gradient = G[::-1].reshape(self.intervals, self.steps, -1).sum(axis=1)
        if self._tilt is not None:
            gradient, by_theta = gradient + self._tilt[0], by_theta + self._tilt[1]
        result = RolloutResult(objective, states, costates, gradient, by_theta + F.sum(axis=0), along)
        if weighed is None:
            return result
        return replace(
            result, gradient=gradient + weighed.by_w, multipliers=weighed.multipliers, jumps=weighed.jumps
        )

    def many(
        self, w: Float[np.ndarray, "N I m"], theta: FreeValues
    ) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "N I m"]]:
        """Objectives of many controls, and their gradients; without values along training."""
        blocks = [w[first : first + LANES] for first in range(0, len(w), LANES)]
        objectives, gradients = zip(*(self._lanes(block, theta) for block in blocks), strict=True)
        return np.concatenate(objectives), np.concatenate(gradients)

    def _lanes(self, w: np.ndarray, theta: FreeValues) -> tuple[np.ndarray, np.ndarray]:
        """The same for at most as many controls as one call takes."""
        count, constants, start = len(w), self.compiled.constants, self.compiled.start
        w = np.concatenate([w, np.repeat(w[:1], LANES - count, axis=0)])
        forward, backward = self._many
        controls = np.repeat(w, self.steps, axis=1)
        h = np.tile(self._h, LANES)
        ahead = forward(np.tile(start, (LANES, 1)), controls.reshape(len(h), -1), h, constants, theta)
        X, cost = (np.reshape(part, (LANES, self._total, -1)) for part in ahead)
        final, end = self.compiled.many_final_gradients(X[:, -1].T, theta)
        before = np.concatenate([np.tile(start, (LANES, 1, 1)), X[:, :-1]], axis=1)
        rows = (part[:, ::-1].reshape(len(h), -1) for part in (before, controls))
        h = np.tile(self._h[::-1], LANES)
        _, G, _ = backward(end.T, *rows, h, constants, theta)
        gradient = np.reshape(G, (LANES, self._total, -1))[:, ::-1]
        gradient = gradient.reshape(LANES, self.intervals, self.steps, -1).sum(axis=2)
        final = np.where(np.all(np.isfinite(X[:, -1]), axis=1), final, np.nan)  # as in ``forward``
        return (final + cost.sum(axis=(1, 2)))[:count], gradient[:count]

    @cached_property
    def _many(self) -> tuple[Kernel, Kernel]:
        return self.compiled.engine.many_chains(self._total, LANES)

    def _weigh(self, states: np.ndarray, w: Controls, theta: FreeValues, along: np.ndarray) -> "_Weighed":
        """Multipliers of values along training, and the gradients of their weighted sum."""
        compiled, paths = self.compiled, self.compiled.engine.paths
        assert paths is not None
        assert compiled.weigher is not None
        costs = np.concatenate([compiled.costs(states[-1], theta), along])
        used = paths.points(self.steps)
        multipliers = np.zeros((self.intervals, *used.shape))
        multipliers[:, used] = compiled.weigher.weights(costs)[-len(along) :].reshape(self.intervals, -1)
        mu = multipliers.reshape(-1, used.shape[1]).T
        slopes = compiled.engine.path_kernels.gradient(*self._at_points(states, w, theta), mu)
        by_x, by_w, by_theta = (np.array(slope).T for slope in slopes)
        jumps = np.zeros_like(states)
        np.add.at(jumps, self._points.ravel(), by_x)
        by_w = by_w.reshape(self.intervals, self.steps + 1, -1).sum(axis=1)
        return _Weighed(multipliers, jumps, by_w, by_theta.reshape(len(mu.T), -1).sum(axis=0))


class _Weighed(NamedTuple):
    """Multipliers (I, s + 1, p), jumps (I·s + 1, n) of costates, and gradients (I, m), (k,) in w and θ."""

    multipliers: np.ndarray
    jumps: np.ndarray
    by_w: np.ndarray
    by_theta: np.ndarray
