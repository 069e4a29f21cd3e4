"""What the paper's figures have beyond the look of all figures: their width, and lettered panels."""

from collections.abc import Mapping
from typing import Any, cast

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from optlearn.plotting.style import BLACK as BLACK
from optlearn.plotting.style import BLUE as BLUE
from optlearn.plotting.style import GREEN as GREEN
from optlearn.plotting.style import GREY as GREY
from optlearn.plotting.style import ORANGE as ORANGE
from optlearn.plotting.style import PURPLE as PURPLE
from optlearn.plotting.style import SKY as SKY
from optlearn.plotting.style import TIME as TIME
from optlearn.plotting.style import VERMILION as VERMILION
from optlearn.plotting.style import save_figure as save_figure
from optlearn.plotting.style import shades as shades
from optlearn.plotting.style import style as style
from optlearn.plotting.style import styled as styled

WIDTH = 10.0  # inches, of a figure with three columns
OURS = "(this work)"


def panels(layout: list[list[str]], height: float, width: float = WIDTH) -> tuple[Figure, Mapping[str, Axes]]:
    """A figure with the named panels, ``[["a", "b"], ["c", "c"]]``, each with its letter."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes: dict[str, Axes] = figure.subplot_mosaic(cast(Any, layout))
    for letter, panel in axes.items():
        panel.set_title(f"{letter})", loc="left", fontweight="bold", fontsize=10)
    return figure, axes
