"""From training time α to optimisation steps: the one place that converts between the two units.

A schedule uses only training time, α = steps/N with the input dimension N of the theory; a training loop uses
only steps. Every conversion therefore takes either the total number of steps or N. Adapters without a
framework are here too: a control as a function of the step, and an attribute that follows a control.
"""

from bisect import bisect_right
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from optlearn._arguments import Arguments, is_whole
from optlearn._arrays import Float
from optlearn._errors import SpecificationError, warn
from optlearn._schedule import Schedule
from optlearn._signatures import checked

# A learning rate at least this large is probably in the units of the theory, where rates are of order 1.
THEORY_RATE = 0.3
# Tables that agree to this relative accuracy count as the same schedule: solving again changes the last
# digits.
SAME = 1e-6


class UnitsWarning(UserWarning):
    """A learning rate in the theory's units is passed to an optimiser unscaled.

    The theory's weights are √N times those of a layer with N inputs, so its rate η corresponds to η/N there.
    Use ``scale=1/N``, or ``peak=1e-3`` for the shape alone; ``scale=1`` if you want the rate unchanged.
    """


class OtherScheduleWarning(UserWarning):
    """A run is resumed under a different schedule or total number of steps than it began with."""


class FollowsSteps(Protocol):
    """An adapter that callbacks inform of the number of optimiser steps done."""

    def set_step(self, steps_done: int) -> None:
        """Set the values of the step that follows ``steps_done`` optimiser steps."""


@dataclass(frozen=True)
class StepTable:
    """A control by optimisation step, in plain Python numbers that any framework can store.

    Attributes:
        first: first step of each interval, counted from 0.
        values: value of each interval.
        steps: steps of the whole training.
    """

    first: tuple[int, ...]
    values: tuple[float, ...]
    steps: int

    def at(self, step: int) -> float:
        """The value at a step, counted from 0; after the last step, that of the last interval."""
        return self.values[max(bisect_right(self.first, step) - 1, 0)]

    def all(self) -> Float[np.ndarray, " steps"]:
        """Value of every step."""
        lengths = np.diff(np.append(np.minimum(self.first, self.steps), self.steps))
        return np.repeat(self.values, lengths)

    def state(self) -> dict[str, Any]:
        """Plain lists and numbers, for a ``state_dict``."""
        return {"first": list(self.first), "values": list(self.values), "steps": self.steps}

    def resume(self, saved: dict[str, Any], step: int, purpose: str) -> None:
        """Warn if a run resumed at ``step`` began under a different table, saved as ``state``."""
        before = StepTable(tuple(saved["first"]), tuple(saved["values"]), int(saved["steps"]))
        if (before.steps, before.first) == (self.steps, self.first) and np.allclose(
            before.values, self.values, rtol=SAME, atol=0.0
        ):
            return
        warn(
            f"{purpose}: this run began under another schedule, of {before.steps} steps. It continues at "
            f"step {step} of {self.steps} under the present one, with {self.at(step):.4g} instead of "
            f"{before.at(step):.4g}",
            OtherScheduleWarning,
        )


def step_table(
    schedule: Schedule,
    control: str,
    *,
    steps: int | None,
    N: float | None,
    scale: float | None = None,
    peak: float | None = None,
    is_rate: bool = False,
    purpose: str,
) -> StepTable:
    """A numeric control of a schedule by optimisation step: step μ has the value of α = μ α_F/steps.

    Args:
        schedule: the schedule.
        control: name of the control.
        steps: optimisation steps of the whole training. Give this, or ``N``.
        N: input dimension.
        scale: factor of all values; None for 1.
        peak: the largest value, to which all values are scaled, instead of ``scale``.
        is_rate: whether it is an optimiser's learning rate, whose units are easily forgotten.
        purpose: name of the caller in messages.

    Warns:
        UnitsWarning: a learning rate as large as the theory's is given without ``scale`` and ``peak``.
    """
    if control in schedule.mixtures:
        mixed = ", ".join(f"{value:g}" for value in schedule.mixtures[control].values)
        raise SpecificationError(
            f"{purpose}: {control!r} is drawn for every sample from {mixed}; it is not one number for "
            "each step. Sample the data with practice.CurriculumSampler, or use a schedule without mixtures "
            "(solution.schedule instead of solution.relaxed.schedule)"
        )
    if control not in schedule.values:
        raise SpecificationError(
            f"{purpose}: no control {control!r} in this schedule; it has {', '.join(schedule.controls)}"
        )
    values = np.asarray(schedule.values[control])
    factor = _factor(float(values.max()), scale, peak, is_rate, purpose)
    total = total_steps(schedule, steps, N, purpose)
    first = schedule.first_steps(total / schedule.horizon)
    # If several intervals begin at the same step, only the last one counts.
    kept = np.append(np.diff(first) > 0, True) & (first < total)
    return StepTable(tuple(first[kept].tolist()), tuple((values * factor)[kept].tolist()), total)


