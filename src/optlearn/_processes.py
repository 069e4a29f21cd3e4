"""Tasks in spawned processes: workers that live on from task to task, and whose death is noticed.

Processes are spawned: a forked one that uses JAX may deadlock. A worker ends with its parent, even if that is
killed.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")
Send = Callable[[Any], None]


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
    pool = _Pool(work, jobs)
    waiting = deque(tasks)
    try:
        while waiting or pool.busy:
            pool.hand_out(waiting)
            for worker, kind, message in pool.messages():
                task = worker.task
                if kind == "ended":
                    again = ended(cast(T, task), Ended(worker.pid, worker.process.exitcode, False))
                    waiting.extendleft(reversed(list(again or ())))
                elif kind == "raised":
                    raise message
                elif kind == "message":
                    heard(cast(T, task), message)
    finally:
        for worker in pool.stop():
            ended(cast(T, worker.task), Ended(worker.pid, worker.process.exitcode, True))


@dataclass
class _Worker(Generic[T]):
    """A process and its end of the pipe; ``task`` is None while it is idle."""

    process: SpawnProcess
    pipe: Connection
    began: bool = False
    task: T | None = None

    @property
    def pid(self) -> int:
        return int(self.process.pid or 0)


class _Pool(Generic[T]):
    def __init__(self, work: Callable[[T, Send], None], jobs: int) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._work, self._jobs = work, jobs
        self._workers: dict[Connection, _Worker[T]] = {}

    @property
    def busy(self) -> bool:
        return any(worker.task is not None for worker in self._workers.values())

    def hand_out(self, waiting: deque[T]) -> None:
        """Give tasks to idle workers, and start workers for the others."""
        idle = [worker for worker in self._workers.values() if worker.task is None]
        while waiting and (idle or len(self._workers) < self._jobs):
            worker = idle.pop() if idle else self._start()
            worker.task = waiting.popleft()
            try:
                worker.pipe.send(worker.task)
            except (BrokenPipeError, ConnectionResetError):
                return  # it is dead, which the pipe will say

    def messages(self) -> Iterable[tuple[_Worker[T], str, Any]]:
        """Wait for something to happen; what happened to workers that have a task."""
        for pipe in cast(list[Connection], wait(list(self._workers))):
            worker = self._workers[pipe]
            try:
                kind, message = pipe.recv()
            except (EOFError, OSError):  # OSError: it was killed in the middle of a message
                worker.process.join()
                del self._workers[pipe]
                pipe.close()
                if not worker.began:
                    raise WorkerStartError(
                        f"a worker process ended with code {worker.process.exitcode} before it began; in a "
                        'script, put the call under `if __name__ == "__main__":` (workers import the script)'
                    ) from None
                if worker.task is not None:
                    yield worker, "ended", None
                continue
            if kind == "began":
                worker.began = True
            elif kind == "done":
                worker.task = None
            else:
                yield worker, kind, message

    def stop(self) -> list[_Worker[T]]:
        """End all workers; those that were in the middle of a task."""
        workers = list(self._workers.values())
        for worker in workers:
            if worker.task is None:
                worker.pipe.close()  # the end of the pipe is the end of its work
            else:
                worker.process.terminate()
        for worker in workers:
            worker.process.join()
        return [worker for worker in workers if worker.task is not None]

    def _start(self) -> _Worker[T]:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(self._work, theirs), daemon=True)
        process.start()
        theirs.close()  # so that the end of the process is the end of the pipe
        worker: _Worker[T] = _Worker(process, ours)
        self._workers[ours] = worker
        return worker


def _serve(work: Callable[[Any, Send], None], pipe: Connection) -> None:
    """The life of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it without a traceback
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        pipe.send(("began", None))
        while True:
            try:
                task = pipe.recv()
                work(task, lambda message: pipe.send(("message", message)))
            except (EOFError, BrokenPipeError, ConnectionResetError):
                return
            except Exception as error:
                pipe.send(("raised", _sendable(error)))
                return
            pipe.send(("done", None))
    except (BrokenPipeError, ConnectionResetError):
        return  # nobody listens any more


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _sendable(error: Exception) -> Exception:
    """The error, if it survives the way through a pipe; else its text."""
    import pickle

    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
