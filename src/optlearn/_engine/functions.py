"""A system and its costs as plain functions of vectors, the basis of every engine.

Everything that may change between two calls (states, controls, parameters, a system's own numbers) is an
argument, so traced or compiled programs work for all problems of one structure. ``Functions.key`` is that
structure; it is the only key of the program cache.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from optlearn._arrays import Array, Float, Settings
from optlearn._dynamics.system import System
from optlearn._engine.steps import CLASSICAL, EXACT, Stages, scanned_step
from optlearn._schedule import Schedule

# Of one problem: n state entries, m controls on each of I intervals, k free parameters, c constants.
Constants = Float[np.ndarray, " c"]
State = Float[np.ndarray, " n"]
Controls = Float[np.ndarray, "I m"]
FreeValues = Float[np.ndarray, " k"]
# NumPy or JAX, traced or not: a flat state, a vector of control values, v of them, and their shares.
Flat = Float[Array, " n"]
Vector = Float[Array, " c"]
Vectors = Float[Array, "v c"]
Shares = Float[Array, " v"]
Number = float | Float[Array, ""]


@dataclass(frozen=True)
class FlatSystem:
    """Drift and outputs of a system on its flat state.

    Attributes:
        system: the system.
        controls: names of the parameters that vary in time, in the order of control vectors.
        unrolled: mixed controls use a sum of drifts instead of one drift over a batch. An expression can then
            reuse one traced drift, while a compiler would compile it several times.
    """

    system: System
    controls: tuple[str, ...]
    unrolled: bool = False

    @property
    def key(self) -> Hashable:
        """Equal for systems that differ only in numbers."""
        leaves, structure = jax.tree.flatten(self.system)
        shapes = tuple(np.shape(leaf) for leaf in leaves)
        return structure, shapes, self.controls

    def drift(self, system: System, settings: Settings, flat: Flat, u: Vector) -> Flat:
        """dx/dα at a flat state under a control vector."""
        return _traced_once("drift", self.controls, system, dict(settings), flat, u)

    def mixed_drift(self, system: System, settings: Settings, flat: Flat, u: Vectors, shares: Shares) -> Flat:
        """Drift averaged over control vectors drawn with ``shares``."""
        return self._mixed(lambda vector: self.drift(system, settings, flat, vector), u, shares)

    def advance(self, system: System, settings: Settings, flat: Flat, u: Vector, length: Number) -> Flat:
        """Flat state after ``length`` under a control vector."""
        return _traced_once("advance", self.controls, system, dict(settings), flat, u, length)

    def mixed_advance(
        self, system: System, settings: Settings, flat: Flat, u: Vectors, shares: Shares, length: Number
    ) -> Flat:
        """The mean of the states reached under control vectors drawn with ``shares``.

        Mixing within an interval thus becomes mixing of end states, which is the same to first order in
        ``length``.
        """
        return self._mixed(lambda vector: self.advance(system, settings, flat, vector, length), u, shares)

    def _mixed(self, moved: Callable[[Array], Array], u: Array, shares: Array) -> Array:
        if u.shape[0] == 1:
            return moved(u[0])
        if self.unrolled:
            return sum(shares[i] * moved(u[i]) for i in range(u.shape[0]))
        return shares @ jax.vmap(moved)(u)

    def outputs(self, system: System, settings: Settings, flat: Flat, u: Vector) -> dict[str, Array]:
        """``error`` and the system's observables, scalars."""
        return dict(_traced_once("outputs", self.controls, system, dict(settings), flat, u))

    def merge(self, settings: Settings, u: Vector) -> dict[str, Array]:
        """The settings with the controls' values from a control vector."""
        return _merged(self.controls, settings, u)


def _merged(controls: tuple[str, ...], settings: Settings, u: Array) -> dict[str, Array]:
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
    """A method of a system on flat vectors; programs of one structure share its JAX trace."""
    result = getattr(system, method)(system.layout.unflatten(flat), _merged(controls, settings, u), *length)
    # JAX sorts the names of a plain dictionary.
    return OrderedDict(result) if method == "outputs" else system.layout.flatten(result)


def _no_cost(constants: Any, flat: Array, theta: Array) -> Array:
    del constants, flat, theta
    return np.zeros(())


class PathFunctions(NamedTuple):
    """Quantities with path limits, on a grid of intervals with s steps each.

    Attributes:
        values: (constants, x, w, θ) → (p,) values.
        read_state: (p,) whether each reads x.
        read_controls: (p,) whether each reads w.
    """

    values: Callable[..., Array]
    read_state: tuple[bool, ...]
    read_controls: tuple[bool, ...]

    def points(self, steps: int) -> np.ndarray:
        """(s + 1, p) flags: at which ends of the steps of an interval each value is checked.

        A value that reads controls jumps with them and counts on both sides; if it reads no state, it has a
        single value per interval. A value that reads only the state has one value where two intervals meet,
        and is fixed at the start. If constraints were counted twice, their multipliers would not be unique.
        """
        flags = np.tile(self.read_state, (steps + 1, 1))
        flags[0] = self.read_controls
        return flags


