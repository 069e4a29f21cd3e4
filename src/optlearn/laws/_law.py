"""The law: how the loss of a network follows its learning rate.

Progress is the integral of a power of the rate, and the noise of SGD is the sum of modes that relax to a
floor set by the rate, each at its own pace::

    dS/dt   = ε^κ                                                 progress
    dU/dt   = ε,  σ = (U + S₀)^−θ                                 path; the size of gradients
    dv_r/dt = r ε^q / σ (ε^p b^−β − v_r)                          modes; r from a Gamma law
    L       = L₀ n^−f + A n^−a (S + S₀)^−α + B σ Σ_r w_r v_r      loss

Gradients shrink along the path: noise falls with them, and modes relax faster, since Adam divides by their
size. The noise of a batch b adds c/b times the signal to that size: the rate η has the effect of
ε = η √((1 + c) / (1 + c/b)), with a critical batch c (0: plain SGD, with β = 1). Rates are counted in units
of the peak, batches in units of the usual one, time in units of the longest run, sizes n of networks in units
of the largest, so that all numbers are of order one. Over an interval of constant settings the law is solved
exactly (``over_interval``, ``relax``, ``loss_of``): in NumPy for many parameters and runs at once, for fits,
and in JAX one interval after the other, for the solvers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from optlearn._arrays import Array, Float
from optlearn._errors import SpecificationError

NODES = 16  # relaxation rates
STILL = 1e-12  # least share of the path so far that an interval adds, to avoid 0/0


@dataclass(frozen=True)
class Parameter:
    """One parameter of the law.

    Attributes:
        lower, upper: bounds.
        start: where fits begin.
        log: whether its logarithm is fitted.
        spread: the prior is ``start`` give or take this (in the logarithm if ``log``).
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


# Curves of one peak rate and a few shapes say little about the exponents of the rate and about how fast noise
# relaxes. Their expected values come from fits to curves of public language models, cross-validated over
# splits of them, and from runs of a GPT (docs/laws.md). The power of progress differs most between networks,
# from κ = 0.2 to 1.1; a tighter prior on it would drive exponents of the noise out of their range.
PARAMETERS: Mapping[str, Parameter] = {
    "floor": Parameter(0.0, np.inf, 1.0),  # L₀
    "amplitude": Parameter(1e-6, 1e6, 0.3, log=True),  # A
    "exponent": Parameter(0.02, 3.0, 0.5, log=True),  # α
    "head_start": Parameter(1e-7, 1.0, 1e-4, log=True, spread=3.0),  # S₀
    "progress_power": Parameter(0.1, 1.6, 0.8, spread=0.3),  # κ
    "noise": Parameter(1e-6, 1e6, 0.1, log=True),  # B
    "speed": Parameter(1.0, 1e5, 300.0, log=True, spread=2.0),  # mean of r; a fit scales it by its steps
    "shape": Parameter(0.05, 50.0, 0.6, log=True, spread=0.2),  # of the Gamma law of r
    "noise_power": Parameter(0.2, 2.0, 0.75, spread=0.1),  # p
    # Below 0 everything would relax at once at tiny rates, and an optimum would exploit that.
    "relaxation_power": Parameter(0.05, 3.0, 0.95, spread=0.05),  # q
    "noise_fall": Parameter(-0.2, 1.5, 0.15, spread=0.03),  # θ
    "critical_batch": Parameter(1e-3, 1e4, 1.0, log=True, spread=2.0),  # c
    # From 1 for SGD to ½ for Adam, whose steps have the same size for every batch.
    "batch_power": Parameter(0.0, 1.5, 0.75, spread=0.25),  # β
    "floor_power": Parameter(-1.0, 1.0, 0.05),  # f
    "amplitude_power": Parameter(-1.0, 1.0, 0.05),  # a
}
NAMES = tuple(PARAMETERS)

# Known laws are special cases with fixed exponents.
_PUBLISHED = {"progress_power": 1.0, "noise_power": 1.0, "noise_fall": 0.0}
LAWS: Mapping[str, Mapping[str, float]] = {
    "general": {},
    "multi-power": _PUBLISHED,
    "sgd": {**_PUBLISHED, "relaxation_power": 1.0},
    "momentum": {**_PUBLISHED, "relaxation_power": 0.05, "shape": 50.0},
}
# Parameters that have no effect for networks of one size, and for runs of one batch size.
ONE_SIZE: Mapping[str, float] = {"floor_power": 0.0, "amplitude_power": 0.0}
ONE_BATCH: Mapping[str, float] = {"critical_batch": 1.0, "batch_power": 1.0}


def fixed_parameters(
    law: str, fixed: Mapping[str, float] | None, several_sizes: bool, several_batches: bool = False
) -> dict[str, float]:
    """Parameters that a fit must not change."""
    if law not in LAWS:
        raise SpecificationError(f"law must be one of {', '.join(LAWS)}, got {law!r}")
    same = {**({} if several_sizes else ONE_SIZE), **({} if several_batches else ONE_BATCH)}
    values = {**same, **LAWS[law], **(fixed or {})}
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
    parameters: Float[np.ndarray, "K 15"],
) -> tuple[Float[np.ndarray, "K 16"], Float[np.ndarray, "K 16"]]:
    """(K, NODES) rates r and their weights, for parameters (K, 15)."""
    speed, shape = parameters[:, NAMES.index("speed")], parameters[:, NAMES.index("shape")]
    laws = [_gamma_nodes(float(s)) for s in shape]
    return speed[:, None] * np.stack([nodes for nodes, _ in laws]), np.stack([w for _, w in laws])


# --- the law over an interval of constant settings, by name of the parameter ---------------------


