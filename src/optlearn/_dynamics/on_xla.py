"""Run a flat system under XLA with diffrax."""

from collections.abc import Callable, Mapping
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array
from optlearn._dynamics.executor import Course, Executor
from optlearn._dynamics.flat import FlatSystem, as_jax, control_tables

# Compiled programs by structure: a changed number reuses them.
_CACHE: dict[Any, Any] = {}


def compiled(key: Any, make: Callable[[], Any]) -> Any:
    """The program of this key, made when it is first asked for."""
    if key not in _CACHE:
        _CACHE[key] = make()
    return _CACHE[key]


class OnXla(Executor):
    """Executor that compiles once for each structure; runs on any JAX device."""

    def solve(self, course: Course) -> np.ndarray:
        """(T, n) states at the course's times; rows after a failure are NaN."""
        flat, tolerances, merged = course.flat, course.tolerances, course.schedule.merged()
        shares, vectors, _ = control_tables(merged, flat.controls)
        # High order pays off at tight tolerances only.
        method = diffrax.Dopri8() if tolerances[0] < 1e-8 else diffrax.Tsit5()
        key = ("solve", flat.key, type(method))
        states = compiled(key, lambda: jax.jit(_solver(flat, method)))(
            as_jax((flat.system, dict(course.settings))),
            jnp.asarray(course.start),
            jnp.asarray(merged.grid),
            jnp.asarray(vectors),
            jnp.asarray(shares),
            jnp.asarray(course.times),
            jnp.asarray(tolerances),
        )
        return np.asarray(states)

    def outputs(
        self, flat: FlatSystem, settings: Mapping[str, Array], states: np.ndarray, u: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Error and observables (T,) at states (T, n) under controls (T, c)."""
        key = ("outputs", flat.key)
        if key not in _CACHE:
            # One state at a time: a wide quadrature times all states would not fit in memory.
            _CACHE[key] = jax.jit(
                lambda constants, x, v: jax.lax.map(
                    lambda pair: flat.outputs(constants[0], constants[1], *pair), (x, v)
                )
            )
        found = _CACHE[key](as_jax((flat.system, dict(settings))), jnp.asarray(states), jnp.asarray(u))
        return {name: np.asarray(course) for name, course in found.items()}


def _solver(flat: FlatSystem, method: Any) -> Any:
    def solve(
        constants: Any,
        start: Array,
        grid: Array,
        vectors: Array,
        shares: Array,
        times: Array,
        tolerances: Array,
    ) -> Array:
        model, settings = constants

        def rhs(alpha: Array, x: Array, _args: None) -> Array:
            interval = jnp.clip(jnp.searchsorted(grid, alpha, side="right") - 1, 0, vectors.shape[0] - 1)
            return flat.mixed_drift(model, settings, x, vectors[interval], shares[interval])

        controller: Any = diffrax.PIDController(rtol=tolerances[0], atol=tolerances[1])
        jumps = grid[1:-1] if grid.shape[0] > 2 else None
        # At tight tolerances, stop at every time recorded: interpolation would be good to 1e-9 only.
        stops = times if isinstance(method, diffrax.Dopri8) else None
        if jumps is not None or stops is not None:
            controller = diffrax.ClipStepSizeController(controller, step_ts=stops, jump_ts=jumps)
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(rhs),
            method,
            t0=grid[0],
            t1=grid[-1],
            dt0=None,
            y0=start,
            saveat=diffrax.SaveAt(ts=times),
            stepsize_controller=controller,
            max_steps=200_000,
            throw=False,
        )
        failed = solution.result != diffrax.RESULTS.successful
        # diffrax leaves inf in rows that it did not reach.
        states = jnp.where(jnp.isfinite(solution.ys), solution.ys, jnp.nan)
        return jnp.where(failed & jnp.isnan(states), jnp.nan, states)

    return solve
