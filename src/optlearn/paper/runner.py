"""Run figures: compute, store the data, draw, check the claims; reuse finished figures.

``OUT/<figure>/`` holds ``data.nc``, ``<figure>.png``, ``<figure>.pdf`` and ``claims.json``, written in
this order. Data are recomputed only if the options or the code of optlearn have changed.
"""

import inspect
import json
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from optlearn._errors import SpecificationError
from optlearn._io.files import load_dataset, remove_half_written, save_dataset
from optlearn._io.provenance import code_digest
from optlearn._processes import Ended, Send, run_tasks
from optlearn._progress import Progress, Report
from optlearn.paper import list_figures
from optlearn.paper.shared import Claim, load_claims, save_claims
from optlearn.plotting.style import save_figure
from optlearn.practice.datasets import MissingDataError


class Status(StrEnum):
    """Outcome of a figure."""

    DONE = "done"
    REUSED = "reused"  # finished by an earlier run
    SKIPPED = "skipped"  # its data set is missing
    FAILED = "failed"  # it raised an error


@dataclass(frozen=True)
class FigureProgress(Progress):
    """Progress of one figure."""

    figure: str = ""


@dataclass(frozen=True)
class Result:
    """The result of one figure.

    Attributes:
        figure: its name.
        status: its outcome.
        claims: checked claims.
        seconds: time for computing and drawing, even if in an earlier run.
        files: written files.
        message: why it was skipped or failed.
        warnings: warnings of the computation.
        details: the traceback of a failure.
    """

    figure: str
    status: Status
    claims: tuple[Claim, ...] = ()
    seconds: float = 0.0
    files: tuple[Path, ...] = ()
    message: str = ""
    warnings: tuple[str, ...] = field(default_factory=tuple)
    details: str = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON's types only."""
        return {
            "figure": self.figure,
            "status": self.status.value,
            "claims": [claim.to_dict() for claim in self.claims],
            "held": sum(claim.holds for claim in self.claims),
            "seconds": self.seconds,
            "files": [str(file) for file in self.files],
            "message": self.message,
            "warnings": list(self.warnings),
        }


def reproduce(
    figures: Sequence[str] | None = None,
    *,
    quick: bool = False,
    data_dir: Path | None = None,
    out: Path = Path("out"),
    jobs: int = 1,
    force: bool = False,
    options: Mapping[str, Any] | None = None,
    progress: Report | None = None,
) -> list[Result]:
    """Compute and draw figures of the paper, and check its claims.

    A figure that fails, or whose data set is missing, does not stop the others.

    Args:
        figures: names of figures; None or empty for all.
        quick: smaller grids and fewer values.
        data_dir: folder with data sets.
        out: folder for results.
        jobs: number of figures to run in parallel, each in a separate process.
        force: recompute finished figures.
        options: further arguments of ``compute``, passed to the figures that have them.
        progress: called with a ``FigureProgress`` at every stage of a figure.

    Returns:
        One result per figure, in the requested order.
    """
    chosen = list(dict.fromkeys(figures or list_figures()))
    for name in chosen:
        if name not in list_figures():
            raise SpecificationError(f"figures must be among {', '.join(list_figures())}, got {name!r}")
    if jobs < 1:
        raise SpecificationError(f"jobs must be at least 1, got {jobs!r}")
    choices = dict(options or {})
    _check_options(chosen, choices)
    tasks = [Task(name, quick, data_dir, Path(out), force, choices) for name in chosen]
    tell = progress or (lambda news: None)
    if jobs == 1 or len(tasks) == 1:
        return [run_task(task, tell) for task in tasks]
    return run_all(tasks, jobs, tell)


@dataclass(frozen=True)
class Task:
    """One figure to run; see ``reproduce``."""

    figure: str
    quick: bool
    data_dir: Path | None
    out: Path
    force: bool
    options: Mapping[str, Any]


def run_task(task: Task, progress: Report) -> Result:
    """Run one figure; errors are stored in the result."""
    began = time.perf_counter()

    def tell(news: Progress) -> None:
        progress(FigureProgress(**vars(news), figure=task.figure))

    try:
        return _run(task, load_figure(task.figure), tell)
    except Exception as error:
        seconds = time.perf_counter() - began
        if isinstance(error, MissingDataError):
            return Result(task.figure, Status.SKIPPED, seconds=seconds, message=str(error))
        message, trace = f"{type(error).__name__}: {error}", traceback.format_exc()
        return Result(task.figure, Status.FAILED, seconds=seconds, message=message, details=trace)


