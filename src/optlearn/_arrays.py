"""Arrays: types that say what numbers they hold and their shape, and float64 for optlearn alone.

``Float[np.ndarray, "I m"]`` has I rows of m floats; ``Float[Array, " n"]`` is a vector from NumPy or JAX.
Shapes are for readers, and for the tests, which check them at every call (``tests/shapes.py``). Users pay
nothing for them: without ``OPTLEARN_SHAPES`` in the environment, jaxtyping is not even imported.

Importing optlearn must not switch a host application's float32 code to float64, so nothing is set
at import: every public entry point that computes runs inside ``jax.enable_x64``. Loads nothing heavy.
"""

import os
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING or "OPTLEARN_SHAPES" in os.environ:
    from jaxtyping import Bool as Bool
    from jaxtyping import Float as Float
    from jaxtyping import Int as Int
    from jaxtyping import Shaped as Shaped
    from jaxtyping import UInt8 as UInt8
else:

    class Shaped:
        """Stands for the kinds of jaxtyping: an array of any shape."""

        def __class_getitem__(cls, item: tuple[Any, str]) -> Any:
            return item[0]

    Bool = Float = Int = UInt8 = Shaped

# A scalar or array of floats, from NumPy or JAX, traced or not.
Array = Any
# The values of every parameter and control of a system at one moment, by name.
Settings = Mapping[str, Array]

_P = ParamSpec("_P")
_T = TypeVar("_T")


def float64(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Run ``function`` with JAX's 64-bit types on, whatever the caller's own setting is."""

    @wraps(function)
    def inner(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        import jax  # here, so that decorated functions can be imported without loading it

        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return inner
