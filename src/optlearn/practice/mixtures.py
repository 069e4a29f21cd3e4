"""Shares of domains in training code: a sampler, an interleaved stream, a function of the step, phases.

A schedule of a mixture has controls ``share_NAME``, one for each domain, that add up to 1, with time in
steps. Everything here shows each domain as often as the schedule prescribes, up to rounding to whole samples.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import Int
from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule
from optlearn._signatures import checked

if TYPE_CHECKING:
    from optlearn.practice.curriculum_sampler import CurriculumSampler

PREFIX = "share_"


@dataclass(frozen=True)
class Phase:
    """A phase of constant shares, in the form that data mixers need.

    Attributes:
        start: its first step, counted from 0.
        steps: its number of steps.
        shares: domain → share of the samples.
    """

    start: int
    steps: int
    shares: Mapping[str, float]

    @property
    def probabilities(self) -> list[float]:
        """Shares in the order of the domains, for ``datasets.interleave_datasets``."""
        return list(self.shares.values())


def domains_of(schedule: Schedule) -> tuple[str, ...]:
    """Names of the domains of a schedule whose shares add up to 1."""
    names = tuple(c.removeprefix(PREFIX) for c in schedule.controls if c.startswith(PREFIX))
    if len(names) < 2:
        raise SpecificationError(
            "schedule must have controls share_NAME of at least two domains, got "
            f"{', '.join(schedule.controls)}"
        )
    total = np.sum([schedule[PREFIX + name] for name in names], axis=0)
    if np.abs(total - 1).max() > 1e-6:
        raise SpecificationError(
            f"shares must add up to 1 in every interval, got {total[np.abs(total - 1).argmax()]:g}"
        )
    return names


def whole_steps(grid: np.ndarray, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Edges rounded to whole steps, and the mean shares (intervals, domains) between them.

    A rounded interval keeps the schedule's mean shares there, so each domain keeps its number of samples.
    """
    edges = np.round(grid).astype(int)
    lengths = np.diff(edges)[:, None]
    if np.array_equal(edges, grid):
        return edges, table
    shown = np.concatenate([np.zeros((1, table.shape[1])), np.cumsum(np.diff(grid)[:, None] * table, axis=0)])
    until = np.stack([np.interp(edges, grid, column) for column in shown.T], axis=1)
    means = np.divide(np.diff(until, axis=0), lengths, out=table.copy(), where=lengths > 0)
    return edges, np.clip(means, 0.0, 1.0)


def _in_steps(schedule: Schedule, steps: int | None) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """Domains, edges of the intervals in whole steps, and the shares (intervals, domains) between them."""
    names = domains_of(schedule)
    total = round(schedule.horizon) if steps is None else Arguments("mixture").count("steps", steps)
    table = np.stack([schedule[PREFIX + name] for name in names], axis=1)
    return names, *whole_steps(schedule.grid * (total / schedule.horizon), table)


@checked
def share_function(schedule: Schedule, steps: int | None = None) -> Callable[[int], dict[str, float]]:
    """The shares as a plain function of the step, counted from 0; after the end, the last ones."""
    names, edges, table = _in_steps(schedule, steps)

    def shares(step: int) -> dict[str, float]:
        index = int(np.clip(np.searchsorted(edges, step, side="right") - 1, 0, len(table) - 1))
        return dict(zip(names, table[index].tolist(), strict=True))

    return shares


@checked
def phases(schedule: Schedule, tolerance: float = 0.02, steps: int | None = None) -> list[Phase]:
    """The schedule as phases of constant shares: intervals whose shares differ by less than ``tolerance``.

    Args:
        schedule: schedule of a mixture.
        tolerance: maximum difference of shares within a phase from its mean; 0 keeps every interval.
        steps: steps of the whole training (default: the schedule's horizon counts steps).
    """
    Arguments("phases").number("tolerance", tolerance, 0.0, 1.0)
    names, edges, table = _in_steps(schedule, steps)
    lengths = np.diff(edges)
    found: list[Phase] = []
    first = 0

    def mean_of(first: int, end: int) -> np.ndarray:
        """The mean, so that budgets are kept."""
        return lengths[first:end] @ table[first:end] / max(lengths[first:end].sum(), 1)

    for end in range(1, len(table) + 1):
        if end < len(table):
            off = np.abs(table[first : end + 1] - mean_of(first, end + 1))[lengths[first : end + 1] > 0]
            if off.max(initial=0.0) <= tolerance:
                continue
        weight = lengths[first:end]
        if weight.sum():
            mean = mean_of(first, end)
            found.append(
                Phase(int(edges[first]), int(weight.sum()), dict(zip(names, mean.tolist(), strict=True)))
            )
        first = end
    return found


