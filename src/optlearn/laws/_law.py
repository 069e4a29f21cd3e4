"""The law: how the loss of a network follows its learning rate.

Progress is the integral of a power of the rate, and the noise of SGD is the sum of modes that relax to a
floor set by the rate, each at its own pace::

    dS/dt   = η^κ                                   progress
    dv_r/dt = r η^q (η^p / b − v_r)                 modes; r from a Gamma law
    L       = L₀ + A (S + S₀)^−α + B Σ_r w_r v_r    loss

Rates η are counted in units of the peak, batches b in units of the usual one, time in units of the longest
run, so that all numbers are of order one. Over an interval of constant settings it is solved exactly
(``over_interval``, ``relax``, ``loss_of``): by a fit for many parameters and runs at once, in NumPy, and by
the solvers one interval after the other, in JAX.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from optlearn._arrays import Array, Float
from optlearn._errors import SpecificationError

NODES = 16  # relaxation rates


@dataclass(frozen=True)
class Parameter:
    """One parameter of the law.

    Attributes:
        lower, upper: bounds.
        start: where fits begin.
        log: fitted as its logarithm.
        spread: what is known beforehand: ``start`` give or take this (in the logarithm if ``log``).
    """

    lower: float
    upper: float
    start: float
    log: bool = False
    spread: float = np.inf

    def encode(self, value: np.ndarray | float) -> np.ndarray:
        """The number that is fitted."""
        return np.log(value) if self.log else np.asarray(value, dtype=float)

    def decode(self, number: np.ndarray | float) -> np.ndarray:
        """The parameter of a fitted number."""
        return np.exp(number) if self.log else np.asarray(number, dtype=float)


# Curves of one peak rate and a few shapes say little about the exponents of the rate; what they are expected
# to be was found by cross-validation over splits of public curves of language models (docs/laws.md).
PARAMETERS: Mapping[str, Parameter] = {
    "floor": Parameter(0.0, np.inf, 1.0),  # L₀
    "amplitude": Parameter(1e-6, 1e6, 0.3, log=True),  # A
    "exponent": Parameter(0.02, 3.0, 0.5, log=True),  # α
    "head_start": Parameter(1e-7, 1.0, 1e-4, log=True, spread=3.0),  # S₀
    "progress_power": Parameter(0.1, 1.6, 0.95, spread=0.05),  # κ
    "noise": Parameter(1e-6, 1e6, 0.1, log=True),  # B
    "speed": Parameter(1.0, 1e5, 100.0, log=True, spread=2.0),  # mean of r
    "shape": Parameter(0.05, 50.0, 0.7, log=True, spread=1.0),  # of the Gamma law of r
    "noise_power": Parameter(0.2, 2.0, 0.9, spread=0.1),  # p
    # Below 0 everything would relax at once under tiny rates, and an optimum would make use of that.
    "relaxation_power": Parameter(0.05, 2.0, 0.85, spread=0.2),  # q
}
NAMES = tuple(PARAMETERS)

# Known laws are special cases, by exponents that are fixed.
LAWS: Mapping[str, Mapping[str, float]] = {
    "general": {},
    "multi-power": {"progress_power": 1.0, "noise_power": 1.0},
    "sgd": {"progress_power": 1.0, "noise_power": 1.0, "relaxation_power": 1.0},
    "momentum": {"progress_power": 1.0, "noise_power": 1.0, "relaxation_power": 0.05, "shape": 50.0},
}


def fixed_parameters(law: str, fixed: Mapping[str, float] | None) -> dict[str, float]:
    """Parameters that a fit must not change."""
    if law not in LAWS:
        raise SpecificationError(f"law must be one of {', '.join(LAWS)}, got {law!r}")
    values = {**LAWS[law], **(fixed or {})}
    for name, value in values.items():
        if name not in PARAMETERS:
            raise SpecificationError(f"fixed must name parameters ({', '.join(NAMES)}), got {name!r}")
        parameter = PARAMETERS[name]
        if not parameter.lower <= value <= parameter.upper:
            raise SpecificationError(
                f"fixed[{name!r}] must lie between {parameter.lower:g} and {parameter.upper:g}, got {value!r}"
            )
    return values


@lru_cache(maxsize=4096)
def _gamma_nodes(shape: float) -> tuple[np.ndarray, np.ndarray]:
    """Gauss nodes and weights of the Gamma law of mean 1, from its Jacobi matrix (Golub and Welsch)."""
    k = np.arange(NODES)
    off = np.sqrt(k[1:] * (k[1:] + shape - 1))
    nodes, vectors = np.linalg.eigh(np.diag(2 * k + shape) + np.diag(off, 1) + np.diag(off, -1))
    return nodes / shape, vectors[0] ** 2


def relaxation_rates(
    parameters: Float[np.ndarray, "K 10"],
) -> tuple[Float[np.ndarray, "K 16"], Float[np.ndarray, "K 16"]]:
    """(K, NODES) rates r and their weights, for parameters (K, 10)."""
    speed, shape = parameters[:, NAMES.index("speed")], parameters[:, NAMES.index("shape")]
    laws = [_gamma_nodes(float(s)) for s in shape]
    return speed[:, None] * np.stack([nodes for nodes, _ in laws]), np.stack([w for _, w in laws])


# --- the law over an interval of constant settings, by name of the parameter ---------------------


def over_interval(
    value: Mapping[str, Array], eta: Array, batch: Array, length: Array
) -> tuple[Array, Array, Array]:
    """Progress in an interval, the level that modes relax to, and the time that a mode of rate 1 sees."""
    progress = eta ** value["progress_power"] * length
    level = eta ** value["noise_power"] / batch
    return progress, level, eta ** value["relaxation_power"] * length


def relax(modes: Array, level: Array, time: Array, xp: Any) -> Array:
    """Modes after a time, each in units of its own; ``xp`` is ``numpy`` or ``jax.numpy``."""
    return level + (modes - level) * xp.exp(-time)


def loss_of(value: Mapping[str, Array], progress: Array, noise: Array) -> Array:
    """The loss after a progress, with the weighted sum of modes ``noise``."""
    left = (progress + value["head_start"]) ** -value["exponent"]
    return value["floor"] + value["amplitude"] * left + value["noise"] * noise


# --- many parameters and runs at once ------------------------------------------------------------


@dataclass(frozen=True)
class Course:
    """Intervals of constant settings, several runs side by side.

    Attributes:
        lengths: (runs, intervals) in units of time; 0 pads shorter runs.
        rates: (runs, intervals) in units of the peak.
        batches: (runs, intervals) in units of the usual batch.
    """

    lengths: Float[np.ndarray, "runs intervals"]
    rates: Float[np.ndarray, "runs intervals"]
    batches: Float[np.ndarray, "runs intervals"]

    @classmethod
    def stack(cls, runs: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> "Course":
        """Side by side, padded to the longest."""
        size = max(len(lengths) for lengths, _, _ in runs)

        def padded(column: int, fill: float) -> np.ndarray:
            return np.stack(
                [np.pad(run[column], (0, size - len(run[column])), constant_values=fill) for run in runs]
            )

        return cls(padded(0, 0.0), padded(1, 1.0), padded(2, 1.0))


def loss_after(
    parameters: Float[np.ndarray, "K 10"], course: Course
) -> Float[np.ndarray, "K runs intervals"]:
    """Loss at the end of every interval, for each of K sets of parameters."""
    return _run(parameters, course)[0]


def state_after(parameters: Float[np.ndarray, "K 10"], course: Course) -> Float[np.ndarray, "K 17"]:
    """Progress and modes after the only run of ``course``."""
    return _run(parameters, course)[1][:, 0]


def _run(parameters: np.ndarray, course: Course) -> tuple[np.ndarray, np.ndarray]:
    value = {name: parameters[:, i, None, None] for i, name in enumerate(NAMES)}
    rates, weights = (a[:, None, :] for a in relaxation_rates(parameters))
    steps, level, time = over_interval(value, course.rates[None], course.batches, course.lengths[None])
    progress = np.cumsum(steps, axis=2)
    modes = np.zeros((len(parameters), len(course.rates), NODES))
    noise = np.empty_like(progress)
    # Modes depend on all intervals before, so only these are a loop; everything else is vectorised.
    for i in range(noise.shape[2]):
        modes = relax(modes, level[:, :, i, None], rates * time[:, :, i, None], np)
        noise[:, :, i] = (modes * weights).sum(axis=2)
    return loss_of(value, progress, noise), np.concatenate([progress[:, :, -1:], modes], axis=2)
