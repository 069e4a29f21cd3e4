"""When a run is recorded, and what the recorded order parameters mean."""

from collections.abc import Mapping, Sequence

import jax
import numpy as np

from optlearn._arrays import Array, Settings
from optlearn._errors import SpecificationError, UnphysicalStateError
from optlearn._schedule import Schedule
from optlearn._theory.model import LearningModel

# States whose error is computed at once; bounds the memory that a wide quadrature needs.
STATES_AT_ONCE = 8


def record_steps(record: int | Sequence[float] | np.ndarray, schedule: Schedule, N: int) -> np.ndarray:
    """(T,) numbers of steps after which a run is recorded, in increasing order."""
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
    """SGD steps of a whole run."""
    return round(schedule.horizon * N)


def check_finite(states: np.ndarray, names: tuple[str, ...], alpha: float) -> None:
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
    model: LearningModel, settings: Settings, schedule: Schedule, alpha: np.ndarray, states: np.ndarray
) -> dict[str, np.ndarray]:
    """Generalisation error and observables, each (S, T), of flat states (S, T, n).

    As for the theory, a control that is drawn at random enters with its mean.
    """
    seeds, times, size = states.shape
    controls = schedule.at(alpha * (1 + 1e-12))
    varying = {name: np.tile(values, seeds) for name, values in controls.items()}
    found = _quantities(model, dict(settings), varying, states.reshape(seeds * times, size))
    return {name: np.asarray(course).reshape(seeds, times) for name, course in found.items()}


@jax.jit
def _quantities(
    model: LearningModel, settings: Settings, varying: Mapping[str, Array], states: Array
) -> dict[str, Array]:
    def one(item: tuple[Array, dict[str, Array]]) -> dict[str, Array]:
        flat, controls = item
        x, u = model.layout.unflatten(flat), {**settings, **controls}
        return model.outputs(x, u)

    at_once = min(STATES_AT_ONCE, states.shape[0])
    return jax.lax.map(one, (states, dict(varying)), batch_size=at_once)