@dataclass(frozen=True)
class Functions:
    """The functions that an engine evaluates at a moment of training, in ``jax.numpy``.

    Sizes: n of the state x, m of the controls w, k of the free parameters θ.

    Attributes:
        system: the dynamics; an engine chooses whether its mixed controls are unrolled.
        sizes: n, m, k.
        curved: number of leading entries of w that are not shares: the rate need not be linear in them.
        constants: a tree of all numbers that the functions read, the system's own first, then the settings.
        parts: what must be equal for two problems to share a program, by name.
        make_rate: system → (constants, x, w, θ, h) → dx/dα (n,), running cost (). If steps are exact, these
            are means over a length h; for h = 0 the cost is that at x itself.
        final: (constants, x, θ) → final cost (); 0 for a system by itself.
        weights: number of trailing constants that are weights of several final costs.
        paths: quantities with path limits, if any.
    """

    system: FlatSystem
    sizes: tuple[int, int, int]
    curved: int
    constants: tuple[Any, ...]
    parts: Mapping[str, Hashable]
    make_rate: Callable[[FlatSystem], Callable[..., tuple[Array, Array]]]
    final: Callable[..., Array] = _no_cost
    weights: int = 0
    paths: PathFunctions | None = None

    @property
    def key(self) -> Hashable:
        """Equal for functions that differ only in numbers."""
        return tuple(self.parts.items())

    @property
    def stages(self) -> Stages:
        """Stages of a step; a single one for an exact ``advance``."""
        return EXACT if self.system.system.advances else CLASSICAL

    def rate(self, *, unrolled: bool = False) -> Callable[..., tuple[Array, Array]]:
        """The rate, with mixed controls as a sum or as a batch."""
        return self.make_rate(FlatSystem(self.system.system, self.system.controls, unrolled))

    @cached_property
    def on_vectors(self) -> "VectorFunctions":
        """The functions for JAX, with the constants as a vector too."""
        split = splitter(self.constants)
        rate, final = (unpacked(function, split) for function in (self.rate(), self.final))
        paths = None if self.paths is None else unpacked(self.paths.values, split)

        def split_ahead(packed: Array) -> Any:
            system, *others = split(packed)
            return system.arranged("forwards"), *others

        return VectorFunctions(rate, final, self.stages, split, split_ahead, paths)


@dataclass(frozen=True, eq=False)
class VectorFunctions:
    """Functions of vectors for compiled programs.

    Programs that call them in a loop split the constants beforehand: these hold the tables of quadratures,
    which every call would otherwise copy.

    Attributes:
        rate: (c, x, w, θ, h) → dx/dα (n,), running cost ().
        final: (c, x, θ) → final cost ().
        stages: stages of a step.
        split: c → its tree, which all functions accept in place of c.
        split_ahead: the same for programs with at most forward-mode derivatives.
        paths: (c, x, w, θ) → (p,) quantities with path limits, if any.
    """

    rate: Callable[..., tuple[Array, Array]]
    final: Callable[..., Array]
    stages: Stages
    split: Callable[[Array], Any]
    split_ahead: Callable[[Array], Any]
    paths: Callable[..., Array] | None = None

    def step(
        self, c: Array, x: Flat, w: Float[Array, " m"], theta: Float[Array, " k"], h: Number
    ) -> tuple[Flat, Float[Array, ""]]:
        """State and cost after one step of length h."""
        return scanned_step(self.stages, lambda y: self.rate(c, y, w, theta, h), x, h)


def system_functions(system: FlatSystem, settings: Settings, variants: int = 1) -> Functions:
    """A system by itself, without costs.

    Args:
        system: the system.
        settings: values of its parameters.
        variants: number v of mixed control vectors. The controls w are these vectors one after the other,
            followed by their shares if there are several.
    """
    count = len(system.controls)

    def make_rate(flat_system: FlatSystem) -> Callable[..., tuple[Array, Array]]:
        def rate(constants: Any, flat: Array, w: Array, theta: Array, h: Array) -> tuple[Array, Array]:
            del theta
            model, values = constants
            u = w[: variants * count].reshape(variants, count)
            shares = w[variants * count :] if variants > 1 else np.ones(1)
            if not model.advances:
                return flat_system.mixed_drift(model, values, flat, u, shares), np.zeros(())
            end = flat_system.mixed_advance(model, values, flat, u, shares, h)
            return (end - flat) / h, np.zeros(())

        return rate

    size = variants * count + (variants if variants > 1 else 0)
    return Functions(
        system=system,
        sizes=(system.system.layout.size, size, 0),
        curved=size,
        constants=(system.system, dict(settings)),
        parts={"the model": system.key, "the mixed controls": variants},
        make_rate=make_rate,
    )


def control_tables(
    schedule: Schedule, controls: tuple[str, ...]
) -> tuple[Float[np.ndarray, "I v"], Float[np.ndarray, "I v c"]]:
    """Shares and control vectors that a schedule mixes in each of its I intervals."""
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
    return shares, vectors


def pack(tree: Any) -> Float[np.ndarray, " c"]:
    """All numbers of a tree as one vector, in the order that traced functions expect."""
    leaves = [np.ravel(np.asarray(leaf, dtype=float)) for leaf in jax.tree.leaves(tree)]
    return np.concatenate([np.zeros(0), *leaves])


def splitter(constants: Any) -> Callable[[Array], Any]:
    """The inverse of ``pack`` for constants of this structure."""
    leaves, structure = jax.tree.flatten(constants)
    shapes = [np.shape(leaf) for leaf in leaves]
    stops = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)]).tolist()

    def split(packed: Array) -> Any:
        parts = [
            packed[start:stop].reshape(shape)
            for shape, start, stop in zip(shapes, stops[:-1], stops[1:], strict=True)
        ]
        return jax.tree.unflatten(structure, parts)

    return split


def unpacked(function: Callable[..., Any], split: Callable[[Array], Any]) -> Callable[..., Any]:
    """``function(constants, …)`` that accepts constants as a tuple or packed into one vector."""

    def unpack(packed: Any, *arguments: Array) -> Any:
        return function(packed if isinstance(packed, tuple) else split(packed), *arguments)

    return unpack
