"""Work for a worker's process: nothing heavy."""

import os
import time
from contextlib import suppress


def busy(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.005)


def work(request, send):
    kind, *rest = request
    if kind == "deaf":
        with suppress(KeyboardInterrupt):
            send(("began", request, os.getpid()))
    else:
        send(("began", request, os.getpid()))
    if kind == "sleep":
        busy(rest[0])
    elif kind == "deaf":  # as a long call into a compiled library
        while True:
            try:
                busy(rest[0])
                break
            except KeyboardInterrupt:
                continue
    elif kind == "swallow":  # as a solver that ends early when it is interrupted, and would go on
        try:
            busy(rest[0])
        except KeyboardInterrupt:
            send("unwanted")
    elif kind == "broken":  # as a library in which an interruption becomes another error
        try:
            busy(rest[0])
        except KeyboardInterrupt as error:
            raise SystemError("returned a result with an exception set") from error
    elif kind == "raise":
        raise rest[0]
    elif kind == "die":
        os._exit(7)
    send(("ended", request, os.getpid()))
