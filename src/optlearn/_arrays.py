"""Types of arrays: what kind of numbers they hold, and their shape.

``Float[np.ndarray, "I m"]`` has I rows of m floats; ``Float[Array, " n"]`` is a vector from NumPy or JAX.
Shapes are for readers, and for the tests, which check them at every call (``tests/shapes.py``). Users pay
nothing for them: jaxtyping is not imported here, only used if somebody has imported it.
"""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

__all__ = [
    "Array", "Bool", "Constants", "Controls", "Float", "Float32", "Float64", "FreeValues", "Int", "Key",
    "Settings", "Shaped", "State", "UInt8", "UInt64",
]  # fmt: skip

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    from jaxtyping import Bool, Float, Float32, Float64, Int, Key, Shaped, UInt8, UInt64
else:

    class Shaped:
        """Stands for the kinds of jaxtyping: an array of any shape."""

        def __class_getitem__(cls, item: tuple[Any, str]) -> Any:
            return item[0]

    Bool = Float = Float32 = Float64 = Int = Key = UInt8 = UInt64 = Shaped

# A scalar or array of floats, from NumPy or JAX, traced or not.
Array = Any
# The values of every parameter and control of a system at one moment, by name.
Settings = Mapping[str, Array]

# Of one problem: n numbers of the state, m controls on each of I intervals, k free parameters, c constants.
Constants = Float[np.ndarray, " c"]
State = Float[np.ndarray, " n"]
Controls = Float[np.ndarray, "I m"]
FreeValues = Float[np.ndarray, " k"]
