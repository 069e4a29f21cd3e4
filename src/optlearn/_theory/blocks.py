"""What a spectrum adds to a learning model: overlaps block by block, and what fields see of them."""

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, Settings
from optlearn._errors import AccuracyWarning, SpecificationError, warn
from optlearn._theory.gaussian import gram_matrix
from optlearn._theory.model import LearningModel
from optlearn._theory.order import OrderParameters, Overlaps

# η λ₁/tr above which the equations of the order parameters are off by several per cent (measured: by 4 to 10
# % at 0.4, by 1 % at 0.04).
NARROW = 0.1


def block_overlaps(model: LearningModel) -> Overlaps:
    """The model's overlaps with an axis of blocks; every block has its share if they are given without."""
    if model.spectrum is None or model.overlaps.by_block:
        return model.overlaps
    share = model.spectrum.share
    return jax.tree.map(lambda part: share[:, None, None] * part[None], model.overlaps)


def block_grams(model: LearningModel, x: OrderParameters) -> Array:
    """(B, n, n) Gram matrices of students, teachers and centroids in each block."""
    return gram_matrix(x, block_overlaps(model))


def seen(gram: Array, variance: Array) -> Array:
    """(n, n) Gram matrix that fields see, Σ_b c_b G_b, of those of the blocks (B, n, n)."""
    return jnp.einsum("b,bij->ij", variance, gram)


def spread_over_blocks(model: LearningModel, name: str, value: Array) -> Array:
    """A value for a state, with an axis of blocks where the model has one."""
    if model.spectrum is None or name in model.layout.extras or name[:1] == "v" or "_" in name:
        return value
    dimensions, share = np.ndim(value), model.spectrum.share
    columns = {"Q": model.students, "M": model.teachers, "R": model.centroids}
    if name in columns:
        if dimensions == 0:  # one number fills all entries
            value = np.full((model.students, columns[name]), float(value))
        return value if dimensions == 3 else share[:, None, None] * np.asarray(value, dtype=float)
    return value if dimensions else share * np.asarray(value, dtype=float)


def check_spectrum(model: LearningModel) -> None:
    """Raise unless overlaps and clusters fit the spectrum."""
    assert model.spectrum is not None
    name, blocks, variance = type(model).__name__, model.spectrum.blocks, model.spectrum.variance
    if model.overlaps.by_block and model.overlaps.T.shape[0] != blocks:
        raise SpecificationError(
            f"{name}: overlaps of {model.overlaps.T.shape[0]} blocks, but the spectrum has {blocks}"
        )
    if variance.ndim == 2 and variance.shape[0] != model.centroids:
        raise SpecificationError(
            f"{name}: the spectrum has rows for {variance.shape[0]} clusters; there are {model.centroids}"
        )


def warn_if_narrow(model: LearningModel, u: Settings) -> None:
    """Say so where one direction has so much of the variance that 1/N terms matter at any N."""
    assert model.spectrum is not None
    largest, rate = model.spectrum.largest, float(np.max(u["learning_rate"]))
    if largest is not None and rate * largest > NARROW:
        warn(
            f"the learning rate {rate:.3g} times the share {largest:.2g} of the largest direction in all "
            f"variance is above {NARROW}: the equations of the order parameters are off, at any N. Least "
            "squares have an exact recursion (models.linear)",
            AccuracyWarning,
        )
