"""The law of mixtures: how the losses of several domains follow the learning rate and the shares of data.

Every domain d has the progress and the noise of the law of one loss, and a memory: modes that are 1 where
nothing is known. They are learned while the domain is shown and forgotten while it is not::

    dS_d/dt  = η^κ Σ_e τ_de p_e                                                 progress; τ_dd = 1
    dv_dr/dt = r η^q (η^p (1 − (1 − n) m_d) / b − v_dr)                         noise; r ~ Gamma
    du_dr/dt = r η^q' (S_d + S₁)^−s [ε_d (r/r̄)^g (1 − m_d)^f (1 − u_dr) − m_d u_dr]   memory; u = 1 at first
    L_d      = L₀_d + A_d (S_d + S₀)^−α_d + B_d Σ_r w_r v_dr + C_d Σ_r w'_r u_dr

p_e are the shares of the domains that are trained on, which add up to one. m_d = Σ_e k_de p_e is the share of
the data that belongs to domain d or is akin to it (k_dd = 1). Modes that learn fast forget more slowly than
they learn (g < 0), and a domain's loss is less noisy while the domain is shown (n < 1). A target that is
never trained on has neither τ_dd nor k_dd. Units are those of the law of one loss; intervals of constant
settings are exact.

Parameters are shared by all domains (``SHARED``) or a domain's own (``OWN``, ``PAIRS``), so the loss of a
domain depends on few of them: the law is solved for one domain at a time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from optlearn._arrays import Array, Float
from optlearn.laws._law import NODES, Parameter, _gamma_nodes

# Shares are raised to powers below 1, whose slope at 0 is infinite; adding this share makes it finite.
SMOOTH = 1e-3
# Progress below which memory does not get faster.
YOUTH = 0.05

# The expected exponents come from cross-validation over designs of six pilots on runs of a small GPT
# (docs/mixtures.md); speeds and amplitudes depend on the network and its data.
SHARED: Mapping[str, Parameter] = {
    "head_start": Parameter(1e-7, 1.0, 6e-4, log=True, spread=1.0),  # S₀
    "progress_power": Parameter(0.1, 1.6, 0.4, spread=0.07),  # κ
    "speed": Parameter(1.0, 1e5, 250.0, log=True, spread=0.33),  # mean of r, of the noise
    "shape": Parameter(0.05, 50.0, 1.0, log=True, spread=0.17),  # of its Gamma law
    "noise_power": Parameter(0.2, 2.0, 0.9, spread=0.07),  # p
    "noise_shown": Parameter(0.2, 2.0, 0.78, spread=0.07),  # n
    "relaxation_power": Parameter(0.05, 2.0, 0.9, spread=0.07),  # q
    "memory_speed": Parameter(1.0, 1e5, 250.0, log=True, spread=0.33),  # mean r̄ of r, of the memory
    "memory_shape": Parameter(0.05, 50.0, 0.65, log=True, spread=0.17),
    "memory_power": Parameter(0.05, 2.0, 0.65, spread=0.07),  # q'
    "memory_slowing": Parameter(-1.0, 3.0, 0.8, spread=0.2),  # s
    "forgetting_power": Parameter(0.3, 4.0, 2.2, spread=0.1),  # f
    "forgetting_pace": Parameter(-2.0, 1.0, -0.55, spread=0.07),  # g
}
OWN: Mapping[str, Parameter] = {
    "floor": Parameter(0.0, np.inf, 1.0),  # L₀
    "amplitude": Parameter(1e-6, 1e6, 0.3, log=True),  # A
    "exponent": Parameter(0.02, 3.0, 1.15, log=True, spread=0.1),  # α
    "noise": Parameter(1e-6, 1e6, 0.1, log=True),  # B
    "memory": Parameter(1e-6, 1e6, 0.3, log=True),  # C
    "forgetting": Parameter(1e-4, 10.0, 0.05, log=True, spread=0.5),  # ε
}
LINEAR = ("floor", "amplitude", "noise", "memory")  # the loss is linear in them
# Parameters that the modes of noise and of memory depend on; progress moves memory too, through its age.
MOVING: Mapping[str, frozenset[str]] = {
    "noise": frozenset(
        {"speed", "shape", "noise_power", "noise_shown", "relaxation_power", "kinship"}
    ),
    "memory": frozenset(
        {
            "memory_speed", "memory_shape", "memory_power", "memory_slowing", "forgetting_power",
            "forgetting_pace", "forgetting", "kinship", "progress_power", "transfer",
        }
    ),
}  # fmt: skip
TRANSFER = Parameter(1e-3, 1.0, 0.8, log=True, spread=0.17)  # τ
KINSHIP = Parameter(1e-4, 1.0, 0.015, log=True, spread=0.7)  # k, of a domain that is trained on
TARGET_KINSHIP = Parameter(1e-4, 1.0, 0.3, log=True, spread=0.7)


@dataclass(frozen=True)
class Layout:
    """The parameters, for domains that are trained on and targets that are not.

    Attributes:
        domains: names of the domains that have a share.
        targets: names of domains that have a loss but no share.
    """

    domains: tuple[str, ...]
    targets: tuple[str, ...] = ()

    @property
    def losses(self) -> tuple[str, ...]:
        """Names of everything that has a loss."""
        return (*self.domains, *self.targets)

    @cached_property
    def parameters(self) -> Mapping[str, Parameter]:
        """All parameters, by name: a domain's own end in ``_NAME``, a pair's in ``_NAME_from_OTHER``."""
        by_name = dict(SHARED)
        for name in self.losses:
            by_name |= {f"{own}_{name}": parameter for own, parameter in OWN.items()}
            target = name in self.targets
            for other in self.domains:
                if other != name:
                    by_name[f"transfer_{name}_from_{other}"] = TRANSFER
                    if target:
                        by_name[f"kinship_{name}_from_{other}"] = TARGET_KINSHIP
                    elif len(self.domains) > 2:  # of two domains, each is what the other is not
                        by_name[f"kinship_{name}_from_{other}"] = KINSHIP
        return by_name

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of all parameters, in their order."""
        return tuple(self.parameters)

    def columns(self, loss: str) -> list[int]:
        """Which parameters the loss of a domain depends on."""
        own = {f"{name}_{loss}" for name in OWN}
        own |= {f"{kind}_{loss}_from_{d}" for kind in ("transfer", "kinship") for d in self.domains}
        return [i for i, name in enumerate(self.names) if name in SHARED or name in own]

    def moving(self, kind: str, loss: str) -> list[int]:
        """Which parameters the modes of a domain depend on; ``kind``: "noise" or "memory"."""
        shared = MOVING[kind]
        own = {f"{name}_{loss}" for name in shared}
        own |= {f"{name}_{loss}_from_{d}" for name in shared for d in self.domains}
        return [i for i, name in enumerate(self.names) if name in own or (name in shared and name in SHARED)]

    def values(self, parameters: Array, loss: str) -> dict[str, Any]:
        """Parameters (…, n) of one domain by their short names; those of pairs are lists over ``domains``."""
        at = {name: i for i, name in enumerate(self.names)}
        value: dict[str, Any] = {name: parameters[..., at[name]] for name in SHARED}
        value |= {name: parameters[..., at[f"{name}_{loss}"]] for name in OWN}
        for kind in ("transfer", "kinship"):
            pairs = [(other, f"{kind}_{loss}_from_{other}") for other in self.domains]
            value[kind] = [
                1.0 if other == loss else parameters[..., at[name]] if name in at else 0.0
                for other, name in pairs
            ]
        return value

    def all_values(self, parameters: Array, xp: Any) -> dict[str, Any]:
        """Parameters (n,) of all losses: own ones (losses,), and for pairs lists of them over domains."""
        at = {name: i for i, name in enumerate(self.names)}
        known = xp.concatenate([parameters, xp.asarray([0.0, 1.0])])
        value: dict[str, Any] = {name: parameters[at[name]] for name in SHARED}
        for name in OWN:
            value[name] = known[np.array([at[f"{name}_{loss}"] for loss in self.losses])]
        for kind in ("transfer", "kinship"):
            value[kind] = []
            for other in self.domains:  # 1 and 0 are the last two numbers
                pairs = [at.get(f"{kind}_{loss}_from_{other}", -2) for loss in self.losses]
                value[kind].append(known[np.where(np.array(self.losses) == other, -1, pairs)])
        return value


