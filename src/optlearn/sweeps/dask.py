"""Sweeps on ``dask.distributed``: a local cluster, a scheduler's address, or a cluster of dask-jobqueue."""

import uuid
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from queue import SimpleQueue
from typing import Any

from optlearn._errors import SpecificationError, how_to_install
from optlearn.sweeps.executors import Deaths, Tell
from optlearn.sweeps.point import Chain, PointDone, walk

# Seconds to wait for a scheduler to answer, and between looks at what has happened.
PATIENCE = 30
POLL = 0.2


class Dask:
    """On the workers of a cluster, which must see the folder of the sweep.

    Args:
        target: address of a scheduler, a ``distributed.Client``, or a cluster object.
    """

    by_name = False  # Dask sends functions whole

    def __init__(self, target: Any) -> None:
        try:
            import distributed
        except ImportError as error:
            raise SpecificationError(
                f"executor: Dask is not installed: {how_to_install('cluster')}"
            ) from error
        self._distributed: Any = distributed
        self._target = target

    @property
    def name(self) -> str:
        """For the records."""
        return "dask"

    def run(self, chains: Sequence[Chain], tell: Tell) -> None:
        """Walk all chains, one task each; Dask gives those of a dead worker to another one."""
        with ExitStack() as stack:
            client = self._client(stack)
            topic, events = f"optlearn-sweep-{uuid.uuid4().hex}", SimpleQueue[PointDone]()
            client.subscribe_topic(topic, lambda event: events.put(_point_done(event[1])))
            stack.callback(client.unsubscribe_topic, topic)
            self._drive(client, topic, chains, events, tell)

    def _drive(
        self,
        client: Any,
        topic: str,
        chains: Sequence[Chain],
        events: "SimpleQueue[PointDone]",
        tell: Tell,
    ) -> None:
        deaths = Deaths()
        waiting = {client.submit(_walk_on_worker, chain, topic, pure=False): chain for chain in chains}
        try:
            while waiting:
                with suppress(self._distributed.TimeoutError, TimeoutError):
                    self._distributed.wait(list(waiting), timeout=POLL, return_when="FIRST_COMPLETED")
                while not events.empty():
                    tell(events.get())
                for future in [future for future in waiting if future.done()]:
                    chain = waiting.pop(future)
                    if future.status == "finished":
                        for point in future.result():  # its events may be late
                            tell(point)
                        continue
                    error = future.exception()
                    if type(error).__name__ != "KilledWorker":
                        raise error
                    # Dask has tried several workers already.
                    deaths.note(chain, "its worker died, several times", tell, attempts=1)
                    waiting[client.submit(_walk_on_worker, chain, topic, pure=False)] = chain
        finally:
            client.cancel(list(waiting), force=True)

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
    worker, found = get_worker(), []

    def tell(point: PointDone) -> None:
        found.append(point)
        worker.log_event(topic, {"point": vars(point)})

    walk(chain, tell)
    return found


def _point_done(message: dict[str, Any]) -> PointDone:
    point = message["point"]
    return PointDone(**{**point, "index": tuple(point["index"])})
