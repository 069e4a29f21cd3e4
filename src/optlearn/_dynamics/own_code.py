"""Code that a user wrote: what it computes now, and what went wrong in it.

Programs are compiled once for each structure of a system and then reused. A user's method may also read what
belongs to no structure, such as a global, a class attribute or a closure; if that changes, the program must
change with it. So methods from outside this package are traced again at every use, which takes
milliseconds, and a digest of what they compute becomes part of the structure.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from optlearn._errors import SpecificationError

# Packages of classes and functions that do not change while a program runs.
_FIXED = {"optlearn", "builtins", "collections", "abc", "typing"}
# A function's place in memory says nothing about what it computes.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")

# Name of a function, the function, and its arguments: numbers or shapes.
Part = tuple[str, Callable[..., Any], tuple[Any, ...]]


class Known(dict[str, Any]):
    """A state ``x``, or settings ``u``, that say what there is when a name is wrong."""

    def __init__(self, letter: str, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self._letter = letter

    def __missing__(self, name: str) -> Any:
        raise SpecificationError(f"{self._letter}[{name!r}] does not exist; there is {', '.join(self)}")


def is_own(cls: type) -> bool:
    """Whether a class has methods from outside this package."""
    return any(base.__module__.partition(".")[0] not in _FIXED for base in cls.__mro__)


def digest(owner: str, parts: Iterable[Part]) -> str:
    """What functions compute for arguments of these shapes, as a short text that changes when they do.

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


@contextmanager
def slips_explained(where: str) -> Iterator[None]:
    """Turn what goes wrong in a user's function into a sentence that names the function."""
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