# --- the law of a domain over an interval of constant settings; ``xp`` is numpy or jax.numpy ------


def smooth_power(share: Array, power: Array) -> Array:
    """share^power from 0 to 1, with a finite slope at 0."""
    low, high = SMOOTH**power, (1 + SMOOTH) ** power
    return ((share + SMOOTH) ** power - low) / (high - low)


def seen(weights: Sequence[Array], shares: Sequence[Array]) -> Array:
    """Σ_e weights_e shares_e."""
    total = weights[0] * shares[0]
    for weight, share in zip(weights[1:], shares[1:], strict=True):
        total = total + weight * share
    return total


def shown_of(value: Mapping[str, Any], shares: Sequence[Array], xp: Any) -> Array:
    """Share of the data that belongs to a domain or is akin to it, m."""
    return xp.clip(seen(value["kinship"], shares), 0.0, 1.0)


def noise_level(value: Mapping[str, Any], eta: Array, shown: Array) -> Array:
    """The level that the noise of a domain relaxes to."""
    return eta ** value["noise_power"] * (1 - (1 - value["noise_shown"]) * shown)


def memory_rates(
    value: Mapping[str, Any], eta: Array, shown: Array, age: Array, rates: Array
) -> tuple[Array, Array]:
    """(…, modes) levels that the memory of a domain relaxes to, and its relaxation rates.

    ``age`` is the domain's progress in the middle of the interval; ``rates`` (…, modes) belong to the modes.
    """
    forgotten = (value["forgetting"] * smooth_power(1 - shown, value["forgetting_power"]))[..., None]
    mean = _as_mode(value["memory_speed"])
    forgotten = forgotten * (rates / mean) ** _as_mode(value["forgetting_pace"])
    both = shown[..., None] + forgotten
    pace = (eta ** value["memory_power"] * (age + YOUTH) ** -value["memory_slowing"])[..., None]
    return forgotten / both, rates * pace * both


