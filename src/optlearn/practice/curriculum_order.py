"""The order in which a curriculum shows the samples of a data set: exact budgets, no repetition."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule

TOLERANCE = 1e-9


@dataclass(frozen=True)
class CurriculumOrder:
    """Indices of a data set in the order of training.

    Attributes:
        labels: (G,) the groups.
        members: for each group, the indices of its samples.
        counts: (G,) how many samples of each group are shown.
        sequence: (total,) group, as an index into ``labels``, of every sample shown.
        seed: of the order inside groups.
    """

    labels: tuple[Hashable, ...]
    members: tuple[np.ndarray, ...]
    counts: np.ndarray
    sequence: np.ndarray
    seed: int

    @cached_property
    def indices(self) -> np.ndarray:
        """(total,) index of every sample shown: a group is gone through once before it repeats."""
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
    a group's n samples is put at a random time of the j-th of n parts of training that hold an equal
    share of the group, and all groups are merged by time. So the counts are exact, an interval
    without a group shows none of it, and where a schedule mixes values the mix is stratified.

    Args:
        schedule: with a control that says which group is shown.
        groups: (n,) the group of each sample of the data set.
        total: samples shown in the whole training.
        control: name of the control; None if the schedule has only one.
        values: group → value of the control. Only where groups are numbers, and as many as the schedule
            has values, may it be None: they are then matched in ascending order.
        seed: of everything random.
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
            # Groups of the same value share it by size.
            same = [h for h, other in enumerate(columns) if other == column]
            weights[:, g] = lengths * shares[:, column] * sizes[g] / sizes[same].sum()
    counts = largest_remainder(weights.sum(axis=0), total)
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
    times = [
        _times(weights[:, g], schedule.grid, counts[g], rng.random(counts[g])) for g in range(len(labels))
    ]
    sequence = np.repeat(np.arange(len(labels)), counts)[np.argsort(np.concatenate(times), kind="stable")]
    members = tuple(np.flatnonzero(assignment == g) for g in range(len(labels)))
    return CurriculumOrder(tuple(labels.tolist()), members, counts, sequence, seed)


def largest_remainder(shares: np.ndarray, total: int) -> np.ndarray:
    """Whole numbers (n,) that add up to ``total`` and are nearest to ``total`` times the shares (n,).

    All are rounded down, then those with the largest remainders (the first, if equal) get one more.
    """
    quotas = np.asarray(shares, dtype=float) / np.sum(shares) * total
    # A quota that is a whole number up to round-off is that number.
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


def _shares(schedule: Schedule, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Values (n,) of a control, ascending, and the share (intervals, n) of each."""
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
    """For each group, the index of its value among those of the control; None if it is never shown."""
    if values is None:
        # Sorted by the alphabet, "simple" would come after "hard".
        if not all(isinstance(label, int | float) for label in labels):
            each = ", ".join(f"{label!r}: …" for label in labels)
            raise SpecificationError(
                f"values must say which {name} each group has where groups are not numbers, "
                f"values={{{each}}} out of {', '.join(f'{value:g}' for value in offered)}"
            )
        # Groups that are the values themselves are a case of this.
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
    found: list[int | None] = []
    for label in labels:
        near = np.flatnonzero(np.abs(offered - values[label]) <= TOLERANCE)
        found.append(int(near[0]) if len(near) else None)
    return found


def _times(weights: np.ndarray, grid: np.ndarray, count: int, uniforms: np.ndarray) -> np.ndarray:
    """(count,) increasing times at which a group with these weights (intervals,) is shown."""
    present = weights > 0
    if not count or not present.any():
        return np.zeros(0)
    # The share of the group shown so far is piecewise linear in time; times are its inverse, in
    # which intervals without the group take no part.
    heights = np.cumsum(weights[present])
    levels = (np.arange(count) + uniforms) / count * heights[-1]
    piece = np.minimum(np.searchsorted(heights, levels, side="right"), len(heights) - 1)
    below = np.append(0.0, heights)[piece]
    inside = np.clip((levels - below) / weights[present][piece], 0.0, 1.0)
    start, length = grid[:-1][present][piece], np.diff(grid)[present][piece]
    return np.asarray(start + inside * length)
