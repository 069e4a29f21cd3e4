"""One process that works for the page, so that the page never waits.

A client has one request at a time: a newer one supersedes it. A superseded request that has not begun is
dropped; a running one is interrupted where libraries allow it, and its process is ended if that takes too
long. Requests of several clients run one after the other: waiting clients are told how many are ahead, and if
too many are waiting, further ones are rejected. The process lives on from request to request, because its
traced and compiled programs make the next one fast.
"""

import sys
import threading
import time
import traceback
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from optlearn._app.messages import Done, Failed, Waiting
from optlearn._processes import WorkerProcess


@dataclass
class _Job:
    client: Hashable
    request: object
    heard: Callable[[object], None]
    number: int = field(default_factory=count().__next__)
    cancelled: float | None = None  # when, by the monotonic clock
    before: int = 0  # last number of earlier requests reported to the client


class Worker:
    """The process as the page sees it.

    Args:
        work: "module:function", which runs in the process as ``work(request, send)``; it is imported only
            there. ``send(event)`` reaches the client, and ends the work if it has been superseded. A
            ValueError that it raises is bad input.
        patience: seconds after which a superseded request that does not end is killed with its process.
        most: maximum number of waiting clients.
    """

    def __init__(self, work: str, patience: float = 10.0, most: int = 16) -> None:
        self._work, self._patience, self._most = work, patience, most
        self._lock = threading.RLock()
        self._waiting: dict[Hashable, _Job] = {}
        self._current: _Job | None = None
        self._process: WorkerProcess | None = None
        self._stopped = False

    def start(self) -> None:
        """Start the process ahead of the first request."""
        with self._lock:
            if self._process is not None or self._stopped:
                return
            self._process = WorkerProcess(self._work)
            threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()

    def ask(self, client: Hashable, request: object, heard: Callable[[object], None]) -> None:
        """Work on a request that replaces this client's earlier one.

        Args:
            client: identifies the client.
            request: argument of ``work``; it is pickled.
            heard: called with every event, the last of which is ``Done`` or ``Failed``, in another thread.
                Not called after the request is superseded.
        """
        with self._lock:
            self.cancel(client)
            job = _Job(client, request, heard)
            if len(self._waiting) >= self._most:
                full = f"{self._most} others are waiting already: try again in a moment"
                _tell(job, Failed(full, expected=True))
                return
            self._waiting[client] = job
            self.start()
            self._hand_out()

    def cancel(self, client: Hashable) -> None:
        """Drop or interrupt this client's request."""
        with self._lock:
            self._waiting.pop(client, None)
            job = self._current
            if job is not None and job.client == client and job.cancelled is None:
                job.cancelled = time.monotonic()
                if self._process is not None:
                    self._process.cancel(job.number)
            self._say_places()

    def stop(self) -> None:
        """End the process."""
        with self._lock:
            self._stopped = True
            self._waiting.clear()
            if self._process is not None:
                self._process.process.terminate()

    @property
    def pid(self) -> int | None:
        """Id of the process, if there is one."""
        process = self._process
        return None if process is None else process.pid

    def _hand_out(self) -> None:
        if self._current is None and self._waiting:
            job = self._current = self._waiting.pop(next(iter(self._waiting)))
            if self._process is not None:
                self._process.post(job.number, job.request)
        self._say_places()

    def _say_places(self) -> None:
        """Tell waiting clients how many are ahead; a cancelled request is about to end."""
        working = self._current is not None and self._current.cancelled is None
        for before, job in enumerate(self._waiting.values(), int(working)):
            if before != job.before:
                job.before = before
                _tell(job, Waiting(before))

    def _listen(self, process: WorkerProcess) -> None:
        """Pass on the process's messages until it ends."""
        while True:
            try:
                if process.pipe.poll(0.25):
                    self._pass_on(*process.receive())
                else:
                    self._end_if_too_long(process)
            except (EOFError, OSError):
                break
        process.process.join()
        self._mourn(process)

    def _pass_on(self, kind: str, number: int, content: Any) -> None:
        with self._lock:
            job = self._current
            if job is None or job.number != number:
                return
            if kind != "message":
                self._current = None
            if job.cancelled is None:
                _tell(job, _event(kind, content))
            self._hand_out()

    def _end_if_too_long(self, process: WorkerProcess) -> None:
        with self._lock:
            since = None if self._current is None else self._current.cancelled
            if since is not None and time.monotonic() - since > self._patience:
                process.process.kill()

    def _mourn(self, process: WorkerProcess) -> None:
        """Handle the end of a process: report it if unexpected, and continue with a new one."""
        with self._lock:
            self._process = None
            job, self._current = self._current, None
            if self._stopped:
                return
            if job is not None and job.cancelled is None:
                code = process.process.exitcode
                _tell(job, Failed(f"the process that solves ended unexpectedly (code {code})"))
            if self._waiting:
                self.start()
                self._hand_out()


def _event(kind: str, content: Any) -> object:
    """The client's event for a message of the process."""
    if kind == "message":
        return content
    if kind == "done":
        return Done()
    error, trace = content
    if isinstance(error, ValueError):  # SpecificationError among them
        return Failed(str(error), expected=True)
    print(trace, file=sys.stderr)  # for the terminal; the page shows one line
    return Failed(f"{type(error).__name__}: {error}")


def _tell(job: _Job, event: object) -> None:
    """Call a listener; its errors must not end the thread that serves all others."""
    try:
        job.heard(event)
    except Exception:
        traceback.print_exc()
