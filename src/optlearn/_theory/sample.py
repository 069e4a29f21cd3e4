"""One sample: its local fields, and the discrete random variables that belong to it."""

import itertools
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, Float
from optlearn._pytrees import Pytree, field


class Fields(Pytree):
    """Pre-activations of one sample.

    Attributes:
        student: (L, K) ``λ = xᵀw/√N``, a row a slot.
        teacher: (L, M) ``λ* = xᵀw*/√N``.
        noise: scalar standard normal, the label noise z.
        normals: further standard normals of the sample, as many as the model asks for.
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
    def single(cls, **values: Array) -> "Latents":
        """One certain value."""
        return cls({name: jnp.asarray(v)[None] for name, v in values.items()}, jnp.ones(1))

    @classmethod
    def choice(cls, probabilities: Array, **values: Array) -> "Latents":
        """One of n values, drawn with ``probabilities`` (n,); each of ``values`` is (n, …)."""
        return cls({k: jnp.asarray(v) for k, v in values.items()}, jnp.asarray(probabilities))

    @classmethod
    def clusters(cls, counts: Sequence[int], probabilities: Array | None = None) -> "Latents":
        """Cluster memberships of all slots.

        Args:
            counts: clusters in each slot (0: no centroid, mean zero).
            probabilities: of all combinations, the last slot running fastest; equal if not given.
        """
        combinations = list(itertools.product(*(range(max(1, count)) for count in counts)))
        if probabilities is None:
            probabilities = np.full(len(combinations), 1 / len(combinations))
        return cls.choice(
            jnp.asarray(probabilities).reshape(-1), cluster=np.array(combinations, dtype=np.int32)
        )

    @classmethod
    def masks(cls, name: str, count: int, active: Array) -> "Latents":
        """``count`` independent switches, each 1 with probability ``active``, else 0."""
        table = np.array(list(itertools.product((0.0, 1.0), repeat=count)))
        on = table.sum(axis=1).astype(int)
        # Powers by a running product: p**0 at p = 0 would have no derivative.
        powers = _powers(active, count)
        complements = _powers(1 - active, count)
        return cls.choice(powers[on] * complements[count - on], **{name: table})

    def times(self, other: "Latents") -> "Latents":
        """Independent combination of two sets of latents."""
        n, m = self.probabilities.shape[0], other.probabilities.shape[0]
        values = {k: jnp.repeat(v, m, axis=0) for k, v in self.values.items()}
        values |= {k: jnp.tile(v, (n,) + (1,) * (v.ndim - 1)) for k, v in other.values.items()}
        joint = self.probabilities[:, None] * other.probabilities[None, :]
        return Latents(values, joint.reshape(-1))


def _powers(base: Array, highest: int) -> Array:
    steps = jnp.concatenate([jnp.ones(1), jnp.broadcast_to(jnp.asarray(base), (highest,))])
    return jnp.cumprod(steps)
