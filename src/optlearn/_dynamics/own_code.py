"""User-written code: what it currently computes, and its errors.

Programs are compiled once for each structure of a system and then reused. A user's method may also read
values outside the structure, such as a global, a class attribute or a closure; if they change, the program
must change too. So methods from outside this package are traced again at every use, which takes milliseconds,
and a digest of what they compute becomes part of the structure.
"""

import hashlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from types import CodeType, FunctionType
from typing import Any

import jax
import numpy as np

from optlearn._errors import SpecificationError, warn

# Packages whose classes and functions do not change while a program runs.
_FIXED = {"optlearn", "builtins", "collections", "abc", "typing"}
# A function's address in memory does not affect what it computes.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")

# Similarity to a known name above which a name counts as misspelt: "penalties" is .75 of "penalty".
NEARLY = 0.75

# Name of a function, the function, and its arguments: numbers or shapes.
Part = tuple[str, Callable[..., Any], tuple[Any, ...]]


class Known(dict[str, Any]):
    """A state ``x``, or settings ``u``, that list the existing names if one is wrong."""

    def __init__(self, letter: str, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self._letter = letter

    def __missing__(self, name: str) -> Any:
        raise SpecificationError(f"{self._letter}[{name!r}] does not exist; there is {', '.join(self)}")


def is_own(cls: type) -> bool:
    """Whether a class has methods from outside this package."""
    return any(base.__module__.partition(".")[0] not in _FIXED for base in cls.__mro__)


def declares_all(cls: type) -> bool:
    """Whether a class itself defines all parameters of a system, instead of extending a system that does."""
    ready = {base.__module__ for base in cls.__mro__ if base.__module__.startswith("optlearn.")}
    general = {"optlearn._pytrees", "optlearn._dynamics.system", "optlearn._theory.model"}
    gives = "parameters" in vars(cls) or "parameters" in getattr(cls, "__dataclass_fields__", ())
    return is_own(cls) and gives and ready <= general


def digest(owner: str, parts: Iterable[Part]) -> str:
    """A digest of what functions compute for arguments of these shapes, which changes when they do.

    Args:
        owner: class or argument that the functions belong to, for messages.
        parts: the functions.

    Raises:
        SpecificationError: a function cannot be traced; the message says which, and why.
    """
    content = hashlib.sha256()
    for name, function, arguments in parts:
        with slips_explained(f"{owner}.{name}"):
            traced = jax.make_jaxpr(function)(*jax.tree.map(_shape, arguments))
        content.update(_ADDRESS.sub("", str(traced)).encode())
        for constant in traced.consts:
            content.update(np.asarray(constant).tobytes())
    return content.hexdigest()


def names_read(parts: Iterable[Part], names: Iterable[str]) -> set[str]:
    """The settings among ``names`` that functions use, as far as these can be traced.

    Untraceable functions count as reading all of them; the error is reported where they are used.
    """
    all_names, read = set(names), set[str]()
    for _, function, arguments in parts:
        try:
            shapes = jax.tree.map(_shape, arguments)
            traced, result = jax.make_jaxpr(function, return_shape=True)(*shapes)
        except Exception:
            return all_names
        jaxpr = traced.jaxpr
        leaf_names = [name for argument in arguments for name in _leaf_names(argument, all_names)]
        name_of = {id(v): name for name, v in zip(leaf_names, jaxpr.invars, strict=True) if name}
        used = [v for equation in jaxpr.eqns for v in equation.invars]
        # Settings that are passed on unchanged have not been read.
        handed_on = zip(_leaf_names(result, all_names), jaxpr.outvars, strict=True)
        used += [v for name, v in handed_on if name != name_of.get(id(v))]
        read |= {name_of[id(v)] for v in used if id(v) in name_of}
    return read


def _leaf_names(argument: Any, wanted: set[str]) -> list[str]:
    """The name of each leaf if the argument is the settings; "" for each leaf of others."""
    if isinstance(argument, dict) and set(argument) == wanted:
        return [name for name in sorted(argument) for _ in jax.tree.leaves(argument[name])]
    return [""] * len(jax.tree.leaves(argument))


def warn_of_misspelt(cls: type) -> None:
    """Warn of unused attributes of a class whose names resemble those of methods that it could define."""
    ready = next(base for base in cls.__mro__ if base.__module__.partition(".")[0] == "optlearn")
    # Methods that users write are functions of settings.
    methods = [name for name in dir(ready) if "u" in _arguments_of(getattr(ready, name, None))]
    own = {name: value for name, value in vars(cls).items() if not name.startswith("_")}
    mentioned = {name for value in vars(cls).values() for name in _mentioned(_code(value))}
    for name in own.keys() - set(dir(ready)) - mentioned - set(vars(cls).get("__annotations__", ())):
        candidates = [*methods, "names", "parameters", "check"]
        for near in get_close_matches(name.lower(), candidates, 1, cutoff=NEARLY):
            warn(f"nothing uses {cls.__name__}.{name}; did you mean {near}?")


def _arguments_of(function: Any) -> tuple[str, ...]:
    code = _code(function)
    return () if code is None else code.co_varnames[: code.co_argcount]


def _code(value: Any) -> CodeType | None:
    value = getattr(value, "fget", None) or getattr(value, "__func__", value)
    value = inspect.unwrap(value) if callable(value) else value
    return value.__code__ if isinstance(value, FunctionType) else None


def _mentioned(code: CodeType | None) -> set[str]:
    """Names that a function reads, and functions in it."""
    if code is None:
        return set()
    return set(code.co_names).union(*(_mentioned(c) for c in code.co_consts if isinstance(c, CodeType)))


@contextmanager
def slips_explained(where: str) -> Iterator[None]:
    """Turn errors in a user's function into messages that name the function."""
    try:
        yield
    except SpecificationError as error:
        raise SpecificationError(f"{where}: {error}") from error
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
        raise SpecificationError(
            f"{where} must not ask for the value of a number that varies, as a Python `if`, `float` or a "
            "function of NumPy does: use jnp.where and other functions of jax.numpy"
        ) from error
    except (ArithmeticError, AttributeError, LookupError, NameError, TypeError, ValueError) as error:
        raise SpecificationError(f"{where} fails with {type(error).__name__}: {error}") from error


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    array = np.asarray(leaf)
    return jax.ShapeDtypeStruct(array.shape, array.dtype)
