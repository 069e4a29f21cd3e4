"""``optlearn sweep``: a scenario solved on a grid of its arguments."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from optlearn._cli import inputs
from optlearn._cli.inputs import flag, option, settings_option, whole
from optlearn._cli.output import NOT_CONVERGED, bad_input, console, reporting, to_json
from optlearn._progress import Progress

if TYPE_CHECKING:
    import xarray

    from optlearn.sweeps.point import PointDone

FAILED = 1


def run_sweep(
    scenario: inputs.Scenario,
    grid: Annotated[
        list[str],
        option(
            "NAME=VALUES",
            "An argument that varies: FIRST:LAST:COUNT, FIRST:LAST:COUNT:log, or V1,V2,… Repeatable; "
            "the last one varies fastest.",
            "--grid",
        ),
    ],
    settings: Annotated[list[str] | None, settings_option("An argument that does not vary.")] = None,
    baseline: Annotated[
        list[str] | None, option("NAME", "Also evaluate this baseline at every point. Repeatable.")
    ] = None,
    method: inputs.MethodOption = inputs.Method.auto,
    intervals: inputs.Intervals = None,
    starts: Annotated[int | None, whole("First guesses for points without a solved neighbour.")] = None,
    chain: Annotated[
        int | None, whole("Points solved in a chain, each from the previous one; 1: every point by itself.")
    ] = None,
    jobs: Annotated[int | None, whole("Local processes.")] = None,
    cluster: Annotated[str | None, option("ADDRESS", "Address of a Dask scheduler.")] = None,
    batched: Annotated[
        bool, flag("Solve all points together as one compiled program, on a GPU if JAX has one.", "--batched")
    ] = False,
    out: Annotated[
        Path | None, option("DIR", "Folder for the results (default: out/sweep_SCENARIO).")
    ] = None,
    resume: Annotated[bool, flag("Continue the sweep in this folder.", "--resume")] = False,
    retry_failed: Annotated[
        bool, flag("With --resume: also recompute failed points.", "--retry-failed")
    ] = False,
    force: Annotated[bool, flag("Start over in this folder.", "--force")] = False,
    plot: Annotated[bool, flag("Draw a heat map into the folder.", "--plot")] = False,
    variable: Annotated[str, option("NAME", "What to draw.")] = "objective",
    as_json: Annotated[
        bool, flag("Print a line of JSON for every point, and one at the end.", "--json")
    ] = False,
    quiet: inputs.Quiet = False,
) -> None:
    """Solve a scenario at every point of a grid of its arguments; resumable.

    Points are solved on this machine or on a Dask cluster. Every finished point is written to
    DIR/points at once; at the end DIR/sweep.nc holds everything. A sweep that was stopped or killed continues
    with --resume. A point that fails is recorded with its error.

    Example: optlearn sweep dropout --grid sigma_n=0.1:0.5:9 --grid eta=0.5,1,2

    Exit codes: 0 done, 1 the folder cannot be written, 2 bad input, 3 some points failed or are not
    converged, 130 stopped.
    """
    fixed = inputs.scenario_arguments(scenario, settings, None)
    over = _grid(grid)
    if (jobs is not None) + (cluster is not None) + batched > 1:
        bad_input("--jobs, --cluster, --batched: choose one")
    folder = Path("out") / f"sweep_{Path(scenario).stem}" if out is None else out
    limits = inputs.chosen(intervals=intervals, starts=starts, chain=chain)
    began = time.perf_counter()
    with reporting(True) as tell:
        from optlearn.sweeps.run import sweep as run_sweep
        from optlearn.sweeps.store import SweepFolderError

        tell(Progress("loaded"))
        total = math.prod(map(len, over.values()))
        try:
            with _shown(total, as_json, quiet) as show:

                def progress(point: Progress) -> None:
                    tell(Progress(""))  # where an interruption takes effect
                    show(cast("PointDone", point))

                dataset = run_sweep(
                    scenario, over, out=folder, fixed=fixed, baselines=baseline or (),
                    executor="batched" if batched else cluster, jobs=jobs,
                    resume=resume, force=force, retry_failed=retry_failed, method=method.value,
                    progress=progress, **limits,
                )  # fmt: skip
            drawing = _draw(dataset, variable, folder) if plot else None
        except SweepFolderError as error:
            console(stderr=True).print(f"Error: {error}", style="red", markup=False)
            raise typer.Exit(FAILED) from error
        except KeyboardInterrupt:
            console(stderr=True).print("run the same command with --resume to continue", markup=False)
            raise
    raise typer.Exit(_summary(dataset, folder, drawing, time.perf_counter() - began, as_json))


def _grid(items: list[str]) -> dict[str, list[Any]]:
    """Values of every varying argument."""
    over: dict[str, list[Any]] = {}
    for item in items:
        name, equals, text = (part.strip() for part in item.partition("="))
        if not (equals and name and text):
            bad_input(f"--grid {item!r}: write NAME=FIRST:LAST:COUNT or NAME=V1,V2,…, such as eta=0.5,1,2")
        if name in over:
            bad_input(f"--grid {name}: given twice")
        listed = [inputs.literal(word.strip()) for word in text.split(",")]
        over[name] = _range(item, text) if ":" in text else listed
    return over


def _range(item: str, text: str) -> list[float]:
    """Equally spaced values, or with ":log" at the end equally spaced logarithms."""
    parts = text.split(":")
    spacing = parts.pop() if len(parts) == 4 else ""
    try:
        first, last, count = float(parts[0]), float(parts[1]), int(parts[2])
        wrong = len(parts) != 3 or spacing not in ("", "log") or count < 1 or (count == 1 and first != last)
    except (ValueError, IndexError):
        bad_input(f"--grid {item!r}: write FIRST:LAST:COUNT, such as 0.1:0.5:9, or FIRST:LAST:COUNT:log")
    if wrong or (spacing and not first * last > 0):
        bad_input(f"--grid {item!r}: a COUNT of at least 2, and for log both ends above 0 or both below")
    import numpy as np

    space = np.geomspace if spacing else np.linspace
    return [float(value) for value in space(first, last, count)]


@contextmanager
def _shown(total: int, as_json: bool, quiet: bool) -> Iterator[Callable[["PointDone"], None]]:
    """Progress: JSON lines on stdout, a bar or lines on stderr, or nothing."""
    from optlearn.sweeps.run import bar

    with nullcontext(None) if quiet else bar(total, console(stderr=True)) as show:

        def tell(point: "PointDone") -> None:
            if as_json:
                typer.echo(to_json({"event": "point", **vars(point)}))
            if show is not None:
                show(point)

        yield tell


def _draw(dataset: "xarray.Dataset", variable: str, folder: Path) -> Path:
    import matplotlib

    matplotlib.use("agg")
    from optlearn.plotting.style import save_figure
    from optlearn.sweeps.results import plot

    path = folder / f"{variable}.png"
    figure = plot(dataset, variable).get_figure(root=True)
    assert figure is not None
    save_figure(figure, path)
    return path


def _summary(
    dataset: "xarray.Dataset", folder: Path, drawing: Path | None, seconds: float, as_json: bool
) -> int:
    """Print a summary; returns the exit code."""
    failed = int((dataset["error"] != "").sum())
    not_converged = int((~dataset["converged"]).sum()) - failed
    files = [str(path) for path in (folder / "sweep.nc", drawing) if path is not None]
    summary = {
        "event": "finished",
        "points": int(dataset["error"].size),
        "failed": failed,
        "not_converged": not_converged,
        "seconds": seconds,
        "cpu_seconds": float(dataset["cpu_seconds"].sum()),
        "files": files,
    }
    if as_json:
        typer.echo(to_json(summary))
    else:
        console().print(
            f"{summary['points']} points, {failed} failed, {not_converged} not converged, {seconds:.1f} s "
            f"({summary['cpu_seconds']:.1f} s of CPU for the points)\n" + "\n".join(files),
            markup=False,
        )
    return NOT_CONVERGED if failed or not_converged else 0
