"""Values in the types that JSON has, and JSON text of unknown origin."""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any


def _refuse(value: Any) -> Any:
    raise TypeError(f"{value!r} has no place in JSON")


def plain(
    value: Any, *, number: Callable[[float], float | None] = float, other: Callable[[Any], Any] = _refuse
) -> Any:
    """The same in the types that JSON has.

    Args:
        value: mappings, sequences, arrays of NumPy and JAX, numbers, text; nested.
        number: what becomes of a float, such as ``finite``.
        other: what becomes of anything else; a TypeError by default.
    """
    if isinstance(value, Mapping):
        return {_key(key): plain(item, number=number, other=other) for key, item in value.items()}
    if hasattr(value, "tolist"):  # NumPy's and JAX's arrays and numbers
        return plain(value.tolist(), number=number, other=other)
    if isinstance(value, list | tuple):
        return [plain(item, number=number, other=other) for item in value]
    if isinstance(value, float):
        return number(value)
    return value if value is None or isinstance(value, bool | int | str) else other(value)


def _key(key: Any) -> str:
    """A key as text; a number such as 0.1 + 0.2 without the digits that are round-off."""
    return f"{key:.12g}" if isinstance(key, float) else str(key)


def finite(value: float) -> float | None:
    """The number; None, JSON's null, for one that is not finite."""
    return value if math.isfinite(value) else None


def parse(text: str | bytes) -> Any:
    """What JSON text says.

    Raises:
        ValueError: it is not JSON, or nested beyond all reason.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
