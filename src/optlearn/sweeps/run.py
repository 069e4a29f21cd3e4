"""Solve a scenario on a grid of its arguments, and show progress."""

import inspect
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optlearn._arguments import Arguments
from optlearn._control.baselines import baselines_of
from optlearn._control.solution import NotConvergedWarning
from optlearn._control.solve import solve
from optlearn._control.solvers.methods import check_options
from optlearn._errors import SpecificationError, warn
from optlearn._io.files import save_dataset
from optlearn._progress import Report, the_only_display
from optlearn._signatures import checked
from optlearn.sweeps.executors import make_executor
from optlearn.sweeps.point import Chain, PointDone, done
from optlearn.sweeps.results import load
from optlearn.sweeps.spec import CHAIN, Index, Reduce, Scenario, Spec, check_picklable
from optlearn.sweeps.store import Store, SweepFolderError, locked, open_store

if TYPE_CHECKING:
    import xarray


class ReduceWarning(UserWarning):
    """The function ``reduce`` of a sweep raised; the point is kept without its result."""


@checked
def sweep(
    scenario: Scenario,
    over: Mapping[str, Any],
    *,
    out: str | Path | None = None,
    fixed: Mapping[str, Any] | None = None,
    baselines: Sequence[str] = (),
    reduce: Reduce | None = None,
    executor: Any = None,
    jobs: int | None = None,
    resume: bool = False,
    force: bool = False,
    retry_failed: bool = False,
    chain: int = CHAIN,
    warm_starts: int = 2,
    progress: bool | Report = False,
    **options: Any,
) -> "xarray.Dataset":
    """Solve a scenario at every point of a grid.

    Every finished point is written to disk at once; a killed sweep continues where it stopped. A point that
    fails is recorded with its error, and the others go on.

    Args:
        scenario: name of a scenario, a file that defines ``problem``, or a function that returns a
            ``Problem``.
        over: argument of the scenario → its values: the grid, the last argument varying fastest.
        out: folder for the results; None to keep nothing on disk.
        fixed: further arguments of the scenario.
        baselines: names of baseline schedules to evaluate too.
        reduce: function of a ``Solution`` that returns numbers or arrays by name, to store for every point.
        executor: "serial", "processes", "batched" (all points together under XLA, if they differ only in
            numbers), the address of a Dask scheduler, or a Dask client or cluster; None for processes if
            ``jobs`` is above 1, else serial. Results do not depend on it; those of batches agree within the
            certificate's limits.
        jobs: number of local processes (default for "processes": one per core).
        resume: continue the sweep in ``out``, or begin it if there is none.
        force: start over in ``out``.
        retry_failed: with ``resume``, recompute failed points.
        chain: number of points along the last argument that are solved in sequence, each from the previous
            solution; 1 for no such warm starts.
        warm_starts: number of first guesses of a point with such a neighbour: its schedule, a neutral one,
            baselines, …
        progress: True for a progress bar on stderr, or a function that is called with a ``PointDone`` for
            every finished point.
        options: options of ``optlearn.solve``: intervals, method, starts, seed, steps, max_iterations,
            tolerance, negligible.

    Returns:
        See ``load``; also in ``out/sweep.nc``.

    Raises:
        SpecificationError: an argument is invalid, or ``out`` holds another sweep.
        SweepFolderError: ``out`` cannot be written. Finished points are kept.
    """
    solving = _checked(options)
    spec = Spec(scenario, over, fixed or {}, solving, tuple(baselines), reduce, chain, warm_starts)
    _check_baselines(spec)
    where = make_executor(executor, jobs)
    if where.by_name:
        check_picklable(spec)
    with ExitStack() as stack:
        if out is None:
            # Workers pass on points, and chains their first guesses, through files.
            out = stack.enter_context(tempfile.TemporaryDirectory(prefix="optlearn-sweep-"))
        folder = Path(out)
        if folder.is_file():
            raise SpecificationError(f"out must be a folder, got the file {str(folder)!r}")
        try:
            stack.enter_context(locked(folder))
        except OSError as error:
            raise SweepFolderError(f"cannot write {folder}: {error.strerror or error}") from error
        store = open_store(folder, spec, resume=resume, force=force, executor=where.name)
        show = stack.enter_context(bar(spec.size)) if progress is True else progress or None
        stack.enter_context(the_only_display())  # single points need no progress display
        tell = _once(show, spec.size)
        where.run(_unfinished(spec, store, retry_failed, tell), tell)
        dataset = load(folder)
        try:
            save_dataset(dataset, folder / "sweep.nc")
        except OSError as error:
            raise SweepFolderError(f"cannot write {folder / 'sweep.nc'}: {error}") from error
    _warn(dataset)
    return dataset


