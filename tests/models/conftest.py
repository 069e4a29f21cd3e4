"""Random valid states, flat drifts, and a reference integrator that owes nothing to optlearn."""

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from optlearn._theory.drift import generic_drift, generic_error
from optlearn._theory.expectation import AbstractQuadrature
from optlearn._theory.model import LearningModel
from optlearn._theory.order import OrderParameters

# The tests compile many functions to run each once: compiling fast matters more than running fast.
quick_jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def random_states(model: LearningModel, count: int, largest: float = 0.5, seed: int = 0) -> np.ndarray:
    """(count, n) flat states of random weight vectors with squared norms up to ``largest``."""
    rng = np.random.default_rng(seed)
    overlaps = model.overlaps
    fixed = np.block([[overlaps.T, overlaps.S], [overlaps.S.T, overlaps.Omega]])
    values, vectors = np.linalg.eigh(fixed)
    K, n, M = model.students, len(fixed), len(overlaps.T)
    directions = np.pad(vectors * np.sqrt(np.maximum(values, 0)), ((0, 0), (0, K)))
    flat = []
    for _ in range(count):
        weights = rng.normal(size=(K, n + K))
        if model.untracked:  # the curriculum: the second student is orthogonal to all else
            weights[0, -1], weights[1, :-1] = 0.0, 0.0
        norms = rng.uniform(0.1 * largest, largest, size=(K, 1))
        weights *= np.sqrt(norms / np.sum(weights**2, axis=1, keepdims=True))
        Q, across = weights @ weights.T, weights @ directions.T
        extras = {name: 0.3 * rng.normal() for name in model.extras}
        v = rng.normal(size=(K, model.heads))
        state = model.state(Q=(Q + Q.T) / 2, M=across[:, :M], R=across[:, M:], v=v, **extras)
        flat.append(np.asarray(model.layout.flatten(state)))
    return np.array(flat)


def flat_drift(model: LearningModel, rule: AbstractQuadrature | None = None) -> Callable[..., jax.Array]:
    """(flat state, settings) → flat drift: the closed form, or the quadrature ``rule``."""
    layout = model.layout

    def drift(flat: jax.Array, u: dict) -> jax.Array:
        x = layout.unflatten(flat)
        if rule is None:
            return layout.flatten(model.closed_drift(x, u))
        return layout.flatten(generic_drift(model, x, u, rule))

    return drift


def flat_error(model: LearningModel, rule: AbstractQuadrature | None = None) -> Callable[..., jax.Array]:
    """(flat state, settings) → error: the closed form, or the quadrature ``rule``."""

    def error(flat: jax.Array, u: dict) -> jax.Array:
        x = model.layout.unflatten(flat)
        return model.closed_error(x, u) if rule is None else generic_error(model, x, u, rule)

    return error


class Runner:
    """Integrates the closed-form drift of one model with SciPy; the drift is compiled once."""

    def __init__(self, model: LearningModel) -> None:
        self.model = model
        self.drift = quick_jit(flat_drift(model))
        self.final_error = quick_jit(flat_error(model))

    def state(
        self,
        start: OrderParameters,
        phases: Sequence[tuple[float, dict]],
        share: float = 1.0,
        other: dict | None = None,
    ) -> np.ndarray:
        """Flat state after ``phases`` (duration, settings).

        With ``share`` below 1 the drift is mixed with that of the settings ``other``.
        """
        flat = np.asarray(self.model.layout.flatten(start))
        for duration, overrides in phases:
            u, u_other = self.model.settings(overrides), self.model.settings(other)

            def rate(_time: float, y: np.ndarray, u=u, u_other=u_other) -> np.ndarray:
                first = np.asarray(self.drift(y, u))
                if share == 1:
                    return first
                return share * first + (1 - share) * np.asarray(self.drift(y, u_other))

            if duration > 0:
                done = solve_ivp(rate, (0, duration), flat, method="DOP853", rtol=1e-12, atol=1e-14)
                assert done.success
                flat = done.y[:, -1]
        return flat

    def error(self, flat: np.ndarray, overrides: dict | None = None) -> float:
        return float(self.final_error(jnp.asarray(flat), self.model.settings(overrides)))


@pytest.fixture(scope="session")
def tools():
    """The helpers of this file, for test modules that cannot import it."""

    class Tools:
        jit = staticmethod(quick_jit)
        random_states = staticmethod(random_states)
        flat_drift = staticmethod(flat_drift)
        flat_error = staticmethod(flat_error)
        Runner = Runner

    return Tools
