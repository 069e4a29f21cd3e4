"""Schedules as one line of text, THRESHOLD:VALUE …, which training systems take as an argument."""

from typing import Literal

import numpy as np

from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule
from optlearn.practice.steps import step_table


def thresholds(
    schedule: Schedule,
    control: str,
    *,
    unit: Literal["steps", "tokens"],
    steps: int | None,
    N: float | None,
    tokens_per_step: float | None,
    scale: float,
) -> str:
    """See ``Schedule.to_thresholds``."""
    if unit not in ("steps", "tokens"):
        raise SpecificationError(f"unit must be 'steps' or 'tokens', got {unit!r}")
    if (unit == "tokens") != (tokens_per_step is not None):
        raise SpecificationError("tokens_per_step must be given with unit='tokens', and only then")
    table = step_table(schedule, control, steps=steps, N=N, scale=scale, purpose="to_thresholds")
    values = np.array(table.values)
    changes = np.append(True, values[1:] != values[:-1])
    factor = 1 if tokens_per_step is None else tokens_per_step
    return " ".join(
        f"{round(first * factor)}:{value:.10g}"
        for first, value, changed in zip(table.first, table.values, changes, strict=True)
        if changed
    )