def run_all(tasks: Sequence[Task], jobs: int, progress: Report) -> list[Result]:
    """Run figures, at most ``jobs`` at a time; results in the order of ``tasks``."""
    results: dict[str, Result] = {}

    def heard(task: Task, message: Any) -> None:
        if isinstance(message, Result):
            results[task.figure] = message
        else:
            progress(message)

    def ended(task: Task, end: Ended) -> None:
        results.setdefault(task.figure, _died(task.figure, end.code))
        remove_half_written(task.out / task.figure, end.pid)

    run_tasks(_figure, tasks, jobs, heard=heard, ended=ended)
    return [results[task.figure] for task in tasks]


def _figure(task: Task, send: Send) -> None:
    """One figure in a worker; progress and result go to the parent."""
    send(run_task(task, send))


def _died(figure: str, code: int | None) -> Result:
    return Result(figure, Status.FAILED, message=f"its process ended with code {code}")


def load_figure(name: str) -> ModuleType:
    """The module of a figure."""
    return import_module(f"optlearn.paper.{name}")


def _run(task: Task, module: ModuleType, tell: Report) -> Result:
    began = time.perf_counter()
    folder, name = task.out / task.figure, task.figure
    files = ("data.nc", f"{name}.png", f"{name}.pdf", "claims.json")
    data_file, *drawings, claims_file = (folder / file for file in files)
    options = {"quick": task.quick, **_accepted(module, task.options)}
    stamp = json.dumps(options, sort_keys=True, default=str)
    data = None if task.force else _finished(data_file, stamp)
    status, caught = Status.DONE, []
    if data is None:
        for old in (claims_file, *drawings):  # they would not match the new data
            old.unlink(missing_ok=True)
        source = _accepted(module, {"data_dir": task.data_dir})
        with _warnings() as caught:
            computed = module.compute(progress=tell, **source, **options)
        attributes = {
            "figure": name,
            "title": module.TITLE,
            "options": stamp,
            "code": code_digest(),
            "seconds": time.perf_counter() - began,
            "warnings": "\n".join(caught),
        }
        save_dataset(computed, data_file, attributes)
        data = load_dataset(data_file)  # draw from the stored data
    elif claims_file.exists() and all(drawing.exists() for drawing in drawings):
        status = Status.REUSED
        tell(Progress("finished before", 1, 1))
    if status is Status.DONE:
        tell(Progress("drawing", 1, 1))
        figure = module.plot(data)
        for drawing in drawings:
            save_figure(figure, drawing)
        save_claims(module.claims(data), claims_file)
    claims, written = tuple(load_claims(claims_file)), (data_file, *drawings, claims_file)
    messages = tuple(line for line in str(data.attrs["warnings"]).split("\n") if line)
    return Result(name, status, claims, float(data.attrs["seconds"]), written, warnings=messages)


def _finished(path: Path, stamp: str) -> Any:
    """Stored data computed with these options by this code; None if there are none."""
    try:
        data = load_dataset(path)
    except OSError:
        return None
    same = data.attrs.get("options") == stamp and data.attrs.get("code") == code_digest()
    return data if same and {"seconds", "warnings"} <= set(data.attrs) else None


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """Collect the library's warnings for users; other warnings are passed on."""
    texts: list[str] = []
    with warnings.catch_warnings():
        show = warnings.showwarning

        def collect(message: Warning | str, category: type[Warning], *args: Any, **kwargs: Any) -> None:
            if issubclass(category, UserWarning):
                text = " ".join(str(message).split())
                if text not in texts:
                    texts.append(text)
            else:
                show(message, category, *args, **kwargs)

        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = collect
        yield texts


def _accepted(module: ModuleType, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that the figure supports."""
    return {name: value for name, value in options.items() if name in _parameters(module)}


def _parameters(module: ModuleType) -> list[str]:
    return list(inspect.signature(module.compute).parameters)


def _check_options(figures: Sequence[str], options: Mapping[str, Any]) -> None:
    """Raise for an option that no chosen figure supports."""
    if not options:
        return
    taken = {"quick", "progress", "data_dir"}
    choices = {name: [p for p in _parameters(load_figure(name)) if p not in taken] for name in figures}
    for option in options:
        if not any(option in names for names in choices.values()):
            shown = "; ".join(f"{name}: {', '.join(names) or 'none'}" for name, names in choices.items())
            raise SpecificationError(f"options must be among {shown}; got {option!r}")


def failed(results: Sequence[Result], named: bool) -> bool:
    """Should a command that ran these figures report failure?

    Args:
        results: of all figures.
        named: whether the user named them explicitly, so that a missing data set is a failure.
    """
    bad = {Status.FAILED, Status.SKIPPED} if named else {Status.FAILED}
    return any(result.status in bad for result in results)