def _as_mode(value: Any) -> Any:
    """A parameter with one more axis, for the modes."""
    return value[..., None] if getattr(value, "ndim", 0) else value


def loss_of(value: Mapping[str, Any], progress: Array, noise: Array, forgotten: Array) -> Array:
    """The loss of a domain, from its progress and the weighted sums of its modes of noise and memory."""
    left = (progress + value["head_start"]) ** -value["exponent"]
    base = value["floor"] + value["amplitude"] * left
    return base + value["noise"] * noise + value["memory"] * forgotten


def nodes_of(parameters: np.ndarray, names: Sequence[str], kind: str) -> tuple[np.ndarray, np.ndarray]:
    """(K, NODES) rates and weights of the modes of parameters (K, n); ``kind``: "" or "memory_"."""
    speed, shape = (parameters[:, names.index(f"{kind}{what}")] for what in ("speed", "shape"))
    laws = [_gamma_nodes(float(s)) for s in shape]
    return speed[:, None] * np.stack([nodes for nodes, _ in laws]), np.stack([w for _, w in laws])


# --- many parameters and runs at once ------------------------------------------------------------

# Lengths, rates, batches (intervals,) and shares (intervals, domains) of a run.
MixtureRun = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def tenths(run: MixtureRun) -> np.ndarray:
    """(10, domains) mean shares in each tenth of a run."""
    lengths, *_, shares = run
    time = np.append(0.0, np.cumsum(lengths))
    shown = np.concatenate([np.zeros((1, shares.shape[1])), np.cumsum(lengths[:, None] * shares, axis=0)])
    at = np.linspace(0.0, time[-1], 11)
    return np.stack([np.diff(np.interp(at, time, s)) / np.diff(at) for s in shown.T], axis=1)


@dataclass(frozen=True)
class MixtureCourse:
    """Intervals of constant settings, several runs side by side.

    Attributes:
        lengths, rates, batches: (runs, intervals) in units of the fit; a length of 0 pads shorter runs.
        shares: (runs, intervals, domains).
    """

    lengths: Float[np.ndarray, "runs intervals"]
    rates: Float[np.ndarray, "runs intervals"]
    batches: Float[np.ndarray, "runs intervals"]
    shares: Float[np.ndarray, "runs intervals domains"]

    @classmethod
    def stack(cls, runs: Sequence[MixtureRun]) -> "MixtureCourse":
        """Side by side, padded to the longest."""
        size = max(len(run[0]) for run in runs)

        def padded(column: int) -> np.ndarray:
            parts = [run[column] for run in runs]
            fill = [(0, 0)] * (parts[0].ndim - 1)
            # Intervals after the end have length 0, whatever their settings.
            return np.stack(
                [
                    np.pad(part, [(0, size - len(part)), *fill], mode="edge" if column else "constant")
                    for part in parts
                ]
            )

        return cls(*(padded(column) for column in range(4)))


