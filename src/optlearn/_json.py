"""Conversion of values to JSON types, and safe reading of JSON text."""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any


def _refuse(value: Any) -> Any:
    raise TypeError(f"{value!r} cannot be written as JSON")


def plain(
    value: Any, *, number: Callable[[float], float | None] = float, other: Callable[[Any], Any] = _refuse
) -> Any:
    """The value in JSON types.

    Args:
        value: mappings, sequences, arrays of NumPy and JAX, numbers, text; nested.
        number: conversion of floats, such as ``finite``.
        other: conversion of anything else; raises a TypeError by default.
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
    """A key as text; a number such as 0.1 + 0.2 without its round-off digits."""
    return f"{key:.12g}" if isinstance(key, float) else str(key)


def finite(value: float) -> float | None:
    """The number; None (null in JSON) if it is not finite."""
    return value if math.isfinite(value) else None


def parse(text: str | bytes) -> Any:
    """The content of JSON text.

    Raises:
        ValueError: the text is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
