"""Samples in the order of a curriculum: exact budgets, no needless repetition, resumable.

``curriculum_order`` puts the samples of a data set into the order of a schedule. ``CurriculumSampler`` and
``CurriculumLoader`` show them in that order in PyTorch, and keep track of what was trained on.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar
from zlib import crc32

import numpy as np

from optlearn._arguments import Arguments, is_whole
from optlearn._arrays import Float, Int
from optlearn._errors import SpecificationError, missing_extra
from optlearn._schedule import Schedule
from optlearn._signatures import checked

try:
    import torch
    from torch.utils.data import DataLoader, Dataset, Sampler
except ModuleNotFoundError as error:
    raise missing_extra("torch", "this adapter") from error

TOLERANCE = 1e-9
Batch = TypeVar("Batch")


class CurriculumSampler(Sampler[int]):
    """Indices of a data set in the order of a curriculum.

    Over the whole training the number of samples of each group is exactly the schedule's share
    (largest remainder), and no sample of a group repeats before the whole group has been shown. With
    ``steps``, one pass is the whole training; with ``epochs`` it is an epoch, and the next pass continues
    from there.

    Its position is what was *trained on*, not what workers have prefetched: ``loader(data)`` returns a
    ``DataLoader`` that counts its batches. With your own loader, iterate over ``counted(loader)``, or call
    ``step()`` after every batch. ``next(iter(loader))`` consumes nothing, and a resumed run continues exactly
    as the saved one would have.

    Args:
        schedule: a schedule with a control that says which group is shown; it may mix values.
        groups: (n,) the group of each sample of the data set, such as 0 for easy and 1 for hard.
        batch_size: samples in a batch; in distributed training, of each process.
        steps: batches in the whole training. Give this, or ``epochs``.
        epochs: epochs in the whole training; each shows as many samples as the data set has.
        control: name of the control; None if the schedule has only one.
        values: group → value of the control. It may be None only if groups are numbers, and as many as the
            schedule has values: they are then matched in ascending order.
        drop_last: drop the last incomplete batch of an epoch.
        seed: seed of everything random.
        rank: index of this process among the ``replicas``; None to ask ``torch.distributed``.
        replicas: processes that share the samples of each step; None to ask likewise (1 if not distributed).
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
                "CurriculumSampler: give either steps=… (batches of the whole training) or epochs=… (passes "
                f"over the data), got steps={steps!r} and epochs={epochs!r}. The schedule's own horizon, "
                f"α_F = {schedule.horizon:g}, is in training time (steps/N) and says nothing about either"
            )
        for name, value in (("batch_size", batch_size), ("steps", steps), ("epochs", epochs)):
            if value is not None:
                check.count(name, value)
        check.count("seed", seed, 0)
        self.batch_size, self.drop_last = int(batch_size), bool(drop_last)
        self.rank, self.replicas = _process(rank, replicas)
        labels = groups.numpy() if isinstance(groups, torch.Tensor) else np.asarray(groups)
        # Samples and batches of a pass in one process.
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
        """Start a pass, of which nothing has been drawn or handed over yet."""
        self._drawn = self._drawn_to_the_end = self._is_counted = self._looked = False
        self._in_hand = 0

    @property
    def counts(self) -> dict[Any, int]:
        """Group → number of its samples shown in the whole training."""
        return dict(zip(self.order.labels, self.order.counts.tolist(), strict=True))

    @property
    def steps_done(self) -> int:
        """Number of batches trained on, including one that a counting loader has just handed over."""
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
            # Nobody counts batches, so a completely drawn pass counts as trained on.
            self._done = (self._done // self._batches + 1) * self._batches
        self._begin()
        if self._done >= self.total_steps:
            raise SpecificationError(
                f"CurriculumSampler: the whole training, {self.total_steps} batches, has been shown. To "
                "train in several passes, give epochs=… instead of steps; reset() starts over"
            )
        number, batches = divmod(self._done, self._batches)
        first = number * self._samples + batches * self.batch_size
        return self._draw(first, (number + 1) * self._samples)

    def _draw(self, first: int, end: int) -> Iterator[int]:
        for position in range(first, end):
            self._drawn, self._drawn_to_the_end = True, position == end - 1
            # Processes take turns, so that together they follow the order.
            yield int(self.order.indices[position * self.replicas + self.rank])

    def counted(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The batches of a loader that uses this sampler, counted as training consumes them.

        A batch counts as soon as it is handed over, so a state may be saved right after training on it. Only
        if a pass is abandoned at its first batch, as by ``next(iter(loader))``, does the next pass show it
        again.
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
        """Count one more batch as trained on."""
        self.set_step(self._done + 1)

    def set_step(self, steps_done: int) -> None:
        """Set the number of batches trained on."""
        if not (is_whole(steps_done) and 0 <= steps_done <= self.total_steps):
            raise SpecificationError(
                f"CurriculumSampler: steps_done must be from 0 to {self.total_steps}, the batches of the "
                f"whole training, got {steps_done!r}"
            )
        self._done, self._in_hand, self._is_counted = int(steps_done), 0, True

    def reset(self) -> None:
        """Start the training over."""
        self._done = 0
        self._begin()

    def loader(self, data: Dataset[Any], **options: Any) -> "CurriculumLoader":
        """A ``DataLoader`` of these samples that counts what is trained on.

        Args:
            data: the data set.
            **options: options of ``DataLoader``, such as ``num_workers``.
        """
        return CurriculumLoader(data, self.batch_size, sampler=self, drop_last=self.drop_last, **options)

    def state_dict(self) -> dict[str, Any]:
        """The position, and what identifies the order.

        Raises:
            SpecificationError: samples were drawn, but it is unknown how many were trained on.
        """
        if self._drawn and not self._is_counted:
            raise SpecificationError(
                "CurriculumSampler: a run that is saved must count its batches, got none: a DataLoader may "
                "draw them long before they are trained on. Use sampler.loader(data), iterate over "
                "sampler.counted(loader), or call sampler.step() after every batch"
            )
        return {"steps_done": self.steps_done, **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the ``state_dict`` of a sampler with the same arguments."""
        for name, value in self._identity().items():
            if state[name] != value:
                raise SpecificationError(
                    f"CurriculumSampler: the saved state has {name} = {state[name]}, this sampler {value}; "
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
    """A ``DataLoader`` that counts what is trained on. Built by ``CurriculumSampler.loader``.

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
        """The position of the sampler."""
        return self.sampler.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a ``state_dict``."""
        self.sampler.load_state_dict(state)


def _process(rank: int | None, replicas: int | None) -> tuple[int, int]:
    """Rank and number of processes; asks ``torch.distributed`` for missing ones."""
    running = torch.distributed.is_available() and torch.distributed.is_initialized()
    count = (torch.distributed.get_world_size() if running else 1) if replicas is None else replicas
    mine = (torch.distributed.get_rank() if running else 0) if rank is None else rank
    Arguments("CurriculumSampler").count("replicas", count)
    if not (is_whole(mine) and 0 <= mine < count):
        raise SpecificationError(f"CurriculumSampler: rank must be from 0 to {count - 1}, got {mine!r}")
    return int(mine), int(count)


@dataclass(frozen=True)
class CurriculumOrder:
    """Indices of a data set in the order of training.

    Attributes:
        labels: (G,) the groups.
        members: for each group, the indices of its samples.
        counts: (G,) number of samples of each group that are shown.
        sequence: (total,) group, as an index into ``labels``, of every sample shown.
        seed: seed of the order inside groups.
    """

    labels: tuple[Hashable, ...]
    members: tuple[Int[np.ndarray, " n"], ...]
    counts: Int[np.ndarray, " G"]
    sequence: Int[np.ndarray, " total"]
    seed: int

    @cached_property
    def indices(self) -> Int[np.ndarray, " total"]:
        """Index of every sample shown: a whole group is shown before any sample repeats."""
        made = np.empty(len(self.sequence), dtype=np.int64)
        for g, members in enumerate(self.members):
            rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(1, g)))
            passes = -(-int(self.counts[g]) // max(len(members), 1))
            shuffled = [rng.permutation(members) for _ in range(passes)]
            made[self.sequence == g] = np.concatenate([*shuffled, members[:0]])[: self.counts[g]]
        return made


def curriculum_order(
    schedule: Schedule,
    groups: Sequence[Any] | np.ndarray,
    total: int,
    *,
    control: str | None = None,
    values: Mapping[Any, float] | None = None,
    seed: int = 0,
) -> CurriculumOrder:
    """Put the samples of a data set into the order of a schedule.

    Every group gets its share of the ``total`` samples, rounded by largest remainder. The j-th of
    a group's n samples is put at a random time in the j-th of n parts of training that hold an equal
    share of the group, and all groups are merged by time. So the counts are exact, an interval
    without a group shows none of it, and mixed values are stratified.

    Args:
        schedule: a schedule with a control that says which group is shown.
        groups: (n,) the group of each sample of the data set.
        total: samples shown in the whole training.
        control: name of the control; None if the schedule has only one.
        values: group → value of the control. It may be None only if groups are numbers, and as many as the
            schedule has values: they are then matched in ascending order.
        seed: seed of everything random.
    """
    name = _control(schedule, control)
    of_samples = np.asarray(groups)
    if of_samples.ndim != 1 or not len(of_samples):
        raise SpecificationError(
            f"groups of shape {of_samples.shape}: one label for each sample of the data set"
        )
    offered, shares = _shares(schedule, name)
    labels, assignment = np.unique(of_samples, return_inverse=True)
    columns = _columns(labels.tolist(), offered, values, name)
    used = {column for column in columns if column is not None}
    for i, value in enumerate(offered):
        if i not in used and shares[:, i].max() > TOLERANCE:
            raise SpecificationError(
                f"the schedule shows samples with {name} = {value:g}, but no group of the data set has this "
                f"value; groups are {labels.tolist()}"
            )
    lengths = np.diff(schedule.grid) / schedule.horizon
    sizes = np.bincount(assignment, minlength=len(labels))
    weights = np.zeros((schedule.intervals, len(labels)))
    for g, column in enumerate(columns):
        if column is not None:
            # Groups with the same value share its samples in proportion to their sizes.
            same = [h for h, other in enumerate(columns) if other == column]
            weights[:, g] = lengths * shares[:, column] * sizes[g] / sizes[same].sum()
    counts = largest_remainder(weights.sum(axis=0), total)
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
    times = [_times(weights[:, g], schedule.grid, n, rng.random(n)) for g, n in enumerate(counts)]
    sequence = np.repeat(np.arange(len(labels)), counts)[np.argsort(np.concatenate(times), kind="stable")]
    members = tuple(np.flatnonzero(assignment == g) for g in range(len(labels)))
    return CurriculumOrder(tuple(labels.tolist()), members, counts, sequence, seed)


def largest_remainder(shares: Float[np.ndarray, " n"], total: int) -> Int[np.ndarray, " n"]:
    """Whole numbers (n,) that add up to ``total``, nearest to ``total`` times the shares (n,).

    All are rounded down, then those with the largest remainders (the first of equal ones) get one more.
    """
    quotas = np.asarray(shares, dtype=float) / np.sum(shares) * total
    # Quotas within round-off of a whole number are that number.
    nearest = np.round(quotas)
    quotas = np.where(np.abs(quotas - nearest) < TOLERANCE * max(total, 1), nearest, quotas)
    counts = np.floor(quotas).astype(np.int64)
    order = np.argsort(-(quotas - counts), kind="stable")
    counts[order[: total - counts.sum()]] += 1
    return counts


def _control(schedule: Schedule, control: str | None) -> str:
    if control is None and len(schedule.controls) == 1:
        return schedule.controls[0]
    if control is None or control not in schedule.controls:
        raise SpecificationError(
            f"control={control!r}: name the control that says which group is shown; the schedule has "
            f"{', '.join(schedule.controls)}"
        )
    return control


def _shares(schedule: Schedule, name: str) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "I n"]]:
    """Values of a control, ascending, and the share of each."""
    if name in schedule.mixtures:
        mixture = schedule.mixtures[name]
        order = np.argsort(mixture.values)
        return mixture.values[order], np.clip(mixture.shares[:, order], 0.0, None)
    course = np.asarray(schedule.values[name])
    offered = np.unique(course)
    return offered, (course[:, None] == offered).astype(float)


def _columns(
    labels: list[Any], offered: np.ndarray, values: Mapping[Any, float] | None, name: str
) -> list[int | None]:
    """For each group, the index of its value among the control's values; None if it is never shown."""
    if values is None:
        # Alphabetically, "simple" would come after "hard".
        if not all(isinstance(label, int | float) for label in labels):
            each = ", ".join(f"{label!r}: …" for label in labels)
            raise SpecificationError(
                f"values must say which {name} each group has where groups are not numbers, "
                f"values={{{each}}} out of {', '.join(f'{value:g}' for value in offered)}"
            )
        # This includes groups that are the values themselves.
        if len(labels) != len(offered):
            raise SpecificationError(
                f"the data set has the groups {labels}, and {name} takes the values {offered.tolist()}: say "
                "which is which by values={group: value}"
            )
        values = dict(zip(labels, offered.tolist(), strict=True))
    lacking = [label for label in labels if label not in values]
    if lacking:
        raise SpecificationError(
            f"values={dict(values)!r} has no value of {name} for the group {lacking[0]!r}"
        )
    near = (np.flatnonzero(np.abs(offered - values[label]) <= TOLERANCE) for label in labels)
    return [int(columns[0]) if len(columns) else None for columns in near]


def _times(weights: np.ndarray, grid: np.ndarray, count: int, uniforms: np.ndarray) -> np.ndarray:
    """(count,) increasing times at which a group with these weights (intervals,) is shown."""
    present = weights > 0
    if not count or not present.any():
        return np.zeros(0)
    # The share of the group shown so far is piecewise linear in time; times come from its inverse, which
    # skips intervals without the group.
    heights = np.cumsum(weights[present])
    levels = (np.arange(count) + uniforms) / count * heights[-1]
    piece = np.minimum(np.searchsorted(heights, levels, side="right"), len(heights) - 1)
    below = np.append(0.0, heights)[piece]
    inside = np.clip((levels - below) / weights[present][piece], 0.0, 1.0)
    start, length = grid[:-1][present][piece], np.diff(grid)[present][piece]
    return np.asarray(start + inside * length)
