"""The parts of the page: forms and a status line as native browser elements, and charts.

Charts show time courses over training; their data can be replaced at any time. Legends are text on the page
(``words.legend``), which wraps and which screen readers can read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import numpy as np
import panel as pn
import param
from bokeh import models
from bokeh.plotting import figure
from panel.custom import JSComponent

from optlearn._schedule import Schedule
from optlearn._trajectory import Trajectory
from optlearn.plotting.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, TIME, VERMILION
from optlearn.scenarios._arguments import Argument, Choice, Flag, Number

COLOURS = (BLACK, BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY)
# The same on a dark page, where black and dark blue would be invisible.
DARK_COLOURS = ("#F2F2F2", "#6FA8DC", ORANGE, "#2FBF97", "#F07C3C", PURPLE, SKY)
# Lengths of dashes and gaps, in pixels: overlapping lines stay distinguishable, also without colours.
DASHES = ("solid", "7 4", "2 3", "9 3 2 3", "4 2")
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"
HEIGHT = 250
FADED = 0.25
AUTOMATIC, LINEAR, LOGARITHMIC = SCALES = ("automatic", "linear", "logarithmic")
DECADES = 1.5  # minimum ratio of values for an automatic axis to be logarithmic


def asset(name: str) -> str:
    """A style sheet, a script or a page of this room."""
    return (files("optlearn._app") / name).read_text(encoding="utf-8")


STYLE = asset("parts.css")


class Form(JSComponent):
    """A column of labelled controls; ``heard`` is called with a name and the typed or chosen text."""

    fields = param.List(doc="Descriptions of the controls, see ``control``.")
    values = param.Dict({}, doc="Name → value that is shown.")
    errors = param.Dict({}, doc="Name → what is wrong with it.")

    layout = param.String("", doc="Class of the form, for the style sheet.")
    in_address = param.Boolean(False, doc="Are the values kept in the page's address?")

    _esm = asset("form.js")

    def __init__(self, heard: Callable[[str, str], None], **params: Any) -> None:
        super().__init__(stylesheets=[STYLE], sizing_mode="stretch_width", **params)
        self._heard = heard

    def _handle_msg(self, data: dict[str, str]) -> None:
        self._heard(data["name"], data["text"])

    def download(self, name: str, text: str, kind: str) -> None:
        """Let the browser save a file."""
        self._send_msg({"name": name, "text": text, "type": kind})


class Status(JSComponent):
    """A line that screen readers follow; ``busy`` shows that something is being computed.

    Without a server nothing is computed, and earlier messages may be outdated (see connection.js).
    """

    text = param.String("")
    busy = param.Boolean(False)
    tone = param.Selector(default="", objects=["", "good", "warning", "bad"])

    _esm = asset("status.js")

    def __init__(self, **params: Any) -> None:
        super().__init__(stylesheets=[STYLE], sizing_mode="stretch_width", **params)


class Address(JSComponent):
    """The query string of the browser's address; "": unchanged."""

    search = param.String("")

    _esm = asset("address.js")


class Scheme(JSComponent):
    """Does the user prefer a dark page?"""

    dark = param.Boolean(False)

    _esm = asset("scheme.js")


def control(parameter: Argument) -> dict[str, Any]:
    """The description of a scenario's parameter, for ``Form.fields``."""
    common: dict[str, Any] = {key: getattr(parameter, key) for key in ("name", "label", "symbol", "help")}
    common["more"] = not parameter.main
    if isinstance(parameter, Number):
        limits = {"low": parameter.low, "high": parameter.high, "step": parameter.step}
        empty = "auto" if parameter.default is None else "none" if parameter.optional else ""
        return {"kind": "number", **common, **limits, "empty": empty}
    if isinstance(parameter, Choice):
        return {"kind": "choice", **common, "options": [[word, word] for word in parameter.known]}
    assert isinstance(parameter, Flag)
    return {"kind": "flag", **common}


def button(name: str, label: str, help_text: str = "", main: bool = False) -> dict[str, Any]:
    """The description of a button."""
    return {"kind": "button", "name": name, "label": label, "help": help_text, "main": main}


def choice(name: str, label: str, options: dict[str, str]) -> dict[str, Any]:
    """The description of a list to choose from: value → text."""
    return {"kind": "choice", "name": name, "label": label, "options": [list(o) for o in options.items()]}


