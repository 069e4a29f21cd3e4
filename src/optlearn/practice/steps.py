"""From training time α to optimisation steps: the one place where the two units meet.

A schedule knows only training time, α = steps/N with the input dimension N of the theory. A training
loop knows only steps. So every conversion is told either the total number of steps, or N.
"""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np

from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule


@dataclass(frozen=True)
class StepTable:
    """A control by optimisation step, in plain Python numbers that any framework can store.

    Attributes:
        first: first step of each interval, from 0 on.
        values: value of each interval.
        steps: steps of the whole training.
    """

    first: tuple[int, ...]
    values: tuple[float, ...]
    steps: int

    def at(self, step: int) -> float:
        """The value at a step, counted from 0; after the last step, that of the last interval."""
        return self.values[max(bisect_right(self.first, step) - 1, 0)]

    def all(self) -> np.ndarray:
        """(steps,) value of every step."""
        lengths = np.diff(np.append(np.minimum(self.first, self.steps), self.steps))
        return np.repeat(self.values, lengths)


def step_table(
    schedule: Schedule,
    control: str,
    *,
    steps: int | None,
    N: float | None,
    scale: float = 1.0,
    purpose: str,
) -> StepTable:
    """A numeric control of a schedule by optimisation step: step μ has the value of α = μ α_F/steps.

    Args:
        schedule: the schedule.
        control: name of the control.
        steps: optimisation steps of the whole training. Give this, or ``N``.
        N: input dimension.
        scale: factor of all values.
        purpose: who asks, for messages.
    """
    if control in schedule.mixtures:
        mixed = ", ".join(f"{value:g}" for value in schedule.mixtures[control].values)
        raise SpecificationError(
            f"{purpose}: {control!r} is drawn anew for every sample, out of {mixed}; it is not a number at "
            "each step. Sample the data with practice.CurriculumSampler, or use a schedule without mixtures "
            "(solution.schedule instead of solution.relaxed.schedule)"
        )
    if control not in schedule.values:
        raise SpecificationError(
            f"{purpose}: no control {control!r} in this schedule; it has {', '.join(schedule.controls)}"
        )
    if not np.isfinite(scale):
        raise SpecificationError(f"{purpose}: scale={scale!r}: a finite number")
    total = total_steps(schedule, steps, N, purpose)
    first = schedule.first_steps(total / schedule.horizon)
    # Of intervals that begin at the same step only the last one counts.
    kept = np.append(np.diff(first) > 0, True) & (first < total)
    values = np.asarray(schedule.values[control]) * scale
    return StepTable(tuple(first[kept].tolist()), tuple(values[kept].tolist()), total)


def is_whole(value: Any) -> bool:
    """Is it a whole number (not a float, nor True)?"""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def total_steps(schedule: Schedule, steps: int | None, N: float | None, purpose: str) -> int:
    """Steps of the whole training, from exactly one of ``steps`` and ``N``."""
    if (steps is None) == (N is None):
        given = "neither was given" if steps is None else f"both were given, steps={steps!r} and N={N!r}"
        raise SpecificationError(
            f"{purpose}: give either steps (optimisation steps of the whole training) or N (input dimension, "
            f"of which training time α = steps/N is counted); {given}. The schedule itself ends at training "
            f"time α_F = {schedule.horizon:g}, which is not a number of steps"
        )
    if steps is not None:
        if not is_whole(steps) or steps < 1:
            raise SpecificationError(
                f"{purpose}: steps={steps!r}: a whole number of at least 1, the optimisation steps of all "
                f"training (not training time, of which this schedule has α_F = {schedule.horizon:g})"
            )
        return int(steps)
    dimension = float(N) if isinstance(N, int | float | np.number) and not isinstance(N, bool) else np.nan
    if not (np.isfinite(dimension) and round(schedule.horizon * dimension) >= 1):
        raise SpecificationError(
            f"{purpose}: N={N!r}: the input dimension, a number for which N·α_F = N·{schedule.horizon:g} is "
            "at least one step"
        )
    return round(schedule.horizon * dimension)
