"""Run a flat system as CasADi functions under SciPy's DOP853: no XLA compilation."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.integrate import DOP853

from optlearn._arrays import Array
from optlearn._casadi.trace import TracedFunction, trace
from optlearn._dynamics.flat import FlatSystem, control_tables
from optlearn._schedule import Schedule

# Steps in one interval of constant control after which it is given up (about 20 s): dynamics so
# fast beside the horizon are those of an absurd learning rate. Ordinary runs take 20 to 500.
MAX_STEPS = 50_000

# Traced functions by structure: a changed number reuses them.
_CACHE: dict[Any, Any] = {}


class OnCasadi:
    """Executor on CasADi's virtual machine."""

    def solve(
        self,
        flat: FlatSystem,
        settings: Mapping[str, Array],
        start: np.ndarray,
        schedule: Schedule,
        times: np.ndarray,
        tolerances: tuple[float, float],
    ) -> np.ndarray:
        """(T, n) states at increasing ``times``; rows after a failure are NaN."""
        merged = schedule.merged()
        shares, vectors, _ = control_tables(merged, flat.controls)
        function = _function("drift", flat.mixed_drift, flat, settings, start, vectors[0], shares[0])
        constants = pack((flat.system, dict(settings)))
        states = np.full((len(times), len(start)), np.nan)
        state = start
        states[times <= 0.0] = start
        guard = flat.system.round_off_guard()
        for i in range(merged.intervals):
            left, right = merged.grid[i], merged.grid[i + 1]
            inside = (times > left) & (times <= right)
            rhs = _right_hand_side(function, constants, vectors[i].ravel(), shares[i])
            with np.errstate(over="ignore", invalid="ignore"):  # a state that is not finite is seen
                found, end = integrate_piece(rhs, left, right, state, times[inside], tolerances, guard)
            states[inside] = found
            if end is None:
                break
            state = end
        return states

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


def pack(tree: Any) -> np.ndarray:
    """All numbers of a tree as one vector, in the order that traced functions expect."""
    import jax

    leaves = [np.ravel(np.asarray(leaf, dtype=float)) for leaf in jax.tree.leaves(tree)]
    return np.concatenate([np.zeros(0), *leaves])


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


def _right_hand_side(
    function: Any, constants: np.ndarray, u: np.ndarray, shares: np.ndarray
) -> Callable[[float, np.ndarray], np.ndarray]:
    """dx/dα on NumPy arrays through CasADi's buffer interface: a few microseconds a call."""
    state, result = np.zeros(function.size1_in(1)), np.zeros(function.size1_out(0))
    buffer, evaluate = function.buffer()
    held = [constants, state, np.ascontiguousarray(u), np.ascontiguousarray(shares)]
    for i, argument in enumerate(held):
        buffer.set_arg(i, argument.data)
    buffer.set_res(0, result.data)

    def rhs(_alpha: float, x: np.ndarray) -> np.ndarray:
        state[:] = x
        evaluate()
        return result.copy()

    # CasADi borrows memory here: what it points to must live as long as the function does.
    rhs.borrowed = (buffer, held)  # type: ignore[attr-defined]
    return rhs


def integrate_piece(
    rhs: Callable[[float, np.ndarray], np.ndarray],
    left: float,
    right: float,
    state: np.ndarray,
    times: np.ndarray,
    tolerances: tuple[float, float],
    guard: Callable[[np.ndarray], np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray | None]:
    """States at ``times`` in one interval of constant control, and at its end (None: it failed).

    ``guard`` takes round-off out of the state after every step.
    """
    found = np.full((len(times), len(state)), np.nan)
    solver = DOP853(rhs, left, state, right, rtol=tolerances[0], atol=tolerances[1])
    reached = steps = 0
    while solver.status == "running":
        solver.step()
        steps += 1
        stuck = solver.status == "failed" or steps > MAX_STEPS
        if stuck or not np.all(np.isfinite(solver.y)):
            return found, None
        count = int(np.searchsorted(times, solver.t, side="right"))
        if count > reached:
            found[reached:count] = solver.dense_output()(times[reached:count]).T
            reached = count
        if guard is not None and (settled := guard(solver.y)) is not solver.y:
            solver.y, solver.f = settled, rhs(solver.t, settled)
    found[times == right] = solver.y
    return found, solver.y