def _once(progress: Callable[[PointDone], None] | None, total: int) -> Callable[[PointDone], None]:
    """Report every point once: a resumed chain reports all its points again."""
    finished: set[Index] = set()

    def tell(point: PointDone) -> None:
        if progress is not None and point.index not in finished:
            finished.add(point.index)
            progress(replace(point, done=len(finished), total=total))

    return tell


def _unfinished(
    spec: Spec, store: Store, retry_failed: bool, tell: Callable[[PointDone], None]
) -> list[Chain]:
    """The chains with unfinished points; finished points are reported."""
    left = []
    for points in spec.chains():
        finished = 0
        for index in points:
            record = store.read(index)
            if record is None or (retry_failed and record["status"] == "failed"):
                store.path(index).unlink(missing_ok=True)  # a damaged file, or one to be recomputed
            else:
                finished += 1
                tell(done(record, store))
        if finished < len(points):
            left.append(Chain(spec, store, points))
    return left


def _checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """Non-default options of ``solve``; raises now for those that would fail at every point."""
    allowed = dict(inspect.signature(solve).parameters)
    for name in ("problem", "warm_start", "progress"):  # these are not the same at every point
        del allowed[name]
    for name in options:
        if name not in allowed:
            raise SpecificationError(
                f"sweep has no argument {name!r}; those of solve that it takes are {', '.join(allowed)}"
            )
    check_options(Arguments("sweep"), **options)
    return {name: value for name, value in options.items() if value != allowed[name].default}


def _check_baselines(spec: Spec) -> None:
    """Raise now for an unknown baseline, if the first problem can be made."""
    if not spec.baselines:
        return
    try:
        available = baselines_of(spec.problem(spec.indices()[0]))
    except Exception:  # concerns only this point, whose record will report it
        return
    for name in spec.baselines:
        if name not in available:
            raise SpecificationError(f"baselines must be among {', '.join(available)}, got {name!r}")


def _warn(dataset: "xarray.Dataset") -> None:
    """Warn of points that failed or did not converge."""
    errors, reduced = ([m for m in dataset[n].values.ravel() if m] for n in ("error", "reduce_error"))
    not_converged = int((dataset["finished"] & ~dataset["converged"]).sum()) - len(errors)
    points, messages = f"of {dataset['error'].size} points", []
    if errors:
        messages.append(f"{len(errors)} {points} failed, for example with {errors[0]!r}")
    if not_converged:
        messages.append(f"{not_converged} {points} are not converged")
    if messages:
        warn("; ".join(messages), NotConvergedWarning)
    if reduced:
        text = f"reduce raised at {len(reduced)} {points}, for example {reduced[0]!r}; solutions are kept"
        warn(text, ReduceWarning)


@contextmanager
def bar(total: int, screen: Any = None) -> Iterator[Callable[[PointDone], None]]:
    """Show points as they finish: a bar with rate and time left in a terminal, or lines in a log file.

    Args:
        total: points of the sweep.
        screen: a rich console (default: stderr).
    """
    from rich.console import Console

    screen = screen or Console(stderr=True, highlight=False, soft_wrap=True)
    counts: Counter[str] = Counter()
    began = time.perf_counter()

    def count(point: PointDone) -> str:
        """Count a point; returns the rate of this run."""
        counts["failed"] += bool(point.error)
        counts["not converged"] += not (point.error or point.converged)
        counts["fresh"] += not point.stored
        rate = counts["fresh"] / max(time.perf_counter() - began, 1e-9)
        return f" ({rate:.2f} points/s)" if counts["fresh"] else ""

    if not screen.is_terminal:
        # The first point may take a minute, with compilation: show that work is in progress.
        screen.print(f"0/{total} solving; the first points take longest", markup=False)

        def line(point: PointDone) -> None:
            rate = count(point)
            if not point.stored:
                screen.print(f"{point.done}/{total} {point.text}{rate}", markup=False)

        yield line
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[rate]}"),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=screen) as progress:
        task = progress.add_task("", total=total, rate="")

        def update(point: PointDone) -> None:
            rate = count(point)
            troubles = [f"{counts[what]} {what}" for what in ("failed", "not converged") if counts[what]]
            progress.update(task, completed=point.done, rate=rate, description=", ".join(troubles))

        yield update
