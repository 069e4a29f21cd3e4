"""Samples in the order of a curriculum, in PyTorch: a sampler that knows what was trained on."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar
from zlib import crc32

import numpy as np

from optlearn._arguments import Arguments, is_whole
from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule
from optlearn._signatures import checked
from optlearn.practice.curriculum_order import curriculum_order
from optlearn.practice.extras import missing

try:
    import torch
    from torch.utils.data import DataLoader, Dataset, Sampler
except ModuleNotFoundError as error:
    raise missing("torch", "this adapter") from error

Batch = TypeVar("Batch")


class CurriculumSampler(Sampler[int]):
    """Indices of a data set in the order of a curriculum.

    Over the whole training the number of samples of each group is exactly the schedule's share
    (largest remainder), and no sample of a group comes twice before all of it has come once. With ``steps``,
    one pass is the whole training; with ``epochs`` it is an epoch, and the next pass goes on from there.

    Where it stands is what was *trained on*, not what workers have fetched in advance: ``loader(data)`` gives
    a ``DataLoader`` that counts its batches. With a loader of your own, go through ``counted(loader)``, or
    call ``step()`` after every batch. ``next(iter(loader))`` consumes nothing, and a saved state is resumed
    with the identical continuation.

    Args:
        schedule: with a control that says which group is shown; it may mix values.
        groups: (n,) the group of each sample of the data set, such as 0 for easy and 1 for hard.
        batch_size: samples of a batch; in distributed training, of each process.
        steps: batches of the whole training. Give this, or ``epochs``.
        epochs: epochs of the whole training; each shows as many samples as the data set has.
        control: name of the control; None if the schedule has only one.
        values: group → value of the control. Only where groups are numbers, and as many as the schedule
            has values, may it be None: they are then matched in ascending order.
        drop_last: an epoch has whole batches only.
        seed: of everything random.
        rank: which of the ``replicas`` processes this is; None to ask ``torch.distributed``.
        replicas: processes that share the samples of each step; None likewise, and 1 without it.
    """

    @checked
    def __init__(
        self,
        schedule: Schedule,
        groups: Sequence[Any] | np.ndarray,
        *,
        batch_size: int = 1,
        steps: int | None = None,
        epochs: int | None = None,
        control: str | None = None,
        values: Mapping[Any, float] | None = None,
        drop_last: bool = False,
        seed: int = 0,
        rank: int | None = None,
        replicas: int | None = None,
    ) -> None:
        check = Arguments("CurriculumSampler")
        if (steps is None) == (epochs is None):
            raise SpecificationError(
                "CurriculumSampler: either steps (batches of the whole training) or epochs must be given, "
                f"got {steps!r} and {epochs!r}. The schedule itself ends at training time α_F = "
                f"{schedule.horizon:g}, which is neither"
            )
        for name, value in (("batch_size", batch_size), ("steps", steps), ("epochs", epochs)):
            if value is not None:
                check.count(name, value)
        check.count("seed", seed, 0)
        self.batch_size, self.drop_last = int(batch_size), bool(drop_last)
        self.rank, self.replicas = _process(rank, replicas)
        labels = groups.numpy() if isinstance(groups, torch.Tensor) else np.asarray(groups)
        # Samples and batches of a pass, for one process.
        self._samples = int(steps) * self.batch_size if steps else -(-len(labels) // self.replicas)
        if drop_last:
            self._samples -= self._samples % self.batch_size
        self._batches = -(-self._samples // self.batch_size)
        self._passes = int(epochs or 1)
        self.order = curriculum_order(
            schedule, labels, self._passes * self._samples * self.replicas,
            control=control, values=values, seed=seed,
        )  # fmt: skip
        self._done = 0
        self._begin()

    def _begin(self) -> None:
        """Nothing of a pass has been seen."""
        self._drawn = self._drawn_to_the_end = self._is_counted = self._looked = False
        self._in_hand = 0

    @property
    def counts(self) -> dict[Any, int]:
        """Group → how many of its samples the whole training shows."""
        return dict(zip(self.order.labels, self.order.counts.tolist(), strict=True))

    @property
    def steps_done(self) -> int:
        """Batches that were trained on; one that a counting loader has handed over is among them."""
        return self._done + self._in_hand

    @property
    def total_steps(self) -> int:
        """Batches of the whole training."""
        return self._passes * self._batches

    def __len__(self) -> int:
        """Samples of a whole pass, in this process."""
        return self._samples

    def __iter__(self) -> Iterator[int]:
        if not self._looked:
            self._done += self._in_hand  # the loop was left after this batch
        if self._drawn_to_the_end and not self._is_counted:
            self._done = (self._done // self._batches + 1) * self._batches
        self._begin()
        if self._done >= self.total_steps:
            raise SpecificationError(
                f"CurriculumSampler: the whole training, {self.total_steps} batches, has been shown. To "
                "train in several passes give epochs=… instead of steps; reset() begins anew"
            )
        number, batches = divmod(self._done, self._batches)
        first = number * self._samples + batches * self.batch_size
        return self._draw(first, (number + 1) * self._samples)

    def _draw(self, first: int, end: int) -> Iterator[int]:
        for position in range(first, end):
            self._drawn, self._drawn_to_the_end = True, position == end - 1
            # The processes take turns, so that together they show every part of the order at its time.
            yield int(self.order.indices[position * self.replicas + self.rank])

    def counted(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The batches of a loader that uses this sampler, counted as the training goes through them.

        A batch that was handed over counts at once, so that a state may be saved as soon as it was trained
        on. Only if a pass is given up at its first batch, as by ``next(iter(loader))``, does the next pass
        show it again.
        """
        for number, batch in enumerate(batches):
            self._in_hand, self._is_counted = 1, True
            try:
                yield batch
            except GeneratorExit:
                self._looked = number == 0
                raise
            if self._in_hand:  # not counted by ``step`` or ``set_step``
                self.step()

    def step(self) -> None:
        """One more batch was trained on."""
        self.set_step(self._done + 1)

    def set_step(self, steps_done: int) -> None:
        """So many batches were trained on."""
        if not (is_whole(steps_done) and 0 <= steps_done <= self.total_steps):
            raise SpecificationError(
                f"CurriculumSampler: steps_done must be from 0 to {self.total_steps}, the batches of the "
                f"whole training, got {steps_done!r}"
            )
        self._done, self._in_hand, self._is_counted = int(steps_done), 0, True

    def reset(self) -> None:
        """Begin anew."""
        self._done = 0
        self._begin()

    def loader(self, data: Dataset[Any], **options: Any) -> "CurriculumLoader":
        """A ``DataLoader`` of these samples that counts what is trained on.

        Args:
            data: the data set.
            **options: of ``DataLoader``, such as ``num_workers``.
        """
        return CurriculumLoader(
            data, batch_size=self.batch_size, sampler=self, drop_last=self.drop_last, **options
        )

    def state_dict(self) -> dict[str, Any]:
        """Where it is.

        Raises:
            SpecificationError: samples were drawn, and nobody has said how many were trained on.
        """
        if self._drawn and not self._is_counted:
            raise SpecificationError(
                "CurriculumSampler: batches must be counted in a run that is saved, got none: a DataLoader "
                "may draw them long before they are trained on. Use sampler.loader(data), or go through "
                "sampler.counted(loader), or call sampler.step() after every batch"
            )
        return {"steps_done": self.steps_done, **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a ``state_dict`` of a sampler that was made with the same arguments."""
        for name, mine in self._identity().items():
            if state[name] != mine:
                raise SpecificationError(
                    f"CurriculumSampler: the saved state has {name} = {state[name]}, this sampler {mine}; "
                    "make it with the same schedule, data set, batch size and seed"
                )
        self.set_step(state["steps_done"])
        self._begin()

    def _identity(self) -> dict[str, Any]:
        return {
            "seed": self.order.seed,
            "total": len(self.order.sequence),
            "samples": sum(map(len, self.order.members)),
            "batch_size": self.batch_size,
            "replicas": self.replicas,
            "counts": self.order.counts.tolist(),
            "order": crc32(self.order.indices.tobytes()),
        }


class CurriculumLoader(DataLoader[Any]):
    """A ``DataLoader`` that counts what is trained on; made by ``CurriculumSampler.loader``.

    It has the state of its sampler, which Lightning saves and loads by itself.
    """

    sampler: CurriculumSampler

    def __iter__(self) -> Iterator[Any]:
        if not isinstance(self.sampler, CurriculumSampler):
            raise SpecificationError(
                f"CurriculumLoader: sampler must be a CurriculumSampler, got {type(self.sampler).__name__}. "
                "It shares samples among processes itself: Trainer(use_distributed_sampler=False)"
            )
        return self.sampler.counted(super().__iter__())

    def state_dict(self) -> dict[str, Any]:
        """Where it is."""
        return self.sampler.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a ``state_dict``."""
        self.sampler.load_state_dict(state)


def _process(rank: int | None, replicas: int | None) -> tuple[int, int]:
    """Which process this is, of how many; asks ``torch.distributed`` for what is not given."""
    running = torch.distributed.is_available() and torch.distributed.is_initialized()
    count = (torch.distributed.get_world_size() if running else 1) if replicas is None else replicas
    mine = (torch.distributed.get_rank() if running else 0) if rank is None else rank
    if not (is_whole(count) and count >= 1):
        raise SpecificationError(
            f"CurriculumSampler: replicas must be a whole number of at least 1, got {count!r}"
        )
    if not (is_whole(mine) and 0 <= mine < count):
        raise SpecificationError(f"CurriculumSampler: rank must be from 0 to {count - 1}, got {mine!r}")
    return int(mine), int(count)