def effect_of(value: Mapping[str, Array], eta: Array, batch: Array) -> Array:
    """ε: the rate that has the same effect with the usual batch."""
    critical = value["critical_batch"]
    return eta * ((1 + critical) / (1 + critical / batch)) ** 0.5


def over_interval(
    value: Mapping[str, Array], effect: Array, batch: Array, length: Array, path: Array, xp: Any
) -> tuple[Array, Array, Array]:
    """Progress in an interval, the level that modes relax to, and the time that a mode of rate 1 sees.

    ``path`` is U before the interval; ``xp`` is ``numpy`` or ``jax.numpy``.
    """
    progress = effect ** value["progress_power"] * length
    level = effect ** value["noise_power"] * batch ** -value["batch_power"]
    # The mean of 1/σ while U + S₀ grows by ``share``.
    age, power = path + value["head_start"], 1 + value["noise_fall"]
    share = xp.maximum(effect * length / age, STILL)
    faster = age ** (power - 1) * xp.expm1(power * xp.log1p(share)) / (power * share)
    return progress, level, effect ** value["relaxation_power"] * length * faster


def relax(modes: Array, level: Array, time: Array, xp: Any) -> Array:
    """Modes after a time, each in units of its own; ``xp`` is ``numpy`` or ``jax.numpy``."""
    return level + (modes - level) * xp.exp(-time)


def loss_of(
    value: Mapping[str, Array], progress: Array, path: Array, noise: Array, size: Array = 1.0
) -> Array:
    """The loss of a network of a ``size``, from the weighted sum of modes ``noise``."""
    learned = value["amplitude"] * (progress + value["head_start"]) ** -value["exponent"]
    return (
        value["floor"] * size ** -value["floor_power"]
        + size ** -value["amplitude_power"] * learned
        + value["noise"] * (path + value["head_start"]) ** -value["noise_fall"] * noise
    )


def at_size(parameters: Float[np.ndarray, "K 15"], size: float) -> Float[np.ndarray, "K 15"]:
    """Parameters of the same law for networks of one ``size``."""
    moved = parameters.copy()
    for name in ("floor", "amplitude"):
        power = NAMES.index(f"{name}_power")
        moved[:, NAMES.index(name)] *= size ** -parameters[:, power]
        moved[:, power] = 0.0
    return moved


# --- many parameters and runs at once ------------------------------------------------------------


@dataclass(frozen=True)
class Course:
    """Intervals of constant settings, several runs side by side.

    Attributes:
        lengths: (runs, intervals) in units of time; 0 pads shorter runs.
        rates: (runs, intervals) in units of the peak.
        batches: (runs, intervals) in units of the usual batch.
        sizes: (runs,) of the networks, in units of the largest; None: one size.
    """

    lengths: Float[np.ndarray, "runs intervals"]
    rates: Float[np.ndarray, "runs intervals"]
    batches: Float[np.ndarray, "runs intervals"]
    sizes: Float[np.ndarray, " runs"] | None = None

    @classmethod
    def stack(
        cls,
        runs: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]],
        sizes: Float[np.ndarray, " runs"] | None = None,
    ) -> "Course":
        """Side by side, padded to the longest."""
        size = max(len(lengths) for lengths, _, _ in runs)

        def padded(column: int, fill: float) -> np.ndarray:
            return np.stack(
                [np.pad(run[column], (0, size - len(run[column])), constant_values=fill) for run in runs]
            )

        return cls(padded(0, 0.0), padded(1, 1.0), padded(2, 1.0), sizes)


def loss_after(
    parameters: Float[np.ndarray, "K 15"], course: Course, start: Float[np.ndarray, "K 18"] | None = None
) -> Float[np.ndarray, "K runs intervals"]:
    """Loss at the end of every interval, for each of K sets of parameters.

    Runs begin untrained, or in the state ``start`` of ``state_after``.
    """
    return _run(parameters, course, start)[0]


def state_after(parameters: Float[np.ndarray, "K 15"], course: Course) -> Float[np.ndarray, "K 18"]:
    """Progress, path and modes after the only run of ``course``."""
    return _run(parameters, course)[1][:, 0]


def _run(
    parameters: np.ndarray, course: Course, start: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    before = np.zeros((len(parameters), 2 + NODES)) if start is None else start
    value = {name: parameters[:, i, None, None] for i, name in enumerate(NAMES)}
    rates, weights = relaxation_rates(parameters)
    lengths, effect = course.lengths[None], effect_of(value, course.rates[None], course.batches)
    moved = effect * lengths
    path = before[:, 1:2, None] + np.cumsum(moved, axis=2)
    steps, level, time = over_interval(value, effect, course.batches, lengths, path - moved, np)
    progress = before[:, :1, None] + np.cumsum(steps, axis=2)
    # Only the modes depend on all intervals before, so only they need a loop, and it does little: it keeps a
    # share of each mode and adds the rest from the level.
    time, level = (np.moveaxis(a, 2, 0)[..., None] for a in np.broadcast_arrays(time, level))
    kept = np.exp(-rates[:, None, :] * time)
    modes = level * (1 - kept)
    modes[0] += kept[0] * before[:, None, 2:]
    for i in range(1, len(modes)):
        modes[i] += kept[i] * modes[i - 1]
    noise = np.einsum("tkrn,kn->krt", modes, weights)
    sizes = 1.0 if course.sizes is None else course.sizes[:, None]
    last = np.stack([progress[:, :, -1], path[:, :, -1]], axis=2)
    return loss_of(value, progress, path, noise, sizes), np.concatenate([last, modes[-1]], axis=2)