def losses_after(
    layout: Layout, parameters: Float[np.ndarray, "K n"], course: MixtureCourse, loss: str
) -> Float[np.ndarray, "K runs intervals"]:
    """Loss of a domain at the end of every interval, for each of K sets of parameters."""
    value, parts, _ = run_domain(layout, parameters, course, loss)
    return loss_of(value, *parts)


def run_domain(
    layout: Layout, parameters: np.ndarray, course: MixtureCourse, loss: str
) -> tuple[dict[str, Any], tuple[np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
    """Values by name, courses (K, runs, intervals) of progress, noise and memory, and the last state.

    The last state (K, runs, 1 + 2 NODES) is progress, modes of noise and modes of memory.

    Most of the K sets of parameters in a fit differ in one number, on which one kind of modes or neither
    depends: each kind is solved once for all sets that agree in its parameters.
    """
    value = layout.values(parameters[:, None, None, :], loss)
    shares = [course.shares[None, :, :, e] for e in range(len(layout.domains))]
    gain = course.rates ** value["progress_power"] * seen(value["transfer"], shares) * course.lengths
    progress = np.cumsum(gain, axis=2)
    courses, modes = [], []
    for kind, run in (("noise", _run_noise), ("memory", _run_memory)):
        first, same = np.unique(
            parameters[:, layout.moving(kind, loss)], axis=0, return_index=True, return_inverse=True
        )[1:]
        once = parameters[first]
        age = (progress - gain / 2)[first]
        total, last = run(layout, once, layout.values(once[:, None, None, :], loss), shares, age, course)
        courses.append(total[same])
        modes.append(last[same])
    state = np.concatenate([progress[:, :, -1:], *modes], axis=2)
    return value, (progress, courses[0], courses[1]), state


def _run_noise(
    layout: Layout,
    parameters: np.ndarray,
    value: Mapping[str, Any],
    shares: Sequence[np.ndarray],
    age: np.ndarray,
    course: MixtureCourse,
) -> tuple[np.ndarray, np.ndarray]:
    """(K, runs, intervals) noise at the end of every interval, and (K, runs, NODES) its last modes."""
    del age
    rates, weights = nodes_of(parameters, layout.names, "")
    level = noise_level(value, course.rates, shown_of(value, shares, np)) / course.batches
    pace = course.rates ** value["relaxation_power"] * course.lengths
    time = rates[:, None, None, :] * pace[..., None]
    return _relaxed(np.zeros(1), level[..., None], time, weights)


def _run_memory(
    layout: Layout,
    parameters: np.ndarray,
    value: Mapping[str, Any],
    shares: Sequence[np.ndarray],
    age: np.ndarray,
    course: MixtureCourse,
) -> tuple[np.ndarray, np.ndarray]:
    """The same for the memory of a domain whose progress is ``age`` in the middle of every interval."""
    rates, weights = nodes_of(parameters, layout.names, "memory_")
    shown = shown_of(value, shares, np)
    level, pace = memory_rates(value, course.rates, shown, age, rates[:, None, None, :])
    return _relaxed(np.ones(1), level, pace * course.lengths[..., None], weights)


def _relaxed(
    first: np.ndarray, level: np.ndarray, time: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(K, runs, intervals) weighted sums of modes that relax to levels, and (K, runs, NODES) the last modes.

    Only the modes depend on all intervals before, so only they need a loop.
    """
    left = np.exp(-time)
    mode, total = np.broadcast_to(first, (*left.shape[:2], NODES)).copy(), np.empty(left.shape[:3])
    for i in range(left.shape[2]):
        to = level[:, :, i]
        mode = to + (mode - to) * left[:, :, i]
        total[:, :, i] = (mode @ weights[:, :, None])[..., 0]
    return total, mode
