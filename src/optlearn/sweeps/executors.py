"""Where the points of a sweep are solved: in this process, spawned ones, on a Dask cluster, or in batches.

The points of a chain, their order and their first guesses are the same wherever chains run; batches solve all
points together as lanes of compiled programs, and leave uncertified points to chains.
"""

import os
import time
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from queue import SimpleQueue
from typing import Any

from typing_extensions import override

from optlearn._arguments import Arguments
from optlearn._control.batched.solve import Solved, solve_many
from optlearn._control.batched.stack import stack
from optlearn._control.problem import Problem
from optlearn._control.solution import Variant
from optlearn._errors import SpecificationError, how_to_install
from optlearn._processes import Ended, run_tasks
from optlearn.sweeps.point import Chain, PointDone, compute, done, make_record, solved_content, walk
from optlearn.sweeps.spec import Index, Spec
from optlearn.sweeps.store import Record

Tell = Callable[[PointDone], None]

# Number of attempts for a point whose process dies; after that it counts as failed, and the others continue.
ATTEMPTS = 2
# Seconds to wait for a Dask scheduler, and between checks for events.
PATIENCE = 30
POLL = 0.2
# Number of points solved together in a batch, and written to disk before the next ones begin.
BLOCK = 1024
_BATCHED_METHODS = ("auto", "indirect")


class Executor(ABC):
    """Solves chains; it reports points, possibly more than once, in this process."""

    name: str  # for the records
    by_name = False  # other processes must find functions by name

    @abstractmethod
    def run(self, chains: Sequence[Chain], tell: Tell) -> None:
        """Solve all chains."""


def make_executor(executor: Any, jobs: int | None) -> Executor:
    """The executor for these arguments of ``sweep``."""
    if jobs is not None:
        Arguments("sweep").count("jobs", jobs)
    if executor is None:
        executor = "serial" if jobs in (None, 1) else "processes"
    word = executor if isinstance(executor, str) else ""
    if word == "serial":
        return Serial()
    if word == "batched":
        return Batched()
    if word == "processes":
        # Cores that this process may use.
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        return Processes(jobs or cores or 1)
    is_dask = hasattr(executor, "scheduler_address") or hasattr(executor, "scheduler_info")
    if ":" not in word and not is_dask:
        Arguments("sweep").fail(
            "executor",
            executor,
            "must be 'serial', 'processes', 'batched', the address of a Dask scheduler such as "
            "'tcp://127.0.0.1:8786', or a Dask client or cluster",
        )
    return Dask(executor)


class Serial(Executor):
    """In this process, one after the other."""

    name = "serial"

    @override
    def run(self, chains: Sequence[Chain], tell: Tell) -> None:
        for chain in chains:
            walk(chain, tell)


class Processes(Executor):
    """In spawned processes on this machine; another worker continues a chain whose worker dies."""

    by_name = True

    def __init__(self, jobs: int) -> None:
        self.jobs, self.name = jobs, f"processes:{jobs}"

    @override
    def run(self, chains: Sequence[Chain], tell: Tell) -> None:
        deaths = Deaths()

        def ended(chain: Chain, end: Ended) -> list[Chain]:
            if not end.stopped:
                deaths.note(chain, f"its process ended with code {end.code}", tell)
            return [chain]

        run_tasks(walk, chains, self.jobs, heard=lambda _, message: tell(message), ended=ended)


class Deaths(Counter[Index]):
    """Number of times that a point's process has died."""

    def note(self, chain: Chain, error: str, tell: Tell, attempts: int = ATTEMPTS) -> None:
        """Count a death of the process at the current point; after too many, the point has failed."""
        # A chain is solved in order: the first point that is not on disk was being computed.
        index = next((index for index in chain.points if chain.store.read(index) is None), None)
        if index is not None:
            self[index] += 1
            if self[index] >= attempts:
                record = make_record(chain.spec, index, {"error": error, "traceback": ""})
                tell(done(chain.store.write(index, record), chain.store))


