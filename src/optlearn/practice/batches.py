"""Batch sizes that change during training: as a function of the step, and as a batch sampler."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from optlearn._arguments import Arguments
from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule
from optlearn._signatures import checked
from optlearn.practice.steps import step_table


class BatchRamp:
    """The batch size of every step. Built by ``Schedule.to_batches``.

    ``ramp(step)`` is the batch size of a step, counted from 0. ``ramp.batches(samples)`` groups the indices
    of a sampler into batches, for PyTorch's ``DataLoader(data, batch_sampler=…)``; it needs no framework.

    Args:
        schedule: a schedule with a control that is a batch size, which is rounded to whole samples.
        control: name of the control.
        steps: optimisation steps of the whole training (default: the schedule's horizon counts steps).

    Attributes:
        sizes: (steps,) the batch size of every step.
    """

    @checked
    def __init__(self, schedule: Schedule, control: str = "batch", *, steps: int | None = None) -> None:
        total = round(schedule.horizon) if steps is None else steps
        table = step_table(schedule, control, steps=total, N=None, purpose="to_batches")
        self.sizes = np.rint(table.all()).astype(int)
        if self.sizes.min() < 1:
            raise SpecificationError(f"to_batches: {control!r} must be at least 1, got {self.sizes.min()}")

    def __call__(self, step: int) -> int:
        """The batch size of a step, counted from 0; after the last step, that of the last."""
        return int(self.sizes[min(max(int(step), 0), len(self.sizes) - 1)])

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def samples(self) -> int:
        """Number of samples of the whole training."""
        return int(self.sizes.sum())

    def batches(self, samples: Iterable[Any], done: int = 0) -> "Batches":
        """Batches of indices, starting with step ``done``.

        Args:
            samples: indices, such as a PyTorch sampler; it is iterated over repeatedly.
            done: steps already done by a resumed training; their samples are skipped.
        """
        return Batches(self, samples, Arguments("batches").count("done", done, 0))


class Batches:
    """Batches of indices with the sizes of a ramp. Built by ``BatchRamp.batches``."""

    def __init__(self, ramp: BatchRamp, samples: Iterable[Any], done: int) -> None:
        if done > len(ramp):
            raise SpecificationError(f"done must be at most the {len(ramp)} steps of the ramp, got {done}")
        self._ramp, self._samples, self._done = ramp, samples, done

    def __len__(self) -> int:
        return len(self._ramp) - self._done

    def __iter__(self) -> Iterator[list[Any]]:
        again = self._again()
        passed = int(self._ramp.sizes[: self._done].sum())
        next(islice(again, passed, passed), None)
        for size in self._ramp.sizes[self._done :].tolist():
            yield list(islice(again, size))

    def _again(self) -> Iterator[Any]:
        while True:
            empty = True
            for index in self._samples:
                empty = False
                yield index
            if empty:
                raise SpecificationError("samples must hold at least one index, got none")
