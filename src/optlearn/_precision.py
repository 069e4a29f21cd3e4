"""float64 for optlearn alone.

Importing optlearn must not switch a host application's float32 code to float64, so nothing is set
at import: every public entry point that computes runs inside ``jax.enable_x64``. Loads nothing heavy.
"""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def float64(function: Callable[P, T]) -> Callable[P, T]:
    """Run ``function`` with JAX's 64-bit types on, whatever the caller's own setting is."""

    @wraps(function)
    def inner(*args: P.args, **kwargs: P.kwargs) -> T:
        import jax  # here, so that decorated functions can be imported without loading it

        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return inner
