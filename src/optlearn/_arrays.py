"""Array types with dtype and shape, and float64 for optlearn alone.

``Float[np.ndarray, "I m"]`` has I rows of m floats; ``Float[Array, " n"]`` is a vector from NumPy or JAX.
Shapes are for readers and for the tests, which check them at every call (``tests/shapes.py``). They cost
users nothing: jaxtyping is not imported here, and only used if something else has imported it.

Importing optlearn must not switch a host application's float32 code to float64, so nothing is set
at import: every public entry point that computes runs inside ``jax.enable_x64``. Loads nothing heavy.
"""

import sys
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

__all__ = [
    "Array", "Bool", "Derivatives", "Float", "Float32", "Float64", "Int", "Key", "Settings", "Shaped",
    "UInt8", "UInt64", "float64", "quick_jit",
]  # fmt: skip

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    from jaxtyping import Bool, Float, Float32, Float64, Int, Key, Shaped, UInt8, UInt64
else:

    class Shaped:
        """Stands in for the types of jaxtyping: an array of any shape."""

        def __class_getitem__(cls, item: tuple[Any, str]) -> Any:
            return item[0]

    Bool = Float = Float32 = Float64 = Int = Key = UInt8 = UInt64 = Shaped

# A scalar or array of floats, from NumPy or JAX, traced or not.
Array = Any
# The values of every parameter and control of a system at one moment, by name.
Settings = Mapping[str, Array]
# How a program is differentiated. Forward-over-reverse is "backwards"; so are expressions, symbolically.
Derivatives = Literal["backwards", "forwards", "symbolic"]

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


def quick_jit(function: Callable[..., Any]) -> Any:
    """``jax.jit`` of a function that averages over points: compiles in half the time and runs as fast."""
    import jax

    return jax.jit(function, compiler_options=_quick_options(jax.default_backend()))


@cache
def _quick_options(backend: str) -> dict[str, str | bool | int] | None:
    """Options that turn off what slows XLA down in such programs, as far as this XLA knows them.

    The new fusion emitters take long to compile. Operations are so small that two threads mostly wait for
    each other: with the usual schedule, programs took a quarter to a half more CPU time on two cores, and no
    less wall-clock time. And a program that is compiled in parts repeats work in each of them.
    """
    import jax

    if backend != "cpu":
        return None
    known: dict[str, str | bool | int] = {}
    for name, value in (
        ("xla_cpu_use_fusion_emitters", False),
        ("xla_cpu_scheduler_type", "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"),
        ("xla_cpu_parallel_codegen_split_count", 1),
    ):
        try:
            jax.jit(lambda: 0, compiler_options={name: value}).lower().compile()
        except jax.errors.JaxRuntimeError:
            continue
        known[name] = value
    return known
