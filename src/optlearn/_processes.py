"""Spawned processes that work through tasks: one for the explorer, several for figures and sweeps.

Processes are spawned: a forked one that uses JAX may deadlock. They end with their parent, even if that is
killed. A process handles task after task. It sends its parent tuples (kind, task number, content): ``began``
when it runs, ``message`` for whatever a task sends, and at the end of a task ``done``, or ``raised`` with
the error and its traceback as text.

``run_tasks`` spreads many tasks over a few processes; a process that dies is noticed and costs one task. An
executor of ``concurrent.futures`` gives up altogether when one of its processes dies, and does not say which
task it was running; here the others go on.
"""

import _thread
import multiprocessing
import os
import pickle
import queue
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")
Send = Callable[[Any], None]
Work = Callable[[Any, Send], None]


class WorkerProcess:
    """A process as its parent sees it.

    Args:
        work: runs in the process as ``work(task, send)``; ``send(message)`` reaches the parent. A function
            that can be pickled, or "module:function", which is imported only there.

    Attributes:
        process: the process of Python's ``multiprocessing``.
        pipe: readable when there is something to ``receive``.
    """

    def __init__(self, work: Work | str) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(work, theirs), daemon=True)
        with _one_thread():
            self.process.start()
        theirs.close()  # so that the end of the process is the end of the pipe

    @property
    def pid(self) -> int:
        """The process id."""
        return int(self.process.pid or 0)

    def post(self, number: int, task: Any) -> None:
        """Give it a task; numbers must increase."""
        self._send(("work", number, task))

    def cancel(self, number: int) -> None:
        """Interrupt a task where libraries allow it; it then ends as done."""
        self._send(("cancel", number, None))

    def receive(self) -> tuple[str, int, Any]:
        """Its next message; raises EOFError if it has ended, also in the middle of a message."""
        try:
            message: tuple[str, int, Any] = self.pipe.recv()
        except OSError as error:
            raise EOFError("it was killed in the middle of a message") from error
        return message

    def _send(self, message: tuple[str, int, Any]) -> None:
        with suppress(OSError):  # it is dead: ``receive`` will report it
            self.pipe.send(message)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Limit processes started here to one thread for linear algebra, unless the user has set another number.

    Matrices are small; threads of several workers would only wait for each other's cores.
    """
    name = "OMP_NUM_THREADS"
    if name in os.environ:
        yield
        return
    os.environ[name] = "1"
    try:
        yield
    finally:
        del os.environ[name]


# --- inside the process -----------------------------------------------------------------------


class _Interruption:
    """Interrupts the main thread, but only inside a task and never in the middle of a message."""

    def __init__(self) -> None:
        self._number = -1  # of the task that is being worked on; they increase
        self._cancelled = -1  # the last one that was cancelled
        self._open = False

    @property
    def asked(self) -> bool:
        """Has the task been cancelled, possibly before it began?"""
        return self._cancelled >= self._number

    def cancel(self, number: int) -> None:
        """Called by the thread that reads."""
        self._cancelled = number
        _thread.interrupt_main()

    def handle(self, signum: int, frame: object) -> None:
        """Handle SIGINT: simulated, or from a terminal, where the parent decides."""
        if self._open and self.asked:
            raise KeyboardInterrupt

    @contextmanager
    def allowed(self, number: int) -> Iterator[None]:
        """Allow interruptions within this context."""
        self._number = number
        if self.asked:
            raise KeyboardInterrupt
        try:
            self._open = True
            yield
        finally:
            self.close()

    def close(self) -> None:
        """Allow no interruption from here on."""
        self._open = False

    def send(self, pipe: Connection, message: tuple[str, int, Any]) -> None:
        """Send a whole message, then stop if a cancellation is pending."""
        self._open = False
        pipe.send(message)
        self._open = True
        if self.asked:
            raise KeyboardInterrupt


def _serve(work: Work | str, pipe: Connection) -> None:
    """Main loop of the process."""
    interruption = _Interruption()
    signal.signal(signal.SIGINT, interruption.handle)
    tasks: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(pipe, tasks, interruption), daemon=True).start()
    with suppress(BrokenPipeError, ConnectionResetError):  # nobody listens any more
        pipe.send(("began", -1, None))
        module, _, name = work.partition(":") if isinstance(work, str) else ("", "", "")
        function: Work = getattr(import_module(module), name) if isinstance(work, str) else work
        while True:
            number, task = tasks.get()
            end: tuple[str, int, Any] = ("done", number, None)
            try:
                end = _attempt(function, task, number, pipe, interruption)
            except KeyboardInterrupt:
                interruption.close()  # cancelled: nobody waits for the outcome
            pipe.send(end)


def _attempt(
    work: Work, task: Any, number: int, pipe: Connection, interruption: _Interruption
) -> tuple[str, int, Any]:
    try:
        with interruption.allowed(number):
            work(task, lambda message: interruption.send(pipe, ("message", number, message)))
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:
        if not interruption.asked:  # inside a library, an interruption may surface as something else
            return "raised", number, (_sendable(error), traceback.format_exc())
    return "done", number, None


def _read(pipe: Connection, tasks: "queue.SimpleQueue[tuple[int, Any]]", interruption: _Interruption) -> None:
    """Put tasks into the queue at once, so that a cancellation is noticed during work."""
    while True:
        try:
            kind, number, task = pipe.recv()
        except (EOFError, OSError):
            os._exit(0)  # the parent is gone
        if kind == "work":
            tasks.put((number, task))
        else:
            interruption.cancel(number)


def _sendable(error: Exception) -> Exception:
    """The error if it can be pickled for the pipe; else its text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


# --- many tasks in a few processes ------------------------------------------------------------


@dataclass(frozen=True)
class Ended:
    """The end of a process that was working on a task.

    Attributes:
        pid: its number.
        code: its exit code; minus the signal's number if it was killed.
        stopped: ``run_tasks`` stopped it because it is giving up.
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
            idle = [worker for worker in workers.values() if not worker.busy]
            while waiting and (idle or len(workers) < jobs):
                worker = idle.pop() if idle else _Busy(WorkerProcess(work), waiting[0])
                workers[worker.process.pipe] = worker
                worker.task, worker.busy = waiting.popleft(), True
                worker.process.post(next(numbers), worker.task)
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
    """A worker and its latest task."""

    process: WorkerProcess
    task: T
    busy: bool = True
    began: bool = False

    def bury(self) -> None:
        """Handle its end; raise if it never ran."""
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
