"""Shared by the figures: claims and their checks, stages, time courses as arrays, lettered panels."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from optlearn._control.solution import Solution
from optlearn._errors import DataFileError
from optlearn._io.files import read_json, write_file
from optlearn._json import finite, plain
from optlearn._progress import Progress, Report
from optlearn._schedule import Schedule
from optlearn._trajectory import Trajectory
from optlearn.plotting.style import shades

WIDTH = 10.0  # inches, of a figure with three columns
OURS = "(this work)"

# --- claims ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """One claim, checked.

    Attributes:
        id: short name, unique within its figure.
        text: the claim, in a sentence.
        found: the result: a number, text, or a list or mapping of them.
        expected: the claimed result.
        holds: whether the claim holds.
        note: remarks for the reader, especially about a claim that does not hold.
    """

    id: str
    text: str
    found: Any
    expected: Any
    holds: bool
    note: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "found", plain(self.found, number=_ten_digits))
        object.__setattr__(self, "expected", plain(self.expected, number=_ten_digits))
        object.__setattr__(self, "holds", bool(self.holds))

    def to_dict(self) -> dict[str, Any]:
        """JSON's types only."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Claim":
        """The inverse of ``to_dict``."""
        return cls(**values)


def save_claims(claims: Iterable[Claim], path: Path) -> None:
    """Write claims as JSON."""
    rows = [claim.to_dict() for claim in claims]
    write_file(path, json.dumps(rows, ensure_ascii=False, indent=2, allow_nan=False) + "\n")


def load_claims(path: Path) -> list[Claim]:
    """Claims that ``save_claims`` wrote."""
    rows = read_json(path)
    try:
        return [Claim.from_dict(row) for row in rows]
    except TypeError as error:
        raise DataFileError(f"{path} does not hold claims: {error}") from error


def _ten_digits(value: float) -> float | None:
    return finite(float(f"{value:.10g}"))


def all_certified(converged: Any, gaps: Any) -> Claim:
    """Our claim that every optimum of the figure, with these Hamiltonian gaps, has converged."""
    states, worst = [bool(c) for c in converged], max(map(float, gaps))
    return Claim(
        "certified",
        "(this work) Every optimum shown has converged, by its certificate",
        {"converged": sum(states), "solved": len(states), "largest Hamiltonian gap": worst},
        "all",
        all(states),
    )


# --- computing -------------------------------------------------------------------------------------


class Stages:
    """Reports the progress of a computation with several stages."""

    def __init__(self, progress: Report | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0

    def __call__(self, text: str) -> None:
        """Announce the next stage."""
        if self.progress is not None:
            self.progress(Progress(text, self.done, self.total))
        self.done += 1

    def each(self, text: str, values: Iterable[float]) -> Iterator[float]:
        """The values one by one, each announced by a text that contains it."""
        for value in values:
            self(text.format(value))
            yield value


def courses(runs: Mapping[str, Trajectory], *names: str) -> dict[str, Any]:
    """Variables of a data set: quantities of runs on the same grid, one run for each schedule."""
    return {name: (("schedule", "alpha"), np.stack([run[name] for run in runs.values()])) for name in names}


def at_end(course: xarray.DataArray, schedules: Iterable[str]) -> dict[str, float]:
    """Name of each schedule → the last value of its course."""
    return {name: float(course.sel(schedule=name)[-1]) for name in schedules}


def pairs(keys: Iterable[Any], values: Iterable[Any]) -> dict[Any, Any]:
    """Key → value, for equally many of both."""
    return dict(zip(keys, values, strict=True))


def common_grid(schedules: Mapping[str, Schedule], control: str) -> tuple[np.ndarray, np.ndarray]:
    """The union of the schedules' edges (E + 1,), and values (n, E) of a control."""
    edges = np.unique(np.concatenate([schedule.grid for schedule in schedules.values()]))
    edges = edges[np.append(True, np.diff(edges) > 1e-9)]
    return edges, np.stack([schedule.at(middles(edges))[control] for schedule in schedules.values()])


def middles(edges: np.ndarray) -> np.ndarray:
    """(n,) midpoints of the intervals between (n + 1,) edges."""
    return np.asarray((edges[1:] + edges[:-1]) / 2)


def certificates(solutions: Iterable[Solution], dimension: str, prefix: str = "") -> dict[str, Any]:
    """Variables of a data set: whether each solution is converged, and its Hamiltonian gap."""
    evidence = [solution.certificate for solution in solutions]
    return {
        f"{prefix}converged": (dimension, [certificate.converged for certificate in evidence]),
        f"{prefix}gap": (dimension, [certificate.hamiltonian_gap for certificate in evidence]),
    }


def crossing(alpha: np.ndarray, course: Sequence[float] | np.ndarray, level: float) -> float:
    """First training time at which a course falls below a level, interpolated; NaN if never."""
    values = np.asarray(course)
    below = np.flatnonzero(values < level)
    if not len(below):
        return float("nan")
    i = int(below[0])
    if i == 0:
        return float(alpha[0])
    share = (values[i - 1] - level) / (values[i - 1] - values[i])
    return float(alpha[i - 1] + share * (alpha[i] - alpha[i - 1]))


# --- drawing ---------------------------------------------------------------------------------------


def panels(layout: list[list[str]], height: float, width: float = WIDTH) -> tuple[Figure, Mapping[str, Axes]]:
    """A figure with the named panels, ``[["a", "b"], ["c", "c"]]``, each with its letter."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes: dict[str, Axes] = figure.subplot_mosaic(cast(Any, layout))
    for letter, panel in axes.items():
        set_letter(panel, letter)
    return figure, axes


def span(course: xarray.DataArray) -> tuple[float, float]:
    """First and last value, for the limits of an axis."""
    return float(course[0]), float(course[-1])


def draw_family(axes: Axes, family: xarray.DataArray, times: xarray.DataArray) -> None:
    """Curves from dark to light, labelled by the first coordinate; steps, if the times are edges."""
    levels = family[family.dims[0]].values
    for colour, level, row in zip(shades(len(levels)), levels, family.values, strict=True):
        if len(times) > len(row):
            axes.stairs(row, times, baseline=None, color=colour, linewidth=1.5, label=f"{level:g}")
        else:
            axes.plot(times, row, color=colour, label=f"{level:g}")


def draw_pictures(row: Iterable[Axes], pictures: xarray.DataArray, **look: Any) -> None:
    """One picture in each of the axes, without a frame."""
    for axes, picture in zip(row, pictures, strict=True):
        axes.imshow(picture, interpolation="nearest", **look)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)


def set_letter(axes: Axes, letter: str) -> None:
    """The letter of a panel, at the upper left."""
    axes.set_title(f"{letter})", loc="left", fontweight="bold", fontsize=10)
