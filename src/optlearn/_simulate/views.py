"""Which input vectors one SGD step draws, and which views of the sample use them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array
from optlearn._theory.model import LearningModel


@dataclass(frozen=True)
class Views:
    """The inputs of one step: ``count`` views of ``slots`` vectors each, made of ``inputs`` vectors.

    A fresh mini-batch has a sample, hence all vectors, for each view. With augmentation there is one
    sample: its shared slots are drawn once and come first, the redrawn ones follow view by view.
    """

    count: int
    slots: int
    redrawn: tuple[int, ...] = ()

    @property
    def samples(self) -> int:
        """Independent samples in a step: each has its own latent and label noise."""
        return 1 if self.redrawn else self.count

    @cached_property
    def slot_of(self) -> np.ndarray:
        """(count, slots) number of the input vector that each slot of each view reads."""
        if not self.redrawn:
            return np.arange(self.count * self.slots).reshape(self.count, self.slots)
        shared = [slot for slot in range(self.slots) if slot not in self.redrawn]
        table = np.empty((self.count, self.slots), dtype=int)
        table[:, shared] = np.arange(len(shared))
        fresh = np.arange(self.count * len(self.redrawn)).reshape(self.count, -1)
        table[:, list(self.redrawn)] = len(shared) + fresh
        return table

    @property
    def inputs(self) -> int:
        """Distinct input vectors in a step."""
        return int(self.slot_of.max()) + 1

    @cached_property
    def origin(self) -> tuple[np.ndarray, np.ndarray]:
        """(inputs,) sample and slot that each input vector belongs to."""
        samples = np.empty(self.inputs, dtype=int)
        slots = np.empty(self.inputs, dtype=int)
        for view, row in enumerate(self.slot_of):
            samples[row] = 0 if self.redrawn else view
            slots[row] = np.arange(self.slots)
        return samples, slots

    @cached_property
    def together(self) -> np.ndarray:
        """(inputs, inputs) whether two input vectors meet in a view."""
        flags = np.zeros((self.inputs, self.inputs), dtype=bool)
        for rows in self.slot_of:
            flags[np.ix_(rows, rows)] = True
        return flags

    def read(self, flags: np.ndarray) -> np.ndarray:
        """(inputs, …) flags of the input vectors from those of the slots (slots, …)."""
        return np.asarray(flags)[self.origin[1]]

    def gather(self, per_view: Array) -> Array:
        """(inputs, K) sums over the views of what each slot of each view has, (count, slots, K)."""
        if not self.redrawn:
            return per_view.reshape(self.inputs, per_view.shape[-1])
        shared = np.array([slot for slot in range(self.slots) if slot not in self.redrawn])
        redrawn = per_view[:, np.array(self.redrawn)]
        return jnp.concatenate([per_view[:, shared].sum(axis=0), redrawn.reshape(-1, per_view.shape[-1])])


def make_views(model: LearningModel, batches: Sequence[float] | np.ndarray) -> Views:
    """Views for every batch size that a run will meet."""
    return Views(int(np.ceil(np.max(batches))), model.slots, tuple(model.redrawn))


def view_weights(count: int, batch: Array, uniform: Array) -> Array:
    """(count,) weights of the views of one step: 1/B for B of them, 0 for the others.

    Only 1/B enters the theory (the noise of a mean over B views), so a real-valued ``batch`` is played by
    its two neighbouring whole numbers, drawn such that the mean of 1/B, not of B, is ``1/batch``.
    """
    low = jnp.floor(batch)
    share_of_next = (low + 1) * (batch - low) / batch
    views = jnp.where(uniform < share_of_next, low + 1, low)
    return jnp.where(jnp.arange(float(count)) < views, 1 / views, 0.0)
