"""Checks before and after computations: a mistake in a specification gives a message instead of a NaN."""

from collections.abc import Hashable, Mapping
from typing import Any

import jax
import numpy as np

from optlearn._arrays import Array, Settings
from optlearn._dynamics.system import System
from optlearn._errors import SpecificationError, UnphysicalStateError
from optlearn._schedule import Schedule

# Tracing a system costs more than many integrations, so numbers that passed are remembered.
_PASSED: dict[Hashable, None] = {}
_REMEMBERED = 4096


def check_problem(
    system: System, start: Any, schedule: Schedule, parameters: Mapping[str, Array] | None = None
) -> tuple[Any, dict[str, Array]]:
    """Start and settings as float64 NumPy arrays, after all checks that need no integration."""
    if not isinstance(system, System):
        raise SpecificationError(f"model must be a System or LearningModel, got {type(system).__name__}")
    start = system.initial_state(start)
    settings = system.settings({**schedule.parameters, **(parameters or {})})
    unknown = [name for name in schedule.controls if name not in settings]
    if unknown:
        raise SpecificationError(
            f"the schedule holds {', '.join(map(repr, unknown))}, which {type(system).__name__} "
            f"does not have; its parameters are {', '.join(sorted(settings))}"
        )
    for name in schedule.controls:
        if np.ndim(settings[name]):
            raise SpecificationError(
                f"the schedule holds {name!r}, of shape {np.shape(settings[name])} in the model: "
                "it is not one number, and only numbers can be scheduled"
            )
    extremes = [(n, v) for n in schedule.controls for v in (schedule[n].min(), schedule[n].max())]
    for name, value in (*settings.items(), *extremes):
        system.check_parameter(name, value)
    for u in extreme_settings(schedule, settings):
        check_settings(system, start, u)
    return start, settings


def check_settings(system: System, start: Any, u: Settings) -> None:
    """Raise if settings are invalid, alone or in combination."""
    leaves, structure = jax.tree.flatten((system, start, dict(u)))
    case = (structure, b"".join(np.asarray(leaf).tobytes() for leaf in leaves))
    if case not in _PASSED:
        system.check_specification(start, u)
        _PASSED[case] = None
        if len(_PASSED) > _REMEMBERED:
            _PASSED.pop(next(iter(_PASSED)))


def check_states(system: System, states: np.ndarray, alphas: np.ndarray, where: str = "") -> None:
    """Raise ``UnphysicalStateError`` at the first of flat states (T, n), at times (T,), that is impossible.

    ``where`` names the place if it is not a training time.
    """
    infinite = np.argwhere(~np.isfinite(states))
    first: tuple[int, str] | None
    if len(infinite):
        time, entry = infinite[0]
        first = int(time), f"{system.layout.names[entry]} = {states[time, entry]:.6g}; it is not finite"
    else:
        first = system.first_impossible(states)
    if first is not None:
        place = where or f"at α = {alphas[first[0]]:.6g}"
        advice = system.start_advice if where else system.run_advice
        raise UnphysicalStateError(f"unphysical state {place}: {first[1]}. {advice}".rstrip())


def extreme_settings(schedule: Schedule, settings: Mapping[str, Array]) -> list[dict[str, Array]]:
    """Settings at the extreme values of each control, where a bound would be violated first."""
    chosen = {0}
    for name in schedule.controls:
        chosen |= {int(np.argmin(schedule[name])), int(np.argmax(schedule[name]))}
    return [
        {**settings, **{name: np.asarray(v[interval]) for name, v in values.items()}}
        for shares, values in schedule.variants()
        for interval in sorted(chosen)
        if shares[interval] > 0
    ]
