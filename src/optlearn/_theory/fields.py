"""Local fields: what one sample looks like to the students and the teachers."""

import equinox as eqx

from optlearn._arrays import Array


class Fields(eqx.Module):
    """Pre-activations of one sample.

    Attributes:
        student: (L, K) ``λ = xᵀw/√N``, a row a slot.
        teacher: (L, M) ``λ* = xᵀw*/√N``.
        noise: scalar standard normal, the label noise z.
    """

    student: Array
    teacher: Array
    noise: Array
