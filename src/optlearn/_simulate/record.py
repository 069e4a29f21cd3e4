"""Around a simulation's loop: its expected cost, the times of records, and their evaluation."""

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from optlearn._arrays import Array, Float, Int, Settings
from optlearn._errors import SpecificationError, UnphysicalStateError, warn
from optlearn._schedule import Schedule
from optlearn._simulate.plan import Prepared, set_by_modes
from optlearn._theory.model import LearningModel

# Measured on one core of a laptop, with students of one or two nodes: overlap steps per second, and numbers
# per second processed by steps on weights.
STEPS_A_SECOND = 1e6
NUMBERS_A_SECOND = 1e8
HOUR = 3600.0
LONGEST = 30 * 24 * HOUR
# States whose error is computed at once; bounds the memory that a wide quadrature needs.
STATES_AT_ONCE = 8


class CostWarning(UserWarning):
    """A simulation will take hours. Fewer steps (a smaller N) or fewer seeds make it shorter."""


def check_cost(
    owner: str, *, N: int, steps: int, seeds: int, numbers_a_step: float = 0.0, numbers_held: float = 0.0
) -> None:
    """Warn of a run that takes hours; reject one that takes months, or more memory than available.

    A step of one run processes ``numbers_a_step`` numbers of weights and inputs; all runs store
    ``numbers_held``.
    """
    seconds = steps * seeds * (1 / STEPS_A_SECOND + numbers_a_step / NUMBERS_A_SECOND)
    memory, available = 8.0 * numbers_held, physical_memory()
    cost = f"{float(steps):.3g} steps of {seeds} seeds take about {in_words(seconds)} on one core"
    if memory > available:
        raise SpecificationError(
            f"{owner}: N must be smaller for {seeds} seeds to fit into memory, got {N}: they need "
            f"{memory / 2**30:,.0f} GiB of {available / 2**30:,.0f}"
        )
    if seconds > LONGEST:
        raise SpecificationError(f"{owner}: N must be smaller, got {N}: {cost}")
    if seconds > HOUR:
        warn(f"{owner}: with N = {N}, {cost}", CostWarning)


def physical_memory() -> float:
    """Bytes of memory of this machine; infinite if unknown."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return float("inf")


def in_words(seconds: float) -> str:
    """A duration in words."""
    for unit, length in (("years", 365 * 24 * HOUR), ("days", 24 * HOUR), ("hours", HOUR), ("minutes", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.0f} seconds"


def record_steps(
    record: int | Sequence[float] | np.ndarray, schedule: Schedule, N: int
) -> Int[np.ndarray, " T"]:
    """(T,) increasing numbers of steps after which a run is recorded."""
    total = count_steps(schedule, N)
    if isinstance(record, int | np.integer) and not isinstance(record, bool):
        if record < 2:
            raise SpecificationError(f"record must be at least 2 times, start and end, got {record!r}")
        return np.unique(np.round(np.linspace(0, total, int(record))).astype(np.int64))
    times = np.asarray(record, dtype=float)
    if times.ndim != 1 or len(times) == 0 or not np.all(np.isfinite(times)):
        raise SpecificationError(f"record must be a number of times, or training times α, got {record!r}")
    if np.any(np.diff(times) < 0) or times[0] < 0 or times[-1] > schedule.horizon * (1 + 1e-12):
        raise SpecificationError(
            f"record must be training times in order, from 0 to {schedule.horizon:g}, got {times.tolist()}"
        )
    return np.minimum(np.round(times * N).astype(np.int64), total)


def count_steps(schedule: Schedule, N: int) -> int:
    """Number of SGD steps in a whole run."""
    return round(schedule.horizon * N)


def check_finite(states: Float[np.ndarray, "S n"], names: tuple[str, ...], alpha: float) -> None:
    """Raise if an order parameter of a seed, in ``states`` (S, n), is not finite."""
    wrong = np.argwhere(~np.isfinite(states))
    if len(wrong):
        seed, entry = wrong[0]
        seeds = len(np.unique(wrong[:, 0]))
        raise UnphysicalStateError(
            f"{names[entry]} of seed {seed} is {states[seed, entry]} at α = {alpha:g} "
            f"({seeds} of {len(states)} seeds are no longer finite): the simulation diverged; "
            "is a learning rate too large?"
        )


def evaluate(
    run: Prepared,
    schedule: Schedule,
    alpha: Float[np.ndarray, " T"],
    states: Float[np.ndarray, "S T n"],
) -> dict[str, Float[np.ndarray, "S T"]]:
    """Generalisation error and observables, each (S, T), of flat states (S, T, n).

    As in the theory, a control that is drawn at random enters with its mean.
    """
    seeds, times, size = states.shape
    # Slightly later, so that round-off does not assign an edge to the interval that ends there.
    controls = schedule.at(alpha * (1 + 1e-12))
    varying = {name: np.tile(values, seeds) for name, values in controls.items()}
    quantities = _quantities(
        run.model, run.settings, run.controls.modes, varying, states.reshape(seeds * times, size)
    )
    return {name: np.asarray(values).reshape(seeds, times) for name, values in quantities.items()}


def run_info(
    began: float, *, N: int, seeds: int, seed: int, stops: Int[np.ndarray, " T"], **details: Any
) -> dict[str, Any]:
    """The ``info`` of a simulated Trajectory; the simulation began at ``time.perf_counter() == began``."""
    seconds = time.perf_counter() - began
    return {**details, "N": N, "seeds": seeds, "seed": seed, "steps": int(stops[-1]), "seconds": seconds}


@jax.jit
def _quantities(
    model: LearningModel,
    settings: Settings,
    modes: Mapping[str, Mapping[str, Array]],
    varying: Mapping[str, Array],
    states: Array,
) -> dict[str, Array]:
    def at_state(item: tuple[Array, dict[str, Array]]) -> dict[str, Array]:
        flat, controls = item
        return model.outputs(model.layout.unflatten(flat), set_by_modes({**settings, **controls}, modes))

    at_once = min(STATES_AT_ONCE, states.shape[0])
    return jax.lax.map(at_state, (states, dict(varying)), batch_size=at_once)
