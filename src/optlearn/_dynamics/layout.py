"""The state of a system as named entries and as one flat vector."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np
from typing_extensions import override

from optlearn._arguments import as_numbers
from optlearn._arrays import Array
from optlearn._errors import SpecificationError


class Layout(Protocol):
    """Names of a state's entries, and conversion between a state and its flat vector."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the n entries of the flat vector."""

    @property
    def size(self) -> int:
        """n, the length of the flat vector."""
        return len(self.names)

    @property
    def nonnegative(self) -> np.ndarray:
        """(n,) flags of entries that are never below zero, such as squared norms; False if unknown."""
        return np.zeros(self.size, dtype=bool)

    def flatten(self, x: Array) -> Array:
        """(…, n) flat vector of a state."""

    def unflatten(self, flat: Array) -> Array:
        """The state of a flat vector (…, n)."""

    def state(self, **values: Array) -> Array:
        """A state from named values; the rest is zero."""


@dataclass(frozen=True)
class NamedLayout(Layout):
    """States that are dictionaries: a name for each number, or for each vector of numbers.

    Args:
        owner: class of the system, for messages.
        lengths: name → None for one number, or the length of a vector, whose entries are then called
            ``V1``, ``V2`` and so on.
    """

    owner: str
    lengths: tuple[tuple[str, int | None], ...]

    @classmethod
    def of(cls, owner: str, names: Any) -> "NamedLayout":
        """The layout of ``names``: a tuple of numbers' names, or a mapping from name to length."""
        lengths: dict[str, Any] = {}
        if isinstance(names, Mapping | tuple | list):
            lengths = dict(names) if isinstance(names, Mapping) else dict.fromkeys(names)
        sizes = [length for length in lengths.values() if length is not None]
        identifiers = all(str(name).isidentifier() for name in lengths)
        if not lengths or not identifiers or not all(isinstance(size, int) and size > 0 for size in sizes):
            raise SpecificationError(
                f"{owner}.names must be a tuple of names, or a mapping from name to length, got {names!r}"
            )
        return cls(owner, tuple(lengths.items()))

    @cached_property
    @override
    def names(self) -> tuple[str, ...]:
        names: list[str] = []
        for name, length in self.lengths:
            names += [name] if length is None else [f"{name}{i + 1}" for i in range(length)]
        return tuple(names)

    @override
    def flatten(self, x: Any) -> Array:
        keys = sorted(x) if isinstance(x, Mapping) else type(x).__name__
        if keys != sorted(name for name, _ in self.lengths):
            raise SpecificationError(
                f"{self.owner}: a state, and the drift of one, must be a dictionary with the keys "
                f"{[name for name, _ in self.lengths]}, got {keys}"
            )
        numpy = all(isinstance(value, np.ndarray | np.generic | float | int) for value in x.values())
        library = np if numpy else jnp
        parts = []
        for name, length in self.lengths:
            value = library.asarray(x[name], dtype=float)
            if length is not None and value.shape[-1:] != (length,):
                raise SpecificationError(
                    f"{self.owner}: {name!r} must have {length} entries, got shape {value.shape}"
                )
            parts.append(value[..., None] if length is None else value)
        batch = np.broadcast_shapes(*(part.shape[:-1] for part in parts))
        return library.concatenate([library.broadcast_to(p, (*batch, p.shape[-1])) for p in parts], axis=-1)

    @override
    def unflatten(self, flat: Array) -> dict[str, Array]:
        state, start = {}, 0
        for name, length in self.lengths:
            stop = start + (length or 1)
            state[name] = flat[..., start] if length is None else flat[..., start:stop]
            start = stop
        return state

    def state(self, **values: Array) -> dict[str, np.ndarray]:
        """A state from named values; one number fills a vector; the rest is zero."""
        made = {n: np.zeros(() if length is None else length) for n, length in self.lengths}
        for name, value in values.items():
            if name not in made:
                raise SpecificationError(f"{self.owner} has no state {name!r}; it has {', '.join(made)}")
            array, shape = as_numbers(value), made[name].shape
            if array is None or array.shape not in ((), shape):
                got = repr(value) if array is None else array.shape
                raise SpecificationError(f"start: {name!r} must be numbers of shape {shape}, got {got}")
            made[name] = np.array(np.broadcast_to(array, shape))
        return made


@dataclass(frozen=True)
class JoinedLayout(Layout):
    """States that are tuples of states: the names of each part carry its suffix.

    Args:
        parts: layouts of the parts.
        suffixes: one per part, such as ``_1`` and ``_2``.
    """

    parts: tuple[Layout, ...]
    suffixes: tuple[str, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the n entries of the flat vector, part by part."""
        pairs = zip(self.parts, self.suffixes, strict=True)
        return tuple(f"{name}{suffix}" for part, suffix in pairs for name in part.names)

    @property
    @override
    def nonnegative(self) -> np.ndarray:
        return np.concatenate([part.nonnegative for part in self.parts])

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """Entries of the flat vector that belong to each part."""
        ends = np.cumsum([part.size for part in self.parts]).tolist()
        return tuple(slice(end - part.size, end) for end, part in zip(ends, self.parts, strict=True))

    @override
    def flatten(self, x: Any) -> Array:
        vectors = [part.flatten(state) for part, state in zip(self.parts, x, strict=True)]
        library = np if all(isinstance(vector, np.ndarray) for vector in vectors) else jnp
        return library.concatenate(vectors, axis=-1)

    @override
    def unflatten(self, flat: Array) -> tuple[Array, ...]:
        return tuple(part.unflatten(flat[..., s]) for part, s in zip(self.parts, self.slices, strict=True))

    def state(self, **values: Array) -> tuple[Array, ...]:
        """A state from named values, suffixes included; the rest is zero."""
        flat = np.zeros(self.size)
        for name, value in values.items():
            if name not in self.names:
                raise SpecificationError(f"there is no state {name!r}; there are {', '.join(self.names)}")
            flat[self.names.index(name)] = value
        return self.unflatten(flat)
