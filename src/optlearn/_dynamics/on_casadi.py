"""Run a flat system as CasADi functions, which need no XLA compilation.

Steps of small drifts are functions by themselves; large ones are worth SciPy's DOP853, which asks for fewer.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from optlearn._arrays import Array
from optlearn._dynamics.executor import Course, Piece, PieceByPiece, adaptive
from optlearn._dynamics.extrapolation import extrapolated, step_function
from optlearn._dynamics.flat import FlatSystem, pack
from optlearn._engine.tracing.buffered import Buffered
from optlearn._engine.tracing.trace import TracedFunction, trace

# Scalar operations of a drift up to which a step is one function, and times up to which steps end at each.
SMALL, FEW = 3_000, 5_000

_Either = TypeVar("_Either")

# Traced functions by structure: a changed number reuses them.
_CACHE: dict[Any, Any] = {}


class OnCasadi(PieceByPiece):
    """Executor on CasADi's virtual machine."""

    def piece(self, course: Course, vectors: np.ndarray, shares: np.ndarray) -> Piece:
        """Adaptive steps on the traced drift."""
        flat, settings = course.flat, course.settings
        one = course.start, vectors[0], shares[0]
        function = _function("drift", flat.mixed_drift, flat, settings, *one)
        size = _traced("drift", flat.mixed_drift, flat, settings, *one).size
        small = size <= SMALL and len(course.times) <= FEW
        on = Buffered(_step(function, flat, one) if small else function)
        constants, state, controls, parts, *length = (argument.reshape(-1) for argument in on.inputs)
        constants[:] = pack((flat.system, dict(settings)))

        def step(x: np.ndarray, h: float) -> tuple[np.ndarray, np.ndarray]:
            state[:], length[0][:] = x, h
            on.evaluate()
            return on.outputs[0][0].copy(), on.outputs[1][0]

        def drift(_alpha: float, x: np.ndarray) -> np.ndarray:
            state[:] = x
            on.evaluate()
            return on.outputs[0][0].copy()

        def under(i: int, what: _Either) -> _Either:
            controls[:], parts[:] = vectors[i].ravel(), shares[i]
            return what

        if small:
            return extrapolated(course, lambda i: under(i, step))
        return adaptive(course, lambda i: under(i, drift))

    def outputs(
        self, flat: FlatSystem, settings: Mapping[str, Array], states: np.ndarray, u: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Error and observables (T,) at states (T, n) under controls (T, c)."""
        names: list[str] = []

        def listed(*args: Any) -> tuple[Array, ...]:
            found = flat.outputs(*args)
            names.extend(found)
            return tuple(found.values())

        function = _function("outputs", listed, flat, settings, states[0], u[0])
        if not names:
            names = _CACHE[("names", flat.key)]
        _CACHE[("names", flat.key)] = names
        constants = pack((flat.system, dict(settings)))
        columns = function(np.tile(constants[:, None], len(states)), states.T, u.T)
        if not isinstance(columns, tuple):
            columns = (columns,)
        return {n: np.array(c).ravel() for n, c in zip(names, columns, strict=True)}


def drift_size(flat: FlatSystem, settings: Mapping[str, Array]) -> int:
    """Scalar operations in one evaluation of the drift."""
    n, c = flat.system.layout.size, len(flat.controls)
    vectors = np.zeros(n), np.zeros((1, c)), np.ones(1)
    return _traced("drift", flat.mixed_drift, flat, settings, *vectors).size


def outputs_size(flat: FlatSystem, settings: Mapping[str, Array]) -> int:
    """Scalar operations in one evaluation of the error and the observables."""
    n, c = flat.system.layout.size, len(flat.controls)
    method = lambda *args: tuple(flat.outputs(*args).values())  # noqa: E731
    return _traced("outputs_size", method, flat, settings, np.zeros(n), np.zeros(c)).size


def _traced(
    kind: str,
    method: Callable[..., Any],
    flat: FlatSystem,
    settings: Mapping[str, Array],
    *vectors: np.ndarray,
) -> TracedFunction:
    key = (kind, "traced", flat.key, tuple(v.shape for v in vectors))
    if key not in _CACHE:
        _CACHE[key] = trace(
            lambda constants, *rest: method(constants[0], constants[1], *rest),
            (flat.system, dict(settings)),
            *vectors,
        )
    return _CACHE[key]


def _function(
    kind: str,
    method: Callable[..., Any],
    flat: FlatSystem,
    settings: Mapping[str, Array],
    *vectors: np.ndarray,
) -> Any:
    """CasADi function of (constants, *vectors), each one column."""
    key = (kind, "function", flat.key, tuple(v.shape for v in vectors))
    if key not in _CACHE:
        _CACHE[key] = _traced(kind, method, flat, settings, *vectors).function(kind)
    return _CACHE[key]


def _step(drift: Any, flat: FlatSystem, vectors: tuple[np.ndarray, ...]) -> Any:
    """CasADi function of a step, from that of the drift on such vectors."""
    key = ("step", flat.key, tuple(v.shape for v in vectors))
    if key not in _CACHE:
        _CACHE[key] = step_function(drift)
    return _CACHE[key]
