"""Types of arrays: what kind of numbers they hold, and their shape.

``Float[np.ndarray, "I m"]`` has I rows of m floats; ``Float[Array, " n"]`` is a vector from NumPy or JAX.
Shapes are for readers, and for the tests, which check them at every call (``tests/shapes.py``). Users pay
nothing for them: without ``OPTLEARN_SHAPES`` in the environment, jaxtyping is not even imported.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

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

# Of one problem: n numbers of the state, m controls on each of I intervals, k free parameters, c constants.
Constants = Float[np.ndarray, " c"]
State = Float[np.ndarray, " n"]
Controls = Float[np.ndarray, "I m"]
FreeValues = Float[np.ndarray, " k"]
