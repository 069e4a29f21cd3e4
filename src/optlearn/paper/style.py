"""What the paper's figures have beyond the look of all figures: their width, and lettered panels."""

from collections.abc import Mapping
from typing import Any, cast

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from optlearn.plotting.look import BLACK as BLACK
from optlearn.plotting.look import BLUE as BLUE
from optlearn.plotting.look import GREEN as GREEN
from optlearn.plotting.look import GREY as GREY
from optlearn.plotting.look import ORANGE as ORANGE
from optlearn.plotting.look import PURPLE as PURPLE
from optlearn.plotting.look import SKY as SKY
from optlearn.plotting.look import TIME as TIME
from optlearn.plotting.look import VERMILION as VERMILION
from optlearn.plotting.look import save_figure as save_figure
from optlearn.plotting.look import shades as shades
from optlearn.plotting.look import style as style
from optlearn.plotting.look import styled as styled

WIDTH = 10.0  # inches, of a figure with three columns
OURS = "(this work)"


def panels(layout: list[list[str]], height: float, width: float = WIDTH) -> tuple[Figure, Mapping[str, Axes]]:
    """A figure with the named panels, ``[["a", "b"], ["c", "c"]]``, each with its letter."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes: dict[str, Axes] = figure.subplot_mosaic(cast(Any, layout))
    for letter, panel in axes.items():
        panel.set_title(f"{letter})", loc="left", fontweight="bold", fontsize=10)
    return figure, axes
