"""The Hamiltonian on intervals of constant control.

On an interval the control w is constant while the state x and the costate λ move, so what a control costs
there is H averaged over the interval, H̄(w) = mean of λ·f(x, w) + ℓ(x, w). The mean is a quadrature
(Simpson, or trapezoid), and its slope at the present control is replaced by the exact gradient of the
discretised objective: then H̄ is stationary exactly where the objective is, on any grid.

``Hamiltonian`` is what a minimisation asks for. One problem has it from a compiled program, here; lanes of a
batch have it from JAX (``batched.gap``).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from itertools import product
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from optlearn._arrays import Array
from optlearn._control.budgets import BudgetRows
from optlearn._control.hamiltonian.quadrature import quadrature
from optlearn._control.relaxation import Relaxation

if TYPE_CHECKING:  # batches, which share this file, need no CasADi
    from optlearn._control.program.build import CompiledProblem
    from optlearn._control.program.rollout import RolloutResult


class Hamiltonian(ABC):
    """H̄ as a function of the controls on each of I intervals.

    Attributes:
        xp: array namespace of what it computes.
        costly: is it worth asking for few values?
    """

    xp: ClassVar[ModuleType] = np
    costly: bool = False

    @property
    @abstractmethod
    def intervals(self) -> int:
        """I."""

    @property
    @abstractmethod
    def horizon(self) -> Any:
        """Training time."""

    @property
    @abstractmethod
    def bounds(self) -> tuple[Array, Array]:
        """(c,) lower and upper bounds of the first c controls, those that are no shares."""

    @property
    @abstractmethod
    def vertices(self) -> Array:
        """(V, m − c) shares of all combinations of discrete values: one value each, entirely."""

    @property
    @abstractmethod
    def budgets(self) -> BudgetRows:
        """On the controls."""

    @abstractmethod
    def value(self, w: Array, of: Any) -> Array:
        """(P,) values of H̄ at controls w (P, m) on the intervals ``of`` (P,)."""

    @abstractmethod
    def expand(self, w: Array, of: Any) -> tuple[Array, Array, Array]:
        """H̄ (P,), its gradient (P, m) and its Hessian (P, c, c) in the c controls that are no shares."""

    def coarser(self, points: int) -> Self:
        """H̄ as a mean of fewer points of each interval: one half-way, or three by Simpson's rule."""
        del points
        return self


