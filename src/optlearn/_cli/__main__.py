"""The command ``optlearn`` as a separate process; also ``python -m optlearn._cli``."""

import atexit
import gc
import os
import sys
import threading
from contextlib import suppress

# Allocations before Python's garbage collector runs (default: 700). JAX makes some 200,000 permanent objects;
# scanning them takes a tenth of a short command.
YOUNG_OBJECTS = 300_000


def run() -> None:
    """Run the command and end the process."""
    gc.set_threshold(YOUNG_OBJECTS)
    from optlearn._cli import main

    try:
        main()
    except SystemExit as end:
        if isinstance(end.code, int | None) and _may_end_at_once():
            with suppress(OSError):  # the reader has closed the pipe: Python reports it at the usual end
                _end_at_once(end.code or 0)
        raise


def _may_end_at_once() -> bool:
    """Whether nothing needs a regular exit of this process: no thread, profiler, debugger or coverage."""
    watched = sys.getprofile() is not None or sys.gettrace() is not None
    return not watched and all(t.daemon or t is threading.main_thread() for t in threading.enumerate())


def _end_at_once(code: int) -> None:
    """Exit without freeing memory: tearing JAX down object by object takes 0.4 s."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    run()