class Dask(Executor):
    """On the workers of a cluster, which must see the sweep's folder; functions are pickled by value.

    Args:
        target: address of a scheduler, a ``distributed.Client``, or a cluster object.
    """

    name = "dask"

    def __init__(self, target: Any) -> None:
        try:
            import distributed
        except ImportError as error:
            raise SpecificationError(
                f"executor: Dask is not installed: {how_to_install('cluster')}"
            ) from error
        self._distributed: Any = distributed
        self._target = target

    @override
    def run(self, chains: Sequence[Chain], tell: Tell) -> None:
        # One task each; Dask reassigns the tasks of a dead worker.
        with ExitStack() as stack:
            client = self._client(stack)
            topic, events = f"optlearn-sweep-{uuid.uuid4().hex}", SimpleQueue[PointDone]()
            # Results of tasks arrive when whole chains are done; events report every point.
            client.subscribe_topic(topic, lambda event: events.put(_point_done(**event[1]["point"])))
            stack.callback(client.unsubscribe_topic, topic)
            deaths = Deaths()
            waiting = {client.submit(_walk_on_worker, chain, topic, pure=False): chain for chain in chains}
            stack.callback(lambda: client.cancel(list(waiting), force=True))
            while waiting:
                with suppress(self._distributed.TimeoutError, TimeoutError):
                    self._distributed.wait(list(waiting), timeout=POLL, return_when="FIRST_COMPLETED")
                while not events.empty():
                    tell(events.get())
                for future in [future for future in waiting if future.done()]:
                    chain = waiting.pop(future)
                    if future.status == "finished":
                        for point in future.result():  # its events may arrive late
                            tell(point)
                        continue
                    error = future.exception()
                    if type(error).__name__ != "KilledWorker":
                        raise error
                    # Dask has tried several workers already.
                    deaths.note(chain, "its worker died, several times", tell, attempts=1)
                    waiting[client.submit(_walk_on_worker, chain, topic, pure=False)] = chain

    def _client(self, stack: ExitStack) -> Any:
        if isinstance(self._target, self._distributed.Client):
            return self._target
        try:
            return stack.enter_context(self._distributed.Client(self._target, timeout=PATIENCE))
        except (OSError, TimeoutError) as error:
            raise SpecificationError(
                f"executor={self._target!r}: no scheduler answers there ({error})"
            ) from error


def _walk_on_worker(chain: Chain, topic: str) -> list[PointDone]:
    from distributed import get_worker

    chain.store.check_visible()
    worker, finished = get_worker(), []

    def tell(point: PointDone) -> None:
        finished.append(point)
        worker.log_event(topic, {"point": vars(point)})  # Dask adds keys of its own beside it

    walk(chain, tell)
    return finished


def _point_done(index: Sequence[int], **message: Any) -> PointDone:
    return PointDone(index=tuple(index), **message)  # a tuple arrives as a list


class Batched(Executor):
    """In this process, on its default JAX device: unfinished points in the order of the grid.

    Raises a SpecificationError if the points differ in more than numbers, or need another method.
    """

    name = "batched"

    @override
    def run(self, chains: Sequence[Chain], tell: Tell) -> None:
        if not chains:
            return
        spec, store = chains[0].spec, chains[0].store
        method = spec.options.get("method", "auto")
        if method not in _BATCHED_METHODS:
            raise SpecificationError(
                f"method must be one of {', '.join(_BATCHED_METHODS)} with executor='batched', got {method!r}"
            )
        points = [index for chain in chains for index in chain.points if store.read(index) is None]
        posed: dict[Index, Problem] = {}
        for index in points:
            try:
                posed[index] = spec.problem(index)
            except Exception:  # concerns only this point, whose record reports it
                tell(done(store.write(index, compute(spec, index)), store))
        if posed:
            stack(list(posed.values()), spec.options.get("intervals"))  # before any costly work
        indices = list(posed)
        options = {name: value for name, value in spec.options.items() if name != "method"}
        for first in range(0, len(indices), BLOCK):
            block = indices[first : first + BLOCK]
            began, cpu = time.perf_counter(), time.process_time()
            solved = solve_many([posed[index] for index in block], **options)
            seconds = (time.perf_counter() - began) / len(block), (time.process_time() - cpu) / len(block)
            for i, index in enumerate(block):
                tell(done(store.write(index, _batch_record(spec, index, solved, i, seconds)), store))


def _batch_record(spec: Spec, index: Index, solved: Solved, i: int, seconds: tuple[float, float]) -> Record:
    """The batch's result, if it is certified and no solution is requested; else one by one."""
    certificate, relaxed = solved.certificates[i], solved.relaxed_schedule(i)
    if not certificate.converged or spec.reduce is not None or spec.baselines:
        near = relaxed or solved.schedule(i)
        return compute(spec, index, near=near if certificate.converged else None)
    objective, outcome = float(solved.objective[i]), solved.outcomes[i]
    variant = None if relaxed is None else Variant(relaxed, float(solved.relaxed_objective[i]))
    content = solved_content(objective, certificate, outcome, solved.schedule(i), variant)
    return make_record(spec, index, content, *seconds)