@checked
def domain_order(
    schedule: Schedule, batch_size: int, steps: int | None = None
) -> Int[np.ndarray, " samples"]:
    """(steps × batch_size,) the domain of each sample, as its index in the schedule's order.

    Every sample comes from the domain that lags furthest behind its share, so at any time domains deviate
    from the schedule by about one sample.
    """
    Arguments("domain_order").count("batch_size", batch_size)
    names, edges, table = _in_steps(schedule, steps)
    order = np.empty(edges[-1] * batch_size, dtype=np.int64)
    lag, at = [0.0] * len(names), 0
    for row, length in zip(table.tolist(), np.diff(edges).tolist(), strict=True):
        for _ in range(length * batch_size):
            lag = [behind + share for behind, share in zip(lag, row, strict=True)]
            chosen = max(range(len(lag)), key=lag.__getitem__)
            lag[chosen] -= 1.0
            order[at] = chosen
            at += 1
    return order


class Interleaved:
    """Samples of several streams in the order of a schedule; resumable.

    A stream that ends is restarted with a new iterator. For Hugging Face, wrap it with
    ``datasets.IterableDataset.from_generator(lambda: mixture)``; otherwise iterate over it directly.

    Args:
        schedule: schedule of a mixture.
        streams: domain → an iterable of samples.
        batch_size: samples in a step.
        steps: steps of the whole training (default: the schedule's horizon counts steps).
    """

    @checked
    def __init__(
        self,
        schedule: Schedule,
        streams: Mapping[str, Iterable[Any]],
        batch_size: int,
        steps: int | None = None,
    ) -> None:
        self.names = domains_of(schedule)
        if set(streams) != set(self.names):
            Arguments("Interleaved").fail("streams", list(streams), f"must be of {', '.join(self.names)}")
        self.streams = dict(streams)
        self.order = domain_order(schedule, batch_size, steps)
        self.done = 0

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, index: object) -> Any:
        raise SpecificationError(
            f"Interleaved: samples come in order, so there is no sample [{index!r}]. In a DataLoader of "
            "PyTorch, wrap it in an IterableDataset, with num_workers=0 since each worker would show all "
            "samples; or give to_torch_sampler the domain of each sample of a data set"
        )

    def __iter__(self) -> Iterator[Any]:
        if self.done == len(self.order):
            raise SpecificationError(
                f"Interleaved: the whole training, {len(self.order)} samples, has been shown; "
                "load_state_dict({'done': 0}) starts over"
            )
        used = self.used(self.done)
        readers = {name: self._after(name, used[name]) for name in self.names}
        for place in range(self.done, len(self.order)):
            name = self.names[self.order[place]]
            self.done = place + 1
            yield next(readers[name])

    def used(self, samples: int) -> dict[str, int]:
        """Domain → how many of the first ``samples`` come from it."""
        counts = np.bincount(self.order[:samples], minlength=len(self.names))
        return dict(zip(self.names, counts.tolist(), strict=True))

    def _after(self, name: str, samples: int) -> Iterator[Any]:
        """A stream, continued from its position and repeated for ever."""
        skip = samples
        while True:
            count = 0
            for sample in self.streams[name]:
                count += 1
                if skip:
                    skip -= 1
                else:
                    yield sample
            if not count:
                raise SpecificationError(
                    f"stream {name!r} must hold at least one sample whenever it is iterated over, got none: "
                    "a generator ends for good, a list or a data set begins again"
                )

    def state_dict(self) -> dict[str, int]:
        """The number of samples taken."""
        return {"done": self.done}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continue from a ``state_dict``."""
        self.done = Arguments("Interleaved").count("done", state.get("done"), 0, len(self.order))


@checked
def torch_sampler(
    schedule: Schedule,
    domains: Sequence[Any] | np.ndarray,
    batch_size: int = 1,
    steps: int | None = None,
    **options: Any,
) -> "CurriculumSampler":
    """A PyTorch sampler for a data set with a domain for each sample; see ``CurriculumSampler``.

    Args:
        schedule: schedule of a mixture.
        domains: (n,) domain name of each sample of the data set.
        batch_size: samples in a batch.
        steps: batches in the whole training (default: the schedule's horizon counts steps).
        options: ``seed``, ``rank`` and ``replicas`` of the sampler.
    """
    from optlearn.practice.curriculum_sampler import CurriculumSampler

    names = domains_of(schedule)
    present = {str(domain) for domain in np.asarray(domains).tolist()}
    if unknown := sorted(present - set(names)):
        Arguments("to_torch_sampler").fail("domains", unknown[0], f"must be of {', '.join(names)}")
    absent = [name for name in names if name not in present and schedule[PREFIX + name].any()]
    if absent:
        Arguments("to_torch_sampler").fail(
            "domains", sorted(present), f"must hold samples of {absent[0]!r}, which the schedule shows"
        )
    mixed = Schedule.mixed(
        schedule.grid, {"domain": {float(i): schedule[PREFIX + name] for i, name in enumerate(names)}}
    )
    values = {name: float(i) for i, name in enumerate(names)}
    total = round(schedule.horizon) if steps is None else steps
    return CurriculumSampler(mixed, domains, batch_size=batch_size, steps=total, values=values, **options)
