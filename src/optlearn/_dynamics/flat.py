"""A system as plain functions of vectors: what integrators, solvers and executors work with.

Everything that may change between two calls (states, controls, parameters, a system's own numbers) is an
argument, so a compiled or traced function is made once for each structure and serves all values.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array
from optlearn._dynamics.system import System
from optlearn._schedule import Schedule


@dataclass(frozen=True)
class FlatSystem:
    """Drift and outputs of a system on its flat state.

    Attributes:
        system: the system.
        controls: names of the parameters that vary in time, in the order of control vectors.
    """

    system: System
    controls: tuple[str, ...]

    @property
    def key(self) -> Hashable:
        """Equal for systems that differ in numbers only."""
        leaves, structure = jax.tree.flatten(self.system)
        shapes = tuple(np.shape(leaf) for leaf in leaves)
        return structure, shapes, self.controls

    def drift(self, system: System, settings: Mapping[str, Array], flat: Array, u: Array) -> Array:
        """(n,) dx/dα at the flat state (n,) under the control vector ``u`` (c,)."""
        return _traced_once("drift", self.controls, system, dict(settings), flat, u)

    def mixed_drift(
        self, system: System, settings: Mapping[str, Array], flat: Array, u: Array, shares: Array
    ) -> Array:
        """Drift averaged over control vectors ``u`` (m, c) drawn with ``shares`` (m,)."""
        if u.shape[0] == 1:
            return self.drift(system, settings, flat, u[0])
        return shares @ jax.vmap(lambda v: self.drift(system, settings, flat, v))(u)

    def advance(
        self, system: System, settings: Mapping[str, Array], flat: Array, u: Array, length: Array
    ) -> Array:
        """(n,) flat state after ``length`` under the control vector ``u`` (c,)."""
        return _traced_once("advance", self.controls, system, dict(settings), flat, u, length)

    def mixed_advance(
        self,
        system: System,
        settings: Mapping[str, Array],
        flat: Array,
        u: Array,
        shares: Array,
        length: Array,
    ) -> Array:
        """The mean of where control vectors ``u`` (m, c) lead, drawn with ``shares`` (m,).

        Mixing within an interval is then mixing of ends: the same to first order in ``length``.
        """
        if u.shape[0] == 1:
            return self.advance(system, settings, flat, u[0], length)
        return shares @ jax.vmap(lambda v: self.advance(system, settings, flat, v, length))(u)

    def outputs(
        self, system: System, settings: Mapping[str, Array], flat: Array, u: Array
    ) -> dict[str, Array]:
        """``error`` and the system's observables, scalars."""
        return dict(_traced_once("outputs", self.controls, system, dict(settings), flat, u))

    def merge(self, settings: Mapping[str, Array], u: Array) -> dict[str, Array]:
        """The settings with the controls' values from the vector ``u`` (c,)."""
        return _merged(self.controls, settings, u)


def _merged(controls: tuple[str, ...], settings: Mapping[str, Array], u: Array) -> dict[str, Array]:
    return {**settings, **{name: u[i] for i, name in enumerate(controls)}}


@partial(jax.jit, static_argnums=(0, 1))
def _traced_once(
    method: Literal["drift", "advance", "outputs"],
    controls: tuple[str, ...],
    system: System,
    settings: dict[str, Array],
    flat: Array,
    u: Array,
    *length: Array,
) -> Any:
    """A method of a system on flat vectors; programs of one structure share what JAX has traced of it."""
    found = getattr(system, method)(system.layout.unflatten(flat), _merged(controls, settings, u), *length)
    # JAX sorts the names of a plain dictionary.
    return OrderedDict(found) if method == "outputs" else system.layout.flatten(found)


def control_tables(
    schedule: Schedule, controls: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shares (intervals, m), control vectors (intervals, m, c) and their means (intervals, c)."""
    variants = list(schedule.variants())
    shares = np.stack([share for share, _ in variants], axis=1)
    vectors = np.stack(
        [
            np.stack([values[name] for name in controls], axis=1)
            if controls
            else np.zeros((schedule.intervals, 0))
            for _, values in variants
        ],
        axis=1,
    )
    return shares, vectors, np.einsum("im,imc->ic", shares, vectors)


def as_jax(tree: Array) -> Array:
    """The same tree with JAX arrays at its leaves."""
    return jax.tree.map(jnp.asarray, tree)


def pack(tree: Any) -> np.ndarray:
    """All numbers of a tree as one vector, in the order that traced functions expect."""
    leaves = [np.ravel(np.asarray(leaf, dtype=float)) for leaf in jax.tree.leaves(tree)]
    return np.concatenate([np.zeros(0), *leaves])


def unpacked(function: Callable[..., Any], constants: Any) -> Callable[..., Any]:
    """``function(constants, …)`` with its constants, a tree of numbers, packed into one vector."""
    leaves, structure = jax.tree.flatten(constants)
    shapes = [np.shape(leaf) for leaf in leaves]
    stops = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)]).tolist()

    def unpack(packed: Array, *rest: Array) -> Any:
        parts = [
            packed[start:stop].reshape(shape)
            for shape, start, stop in zip(shapes, stops[:-1], stops[1:], strict=True)
        ]
        return function(jax.tree.unflatten(structure, parts), *rest)

    return unpack
