"""A process that lives on from task to task, seen from its parent and from inside.

It tells its parent, as (kind, number of the task, content): ``began`` when it runs, ``message`` for what a
task sends, and at the end of a task ``done``, or ``raised`` with the error and its traceback as text.
"""

import _thread
import multiprocessing
import os
import pickle
import queue
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

Send = Callable[[Any], None]
Work = Callable[[Any, Send], None]


class WorkerProcess:
    """A process, seen from its parent.

    Args:
        work: runs in the process as ``work(task, send)``; ``send(message)`` reaches the parent. A function
            that can be pickled, or "module:function", which is imported only there.

    Attributes:
        process: of Python's ``multiprocessing``.
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
        """Its number."""
        return int(self.process.pid or 0)

    def post(self, number: int, task: Any) -> None:
        """Give it a task; numbers must increase."""
        self._send(("work", number, task))

    def cancel(self, number: int) -> None:
        """Interrupt a task where libraries allow it; it then ends as done."""
        self._send(("cancel", number, None))

    def receive(self) -> tuple[str, int, Any]:
        """What it tells; an EOFError if it has ended, also in the middle of a message."""
        try:
            told: tuple[str, int, Any] = self.pipe.recv()
        except OSError as error:
            raise EOFError("it was killed in the middle of a message") from error
        return told

    def _send(self, message: tuple[str, int, Any]) -> None:
        with suppress(OSError):  # it is dead, which ``receive`` will say
            self.pipe.send(message)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Processes started here do linear algebra in one thread, unless the user has said otherwise.

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


class _Interruption:
    """Interrupts the main thread, but only inside a task and never in the middle of a message."""

    def __init__(self) -> None:
        self._number = -1  # of the task that is being worked on; they increase
        self._cancelled = -1  # the last one that was cancelled
        self._open = False

    @property
    def asked(self) -> bool:
        """Has the task been cancelled? Perhaps before it began."""
        return self._cancelled >= self._number

    def cancel(self, number: int) -> None:
        """Called by the thread that reads."""
        self._cancelled = number
        _thread.interrupt_main()

    def handle(self, signum: int, frame: object) -> None:
        """SIGINT: simulated, or from a terminal, where it is the parent's to decide."""
        if self._open and self.asked:
            raise KeyboardInterrupt

    @contextmanager
    def allowed(self, number: int) -> Iterator[None]:
        """Where interruptions are wanted."""
        self._number = number
        if self.asked:
            raise KeyboardInterrupt
        try:
            self._open = True
            yield
        finally:
            self.close()

    def close(self) -> None:
        """No interruption from here on."""
        self._open = False

    def send(self, pipe: Connection, message: tuple[str, int, Any]) -> None:
        """Send a whole message, then end the work if that was asked for."""
        self._open = False
        pipe.send(message)
        self._open = True
        if self.asked:
            raise KeyboardInterrupt


def _serve(work: Work | str, pipe: Connection) -> None:
    """The life of the process."""
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
                interruption.close()  # cancelled: nobody waits for how it ended
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
    """Tasks go into the queue at once, so that a cancellation is heard during work."""
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
    """The error, if it survives the way through a pipe; else its text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
