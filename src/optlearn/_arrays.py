"""Words for numbers that come from NumPy or JAX, traced or not."""

from collections.abc import Mapping
from typing import Any

# A scalar or array of floats, from NumPy or JAX, traced or not.
Array = Any
# The values of every parameter and control of a system at one moment, by name.
Settings = Mapping[str, Array]
