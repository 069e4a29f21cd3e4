"""Progress reports of long computations, and how they are shown. Loads nothing heavy."""

import html
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

# Seconds before a computation first reports progress without being asked, and between such reports.
PATIENCE, AGAIN = 3.0, 0.5
# Set to 0, it never does.
VARIABLE = "OPTLEARN_PROGRESS"


@dataclass(frozen=True)
class Progress:
    """How far a computation has come.

    Attributes:
        text: the stage, in words.
        done: parts finished …
        total: … out of this many.
        iteration: the solver's iteration.
        objective: the objective that it has reached.
        gap: possible improvement by the minimum principle, in units of the objective.
        expected: estimated seconds left, if an estimate exists.
    """

    text: str
    done: float | None = None
    total: float | None = None
    iteration: int | None = None
    objective: float | None = None
    gap: float | None = None
    expected: float | None = None

    def __str__(self) -> str:
        parts = [self.text]
        if self.total is not None:
            parts[0] += f" ({self.done:g}/{self.total:g})"
        if self.iteration is not None:
            parts.append(f"iteration {self.iteration}")
        if self.objective is not None:
            parts.append(f"objective {self.objective:.8g}")
        if self.gap is not None:
            parts.append(f"gap {self.gap:.1e}")
        if self.expected is not None:
            parts.append(f"about {in_words(self.expected)} left")
        return ", ".join(parts)


def in_words(seconds: float) -> str:
    """A duration in words, rounded."""
    for unit, length in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 1):.0f} s"


Report = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Ignore the news."""


@contextmanager
def shown(progress: bool | Report | None) -> Iterator[Report]:
    """The function that receives a computation's progress.

    Args:
        progress: a function; True for a bar on stderr or in a notebook; None for a bar after a few seconds in
            an interactive session; False for none.
    """
    if callable(progress):
        yield progress
    elif progress or (progress is None and _somebody_watches()):
        with _Bar(0.0 if progress else PATIENCE) as bar, the_only_display():
            yield bar.tell
    else:
        yield silent


_displayed = False


@contextmanager
def the_only_display() -> Iterator[None]:
    """Keep computations inside this context from showing progress: it is shown already, or unwanted."""
    global _displayed
    before, _displayed = _displayed, True
    try:
        yield
    finally:
        _displayed = before


def _somebody_watches() -> bool:
    """Is this the first process and thread of a program in a terminal or notebook, with nothing shown yet?"""
    if _displayed or os.environ.get(VARIABLE) == "0" or multiprocessing.parent_process() is not None:
        return False
    if threading.current_thread() is not threading.main_thread():
        return False
    return _notebook() is not None or (sys.stderr is not None and sys.stderr.isatty())


def _notebook() -> Any:
    """The shell of a notebook, if this is one."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell if hasattr(shell, "kernel") else None


class _Bar:
    """The latest news with a bar and the time, shown after some seconds and removed at the end.

    A thread of its own keeps it moving: compiling may take a minute without any news.
    """

    def __init__(self, patience: float) -> None:
        self._began, self._patience = time.monotonic(), patience
        self._news = Progress("starting")
        self._expected: float | None = None  # seconds, from the beginning to the end
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)

    def __enter__(self) -> "_Bar":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def tell(self, news: Progress) -> None:
        """Store the latest news."""
        self._news = news
        if news.expected is not None:
            self._expected = time.monotonic() - self._began + news.expected

    def _show(self) -> None:
        if self._over.wait(self._patience):
            return
        with ExitStack() as stack:
            screen = stack.enter_context(_in_notebook() if _notebook() is not None else _in_terminal())
            while True:
                screen(self._news, time.monotonic() - self._began, self._expected)
                if self._over.wait(AGAIN):
                    return


# News, elapsed seconds, and the expected total.
Screen = Callable[[Progress, float, float | None], None]


@contextmanager
def _in_terminal() -> Iterator[Screen]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if not console.is_terminal:
        last_text = [""]

        def line(news: Progress, seconds: float, expected: float | None) -> None:
            if news.text != last_text[0]:
                last_text[0] = news.text
                console.print(f"optlearn: {news.text} ({seconds:.0f} s)", markup=False)

        yield line
        return
    columns = BarColumn(20), TimeElapsedColumn(), TextColumn("{task.description}", markup=False)
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)

        def show(news: Progress, seconds: float, expected: float | None) -> None:
            bar.update(
                task, description=str(news), total=expected, completed=min(seconds, expected or seconds)
            )

        yield show


@contextmanager
def _in_notebook() -> Iterator[Screen]:
    ipython = import_module("IPython.display")  # it is there, or this would be no notebook
    shown = ipython.display(ipython.HTML(""), display_id=True)

    def show(news: Progress, seconds: float, expected: float | None) -> None:
        # Without an estimate the browser lets the bar move to and fro.
        share = "" if expected is None else f" value={min(seconds / expected, 1):.3f}"
        shown.update(ipython.HTML(f"<progress{share}></progress> {html.escape(str(news))} ({seconds:.0f} s)"))

    try:
        yield show
    finally:
        shown.update(ipython.HTML(""))
