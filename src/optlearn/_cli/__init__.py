"""Command line: ``optlearn VERB …``.

Results go to stdout (with --json one JSON object; for a sweep one per point), everything else to stderr. Exit
codes: 0 done, 2 bad input, 3 the result is not converged (it is still printed), 130 stopped by
Ctrl-C.

A verb is a function ``run_VERB``, whose docstring is its help, in the file that ``VERBS`` names. JAX and
CasADi are imported inside it, so that help and errors about names appear at once.
"""

import hashlib
import inspect
import logging
import os
import platform
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typing_extensions import override

from optlearn import __version__
from optlearn._cli.output import STOPPED
from optlearn._io.files import cache_folder

__all__ = ["app", "main"]

# Verb → file, in the order of the help.
VERBS = {
    "list": "show",
    "solve": "solve",
    "compare": "solve",
    "simulate": "solve",
    "explore": "show",
    "sweep": "sweep",
    "bound": "plan",
    "pareto": "plan",
    "fit": "fit",
    "fit-curves": "fit",
    "forecast": "forecast",
    "show": "show",
    "cite": "show",
    "reproduce": "reproduce",
    "doctor": "doctor",
    "help": "show",
}
# Paragraphs of a help text that begin like this keep their line breaks.
AS_WRITTEN = ("Example", "- ")


def _without_type(parameters: Any) -> Any:
    """A flag takes no value, so no type is shown."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


class _Command(TyperCommand):
    """A command whose help shows flags without a type."""

    @override
    def get_params(self, ctx: Any) -> Any:
        return _without_type(super().get_params(ctx))


class _Group(TyperGroup):
    """The command ``optlearn`` itself, likewise."""

    @override
    def get_params(self, ctx: Any) -> Any:
        return _without_type(super().get_params(ctx))


def _filled(docstring: str | None) -> str:
    """A docstring with each paragraph on one line, so that only the terminal breaks lines."""
    paragraphs = inspect.cleandoc(docstring or "").split("\n\n")
    return "\n\n".join(p if p.startswith(AS_WRITTEN) else p.replace("\n", " ") for p in paragraphs)


app = typer.Typer(
    cls=_Group,
    help="Find optimal schedules for learning, compare them, and check them against SGD.",
    epilog="Example: optlearn solve dropout --set sigma_n=0.2\n\n"
    "Exit codes: 0 done, 2 bad input, 3 not converged (the result is still printed), 130 stopped.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _verb, _file in VERBS.items():
    _run = getattr(import_module(f"optlearn._cli.{_file}"), f"run_{_verb.replace('-', '_')}")
    app.command(_verb, cls=_Command, help=_filled(_run.__doc__))(_run)


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
    """The command; ends with ``SystemExit``."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal without Greek letters shows question marks instead of a traceback.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    keep_compiled_programs()
    try:
        app(prog_name="optlearn")
    except KeyboardInterrupt:
        sys.exit(STOPPED)


def keep_compiled_programs() -> None:
    """Let JAX store compiled programs in the user's cache; only the command line does this.

    ``OPTLEARN_CACHE`` names another directory; the user's own ``JAX_COMPILATION_CACHE_DIR`` is left
    alone.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    # Programs are compiled for one kind of processor, but several may share a home directory.
    directory = cache_folder() / "jax" / _processor()
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not os.access(directory, os.W_OK):
            raise PermissionError(f"{directory} is not writable")
    except OSError as error:
        logging.getLogger("optlearn").debug("compiled programs are not kept: %s", error)
        return
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(directory)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
    # XLA looks for its own tuning flags (prefer-no-gather) among the processor's features, and
    # fills the screen with errors about programs that it has written itself: jax-ml/jax#38445.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def _processor() -> str:
    """A short name for the processor's instruction set."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
        features = next(line for line in lines if line.lower().startswith(("flags", "features")))
    except (OSError, StopIteration):
        features = platform.processor()
    return f"{platform.machine()}-{hashlib.sha256(features.encode()).hexdigest()[:8]}"
