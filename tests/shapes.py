"""Shapes and dtypes of arrays, checked at every call of a function that names them.

jaxtyping's import hook asks a type checker for each function; this one looks at arrays alone, and leaves all
other annotations to mypy.
"""

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any, Union, get_args, get_origin

import jaxtyping

from optlearn import _errors

# What says shapes, but where users make objects: there, messages about wrong arguments are what is tested.
CONTROL = ("batched", "compiled", "evaluate", "finish", "hamiltonian", "rounding", "runs", "solvers")
THEORY = ("checks", "drift", "model", "sample", "sampler")
ROOMS = [
    *(f"optlearn.{room}" for room in ("_bounds", "_engine", "_planning", "_simulate")),
    *(f"optlearn._control.{module}" for module in CONTROL),
    *(f"optlearn._theory.{module}" for module in THEORY),
]


def check_shapes() -> None:
    """From now on, functions of modules that are imported check their arrays."""
    jaxtyping.install_import_hook(ROOMS, "tests.shapes.checked")
    # Warnings point at the first line outside the package, and what checks is no such line.
    _errors._PASSED_OVER = (*_errors._PASSED_OVER, "_decorator.py", "shapes.py")


def checked(function: Any) -> Any:
    """The function, which raises a TypeError for arrays of another shape or dtype than it says."""
    if not inspect.isfunction(function):
        return function
    kinds = {name: kind for name, kind in function.__annotations__.items() if _has_arrays(kind)}
    if not kinds:
        return function
    # By position, since binding a signature at every call takes longer than many a function.
    parameters = tuple(inspect.signature(function).parameters)

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        for name, value in (*zip(parameters, args, strict=False), *kwargs.items()):
            if name in kinds and not _fits(value, kinds[name]):
                raise TypeError(f"{function.__qualname__}: {name} is {_shown(value)}, not {kinds[name]}")
        result = function(*args, **kwargs)
        if "return" in kinds and not _fits(result, kinds["return"]):
            raise TypeError(f"{function.__qualname__} returns {_shown(result)}, not {kinds['return']}")
        return result

    return wrapped


def _is_array(kind: Any) -> bool:
    return inspect.isclass(kind) and get_origin(kind) is None and issubclass(kind, jaxtyping.AbstractArray)


def _has_arrays(kind: Any) -> bool:
    return _is_array(kind) or any(map(_has_arrays, get_args(kind)))


def _fits(value: Any, kind: Any) -> bool:
    """Whether all arrays in a value are what its kind says; what is no array is not looked at."""
    if _is_array(kind):
        return isinstance(value, kind)
    origin, inner = get_origin(kind), get_args(kind)
    if not _has_arrays(kind) or isinstance(origin, Callable):
        return not inspect.isclass(kind) or value is None or isinstance(value, kind | int | float)
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is tuple and Ellipsis not in inner:
        return len(value) == len(inner) and all(map(_fits, value, inner))
    if origin in (tuple, list):
        return all(_fits(part, inner[0]) for part in value)
    if origin is dict:
        return all(_fits(part, inner[1]) for part in value.values())
    return True


def _shown(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_shown, value))})"
    return f"{getattr(value, 'dtype', type(value).__name__)}{list(getattr(value, 'shape', ()))}"
