"""Command line: ``optlearn list | solve | compare | simulate | reproduce | sweep | fit | show | explore``.

Results go to stdout (with --json one JSON object; of a sweep one a point), everything else to stderr. Exit
codes: 0 done, 2 bad input, 3 the result is not converged (it is printed all the same), 130 stopped by
Ctrl-C.

JAX and CasADi are imported inside the commands, so that help and errors in names come at once.
"""

import sys

from optlearn._cli.cache import keep_compiled_programs
from optlearn._cli.commands import app
from optlearn._cli.doctor import register as register_doctor
from optlearn._cli.explore import register as register_explore
from optlearn._cli.fit import register as register_fit
from optlearn._cli.help import register as register_help
from optlearn._cli.output import STOPPED
from optlearn._cli.reproduce import register
from optlearn._cli.show import register as register_show
from optlearn._cli.sweep import register as register_sweep

__all__ = ["app", "main"]

register(app)
register_sweep(app)
register_doctor(app)
register_fit(app)
register_show(app)
register_explore(app)
register_help(app)


def main() -> None:
    """Entry point of the ``optlearn`` command."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal without Greek letters gets question marks, not a traceback.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    keep_compiled_programs()
    try:
        app(prog_name="optlearn")
    except KeyboardInterrupt:
        sys.exit(STOPPED)
