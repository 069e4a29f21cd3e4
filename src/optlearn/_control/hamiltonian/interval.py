"""The Hamiltonian on intervals of constant control.

On an interval the control w is constant while the state x and the costate λ move, so what a control costs
there is H averaged over the interval, H̄(w) = mean of λ·f(x, w) + ℓ(x, w). The mean is a quadrature
(Simpson, or trapezoid), and its slope at the present control is replaced by the exact gradient of the
discretised objective: then H̄ is stationary exactly where the objective is, on any grid.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optlearn._control.compiled import CompiledProblem
from optlearn._control.hamiltonian.quadrature import quadrature
from optlearn._engine.rollout import RolloutResult


@dataclass(frozen=True)
class IntervalHamiltonian:
    """H̄ on each interval as a function of the control there.

    Attributes:
        compiled: the problem.
        states: (I, p, n) at the p quadrature points of each interval.
        costates: (I, p, n) there.
        weights: (p,) of the quadrature, adding up to 1.
        length: of an interval, or of an exact step, which reads it.
        theta: (k,) free parameters.
        tilt: (I, m) added slope.
        origin: (I, m) where the added slope adds nothing.
    """

    compiled: CompiledProblem
    states: np.ndarray
    costates: np.ndarray
    weights: np.ndarray
    length: float
    theta: np.ndarray
    tilt: np.ndarray
    origin: np.ndarray

    @classmethod
    def at_point(
        cls,
        compiled: CompiledProblem,
        state: np.ndarray,
        costate: np.ndarray,
        length: float,
        theta: np.ndarray,
    ) -> "IntervalHamiltonian":
        """H at one state (n,) and costate (n,): a single interval that begins there."""
        none = np.zeros((1, compiled.sizes[1]))
        return cls(compiled, state[None, None], costate[None, None], np.ones(1), length, theta, none, none)

    @classmethod
    def along(
        cls, compiled: CompiledProblem, rolled: RolloutResult, w: np.ndarray, theta: np.ndarray, steps: int
    ) -> "IntervalHamiltonian":
        """H̄ along a rollout under controls w (I, m), with the exact slope at w."""
        length = compiled.problem.horizon / len(w)
        points = np.arange(len(w))[:, None] * steps + np.arange(steps + 1)[None, :]
        states, costates, weights = rolled.states[points], rolled.costates[points], quadrature(steps)
        if compiled.engine.exact:
            # What a control changes is the end of each step, from its beginning.
            states, costates, weights = states[:, :-1], costates[:, 1:], np.full(steps, 1 / steps)
            length /= steps
        arguments = (compiled, states, costates, weights, length, theta)
        plain = cls(*arguments, np.zeros_like(w), w)
        _, slope, _ = plain.expand(w, np.arange(len(w)))
        exact = rolled.gradient * len(w) / compiled.problem.horizon
        return cls(*arguments, exact - slope, w)

    @property
    def intervals(self) -> int:
        """I."""
        return len(self.states)

    def coarser(self, points: int) -> "IntervalHamiltonian":
        """H̄ as a mean of fewer points of each interval: one half-way, or three by Simpson's rule."""
        steps = len(self.weights) - 1
        if points > steps or (points == 3 and steps % 4):
            return self
        kept = [(steps + 1) // 2] if points == 1 else [0, steps // 2, steps]
        weights = np.ones(1) if points == 1 else quadrature(2)
        return replace(self, states=self.states[:, kept], costates=self.costates[:, kept], weights=weights)

    def value(self, w: np.ndarray, of: np.ndarray) -> np.ndarray:
        """(P,) values of H̄ at controls w (P, m) on the intervals ``of`` (P,)."""
        value = self.compiled.engine.hamiltonians.value
        (mean,) = self._averages([value(*self._columns(w, of))])
        return np.asarray(mean[:, 0] + self._added(w, of))

    def expand(self, w: np.ndarray, of: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """H̄ (P,), its gradient (P, m) and its Hessian (P, c, c) in the c controls that are no shares."""
        expansion = self.compiled.engine.hamiltonians.expansion
        value, slope, curvature = self._averages(expansion(*self._columns(w, of)))
        c = self.compiled.relaxation.curved
        return value[:, 0] + self._added(w, of), slope + self.tilt[of], curvature.reshape(len(w), c, c)

    def free(self, w: np.ndarray, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Mean over all intervals of H under controls w (I, m), and its gradient (k,) in θ."""
        free = self.compiled.engine.hamiltonians.free
        columns = replace(self, theta=theta)._columns(w, np.arange(self.intervals))
        value, slope = self._averages(free(*columns))
        return float(value.mean()), slope.mean(axis=0)

    def _added(self, w: np.ndarray, of: np.ndarray) -> np.ndarray:
        return np.asarray(np.einsum("pm,pm->p", self.tilt[of], w - self.origin[of]))

    def _columns(self, w: np.ndarray, of: np.ndarray) -> tuple[Any, ...]:
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
