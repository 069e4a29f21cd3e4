"""One look for all figures; colours that colour-blind people can tell apart (Okabe and Ito)."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from optlearn.io import atomic

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#7F7F7F"

TIME = "training time α = steps/N"
WIDTH = 10.0  # inches, of a figure with three columns
OURS = "(this work)"

RC = {
    "font.size": 9.0,
    "axes.labelsize": 9.0,
    "axes.titlesize": 9.0,
    "legend.fontsize": 7.5,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "lines.linewidth": 1.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "axes.prop_cycle": cycler(color=[BLACK, BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY]),
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
}

_P = ParamSpec("_P")
_R = TypeVar("_R")


@contextmanager
def style() -> Iterator[None]:
    """The settings of all figures, inside a block."""
    with matplotlib.rc_context(RC):  # type: ignore[arg-type]  # a subset of the settings
        yield


def styled(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorator: draw in this style."""

    @wraps(function)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with style():
            return function(*args, **kwargs)

    return wrapped


def panels(layout: list[list[str]], height: float, width: float = WIDTH) -> tuple[Figure, Mapping[str, Axes]]:
    """A figure with the named panels, ``[["a", "b"], ["c", "c"]]``, each with its letter."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes: dict[str, Axes] = figure.subplot_mosaic(cast(Any, layout))
    for letter, panel in axes.items():
        panel.set_title(f"{letter})", loc="left", fontweight="bold", fontsize=10)
    return figure, axes


def shades(count: int) -> np.ndarray:
    """(count, 4) colours for ordered values, dark to light."""
    return np.asarray(matplotlib.colormaps["viridis"](np.linspace(0.0, 0.88, count)))


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure; the ending of ``path`` is its format."""
    plain = {"CreationDate": None} if path.suffix == ".pdf" else {}
    with style(), atomic(path) as temporary:
        figure.savefig(temporary, dpi=200, metadata=plain)
