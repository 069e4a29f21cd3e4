"""The command ``optlearn`` as a process of its own; also ``python -m optlearn._cli``."""

import atexit
import gc
import os
import sys
import threading
from contextlib import suppress

# Objects made before Python looks for cycles among them (its own choice is 700). JAX makes some 200,000 that
# stay: looking at them takes a tenth of a short command.
YOUNG_OBJECTS = 300_000


def run() -> None:
    """Run the command and end the process."""
    gc.set_threshold(YOUNG_OBJECTS)
    from optlearn._cli import main

    try:
        main()
    except SystemExit as end:
        if isinstance(end.code, int | None) and _may_end_at_once():
            with suppress(OSError):  # somebody who reads no further: Python says so at the usual end
                _end_at_once(end.code or 0)
        raise


def _may_end_at_once() -> bool:
    """Whether nothing else waits for the end of this process: no thread, profiler, debugger or coverage."""
    watched = sys.getprofile() is not None or sys.gettrace() is not None
    return not watched and all(t.daemon or t is threading.main_thread() for t in threading.enumerate())


def _end_at_once(code: int) -> None:
    """Leave the memory to the system: taking JAX apart, object by object, takes 0.4 s."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    run()
