"""A problem as two functions of vectors in ``jax.numpy``, and its numbers.

Executors make their programs of these, once for each structure; numbers, horizon and start are arguments.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array
from optlearn._control.problem import Problem
from optlearn._control.program.stages import CLASSICAL, EXACT, Stages
from optlearn._control.relaxation import Relaxation
from optlearn._dynamics.flat import FlatSystem
from optlearn._dynamics.system import resolved_for

# Positions and weights of Gauss's rule of three points on [0, 1].
_GAUSS = ((0.5 - 0.15**0.5, 0.5, 0.5 + 0.15**0.5), (5 / 18, 8 / 18, 5 / 18))


@dataclass(frozen=True)
class Functions:
    """What is computed at a moment of training.

    Attributes:
        problem: whose functions these are.
        relaxation: its controls as vectors.
        system: its drift and error, with expectations that are accurate where it starts.
        constants: a tree of the numbers that the functions read; weights of several costs come last.
        rtol: relative tolerance that suits an integration.
    """

    problem: Problem
    relaxation: Relaxation
    system: FlatSystem
    constants: tuple[Any, ...]
    rtol: float

    @classmethod
    def of(cls, problem: Problem) -> "Functions":
        """With quadratures, if there are any, that are accurate for this problem."""
        relaxation, settings = Relaxation(problem), problem.settings
        u = {**settings, **{n: np.asarray(c.start) for n, c in problem.controls.items()}}
        # Steep gates and sharp attention are the hardest to integrate: the bounds count as much as the guess.
        ends = [{**u, n: np.asarray(v)} for n, c in problem.controls.items() for v in (c.lower, c.upper)]
        model = problem.model.current()
        resolved = resolved_for(model, model.probes(problem.start), [u, *ends], problem.quadrature)
        system = FlatSystem(resolved.system, relaxation.controls)
        constants: tuple[Any, ...] = (
            system.system, settings, relaxation.values, np.asarray(problem.horizon),
        )  # fmt: skip
        if problem.weighing is not None:
            constants = (*constants, np.zeros(problem.weighing.size))
        return cls(problem, relaxation, system, constants, resolved.rtol)

    @property
    def key(self) -> dict[str, Hashable]:
        """What must be equal for problems to share a program, by its name in words."""
        problem, settings = self.problem, self.constants[1]
        model = problem.model.current()
        return {
            "the model": self.system.key,
            "the controls": tuple((n, type(c), c.size) for n, c in problem.controls.items()),
            "the free parameters": tuple(problem.free),
            "the objective": tuple(o.key(model, settings) for o in problem.objectives),
            "the risk": problem.risk is None,
        }

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Lengths n, m, k of x, w, θ."""
        return self.problem.model.layout.size, self.relaxation.size, len(self.problem.free)

    @property
    def stages(self) -> Stages:
        """Of a step."""
        return EXACT if self.system.system.advances else CLASSICAL

    @property
    def rate(self) -> Callable[..., tuple[Array, Array]]:
        """(constants, x, w, θ, h) → dx/dα (n,), running cost ().

        Where steps are exact these are the means over a length h; the cost is that at x itself for h = 0.
        """
        problem, relaxation, system = self.problem, self.relaxation, self.system
        free, advances = tuple(problem.free), self.stages is EXACT
        # Within an exact step a running cost is averaged by Gauss's rule.
        moments = list(zip(*_GAUSS, strict=True)) if advances else [(0.0, 1.0)]

        def rate(constants: Any, flat: Array, w: Array, theta: Array, h: Array) -> tuple[Array, Array]:
            model, settings, values, horizon = constants[:4]
            settings = {**settings, **{name: theta[i] for i, name in enumerate(free)}}
            u, shares = relaxation.table(w, values)
            if advances:
                slope = (system.mixed_advance(model, settings, flat, u, shares, h) - flat) / h
            else:
                slope = system.mixed_drift(model, settings, flat, u, shares)
            if not problem.objective.has_running:
                return slope, np.zeros(())
            cost = 0.0
            for part, weight in moments:
                for i in range(u.shape[0]):
                    there = system.advance(model, settings, flat, u[i], part * h) if advances else flat
                    x, merged = model.layout.unflatten(there), system.merge(settings, u[i])
                    cost = cost + weight * shares[i] * problem.running(model, x, merged)
            return slope, cost / horizon

        return rate

    @property
    def final(self) -> Callable[..., Array]:
        """(constants, x, θ) → final cost ()."""
        problem, free = self.problem, tuple(self.problem.free)

        def final(constants: Any, flat: Array, theta: Array) -> Array:
            model, settings, _, _, *weights = constants
            settings = {**settings, **{name: theta[i] for i, name in enumerate(free)}}
            x = model.layout.unflatten(flat)
            costs = problem.costs(model, x, settings)
            if not weights:
                return costs[0]
            return jnp.stack([jnp.asarray(cost) for cost in costs]) @ weights[0]

        return final