def _factor(largest: float, scale: float | None, peak: float | None, is_rate: bool, purpose: str) -> float:
    """The factor from the schedule's values to the user's."""
    if scale is None and peak is None:
        if is_rate and largest >= THEORY_RATE:
            warn(
                f"{purpose}: the learning rate reaches {largest:.4g} in the units of the theory, whose "
                f"weights are √N times those of a layer with N inputs. With 784 inputs give scale=1/784, "
                f"which makes it {largest / 784:.2g}; peak=1e-3 to keep only the shape; or scale=1 if you "
                "really mean these values",
                UnitsWarning,
            )
        return 1.0
    if peak is None:
        return Arguments(purpose).number("scale", scale, 0.0, open_below=True)
    if scale is not None:
        raise SpecificationError(f"{purpose}: scale and peak must not both be given, got {scale!r}, {peak!r}")
    Arguments(purpose).number("peak", peak, 0.0, open_below=True)
    if largest <= 0:
        raise SpecificationError(
            f"{purpose}: peak must be left out where no value is above 0, got {peak!r} for values up to "
            f"{largest:g}"
        )
    return peak / largest


def total_steps(schedule: Schedule, steps: int | None, N: float | None, purpose: str) -> int:
    """Steps of the whole training, from exactly one of ``steps`` and ``N``."""
    if (steps is None) == (N is None):
        what = "got neither" if steps is None else f"got steps={steps!r} and N={N!r}"
        raise SpecificationError(
            f"{purpose}: give either steps=… (optimisation steps of the whole training) or N=… (the input "
            f"dimension, since α = steps/N), {what}. The schedule ends at training time "
            f"α_F = {schedule.horizon:g}, which is not a number of steps"
        )
    if steps is not None:
        if not is_whole(steps) or steps < 1:
            raise SpecificationError(
                f"{purpose}: steps must be a whole number of at least 1, the optimisation steps of all "
                f"training (not training time, of which this schedule has α_F = {schedule.horizon:g}), got "
                f"{steps!r}"
            )
        return int(steps)
    dimension = Arguments(purpose).number("N", N)
    if round(schedule.horizon * dimension) < 1:
        raise SpecificationError(
            f"{purpose}: N must be the input dimension, a number for which N·α_F = N·{schedule.horizon:g} is "
            f"at least one step, got {N!r}"
        )
    return round(schedule.horizon * dimension)


def step_function(table: StepTable) -> Callable[[Any], Any]:
    """Step (a whole number, traced or not) → value; after the last step, the last value.

    An ``optax.Schedule``: for a learning rate, ``optax.sgd(f)``; for any numeric argument of an
    optimiser, ``optax.inject_hyperparams(optimiser)(name=f)``; and for noise or dropout, a plain
    function inside the user's own step. See ``Schedule.to_optax``.
    """
    import jax.numpy as jnp

    first, values = np.array(table.first, dtype=np.int32), np.array(table.values)

    def value(step: Any) -> Any:
        # Converted here, in the precision of the caller's configuration.
        index = jnp.searchsorted(jnp.asarray(first), jnp.asarray(step, dtype=jnp.int32), side="right")
        return jnp.asarray(values, dtype=float)[jnp.maximum(index - 1, 0)]

    return value


class AttributeScheduler:
    """Sets an attribute of an object, or an entry of a dictionary, step by step.

    The value of the first step is set at once; call ``step()`` after every optimiser step. It needs
    no framework: a PyTorch module's ``noise``, a ``BatchSampler``'s ``batch_size`` or the entry
    ``weight_decay`` of an optimiser's parameter group are all set in the same way.

    Args:
        schedule: the schedule.
        control: name of the control.
        target: the object or dictionary.
        attribute: existing attribute or key to set. None if it has the name of the control.
        steps: optimisation steps of the whole training. Give this, or ``N``.
        N: input dimension; training then takes N·α_F steps.
        scale: factor from the schedule's values to the target's; None for 1.
        convert: conversion of the number to the value to set, such as ``round`` for a batch size.
    """

    @checked
    def __init__(
        self,
        schedule: Schedule,
        control: str,
        target: Any,
        attribute: str | None = None,
        *,
        steps: int | None = None,
        N: float | None = None,
        scale: float | None = None,
        convert: Callable[[float], Any] = float,
    ) -> None:
        self._table = step_table(
            schedule, control, steps=steps, N=N, scale=scale, purpose="AttributeScheduler"
        )
        self._target, self._attribute, self._convert = target, attribute or control, convert
        self._is_mapping = isinstance(target, MutableMapping)
        exists = self._attribute in target if self._is_mapping else hasattr(target, self._attribute)
        if not exists:
            what = "entry" if self._is_mapping else "attribute"
            raise SpecificationError(
                f"AttributeScheduler: target must have the {what} {self._attribute!r} (name another with "
                f"attribute=…), got {type(target).__name__}"
            )
        self.set_step(0)

    @property
    def value(self) -> Any:
        """The current value."""
        return self._convert(self._table.at(self._step))

    @property
    def steps_done(self) -> int:
        """The number of optimiser steps done."""
        return self._step

    def step(self) -> None:
        """Count one more optimiser step, and set the value of the next."""
        self.set_step(self._step + 1)

    def set_step(self, steps_done: int) -> None:
        """Set the value of the step that follows ``steps_done`` optimiser steps."""
        self._step = int(steps_done)
        if self._is_mapping:
            self._target[self._attribute] = self.value
        else:
            setattr(self._target, self._attribute, self.value)

    def state_dict(self) -> dict[str, Any]:
        """The position, and the schedule by step for comparison when a run is resumed."""
        return {"step": self._step, **self._table.state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a ``state_dict`` under this scheduler's own schedule.

        Warns:
            OtherScheduleWarning: the run began under a different schedule.
        """
        self.set_step(state["step"])
        self._table.resume(state, self._step, "AttributeScheduler")
