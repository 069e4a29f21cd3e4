"""Command line: ``optlearn VERB …``, with one file for each verb in ``verbs``.

Results go to stdout (with --json one JSON object; of a sweep one a point), everything else to stderr. Exit
codes: 0 done, 2 bad input, 3 the result is not converged (it is printed all the same), 130 stopped by
Ctrl-C.

A verb's file has a function ``command``, whose docstring is its help. JAX and CasADi are imported inside it,
so that help and errors in names come at once.
"""

import sys
from importlib import import_module
from typing import Annotated

import typer

from optlearn import __version__
from optlearn._cli.compiled_programs import keep_compiled_programs
from optlearn._cli.help_layout import Command, Group, filled
from optlearn._cli.output import STOPPED

__all__ = ["app", "main"]

# In the order of the help.
VERBS = (
    "list",
    "solve",
    "compare",
    "simulate",
    "explore",
    "sweep",
    "fit",
    "fit-curves",
    "show",
    "cite",
    "reproduce",
    "doctor",
    "help",
)

app = typer.Typer(
    cls=Group,
    help="Optimal schedules for learning: find them, compare them, check them against SGD.",
    epilog="Example: optlearn solve dropout --set sigma_n=0.2\n\n"
    "Exit codes: 0 done, 2 bad input, 3 not converged (printed all the same), 130 stopped.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _verb in VERBS:
    _command = import_module(f"optlearn._cli.verbs.{_verb.replace('-', '_')}").command
    app.command(_verb, cls=Command, help=filled(_command.__doc__))(_command)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"optlearn {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit."),
    ] = False,
) -> None:
    del version


def main() -> None:
    """The command, which ends by ``SystemExit``."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal without Greek letters gets question marks, not a traceback.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    keep_compiled_programs()
    try:
        app(prog_name="optlearn")
    except KeyboardInterrupt:
        sys.exit(STOPPED)
