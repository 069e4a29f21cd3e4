"""From functions to the engine that runs them: the cache, the choice of backend, the memory limit.

An engine is built once for each structure. Small functions are traced into CasADi expressions; larger ones,
such as wide quadratures, are compiled by XLA.
"""

import gc
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, Self

import jax
import numpy as np

from optlearn._arrays import Array, Float, Settings, quick_jit
from optlearn._engine.base import Engine
from optlearn._engine.functions import Constants, FlatSystem, FreeValues, Functions, State, pack
from optlearn._engine.steps import EXACT
from optlearn._engine.tracing.trace import UnsupportedPrimitive, trace
from optlearn._errors import SpecificationError

Backend = Literal["auto", "casadi", "xla"]

# Scalar operations up to which expressions beat compiled programs, in building and in running (measured:
# docs/decisions/005-two-executors.md, 009-wide-quadratures.md, 029-growth.md).
EXPRESSION_LIMIT = 150_000
# The same for an exact advance: a power of a matrix is a deep product, whose derivatives as expressions are
# far larger than itself (10 modes, 20 squarings: not built within minutes; XLA compiles them in seconds).
EXACT_LIMIT = 10_000

# Share of the memory maps that Linux grants a process (65,530) beyond which programs are dropped. The
# programs of a structure take hundreds of maps, and without free ones XLA dies of a segmentation fault.
CROWDED = 0.75

NOTHING = np.zeros(0)

# By structure. Objects derived from an engine are cached by the engine itself (``Engine.once``).
_MADE: dict[Hashable, Any] = {}


def once(key: Hashable, make: Callable[[], Any]) -> Any:
    """The result of ``make``, cached under this key."""
    if key not in _MADE:
        _make_room()
        _MADE[key] = make()
    return _MADE[key]


def _make_room() -> None:
    """Drop programs, JAX's own last, if this process can hardly map more; running ones are kept alive."""
    for forget in (_MADE.clear, jax.clear_caches):
        if not _crowded():
            return
        forget()
        gc.collect()


def _crowded() -> bool:
    try:
        granted = int(Path("/proc/sys/vm/max_map_count").read_text(encoding="ascii"))
        with Path("/proc/self/maps").open("rb") as maps:
            return sum(1 for _ in maps) > CROWDED * granted
    except OSError:  # only Linux counts them
        return False


def engine_for(functions: Functions, backend: Backend = "auto") -> Engine:
    """The engine of functions of this structure."""
    _check_backend(backend)
    return once((functions.key, backend), lambda: _make(functions, backend))


def _make(functions: Functions, backend: Backend) -> Engine:
    n, m, k = functions.sizes
    constants, theta = functions.constants, np.zeros(k)
    unrolled = _as_expressions(functions.rate(unrolled=True))
    rate = trace(unrolled, constants, np.zeros(n), np.zeros(m), theta, np.ones(()))
    final = trace(_as_expressions(functions.final), constants, np.zeros(n), theta)
    limit = EXACT_LIMIT if functions.stages is EXACT else EXPRESSION_LIMIT
    parts = [rate, final]
    if functions.paths is not None:
        values = _as_expressions(functions.paths.values)
        parts.append(trace(values, constants, np.zeros(n), np.zeros(m), theta))
    small = max(part.size for part in parts) <= limit and not _wide(constants)
    if backend == "casadi" or (backend == "auto" and small):
        from optlearn._engine.casadi import CasadiEngine

        try:
            made = [
                part.function(name) for part, name in zip(parts, ("rate", "final", "paths"), strict=False)
            ]
            return CasadiEngine(functions, rate.size, *made)
        except UnsupportedPrimitive:
            # XLA supports all operations, CasADi does not.
            if backend == "casadi":
                raise
    from optlearn._engine.xla import XlaEngine

    return XlaEngine(functions, rate.size)


def _check_backend(backend: Backend) -> None:
    if backend not in ("auto", "casadi", "xla"):
        raise SpecificationError(f"backend must be 'auto', 'casadi' or 'xla', got {backend!r}")


