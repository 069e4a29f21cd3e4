"""Immutable records that JAX takes apart: a subclass of ``Pytree`` is a dataclass, without a decorator.

Arrays in its fields are leaves to ``jit``, ``vmap`` and ``grad``; what is in a ``field(static=True)`` is
part of the structure, which is compared and hashed, never traced.
"""

import dataclasses
import inspect
from abc import ABCMeta
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Self, dataclass_transform

import jax
import numpy as np

from optlearn._signatures import bound_arguments

# In an instance's dictionary while its ``__init__`` runs: fields may be assigned.
_UNFINISHED = "_unfinished"


def field(*, static: bool = False, converter: Callable[[Any], Any] | None = None, **options: Any) -> Any:
    """``dataclasses.field`` that may be part of the structure, and may convert its value."""
    return dataclasses.field(metadata={"static": static, "converter": converter}, **options)


@dataclass_transform(field_specifiers=(dataclasses.field, field))
class _Making(ABCMeta):
    """How instances are made: ``__init__``, then converters, then every class's ``__check_init__``."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        kind: Any = cls
        made = kind.__new__(cls, *args, **kwargs)
        vars(made)[_UNFINISHED] = True
        try:
            kind.__init__(made, *args, **kwargs)
        except TypeError:
            bound_arguments(cls.__name__, cls.__signature__, args, kwargs)  # names those that exist
            raise
        del vars(made)[_UNFINISHED]
        for part in dataclasses.fields(kind):
            if not hasattr(made, part.name):
                raise TypeError(f"{cls.__name__}.__init__ must set the field {part.name!r}")
            if convert := part.metadata.get("converter"):
                vars(made)[part.name] = convert(getattr(made, part.name))
        for owner in cls.__mro__:
            if check := vars(owner).get("__check_init__"):
                check(made)
        return made

    @property
    def __signature__(cls) -> inspect.Signature:
        _, *parameters = inspect.signature(cls.__init__).parameters.values()  # type: ignore[misc]
        return inspect.Signature(parameters)


class Pytree(metaclass=_Making):
    """An immutable record. Equal ones have equal structures and numbers."""

    _leaves: ClassVar[tuple[str, ...]]
    _structure: ClassVar[tuple[str, ...]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # A hand-written __init__ is inherited; the dataclass decorator alone would replace it.
        generated = cls.__init__ is object.__init__ or hasattr(cls.__init__, "generated")
        dataclasses.dataclass(eq=False, repr=False, init=generated)(cls)
        if generated:
            cls.__init__.generated = True  # type: ignore[attr-defined]
        parts = dataclasses.fields(cls)
        # Read from the class each time: a class pickled by value gets its fields only after it is registered.
        cls._leaves = tuple(part.name for part in parts if not part.metadata.get("static"))
        cls._structure = tuple(part.name for part in parts if part.metadata.get("static"))
        jax.tree_util.register_pytree_with_keys(cls, _with_keys, cls._unflatten, _flatten)

    @classmethod
    def _unflatten(cls, structure: Iterable[Any], leaves: Iterable[Any]) -> Self:
        made = object.__new__(cls)  # nothing is checked: leaves may be placeholders
        vars(made).update(zip(cls._leaves, leaves, strict=True))
        vars(made).update(zip(cls._structure, structure, strict=True))
        return made

    def __setattr__(self, name: str, value: Any) -> None:
        if _UNFINISHED not in vars(self) or name not in self.__dataclass_fields__:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        forms: list[Any] = [jax.tree.structure(self), jax.tree.structure(other)]
        return forms[0] == forms[1] and all(map(_same, jax.tree.leaves(self), jax.tree.leaves(other)))

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, name) for name in (*self._leaves, *self._structure))))

    def __repr__(self) -> str:
        shown = [part.name for part in dataclasses.fields(self) if part.repr]
        return f"{type(self).__name__}({', '.join(f'{n}={_short(getattr(self, n))}' for n in shown)})"


def _flatten(tree: Pytree) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    return (
        tuple(getattr(tree, name) for name in tree._leaves),
        tuple(getattr(tree, name) for name in tree._structure),
    )


def _with_keys(tree: Pytree) -> tuple[Iterable[tuple[Any, Any]], tuple[Any, ...]]:
    leaves, structure = _flatten(tree)
    return zip(map(jax.tree_util.GetAttrKey, tree._leaves), leaves, strict=True), structure


def _same(first: Any, other: Any) -> bool:
    return np.shape(first) == np.shape(other) and bool(np.all(first == other))


def _short(value: Any) -> str:
    """An array by its dtype and shape: ``float64[3,2]``."""
    if isinstance(value, np.ndarray | jax.Array):
        return f"{value.dtype}[{','.join(map(str, value.shape))}]"
    return repr(value)
