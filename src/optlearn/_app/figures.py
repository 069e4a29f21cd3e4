"""Charts of courses over training time, whose data can be replaced at any moment.

Legends are words on the page (``words.legend``), which wrap and which screen readers read.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import panel as pn
from bokeh.models import (
    BasicTicker,
    BasicTickFormatter,
    ColumnDataSource,
    DataRange1d,
    HoverTool,
    LinearScale,
    LogScale,
    LogTicker,
    LogTickFormatter,
)
from bokeh.plotting import figure

from optlearn._schedule import Schedule
from optlearn._trajectory import Trajectory
from optlearn.plotting.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, TIME, VERMILION

COLOURS = (BLACK, BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY)
# The same on a dark page, where black and dark blue could not be seen.
DARK_COLOURS = ("#F2F2F2", "#6FA8DC", ORANGE, "#2FBF97", "#F07C3C", PURPLE, SKY)
# Lengths of strokes and gaps, in pixels: lines that cover each other are still seen, also without colours.
DASHES = ("solid", "7 4", "2 3", "9 3 2 3", "4 2")
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"
HEIGHT = 250
FADED = 0.25
AUTOMATIC, LINEAR, LOGARITHMIC = SCALES = ("automatic", "linear", "logarithmic")
DECADES = 1.5  # that values span at least where an automatic axis is logarithmic


@dataclass(frozen=True)
class Line:
    """A curve.

    Attributes:
        name: for the legend and for whoever points at it.
        x: (n,) training times.
        y: (n,) values.
        look: which colour and, unless ``solid``, which strokes.
        width: in pixels.
        alpha: 1 is opaque.
    """

    name: str
    x: np.ndarray = field(default_factory=lambda: np.zeros(0))
    y: np.ndarray = field(default_factory=lambda: np.zeros(0))
    look: int = 0
    width: float = 2.0
    alpha: float = 1.0
    solid: bool = False

    @property
    def dash(self) -> str:
        """Strokes and gaps."""
        return DASHES[0 if self.solid else self.look % len(DASHES)]


class Chart:
    """A figure with any number of lines and perhaps a band.

    Args:
        label: of the vertical axis.
        height: in pixels.
    """

    def __init__(self, label: str, height: int = HEIGHT) -> None:
        self._lines: Sequence[Line] = ()
        self._dark = False
        self.scale = AUTOMATIC  # of the vertical axis, from the next ``show`` on
        self.logarithmic = False  # what it is
        self._source = ColumnDataSource()
        self._band = ColumnDataSource({"x": [], "low": [], "high": []})
        self.figure = figure(
            height=height,
            sizing_mode="stretch_width",
            toolbar_location=None,
            tools="",
            x_axis_label=TIME,
            y_axis_label=label,
            output_backend="canvas",
            min_border_right=12,
        )
        self._area = self.figure.varea("x", "low", "high", source=self._band, fill_alpha=0.3)
        lines = self.figure.multi_line(
            "x", "y", source=self._source, line_color="colour", line_dash="dash", line_width="width",
            line_alpha="alpha", line_join="round",
        )  # fmt: skip
        tip = "<b>@name</b><br>α = $snap_x{0.[000]}<br>$snap_y{0.[000000]}"
        self.figure.add_tools(HoverTool(renderers=[lines], tooltips=tip, line_policy="nearest"))
        self.figure.x_range.range_padding = 0.01
        self.pane = pn.pane.Bokeh(self.figure, sizing_mode="stretch_width")
        self._paint()
        self.clear()

    @property
    def label(self) -> str:
        """Of the vertical axis."""
        return str(self.figure.yaxis.axis_label)

    @label.setter
    def label(self, text: str) -> None:
        self.figure.yaxis.axis_label = text

    @property
    def lines(self) -> Sequence[Line]:
        """What is drawn."""
        return self._lines

    def clear(self) -> None:
        """Draw nothing."""
        self.show([Line("", np.array([0.0, 1.0]), np.array([0.0, 1.0]), alpha=0.0)])  # ranges need some data

    def show(
        self, lines: Sequence[Line], band: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
    ) -> None:
        """Draw these lines, and a band from low to high: (n,) training times, low and high."""
        self._lines = lines
        colours = DARK_COLOURS if self._dark else COLOURS
        self._source.data = {
            "x": [line.x for line in lines],
            "y": [line.y for line in lines],
            "name": [line.name for line in lines],
            "colour": [colours[line.look % len(colours)] for line in lines],
            "dash": [line.dash for line in lines],
            "width": [line.width for line in lines],
            "alpha": [line.alpha for line in lines],
        }
        x, low, high = (np.zeros(0),) * 3 if band is None else band
        self._band.data = {"x": x, "low": low, "high": high}
        self._choose_scale(np.concatenate([*(line.y for line in lines), low]))

    def _choose_scale(self, values: np.ndarray) -> None:
        lowest, highest = np.nanmin(values), np.nanmax(values)
        wide = lowest > 0 and (self.scale == LOGARITHMIC or highest > 10**DECADES * lowest)
        logarithmic = bool(wide and self.scale != LINEAR)
        if logarithmic == self.logarithmic:
            return
        self.logarithmic = logarithmic
        self.figure.y_scale = LogScale() if logarithmic else LinearScale()
        self.figure.y_range = DataRange1d()  # the browser does not forget that the old one was logarithmic
        ticker, formatter = (
            (LogTicker(), LogTickFormatter()) if logarithmic else (BasicTicker(), BasicTickFormatter())
        )
        self.figure.yaxis.update(ticker=ticker, formatter=formatter)
        self.figure.ygrid.ticker = ticker

    def darken(self, dark: bool) -> None:
        """Colours for a dark or a light page."""
        self._dark = dark
        self._paint()
        if self._lines:
            self._source.patch(
                {
                    "colour": [
                        (slice(None), [(DARK_COLOURS if dark else COLOURS)[i.look % 7] for i in self._lines])
                    ]
                }
            )

    def _paint(self) -> None:
        words, rules = ("#C9CDD3", "#3A3F47") if self._dark else ("#4A4F57", "#E4E6EA")
        self.figure.update(background_fill_color=None, border_fill_color=None, outline_line_color=None)
        for axis in self.figure.axis:
            axis.update(
                axis_label_text_font=FONT, axis_label_text_font_style="normal",
                axis_label_text_font_size="12px", axis_label_text_color=words,
                major_label_text_font=FONT, major_label_text_font_size="11px", major_label_text_color=words,
                axis_line_color=rules, major_tick_line_color=rules, minor_tick_line_color=None,
            )  # fmt: skip
        for grid in self.figure.grid:
            grid.update(grid_line_color=rules, grid_line_width=1)
        self.figure.xgrid.grid_line_color = None
        self._area.glyph.fill_color = (DARK_COLOURS if self._dark else COLOURS)[1]


def stairs(schedule: Schedule, control: str) -> tuple[np.ndarray, np.ndarray]:
    """(2n,) training times and values of a control, as steps."""
    return np.repeat(schedule.grid, 2)[1:-1], np.repeat(schedule[control], 2)


def course(trajectory: Trajectory, name: str, look: int, **options: Any) -> Line:
    """A quantity over training time; of a simulation, its mean."""
    return Line(options.pop("label", name), trajectory.alpha, trajectory.mean(name), look, **options)
