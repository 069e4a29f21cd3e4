"""``optlearn reproduce``: figures of the paper, with its claims checked."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from optlearn._cli import inputs
from optlearn._cli.inputs import argument, flag, option, settings_option, whole
from optlearn._cli.output import bad_input, console, deliver, reporting, table
from optlearn._progress import Progress, silent
from optlearn.paper import list_figures

if TYPE_CHECKING:
    from optlearn.paper.runner import FigureProgress, Result

FAILED = 1


def run_reproduce(
    figures: Annotated[
        list[str] | None,
        argument(
            "[FIGURE]...", "Names of figures (default: all).", autocompletion=lambda: list(list_figures())
        ),
    ] = None,
    quick: Annotated[bool, flag("Coarser grids and fewer values.", "--quick")] = False,
    data_dir: Annotated[
        Path | None, option("DIR", "Folder with the data sets (default: OPTLEARN_DATA, or a download).")
    ] = None,
    out: Annotated[Path, option("DIR", "Folder for the results.")] = Path("out"),
    jobs: Annotated[int, whole("Figures to compute in parallel.")] = 1,
    force: Annotated[bool, flag("Recompute finished figures.", "--force")] = False,
    run: Annotated[
        bool, flag("Repeat the CIFAR-10 training instead of using the stored table.", "--run")
    ] = False,
    settings: Annotated[
        list[str] | None, settings_option("An option of a figure's compute(), such as starts=1.")
    ] = None,
    as_json: inputs.Json = False,
    quiet: inputs.Quiet = False,
) -> None:
    for name in figures or []:
        if name not in list_figures():
            bad_input(f"no figure {name!r}; there are {', '.join(list_figures())}")
    if out.exists() and not out.is_dir():
        bad_input(f"--out {out}: this is a file")
    if data_dir is not None and not data_dir.is_dir():
        bad_input(f"--data-dir {data_dir}: there is no such folder")
    choices = inputs.read_settings(settings, "starts=1")
    if run:
        choices["run"] = True
    with reporting(True) as tell, _bars(figures or list(list_figures()), quiet) as show:
        from optlearn.paper import runner

        tell(Progress("loaded"))

        def progress(news: Progress) -> None:
            tell(news)  # where an interruption takes effect
            show(cast(runner.FigureProgress, news))

        results = runner.reproduce(
            figures, quick=quick, data_dir=data_dir, out=out, jobs=jobs, force=force,
            options=choices, progress=progress,
        )  # fmt: skip
    deliver({"figures": [r.to_dict() for r in results]}, None, as_json, lambda: _show_table(results))
    _explain(results)
    raise typer.Exit(FAILED if runner.failed(results, bool(figures)) else 0)


run_reproduce.__doc__ = f"""Compute and draw figures of the paper, and check its claims.

Each figure gets a folder with its data (NetCDF), PNG, PDF and claims.json. Finished figures are reused, so an
interrupted run continues where it stopped. A claim that does not hold is reported as such; it is a finding,
not a failure.

Figures:

{chr(10).join(f"- {name}: {line}" for name, line in list_figures().items())}

Example: optlearn reproduce fig1 --quick

Exit codes: 0 done, 1 a figure failed, or the data set of a figure named here is missing, 2 bad input, 130
stopped.
"""


@contextmanager
def _bars(figures: Sequence[str], quiet: bool) -> "Iterator[Callable[[FigureProgress], None]]":
    """A bar for each figure in a terminal, one line for each stage in a log file, or nothing."""
    screen = console(stderr=True)
    if quiet:
        yield silent
        return
    if not screen.is_terminal:

        def line(news: "FigureProgress") -> None:
            share = "" if news.total is None else f" ({news.done:g} of {news.total:g} done)"
            screen.print(f"{news.figure}: {news.text}{share}", markup=False)

        yield line
        return
    from rich import progress as rich
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("[bold]{task.fields[figure]}"), BarColumn(), TimeElapsedColumn())
    with rich.Progress(*columns, TextColumn("{task.description}"), console=screen) as bars:
        tasks = {name: bars.add_task("", total=1, figure=name, start=False) for name in figures}
        current: set[str] = set()

        def show(news: "FigureProgress") -> None:
            if news.figure not in current:
                current.add(news.figure)
                bars.start_task(tasks[news.figure])
            bars.update(tasks[news.figure], description=news.text)
            if news.total is not None:
                bars.update(tasks[news.figure], completed=news.done, total=news.total)

        yield show


def _show_table(results: "Sequence[Result]") -> None:
    """Figures, then every claim."""
    screen, rows = console(), []
    for result in results:
        held = f"{sum(c.holds for c in result.claims)} / {len(result.claims)}" if result.claims else "–"
        folder = str(result.files[0].parent) if result.files else "–"
        names = ", ".join(file.name for file in result.files)
        files = f"{folder}: {names}" if names else "–"
        rows.append((result.figure, result.status.value, held, f"{result.seconds:.1f}", files))
    headings = ("figure", "", "claims held", "seconds", "files")
    overview = table("Figures of the paper", headings, rows, words=["figure", "", "files"])
    overview.columns[-1].overflow = "fold"
    screen.print(overview)
    for result in results:
        for claim in result.claims:
            mark = "[green]holds[/green]" if claim.holds else "[red bold]FAILS[/red bold]"
            screen.print(f"{mark}  [bold]{result.figure}[/bold] {claim.id}: ", end="")
            screen.print(_shown(claim.found), markup=False, soft_wrap=True)
            if not claim.holds:
                screen.print(f"       claimed: {claim.text}", markup=False, soft_wrap=True)
                screen.print(f"       expected: {_shown(claim.expected)}", markup=False, soft_wrap=True)
            if claim.note:
                screen.print(f"       note: {claim.note}", markup=False, style="dim", soft_wrap=True)


def _shown(value: Any) -> str:
    """A number or a structure of numbers on one line."""
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_shown(item)}" for key, item in value.items())
    if isinstance(value, list):
        return "[" + ", ".join(map(_shown, value)) + "]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _explain(results: "Sequence[Result]") -> None:
    """What went wrong, on stderr."""
    screen = console(stderr=True)
    for result in results:
        for text in result.warnings:
            screen.print(f"Warning: {result.figure}: {text}", style="yellow", markup=False)
        if result.message:
            style = "yellow" if result.status == "skipped" else "red"
            screen.print(f"{result.figure} {result.status}: {result.message}", style=style, markup=False)
        if result.details:
            screen.print(result.details, style="dim", markup=False)
