"""Output of commands: results on stdout; progress, warnings and errors on stderr."""

import json
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from optlearn._errors import DataFileError, SpecificationError, UnphysicalStateError
from optlearn._io.files import write_file
from optlearn._json import finite, plain
from optlearn._progress import Progress, Report, silent, the_only_display

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from optlearn._control.solution import Solution

# Width of tables in files and pipes.
FILE_WIDTH = 120

BAD_INPUT, NOT_CONVERGED, STOPPED = 2, 3, 130


def console(stderr: bool = False) -> "Console":
    """A console on stdout or stderr."""
    from rich.console import Console

    screen = Console(stderr=stderr, highlight=False, soft_wrap=stderr)
    if not screen.is_terminal and "COLUMNS" not in os.environ:
        screen.width = FILE_WIDTH
    return screen


def table(
    title: str, headings: Sequence[str], rows: Iterable[Sequence[str]], words: Collection[str] = ()
) -> "Table":
    """A table of right-aligned numbers; columns of ``words`` are left-aligned."""
    from rich.table import Table

    made = Table(title=title)
    for heading in headings:
        made.add_column(heading, justify="left" if heading in words else "right")
    for row in rows:
        made.add_row(*row)
    return made


def exit_code(solution: "Solution") -> int:
    """Exit code: 0, 3 if the solution is not converged, 130 if it was stopped."""
    if solution.outcome.name == "INTERRUPTED":
        return STOPPED
    if solution.certificate.converged or solution.method == "greedy":
        return 0
    return NOT_CONVERGED


def to_json(value: Any) -> str:
    """One line of JSON; a number that is not finite is null."""
    return json.dumps(plain(value, number=finite, other=str), allow_nan=False)


def deliver(
    result: Mapping[str, Any],
    out: Path | None,
    as_json: bool,
    show: Callable[[], None],
    save: Callable[[Path], object] | None = None,
    export: tuple[Path, Callable[[Path], object]] | None = None,
) -> None:
    """Write the result to ``out``, and print it, as one line of JSON or with ``show``.

    If ``save`` is given, it writes files whose name ends in .nc. ``export`` is another file and the function
    that writes it.
    """
    text = to_json(result)
    files: list[tuple[str, Path, Callable[[Path], object]]] = []
    if out is not None:
        as_netcdf = save if out.suffix == ".nc" else None
        files.append(("--out", out, as_netcdf or (lambda path: write_file(path, text + "\n"))))
    if export is not None:
        files.append(("--export", *export))
    # Files come first, because a pipe may close early (`| head`); but if writing fails, the result must still
    # be printed.
    failures = []
    for option, path, write in files:
        try:
            write(path)
        except OSError as error:
            failures.append(f"{option} {path}: {error.strerror or error}")
    if as_json:
        typer.echo(text)
    else:
        show()
    if failures:
        bad_input(*failures)


def bad_input(message: str, *notes: str) -> NoReturn:
    """A sentence on stderr, notes below it, and exit code 2."""
    screen = console(stderr=True)
    screen.print(f"Error: {message}", style="red", markup=False)
    for note in notes:
        screen.print(note, style="dim", markup=False)
    raise typer.Exit(BAD_INPUT)


class _Interrupt:
    """Handle Ctrl-C: at once in Python, or at the next stage if a library has swallowed it.

    While libraries load, it waits: interrupting the import of a compiled module may crash.
    """

    def __init__(self) -> None:
        self.asked, self.loading = False, True

    def __call__(self, signum: int, frame: object) -> None:
        self.asked = True
        if not self.loading:
            raise KeyboardInterrupt

    def next_stage(self) -> None:
        self.loading = False
        if self.asked:
            raise KeyboardInterrupt

    @contextmanager
    def installed(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():  # only the main thread handles signals
            yield
            return
        before = signal.signal(signal.SIGINT, self)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


@contextmanager
def reporting(quiet: bool) -> Iterator[Report]:
    """Progress and warnings on stderr; input errors become a message and an exit code.

    Yields a function to be called at every stage; the first call says that libraries are loaded.
    """
    interrupt, screen = _Interrupt(), cache(lambda: console(stderr=True))  # made when it is needed

    def show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
        screen().print(f"Warning: {message}", style="yellow", markup=False)

    try:
        with (
            interrupt.installed(),
            warnings.catch_warnings(),
            the_only_display(),
            _progress(screen, quiet) as show,
        ):
            warnings.simplefilter("default")
            warnings.showwarning = show_warning

            def tell(progress: Progress) -> None:
                interrupt.next_stage()
                show(progress)

            yield tell
    except (DataFileError, SpecificationError, UnphysicalStateError) as error:
        bad_input(str(error), *getattr(error, "__notes__", ()))
    except KeyboardInterrupt:
        screen().print("stopped", style="yellow")
        raise typer.Exit(STOPPED) from None


@contextmanager
def _progress(screen: Callable[[], "Console"], quiet: bool) -> Iterator[Report]:
    """A spinner with numbers in a terminal, one line for each stage in a log file, or nothing."""
    if quiet:
        yield silent
    elif sys.stderr.isatty():
        with screen().status("loading") as status:
            began = time.monotonic()
            yield lambda progress: status.update(f"{progress} ({time.monotonic() - began:.0f} s)")
    else:
        last = ""

        def show(progress: Progress) -> None:
            nonlocal last
            if progress.text != last:
                last = progress.text
                typer.echo(f"optlearn: {last}", err=True)

        show(Progress("loading"))
        yield show
