"""The process of a worker, seen from inside: requests one by one, and interruptions where they do no harm."""

import _thread
import os
import queue
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

Send = Callable[[Any], None]
Work = Callable[[Any, Send], None]


@dataclass(frozen=True)
class Failed:
    """A request came to nothing.

    Attributes:
        reason: a sentence for the user.
        expected: is it about the request (bad input), rather than a fault?
    """

    reason: str
    expected: bool = False


@dataclass(frozen=True)
class Done:
    """A request has been worked on to its end; nothing more will be heard of it."""


class _Interruption:
    """Interrupts the main thread, but only inside a request and never in the middle of a message."""

    def __init__(self) -> None:
        self._number = -1  # of the request that is being worked on; they increase
        self._superseded = -1  # the last one that was cancelled
        self._open = False

    @property
    def asked(self) -> bool:
        """Has the request been superseded? Perhaps before it began."""
        return self._superseded >= self._number

    def cancel(self, number: int) -> None:
        """Called by the thread that reads."""
        self._superseded = number
        _thread.interrupt_main()

    def handle(self, signum: int, frame: object) -> None:
        """SIGINT, simulated or (ignored) from a terminal."""
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

    def send(self, pipe: Connection, message: tuple[Any, ...]) -> None:
        """Send a whole message, then end the work if that was asked for."""
        self._open = False
        pipe.send(message)
        self._open = True
        if self.asked:
            raise KeyboardInterrupt


def serve(name: str, pipe: Connection) -> None:
    """The life of the process."""
    interruption = _Interruption()
    signal.signal(signal.SIGINT, interruption.handle)
    module, _, function = name.partition(":")
    work: Work = getattr(import_module(module), function)
    requests: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(pipe, requests, interruption), daemon=True).start()
    while True:
        number, request = requests.get()
        end: Done | Failed = Done()
        try:
            end = _attempt(work, request, number, pipe, interruption)
        except KeyboardInterrupt:
            interruption.close()  # superseded: nobody waits for how it ended
        pipe.send(("end", number, end))


def _attempt(
    work: Work, request: Any, number: int, pipe: Connection, interruption: _Interruption
) -> Done | Failed:
    try:
        with interruption.allowed(number):
            work(request, lambda event: interruption.send(pipe, ("event", number, event)))
    except Exception as error:
        if interruption.asked:  # inside a library, an interruption may surface as something else
            return Done()
        if isinstance(error, ValueError):  # SpecificationError among them
            return Failed(str(error), expected=True)
        traceback.print_exc()  # for the terminal; the page shows a line
        return Failed(f"{type(error).__name__}: {error}")
    return Done()


def _read(
    pipe: Connection, requests: "queue.SimpleQueue[tuple[int, Any]]", interruption: _Interruption
) -> None:
    """Requests go into the queue at once, so that a cancellation is heard during work."""
    while True:
        try:
            kind, number, *rest = pipe.recv()
        except (EOFError, OSError):
            os._exit(0)  # the page is gone
        if kind == "work":
            requests.put((number, rest[0]))
        else:
            interruption.cancel(number)
