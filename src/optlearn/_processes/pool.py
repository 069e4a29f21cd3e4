"""Many tasks in a few processes, whose death is noticed and costs one task.

An executor of ``concurrent.futures`` gives up altogether when one of its processes dies, and does not say
which task it was; here the others go on.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar, cast

from optlearn._processes.worker import Send, WorkerProcess

T = TypeVar("T")


@dataclass(frozen=True)
class Ended:
    """The end of a process that was working on a task.

    Attributes:
        pid: its number.
        code: its exit code; minus the signal's number if it was killed.
        stopped: it was stopped by ``run_tasks``, which is giving up.
    """

    pid: int
    code: int | None
    stopped: bool


class WorkerStartError(RuntimeError):
    """A process could not start. In a script, work belongs under ``if __name__ == "__main__":``."""


def run_tasks(
    work: Callable[[T, Send], None],
    tasks: Sequence[T],
    jobs: int,
    *,
    heard: Callable[[T, Any], None],
    ended: Callable[[T, Ended], Iterable[T] | None],
) -> None:
    """Run tasks in at most ``jobs`` processes, in the order given.

    Args:
        work: runs in a worker, as ``work(task, send)``; ``send(message)`` reaches the parent. What it raises
            is raised here, and stops the other workers.
        tasks: arguments of ``work``; they and ``work`` are pickled.
        jobs: workers.
        heard: called with the task and a message of its worker.
        ended: called with a task whose process ended before the task was done; returns the tasks to run in
            its place, perhaps the same.
    """
    waiting, numbers = deque(tasks), count()
    workers: dict[Connection, _Busy[T]] = {}
    try:
        while waiting or any(worker.busy for worker in workers.values()):
            _hand_out(work, jobs, waiting, workers, numbers)
            for pipe in cast(list[Connection], wait(list(workers))):
                worker = workers[pipe]
                try:
                    kind, _, content = worker.process.receive()
                except EOFError:
                    del workers[pipe]
                    worker.bury()
                    if worker.busy:
                        again = ended(worker.task, worker.end(stopped=False))
                        waiting.extendleft(reversed(list(again or ())))
                    continue
                if kind == "began":
                    worker.began = True
                elif kind == "message":
                    heard(worker.task, content)
                else:
                    worker.busy = False
                    if kind == "raised":
                        raise content[0]
    finally:
        for worker in workers.values():
            worker.stop()
        for worker in workers.values():
            worker.process.process.join()
            if worker.busy:
                ended(worker.task, worker.end(stopped=True))


@dataclass
class _Busy(Generic[T]):
    """A worker and the task that it was given last."""

    process: WorkerProcess
    task: T
    busy: bool = True
    began: bool = False

    def bury(self) -> None:
        """It has ended; raise if it never ran."""
        self.process.process.join()
        self.process.pipe.close()
        if not self.began:
            code = self.process.process.exitcode
            raise WorkerStartError(
                f"a worker process ended with code {code} before it began; in a script, put the call under "
                '`if __name__ == "__main__":` (workers import the script)'
            )

    def end(self, stopped: bool) -> Ended:
        return Ended(self.process.pid, self.process.process.exitcode, stopped)

    def stop(self) -> None:
        if self.busy:
            self.process.process.terminate()
        self.process.pipe.close()  # the end of the pipe is the end of an idle one


def _hand_out(
    work: Callable[[T, Send], None],
    jobs: int,
    waiting: deque[T],
    workers: dict[Connection, _Busy[T]],
    numbers: "count[int]",
) -> None:
    """Give tasks to idle workers, and start workers for the others."""
    idle = [worker for worker in workers.values() if not worker.busy]
    while waiting and (idle or len(workers) < jobs):
        task = waiting.popleft()
        if idle:
            worker = idle.pop()
            worker.task, worker.busy = task, True
        else:
            worker = _Busy(WorkerProcess(work), task)
            workers[worker.process.pipe] = worker
        worker.process.post(next(numbers), task)
