"""Arguments match the annotations of a signature, or an error names them.

``checked`` reads the annotations of a public function or class and rejects other kinds of values: text for a
number, a number for a schedule, NaN, an unknown name. ``Arguments`` checks ranges.
"""

import builtins
import inspect
import sys
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property, wraps
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import numpy as np

from optlearn._arguments import Arguments, article, as_numbers, is_whole
from optlearn._errors import CallError

Target = TypeVar("Target", bound=Callable[..., Any])
Entry = tuple[str, Any, "Kind | None"]


@dataclass(frozen=True)
class Kind:
    """What kind of value is allowed.

    Attributes:
        allowed: in words, to follow "must be".
        fits: whether a value is of this kind.
        entries: the entries of a value of this kind: names, values and kinds.
    """

    allowed: str
    fits: Callable[[Any], bool]
    entries: Callable[[str, Any], Iterable[Entry]] = lambda name, value: ()

    def check(self, check: Arguments, name: str, value: Any) -> None:
        """Raise unless ``value``, called ``name``, is of this kind."""
        if not self.fits(value):
            check.fail(name, value, f"must be {self.allowed}")
        for entry, held, kind in self.entries(name, value):
            if kind is not None:
                kind.check(check, entry, held)


def checked(target: Target) -> Target:
    """A function or class that rejects arguments which its signature does not allow."""
    if isinstance(target, type):
        target.__init__ = checked(target.__init__)  # type: ignore[misc]  # also of frozen dataclasses
        return target
    signature = _Signature(target)

    @wraps(target)
    def inner(*args: Any, **kwargs: Any) -> Any:
        signature.check(args, kwargs)
        return target(*args, **kwargs)

    return inner  # type: ignore[return-value]


class _Signature:
    """The signature of a function; its annotations are read when it is first called."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.signature = inspect.signature(function)
        *outer, name = function.__qualname__.split(".")
        self.arguments = Arguments(outer[-1] if name == "__init__" else name)

    @cached_property
    def kinds(self) -> dict[str, Kind]:
        names = vars(sys.modules[self.function.__module__])
        kinds = {}
        for parameter in self.signature.parameters.values():
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                kind = _kind(_evaluated(parameter.annotation, names))
                if kind is not None:
                    kinds[parameter.name] = kind
        return kinds

    def check(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        for name, value in bound_arguments(self.arguments.owner, self.signature, args, kwargs).items():
            if name in self.kinds:
                self.kinds[name].check(self.arguments, name, value)


def bound_arguments(
    owner: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments by their names.

    Raises:
        CallError: they do not fit the signature; the message names the arguments of ``owner``.
    """
    try:
        return signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        raise CallError(f"{owner}: {_advice(signature, kwargs) or error}") from None


def _advice(signature: inspect.Signature, kwargs: Mapping[str, Any]) -> str:
    parameters = [name for name in signature.parameters if name != "self"]
    for name in kwargs:
        if name not in parameters:
            near = get_close_matches(name, parameters, 1)
            meant = f"; did you mean {near[0]}?" if near else ""
            return f"{name} must be one of its arguments, {', '.join(parameters)}{meant}"
    return ""


def _evaluated(annotation: Any, names: Mapping[str, Any]) -> Any:
    """A text annotation evaluated; Any if that would need heavy imports."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, {}, _WithPublic(names))
    except (NameError, AttributeError):
        return Any


class _WithPublic(dict[str, Any]):
    """Names of a module; imports for type checkers only are looked up among the public names."""

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            raise KeyError(name)
        return getattr(sys.modules["optlearn"], name)


def _kind(annotation: Any) -> Kind | None:
    """The kind of value that an annotation allows; None: any."""
    # An array with a shape (jaxtyping) is here any array: sizes are checked where they are used.
    annotation = getattr(annotation, "array_type", annotation)
    origin, inner = get_origin(annotation), get_args(annotation)
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if origin in (Union, types.UnionType):
        return _either([_kind(part) for part in inner])
    if origin is Literal:
        return Kind(f"one of {', '.join(map(str, inner))}", lambda value: _is_in(value, inner))
    if origin is Callable or annotation is Callable:
        return Kind("a function", callable)
    container = origin if isinstance(origin, type) else annotation
    if not isinstance(container, type) or container in (Any, object, inspect.Parameter.empty):
        return None
    if issubclass(container, Mapping):
        return _mapping(*inner) if inner else Kind("a dictionary", lambda value: isinstance(value, Mapping))
    if issubclass(container, np.ndarray | Sequence | Collection) and container is not str:
        return _sequence(inner)
    if getattr(container, "_is_protocol", False) and not getattr(container, "_is_runtime_protocol", False):
        return None
    return Kind(article(container.__name__), lambda value: isinstance(value, container))


def _is_number(value: Any) -> bool:
    numbers = as_numbers(value)
    return numbers is not None and numbers.ndim == 0 and bool(np.isfinite(numbers))


def _is_in(value: Any, words: tuple[Any, ...]) -> bool:
    return any(type(value) is type(word) and value == word for word in words)


def _is_list(value: Any) -> bool:
    return np.iterable(value) and not isinstance(value, str | bytes | Mapping)


_PLAIN: dict[Any, Kind] = {
    int: Kind("a whole number", is_whole),
    float: Kind("a finite number", _is_number),
    bool: Kind("True or False", lambda value: isinstance(value, bool | np.bool_)),
    str: Kind("text", lambda value: isinstance(value, str)),
    None: Kind("None", lambda value: value is None),
    type(None): Kind("None", lambda value: value is None),
}


def _either(kinds: list[Kind | None]) -> Kind | None:
    limited = [kind for kind in kinds if kind is not None]
    if len(limited) < len(kinds):
        return None

    def entries(name: str, value: Any) -> Iterable[Entry]:
        return next(kind for kind in limited if kind.fits(value)).entries(name, value)

    words = list(dict.fromkeys(kind.allowed for kind in limited))
    if "a list of numbers" in words and "a list" in words:
        words.remove("a list")
    allowed = ", ".join(words[:-1]) + " or " * (len(words) > 1) + words[-1]
    return Kind(allowed, lambda value: any(kind.fits(value) for kind in limited), entries)


def _mapping(key: Any, held: Any) -> Kind:
    names, values = _kind(key), _kind(held)

    def entries(name: str, value: Mapping[Any, Any]) -> Iterator[Entry]:
        for key, item in value.items():
            yield f"a name in {name}", key, names
            yield f"{name}[{key!r}]", item, values

    return Kind("a dictionary", lambda value: isinstance(value, Mapping), entries)


def _sequence(inner: tuple[Any, ...]) -> Kind:
    held = _kind(inner[0]) if inner and (len(inner) == 1 or inner[1] is ...) else None
    if held in (_PLAIN[float], _PLAIN[int]):
        # Arrays of numbers may be long: their entries are checked together, where they are used.
        return Kind("a list of numbers", lambda value: _is_list(value) and as_numbers(value) is not None)

    def entries(name: str, value: Iterable[Any]) -> Iterator[Entry]:
        if held is not None:
            yield from ((f"{name}[{i}]", entry, held) for i, entry in enumerate(value))

    return Kind("a list", _is_list, entries)
