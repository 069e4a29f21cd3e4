"""The Hamiltonian on intervals of constant control.

On an interval the control w is constant while the state x and the costate λ move, so the cost of a control
there is H averaged over the interval, H̄(w) = mean of λ·f(x, w) + ℓ(x, w). The mean is a quadrature
(Simpson or trapezoid). Its slope at the present control is replaced by the exact gradient of the discretised
objective, so that H̄ is stationary exactly where the objective is, on any grid.

The Hamiltonian of a single problem is a compiled program (here); lanes of a batch use JAX (``batched.gap``).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from itertools import product
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from optlearn._arrays import Array
from optlearn._control.budgets import BudgetRows
from optlearn._control.relaxation import Relaxation
from optlearn._engine.steps import interval_weights

# Steps of an interval in the mean H̄ where a value is a wide quadrature: with Simpson's rule, these are as
# good as more steps, which only the states need.
_STEPS_COSTLY = 4

if TYPE_CHECKING:  # batches, which share this file, need no CasADi
    from optlearn._control.compiled import CompiledProblem
    from optlearn._engine.rollout import RolloutResult


class Domain(NamedTuple):
    """The set over which H̄ is minimised, and how.

    Attributes:
        lower: (c,) lower bounds of the first c controls, which are not shares.
        upper: (c,) their upper bounds.
        vertices: (V, m − c) shares of all combinations of pure discrete values.
        budgets: budgets on the mean over training.
        horizon: training time.
        costly: values of H̄ are expensive; evaluate few.
        xp: array namespace in which H̄ is computed.
    """

    lower: Array
    upper: Array
    vertices: Array
    budgets: BudgetRows
    horizon: Any
    costly: bool = False
    xp: ModuleType = np


@dataclass(frozen=True)
class Hamiltonian(ABC):
    """H̄ on each of I intervals as a function of the control there: a mean over p points plus a linear term.

    Attributes:
        domain: the set over which it is minimised.
        states: (I, p, n) at the quadrature points of each interval.
        costates: (I, p, n) there.
        weights: (p,) of the quadrature, adding up to 1.
        length: length of an interval, which exact steps need.
        tilt: (I, m) slope of the linear term.
        origin: (I, m) where the linear term is zero.
    """

    domain: Domain
    states: Array
    costates: Array
    weights: Array
    length: Any
    tilt: Array
    origin: Array

    @abstractmethod
    def mean(self, w: Array, of: Any) -> Array:
        """(P,) means of H at controls w (P, m) on the intervals ``of`` (P,), without the linear term."""

    @abstractmethod
    def mean_expansion(self, w: Array, of: Any) -> tuple[Array, Array, Array]:
        """These, their gradients (P, m), and Hessians (P, c, c) in the c controls that are not shares."""

    @property
    def intervals(self) -> int:
        """The number I of intervals."""
        return len(self.tilt)

    def tilted(self, w: Array, gradient: Array) -> Self:
        """With the linear term that makes the slope at w (I, m) equal the objective's gradient (I, m)."""
        _, slope, _ = self.mean_expansion(w, np.arange(self.intervals))
        return replace(self, tilt=gradient * self.intervals / self.domain.horizon - slope, origin=w)

    def coarser(self, points: int) -> Self:
        """H̄ as a mean over fewer points per interval: the midpoint, or three points by Simpson's rule."""
        steps = len(self.weights) - 1
        if points > steps or (points == 3 and steps % 4):
            return self
        kept = np.array([(steps + 1) // 2] if points == 1 else [0, steps // 2, steps])
        weights = np.ones(1) if points == 1 else interval_weights(2)
        return replace(self, states=self.states[:, kept], costates=self.costates[:, kept], weights=weights)

    def value(self, w: Array, of: Any) -> Array:
        """(P,) values of H̄ at controls w (P, m) on the intervals ``of`` (P,)."""
        return self.mean(w, of) + self._added(w, of)

    def expand(self, w: Array, of: Any) -> tuple[Array, Array, Array]:
        """H̄ (P,), its gradient (P, m) and its Hessian (P, c, c) in the c controls that are not shares."""
        value, slope, curvature = self.mean_expansion(w, of)
        return value + self._added(w, of), slope + self.of_rows(self.tilt, of), curvature

    def _added(self, w: Array, of: Any) -> Array:
        return self.domain.xp.sum(self.of_rows(self.tilt, of) * (w - self.of_rows(self.origin, of)), axis=1)

    def of_rows(self, table: Array, of: Any) -> Array:
        """(P, m) rows of a table (I, m)."""
        return table[of]


def on_intervals(
    states: Array, costates: Array, intervals: int, horizon: Any, exact: bool, jumps: Array | None = None
) -> tuple[Array, Array, np.ndarray, Any]:
    """States, costates, weights and length of a Hamiltonian, from (I·s + 1, n) at the ends of all steps.

    With paths, costates have jumps (I·s + 1, n): the end of an interval takes the value before its jump, the
    beginning the value after it, and points between the mean of both.
    """
    steps, length = (len(states) - 1) // intervals, horizon / intervals
    points = np.arange(intervals)[:, None] * steps + np.arange(steps + 1)[None, :]
    weights = interval_weights(steps)
    if exact:
        # In an exact step, a control acts on the end of the step, from the state at its beginning.
        states, costates, points = states[:-1], costates[1:], points[:, :-1]
        weights, length = np.full(steps, 1 / steps), length / steps
    inside = costates[points]
    if jumps is not None and not exact:
        after = np.array([1.0, *[0.5] * (steps - 1), 0.0])
        inside = inside - after[:, None] * jumps[points]
    return states[points], inside, weights, length


@dataclass(frozen=True)
class IntervalHamiltonian(Hamiltonian):
    """H̄ of a compiled problem.

    Attributes:
        compiled: the problem.
        theta: (k,) free parameters.
        paths: for paths that read controls, states (I, s + 1, n) at the ends of the steps of each interval
            and multipliers (I, s + 1, p) there; None without such paths.
    """

    compiled: "CompiledProblem"
    theta: np.ndarray
    paths: tuple[np.ndarray, np.ndarray] | None = None

    @classmethod
    def at_point(
        cls,
        compiled: "CompiledProblem",
        state: np.ndarray,
        costate: np.ndarray,
        length: float,
        theta: np.ndarray,
    ) -> "IntervalHamiltonian":
        """H at one state (n,) and costate (n,), as a single interval that begins there."""
        none = np.zeros((1, compiled.sizes[1]))
        at = (state[None, None], costate[None, None], np.ones(1), length, none, none)
        return cls(_domain(compiled), *at, compiled, theta)

    @classmethod
    def along(
        cls,
        compiled: "CompiledProblem",
        rolled: "RolloutResult",
        w: np.ndarray,
        theta: np.ndarray,
        steps: int,
    ) -> "IntervalHamiltonian":
        """H̄ along a rollout under controls w (I, m), with the exact slope at w."""
        assert len(rolled.states) == len(w) * steps + 1
        horizon, paths = compiled.problem.horizon, compiled.engine.paths
        states, costates, jumps = rolled.states, rolled.costates, rolled.jumps
        if compiled.engine.costly and jumps is None and steps % _STEPS_COSTLY == 0:
            states, costates = (part[:: steps // _STEPS_COSTLY] for part in (states, costates))
        points = on_intervals(states, costates, len(w), horizon, compiled.engine.exact, jumps)
        plain = cls(_domain(compiled), *points, np.zeros_like(w), w, compiled, theta)
        multipliers = rolled.multipliers
        if paths is not None and any(paths.read_controls) and multipliers is not None and multipliers.any():
            ends = np.arange(len(w))[:, None] * steps + np.arange(steps + 1)
            # In units of H: a multiplier within an interval counts for the whole length of the interval.
            plain = replace(plain, paths=(rolled.states[ends], multipliers * len(w) / horizon))
        return plain.tilted(w, rolled.gradient)

    def coarser(self, points: int) -> "IntervalHamiltonian":
        """The same with a coarser drift, if there is one."""
        compiled = self.compiled.coarser() if self.domain.costly else None
        return replace(super().coarser(points), compiled=compiled or self.compiled)

    def mean(self, w: np.ndarray, of: Any) -> np.ndarray:
        """(P,) means of H without the linear term."""
        mean = self._averages([self.compiled.engine.hamiltonians.value(*self._columns(w, of))])[0][:, 0]
        return mean if self.paths is None else mean + self._of_paths(w, of)[0]

    def mean_expansion(self, w: np.ndarray, of: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """These with their gradients (P, m) and Hessians (P, c, c)."""
        expansion = self.compiled.engine.hamiltonians.expansion
        value, slope, curvature = self._averages(expansion(*self._columns(w, of)))
        c = self.compiled.relaxation.curved
        parts = value[:, 0], slope, curvature.reshape(len(w), c, c)
        if self.paths is None:
            return parts
        value, slope, curvature = (a + b for a, b in zip(parts, self._of_paths(w, of), strict=True))
        return value, slope, curvature

    def _of_paths(self, w: np.ndarray, of: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The contribution of paths to H (P,), with gradients (P, m) and Hessians (P, c, c)."""
        assert self.paths is not None
        states, multipliers = (part[of] for part in self.paths)
        count, points = len(w), states.shape[1]
        columns = (states.reshape(count * points, -1).T, np.repeat(w, points, axis=0).T)
        mu = multipliers.reshape(count * points, -1).T
        added = self.compiled.engine.path_kernels.expansion(self.compiled.constants, *columns, self.theta, mu)
        value, slope, curvature = (np.array(part).T.reshape(count, points, -1).sum(axis=1) for part in added)
        c = self.compiled.relaxation.curved
        return value[:, 0], slope, curvature.reshape(count, c, c)

    def free(self, w: np.ndarray, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Mean over all intervals of H under controls w (I, m), and its gradient (k,) in θ."""
        free = self.compiled.engine.hamiltonians.free
        columns = replace(self, theta=theta)._columns(w, np.arange(self.intervals))
        value, slope = self._averages(free(*columns))
        return float(value.mean()), slope.mean(axis=0)

    def _columns(self, w: np.ndarray, of: Any) -> tuple[Any, ...]:
        """Arguments of the kernels: one column for each pair of control and point."""
        n = self.states.shape[2]
        return (
            self.compiled.constants,
            self.states[of].reshape(-1, n).T,
            np.repeat(w, len(self.weights), axis=0).T,
            self.theta,
            self.length,
            self.costates[of].reshape(-1, n).T,
        )

    def _averages(self, outputs: Any) -> list[np.ndarray]:
        """(P, size) averages over an interval's points of outputs with one column for each."""
        points = len(self.weights)
        arrays = [np.array(output).T for output in outputs]
        return [
            np.einsum("q,pqs->ps", self.weights, a.reshape(len(a) // points, points, a.shape[1]))
            for a in arrays
        ]


def _domain(compiled: "CompiledProblem") -> Domain:
    relaxation, program = compiled.relaxation, compiled.engine
    lower, upper = (bound[: relaxation.curved] for bound in relaxation.bounds)
    return Domain(
        lower,
        upper,
        share_vertices(relaxation),
        relaxation.budget_rows,
        compiled.problem.horizon,
        program.costly,
    )


def share_vertices(relaxation: Relaxation) -> np.ndarray:
    """(V, m − c) shares of all combinations of pure discrete values."""
    options = [control.vertices for control in relaxation.problem.discrete.values()]
    return np.array([np.concatenate([[], *parts]) for parts in product(*options)])