def one_list(
    heard: Callable[[str, str], None],
    name: str,
    label: str,
    options: dict[str, str],
    chosen: str,
    **more: Any,
) -> Form:
    """A form that consists of a single list to choose from."""
    return Form(heard, fields=[choice(name, label, options)], values={name: chosen}, **more)


def html(text: str = "") -> Any:
    """Words on the page, in its style."""
    return pn.pane.HTML(text, stylesheets=[STYLE], sizing_mode="stretch_width", margin=0)


@dataclass(frozen=True)
class Line:
    """A curve: training times x (n,) and values y (n,)."""

    name: str  # for the legend and for tooltips
    x: np.ndarray = field(default_factory=lambda: np.zeros(0))
    y: np.ndarray = field(default_factory=lambda: np.zeros(0))
    look: int = 0  # index of its colour and, unless ``solid``, of its dash pattern
    width: float = 2.0  # in pixels
    alpha: float = 1.0  # 1 is opaque
    solid: bool = False

    @property
    def dash(self) -> str:
        """The dash pattern."""
        return DASHES[0 if self.solid else self.look % len(DASHES)]


class Chart:
    """A figure with any number of lines and optionally a band; ``label`` is that of the vertical axis."""

    def __init__(self, label: str, height: int = HEIGHT) -> None:
        self._lines: Sequence[Line] = ()
        self._dark = False
        self.scale = AUTOMATIC  # of the vertical axis, from the next ``show`` on
        self.logarithmic = False  # what it is
        self._source = models.ColumnDataSource()
        self._band = models.ColumnDataSource({"x": [], "low": [], "high": []})
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
        self.figure.add_tools(models.HoverTool(renderers=[lines], tooltips=tip, line_policy="nearest"))
        self.figure.x_range.range_padding = 0.01
        self.pane = pn.pane.Bokeh(self.figure, sizing_mode="stretch_width")
        self._paint()
        self.clear()

    @property
    def label(self) -> str:
        """Scale of the vertical axis."""
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
        self.show([Line("", np.array([0.0, 1.0]), np.array([0.0, 1.0]), alpha=0.0)])  # ranges need data

    def show(
        self, lines: Sequence[Line], band: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
    ) -> None:
        """Draw these lines, and a band from low to high: (n,) training times, low and high."""
        self._lines = lines
        looks = {
            key: [getattr(line, key) for line in lines]
            for key in ("x", "y", "name", "dash", "width", "alpha")
        }
        self._source.data = {**looks, "colour": self._colours()}
        x, low, high = (np.zeros(0),) * 3 if band is None else band
        self._band.data = {"x": x, "low": low, "high": high}
        self._choose_scale(np.concatenate([*(line.y for line in lines), low]))

    def _colours(self) -> list[str]:
        """Colours of the lines."""
        colours = DARK_COLOURS if self._dark else COLOURS
        return [colours[line.look % len(colours)] for line in self._lines]

    def _choose_scale(self, values: np.ndarray) -> None:
        lowest, highest = np.nanmin(values), np.nanmax(values)
        wide = lowest > 0 and (self.scale == LOGARITHMIC or highest > 10**DECADES * lowest)
        logarithmic = bool(wide and self.scale != LINEAR)
        if logarithmic == self.logarithmic:
            return
        self.logarithmic = logarithmic
        self.figure.y_scale = models.LogScale() if logarithmic else models.LinearScale()
        # A new axis, since the browser remembers that the old one was logarithmic.
        self.figure.y_range = models.DataRange1d()
        ticker = models.LogTicker() if logarithmic else models.BasicTicker()
        formatter = models.LogTickFormatter() if logarithmic else models.BasicTickFormatter()
        self.figure.yaxis.update(ticker=ticker, formatter=formatter)
        self.figure.ygrid.ticker = ticker

    def darken(self, dark: bool) -> None:
        """Colours for a dark or a light page."""
        self._dark = dark
        self._paint()
        if self._lines:
            self._source.patch({"colour": [(slice(None), self._colours())]})

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
    """A quantity over training time; for a simulation, its mean."""
    return Line(options.pop("label", name), trajectory.alpha, trajectory.mean(name), look, **options)