def _as_expressions(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of constants (a system first) that prepares the system for expressions."""

    def of(constants: Any, *others: Array) -> Any:
        system, *rest = constants
        return function((system.arranged("symbolic"), *rest), *others)

    return of


def _wide(constants: Any) -> bool:
    """Whether a part declares itself too wide for expressions."""
    parts = jax.tree.leaves(constants, is_leaf=lambda part: getattr(part, "wide", False))
    return any(getattr(part, "wide", False) for part in parts)


def outputs_along(
    system: FlatSystem,
    settings: Settings,
    states: Float[np.ndarray, "T n"],
    u: Float[np.ndarray, "T c"],
    backend: Backend = "auto",
) -> dict[str, Float[np.ndarray, " T"]]:
    """Error and observables at states under control vectors.

    Their engine is chosen separately: an error may be a wide quadrature even if the drift is not.
    """
    constants = (system.system, dict(settings))
    names: list[str] = []

    def values(constants: Any, flat: Array, vector: Array) -> tuple[Array, ...]:
        model, values_of_parameters = constants
        outputs = system.outputs(model, values_of_parameters, flat, vector)
        names[:] = outputs
        return tuple(outputs.values())

    def make() -> tuple[tuple[str, ...], Callable[..., Any]]:
        traced = trace(_as_expressions(values), constants, states[0], u[0])
        if backend == "casadi" or (
            backend == "auto" and traced.size <= EXPRESSION_LIMIT and not _wide(constants)
        ):
            function = traced.function("outputs")

            def columns(constants: Any, states: np.ndarray, u: np.ndarray) -> list[Any]:
                results = function(np.tile(pack(constants)[:, None], len(states)), states.T, u.T)
                return list(results) if isinstance(results, tuple) else [results]

            return tuple(names), columns
        # One state at a time: a wide quadrature at all states would not fit in memory.
        program = quick_jit(lambda c, x, v: jax.lax.map(lambda pair: values(c, *pair), (x, v)))
        return tuple(names), program

    made_names, function = once(("outputs", system.key, backend), make)
    columns = function(constants, states, u)
    return {name: np.array(column).ravel() for name, column in zip(made_names, columns, strict=True)}


class Weigher(Protocol):
    """A function of costs J (K,), and its gradient, the weights (K,)."""

    def value(self, J: Float[np.ndarray, " K"]) -> float:
        """The combined cost."""
        ...

    def weights(self, J: Float[np.ndarray, " K"]) -> Float[np.ndarray, " K"]:
        """Its gradient."""
        ...


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """Functions with costs, ready to run: the engine of their structure and their numbers.

    Attributes:
        functions: the functions.
        engine: shared by all functions of this structure.
        constants: (c,) the numbers that the engine reads.
        start: (n,) state at α = 0.
        horizon: training time.
        weigher: combines several costs, if there are several; the engine's final cost is then their sum with
            the weights at the end of its constants.
        is_coarse: whether its constants are those of a coarser drift.
    """

    functions: Functions
    engine: Engine
    constants: Constants
    start: State
    horizon: float
    weigher: Weigher | None = None
    is_coarse: bool = False

    def weighted(self, weigher: Weigher) -> Self:
        """The same with another combination of the costs."""
        return replace(self, weigher=weigher)

    def coarser(self) -> Self | None:
        """The same with a coarser drift on the same engine; None if there is none, or this is it."""
        system = None if self.is_coarse else self.functions.system.system.coarser()
        if system is None:
            return None
        return replace(self, constants=pack((system, *self.functions.constants[1:])), is_coarse=True)

    def costs(self, x: State, theta: FreeValues) -> Float[np.ndarray, " K"]:
        """The several costs at the final state."""
        units = np.eye(self.functions.weights)
        return np.array([float(self.engine.final(self.with_weights(unit), x, theta)) for unit in units])

    def with_weights(self, weights: Float[np.ndarray, " K"]) -> Constants:
        """The constants with these weights of the costs."""
        return np.concatenate([self.constants[: -len(weights)], weights])

    def final(self, x: State, theta: FreeValues, along: np.ndarray = NOTHING) -> float:
        """Cost of the final state, and of values along training if the weigher includes these."""
        if self.weigher is None:
            return float(self.engine.final(self.constants, x, theta))
        return self.weigher.value(np.concatenate([self.costs(x, theta), along]))

    def final_gradient(
        self, x: State, theta: FreeValues, along: np.ndarray = NOTHING
    ) -> tuple[float, State, FreeValues]:
        """The same with its gradients in x and θ."""
        constants, cost = self.constants, None
        if self.weigher is not None:
            costs = np.concatenate([self.costs(x, theta), along])
            own = self.weigher.weights(costs)[: self.functions.weights]
            constants, cost = self.with_weights(own), self.weigher.value(costs)
        total, by_x, by_theta = self.engine.final_gradient(constants, x, theta)
        return float(total) if cost is None else cost, np.array(by_x).ravel(), np.array(by_theta).ravel()

    def many_final_gradients(
        self, x: Float[np.ndarray, "n N"], theta: FreeValues
    ) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "n N"]]:
        """Costs of N final states, and their gradients in x; without values along training."""
        every = (
            [self.constants]
            if self.weigher is None
            else map(self.with_weights, np.eye(self.functions.weights))
        )
        parts = [self.engine.final_gradient(constants, x, theta)[:2] for constants in every]
        costs, slopes = (
            np.array([np.array(c).ravel() for c, _ in parts]),
            np.array([np.array(s) for _, s in parts]),
        )
        if self.weigher is None:
            return costs[0], slopes[0]
        weights = np.array([self.weigher.weights(own) for own in costs.T]).T
        return np.array([self.weigher.value(own) for own in costs.T]), np.sum(
            weights[:, None] * slopes, axis=0
        )

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Lengths of x, w, θ."""
        return self.engine.sizes

    def exact_steps(self, length: float) -> int:
        """Steps in an interval that a system with its own exact ``advance`` requires."""
        return max(1, int(np.ceil(length / self.functions.system.system.longest * (1 - 1e-9))))
