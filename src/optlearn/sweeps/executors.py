"""Where the chains of a sweep are walked: in this process, in spawned ones, or on a Dask cluster.

The points of a chain, their order and their first guesses are the same everywhere; only who computes differs.
"""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from optlearn._arguments import Arguments
from optlearn._processes import Ended, Send, run_tasks
from optlearn.sweeps.point import Chain, PointDone, done, failed_from_outside, walk
from optlearn.sweeps.spec import Index

Tell = Callable[[PointDone], None]

# A point whose process dies is tried so many times; then it counts as failed, and the others go on.
ATTEMPTS = 2


class Executor(Protocol):
    """Walks chains; what it tells of a point, perhaps more than once, it tells in this process."""

    @property
    def name(self) -> str:
        """For the records."""
        ...

    @property
    def by_name(self) -> bool:
        """Do other processes have to find functions by their names?"""
        ...

    def run(self, chains: Sequence[Chain], tell: Tell) -> None:
        """Walk all chains."""
        ...


def make_executor(executor: Any, jobs: int | None) -> Executor:
    """The executor that an argument stands for.

    Args:
        executor: "serial", "processes", "batched", the address of a Dask scheduler, or a Dask client or
            cluster; None for processes if ``jobs`` is above 1, else serial.
        jobs: local processes (default: one for each core).
    """
    if jobs is not None:
        Arguments("sweep").count("jobs", jobs)
    if executor is None:
        executor = "serial" if jobs in (None, 1) else "processes"
    word = executor if isinstance(executor, str) else ""
    if word == "serial":
        return Serial()
    if word == "batched":
        from optlearn.sweeps.batched import Batched

        return Batched()
    if word == "processes":
        return Processes(jobs or _cores())
    is_dask = hasattr(executor, "scheduler_address") or hasattr(executor, "scheduler_info")
    if ":" not in word and not is_dask:
        Arguments("sweep").fail(
            "executor",
            executor,
            "must be 'serial', 'processes', 'batched', the address of a Dask scheduler such as "
            "'tcp://127.0.0.1:8786', or a Dask client or cluster",
        )
    from optlearn.sweeps.dask import Dask

    return Dask(executor)


@dataclass(frozen=True)
class Serial:
    """In this process, one after the other."""

    name: str = "serial"
    by_name: bool = False

    def run(self, chains: Sequence[Chain], tell: Tell) -> None:
        """Walk all chains."""
        for chain in chains:
            walk(chain, tell)


@dataclass(frozen=True)
class Processes:
    """In spawned processes of this machine."""

    jobs: int
    by_name: bool = True

    @property
    def name(self) -> str:
        """For the records."""
        return f"processes:{self.jobs}"

    def run(self, chains: Sequence[Chain], tell: Tell) -> None:
        """Walk all chains; one whose worker dies is taken up by another worker."""
        deaths = Deaths()

        def ended(chain: Chain, end: Ended) -> list[Chain]:
            if not end.stopped:
                deaths.note(chain, f"its process ended with code {end.code}", tell)
            return [chain]

        run_tasks(_walk_in_worker, chains, self.jobs, heard=lambda _, message: tell(message), ended=ended)


@dataclass
class Deaths:
    """How often a point took its process with it."""

    counted: Counter[Index] = field(default_factory=Counter)

    def note(self, chain: Chain, error: str, tell: Tell, attempts: int = ATTEMPTS) -> None:
        """Count a death for the point that was being computed; after too many, the point has failed."""
        for index in chain.points:
            if chain.store.read(index) is None:
                self.counted[index] += 1
                if self.counted[index] >= attempts:
                    record = chain.store.write(index, failed_from_outside(chain.spec, index, error))
                    tell(done(record, chain.store))
                return


def _walk_in_worker(chain: Chain, send: Send) -> None:
    walk(chain, send)


def _cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
