"""One look for all figures; colours that colour-blind people can tell apart (Okabe and Ito)."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from optlearn._io.files import write_file

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#7F7F7F"
FEW = (BLUE, ORANGE, GREEN, VERMILION)  # for values that are told apart at a glance

TIME = "training time α = steps/N"

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


@contextmanager
def style() -> Iterator[None]:
    """The settings of all figures, inside a block."""
    with matplotlib.rc_context(RC):  # type: ignore[arg-type]  # a subset of the settings
        yield


styled = style()  # a decorator: the function draws in this style


def shades(count: int) -> np.ndarray:
    """(count, 4) colours for ordered values, dark to light."""
    return np.asarray(matplotlib.colormaps["viridis"](np.linspace(0.0, 0.88, count)))


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure; the ending of ``path`` is its format (PNG without one)."""
    plain = {"CreationDate": None} if path.suffix == ".pdf" else {}
    picture = BytesIO()
    with style():
        figure.savefig(picture, format=path.suffix[1:] or "png", dpi=200, metadata=plain)
    write_file(path, picture.getbuffer())


class ShownFigure(Figure):
    """A figure that notebooks show, also where pyplot was never imported."""

    def _repr_png_(self) -> bytes:
        picture = BytesIO()
        self.savefig(picture, format="png", dpi=110)
        return picture.getvalue()


def own_axes(axes: Axes | None, size: tuple[float, float] = (4.8, 3.0)) -> Axes:
    """The caller's axes, or those of a new figure of this size in inches."""
    return ShownFigure(figsize=size, layout="constrained").subplots() if axes is None else axes
