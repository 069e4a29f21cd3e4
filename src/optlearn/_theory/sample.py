"""One sample as a loss sees it: its local fields, its latent variables, and where the loss breaks."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, Float, Settings
from optlearn._pytrees import Pytree, field

# The latent variables of one sample, by name.
Latent = Mapping[str, Array]


class Fields(Pytree):
    """Pre-activations of one sample.

    Attributes:
        student: (L, K) ``λ = xᵀw/√N``, one row per slot.
        teacher: (L, M) ``λ* = xᵀw*/√N``.
        noise: scalar standard normal, the label noise z.
        normals: further standard normals of the sample, as many as the model requests.
    """

    student: Float[Array, "L K"]
    teacher: Float[Array, "L M"]
    noise: Float[Array, ""]
    normals: Float[Array, " normals"] = field(default_factory=lambda: np.zeros(0))


class Latents(Pytree):
    """Every value that the latent variables can take, with its probability.

    Attributes:
        values: name → array (n, …); ``values["cluster"]`` is (n, L), counted from 0 in each slot.
        probabilities: (n,), may depend on controls; must sum to 1.
    """

    values: dict[str, Array]
    probabilities: Float[Array, " n"]

    @classmethod
    def single(cls, **values: Array) -> Self:
        """One certain value."""
        return cls({name: jnp.asarray(v)[None] for name, v in values.items()}, jnp.ones(1))

    @classmethod
    def choice(cls, probabilities: Array, **values: Array) -> Self:
        """One of n values, drawn with ``probabilities`` (n,); each of ``values`` is (n, …)."""
        return cls({k: jnp.asarray(v) for k, v in values.items()}, jnp.asarray(probabilities))

    @classmethod
    def clusters(cls, counts: Sequence[int], probabilities: Array | None = None) -> Self:
        """Cluster memberships of all slots.

        Args:
            counts: clusters in each slot (0: no centroid, mean zero).
            probabilities: probabilities of all combinations, the last slot running fastest; equal by default.
        """
        combinations = list(itertools.product(*(range(max(1, count)) for count in counts)))
        if probabilities is None:
            probabilities = np.full(len(combinations), 1 / len(combinations))
        return cls.choice(
            jnp.asarray(probabilities).reshape(-1), cluster=np.array(combinations, dtype=np.int32)
        )

    @classmethod
    def masks(cls, name: str, count: int, active: Array) -> Self:
        """``count`` independent switches, each 1 with probability ``active``, else 0."""
        table = np.array(list(itertools.product((0.0, 1.0), repeat=count)))
        on = table.sum(axis=1).astype(int)

        def powers(base: Array) -> Array:
            """Powers by a running product: p**0 at p = 0 would have no derivative."""
            return jnp.cumprod(jnp.concatenate([jnp.ones(1), jnp.broadcast_to(jnp.asarray(base), (count,))]))

        return cls.choice(powers(active)[on] * powers(1 - active)[count - on], **{name: table})

    def times(self, other: "Latents") -> "Latents":
        """Independent combination of two sets of latents."""
        n, m = self.probabilities.shape[0], other.probabilities.shape[0]
        values = {k: jnp.repeat(v, m, axis=0) for k, v in self.values.items()}
        values |= {k: jnp.tile(v, (n,) + (1,) * (v.ndim - 1)) for k, v in other.values.items()}
        joint = self.probabilities[:, None] * other.probabilities[None, :]
        return Latents(values, joint.reshape(-1))


@dataclass(frozen=True)
class Break:
    """A place where a loss or its derivative jumps: a field or a sum of fields crosses ``at``.

    Args:
        kind: "student" or "teacher".
        slot, node: which entry of the (L, K) or (L, M) fields.
        at: the threshold: a number, or the name of a parameter or control that sets it, such as "margin" or
            "-margin".
        plus: further fields (kind, slot, node, factor) of a sum. For a switch between the larger of two
            units: ``Break("student", 0, 0, plus=[("student", 0, 1, -1)])``.
    """

    kind: str
    slot: int
    node: int
    at: float | str = 0.0
    plus: tuple[tuple[str, int, int, float], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "plus", tuple(tuple(term) for term in self.plus))

    @property
    def terms(self) -> tuple[tuple[str, int, int, float], ...]:
        """(kind, slot, node, factor) of all fields of the sum."""
        return ((self.kind, self.slot, self.node, 1.0), *self.plus)

    @property
    def parameter(self) -> tuple[float, str] | None:
        """Sign and name of the parameter that sets the threshold; None if it is a number."""
        if not isinstance(self.at, str):
            return None
        return (-1.0, self.at[1:]) if self.at.startswith("-") else (1.0, self.at)

    def threshold(self, u: Settings) -> Array:
        """The threshold's value."""
        if self.parameter is None:
            return jnp.asarray(self.at)
        sign, name = self.parameter
        return sign * u[name]

    def shifted(self, nodes: int) -> "Break":
        """The same break for students whose index is larger by ``nodes``."""
        of_students = {"student": nodes, "teacher": 0}
        plus = tuple((kind, slot, node + of_students[kind], by) for kind, slot, node, by in self.plus)
        return replace(self, node=self.node + of_students[self.kind], plus=plus)