@dataclass(frozen=True)
class MeanHamiltonian(Hamiltonian):
    """The mean of H over p points of each interval, with a slope added.

    Attributes:
        states: (I, p, n) at the quadrature points of each interval.
        costates: (I, p, n) there.
        weights: (p,) of the quadrature, adding up to 1.
        length: of an interval, or of an exact step, which reads it.
        tilt: (I, m) added slope.
        origin: (I, m) where the added slope adds nothing.
    """

    states: Array
    costates: Array
    weights: Array
    length: Any
    tilt: Array
    origin: Array

    @property
    def intervals(self) -> int:
        """I."""
        return len(self.states)

    @abstractmethod
    def mean(self, w: Array, of: Any) -> Array:
        """(P,) means of H, nothing added."""

    @abstractmethod
    def mean_expansion(self, w: Array, of: Any) -> tuple[Array, Array, Array]:
        """These, and their gradients (P, m) and Hessians (P, c, c)."""

    def tilted(self, w: Array, gradient: Array) -> Self:
        """With the slope at w (I, m) that the objective's gradient (I, m) tells."""
        _, slope, _ = self.mean_expansion(w, np.arange(self.intervals))
        return replace(self, tilt=gradient * self.intervals / self.horizon - slope, origin=w)

    def coarser(self, points: int) -> Self:
        """A mean of fewer points of each interval: one half-way, or three by Simpson's rule."""
        steps = len(self.weights) - 1
        if points > steps or (points == 3 and steps % 4):
            return self
        kept = np.array([(steps + 1) // 2] if points == 1 else [0, steps // 2, steps])
        weights = np.ones(1) if points == 1 else quadrature(2)
        return replace(self, states=self.states[:, kept], costates=self.costates[:, kept], weights=weights)

    def value(self, w: Array, of: Any) -> Array:
        """(P,) values of H̄ at controls w (P, m) on the intervals ``of`` (P,)."""
        return self.mean(w, of) + self._added(w, of)

    def expand(self, w: Array, of: Any) -> tuple[Array, Array, Array]:
        """H̄ (P,), its gradient (P, m) and its Hessian (P, c, c) in the c controls that are no shares."""
        value, slope, curvature = self.mean_expansion(w, of)
        return value + self._added(w, of), slope + self.of_rows(self.tilt, of), curvature

    def _added(self, w: Array, of: Any) -> Array:
        return self.xp.sum(self.of_rows(self.tilt, of) * (w - self.of_rows(self.origin, of)), axis=1)

    def of_rows(self, table: Array, of: Any) -> Array:
        """(P, m) rows of a table (I, m)."""
        return table[of]


def on_intervals(
    states: Array, costates: Array, intervals: int, horizon: Any, exact: bool
) -> dict[str, Array]:
    """Attributes of a ``MeanHamiltonian`` from states and costates (I·s + 1, n) at the ends of all steps."""
    steps, length = (len(states) - 1) // intervals, horizon / intervals
    points = np.arange(intervals)[:, None] * steps + np.arange(steps + 1)[None, :]
    weights = quadrature(steps)
    if exact:
        # What a control changes is the end of each step, from its beginning.
        states, costates, points = states[:-1], costates[1:], points[:, :-1]
        weights, length = np.full(steps, 1 / steps), length / steps
    return {"states": states[points], "costates": costates[points], "weights": weights, "length": length}


@dataclass(frozen=True)
class IntervalHamiltonian(MeanHamiltonian):
    """H̄ of a compiled problem.

    Attributes:
        compiled: the problem.
        theta: (k,) free parameters.
    """

    compiled: "CompiledProblem"
    theta: np.ndarray

    @classmethod
    def at_point(
        cls,
        compiled: "CompiledProblem",
        state: np.ndarray,
        costate: np.ndarray,
        length: float,
        theta: np.ndarray,
    ) -> "IntervalHamiltonian":
        """H at one state (n,) and costate (n,): a single interval that begins there."""
        none = np.zeros((1, compiled.sizes[1]))
        return cls(state[None, None], costate[None, None], np.ones(1), length, none, none, compiled, theta)

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
        along = on_intervals(
            rolled.states, rolled.costates, len(w), compiled.problem.horizon, compiled.program.exact
        )
        plain = cls(**along, tilt=np.zeros_like(w), origin=w, compiled=compiled, theta=theta)
        return plain.tilted(w, rolled.gradient)

    @property
    def costly(self) -> bool:  # type: ignore[override]
        """Does one rate take long?"""
        return self.compiled.program.costly

    @property
    def horizon(self) -> float:
        """Training time."""
        return self.compiled.problem.horizon

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """(c,) lower and upper bounds of the controls that are no shares."""
        low, high = self.compiled.relaxation.bounds
        return low[: self.compiled.relaxation.curved], high[: self.compiled.relaxation.curved]

    @property
    def vertices(self) -> np.ndarray:
        """(V, m − c) shares of all combinations of discrete values: one value each, entirely."""
        return share_vertices(self.compiled.relaxation)

    @property
    def budgets(self) -> BudgetRows:
        """On the controls."""
        return self.compiled.relaxation.budget_rows

    def mean(self, w: np.ndarray, of: Any) -> np.ndarray:
        """(P,) means of H, nothing added."""
        return self._averages([self.compiled.program.hamiltonians.value(*self._columns(w, of))])[0][:, 0]

    def mean_expansion(self, w: np.ndarray, of: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """These, and their gradients (P, m) and Hessians (P, c, c)."""
        expansion = self.compiled.program.hamiltonians.expansion
        value, slope, curvature = self._averages(expansion(*self._columns(w, of)))
        c = self.compiled.relaxation.curved
        return value[:, 0], slope, curvature.reshape(len(w), c, c)

    def free(self, w: np.ndarray, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Mean over all intervals of H under controls w (I, m), and its gradient (k,) in θ."""
        free = self.compiled.program.hamiltonians.free
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


def share_vertices(relaxation: Relaxation) -> np.ndarray:
    """(V, m − c) shares of all combinations of discrete values: one value each, entirely."""
    options = [control.vertices for control in relaxation.problem.discrete.values()]
    return np.array([np.concatenate([[], *parts]) for parts in product(*options)])
