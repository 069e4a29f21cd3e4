"""How far a sweep is: a bar with rate and time left in a terminal, or lines in a log file."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from optlearn.sweeps.point import PointDone

Show = Callable[[PointDone], None]


@contextmanager
def bar(total: int, screen: Any = None) -> Iterator[Show]:
    """Show points as they finish.

    Args:
        total: points of the sweep.
        screen: a rich console (default: stderr).
    """
    from rich.console import Console

    screen = screen or Console(stderr=True, highlight=False, soft_wrap=True)
    count = _Count()
    if not screen.is_terminal:

        def line(point: PointDone) -> None:
            count(point)
            if not point.stored:
                screen.print(f"{point.done}/{total} {point.text}{count.rate()}", markup=False)

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
            count(point)
            progress.update(task, completed=point.done, rate=count.rate(), description=count.troubles())

        yield update


class _Count:
    """Points so far; the rate is that of this run."""

    def __init__(self) -> None:
        self._fresh, self._failed, self._open = 0, 0, 0
        self._began = time.perf_counter()

    def __call__(self, point: PointDone) -> None:
        self._fresh += not point.stored
        self._failed += bool(point.error)
        self._open += not (point.error or point.converged)

    def rate(self) -> str:
        if not self._fresh:
            return ""
        rate = self._fresh / max(time.perf_counter() - self._began, 1e-9)
        return f" ({rate:.2f} points/s)"

    def troubles(self) -> str:
        found = [("failed", self._failed), ("not converged", self._open)]
        return ", ".join(f"{number} {what}" for what, number in found if number)
