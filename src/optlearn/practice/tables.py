"""Schedules as text for other programs: CSV, JSON, and thresholds on a command line."""

import csv
import io
import json
from os import PathLike
from pathlib import Path
from typing import Literal

import numpy as np

from optlearn._errors import SpecificationError
from optlearn._io.files import read_file, write_file
from optlearn._json import parse
from optlearn._schedule import Schedule
from optlearn.practice.steps import step_table, total_steps


def write_csv(
    schedule: Schedule, path: str | PathLike[str], *, steps: int | None = None, N: float | None = None
) -> Path:
    """A row for each interval; see ``Schedule.to_csv``.

    Columns: ``alpha_from``, ``alpha_to``, unless the schedule itself counts steps; with steps, ``step_from``
        and
    ``step_to`` (the step after the last one); each control; and for a mixed control, whose column is its
    mean, the share of each value, ``difficulty=2``. Free parameters are constant columns. A control whose
    name is taken is called ``control NAME``.
    """
    columns: dict[str, np.ndarray] = {"alpha_from": schedule.grid[:-1], "alpha_to": schedule.grid[1:]}
    if steps is not None or N is not None:
        total = total_steps(schedule, steps, N, "to_csv")
        if total == schedule.horizon and np.all(schedule.grid == np.round(schedule.grid)):
            columns = {}  # its time counts steps
        first = np.minimum(schedule.first_steps(total / schedule.horizon), total)
        columns |= {"step_from": first, "step_to": np.append(first[1:], total)}

    def add(name: str, column: np.ndarray) -> None:
        columns[f"control {name}" if name in columns else name] = column

    for name in schedule.controls:
        add(name, schedule[name])
    for name, mixture in schedule.mixtures.items():
        for value, share in zip(mixture.values, mixture.shares.T, strict=True):
            add(f"{name}={value:g}", share)
    for name, number in schedule.parameters.items():
        add(name, np.full(schedule.intervals, number))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
    return write_file(path, text.getvalue())


def thresholds(
    schedule: Schedule,
    control: str,
    *,
    unit: Literal["steps", "tokens"],
    steps: int | None,
    N: float | None,
    tokens_per_step: float | None,
    scale: float,
    tokens_per_sample: float | None = None,
) -> str:
    """See ``Schedule.to_thresholds``."""
    if unit not in ("steps", "tokens"):
        raise SpecificationError(f"unit must be 'steps' or 'tokens', got {unit!r}")
    if (unit == "tokens") != ((tokens_per_step is None) != (tokens_per_sample is None)):
        raise SpecificationError(
            "either tokens_per_step or, for a batch size, tokens_per_sample must be given with "
            "unit='tokens', and only then"
        )
    table = step_table(schedule, control, steps=steps, N=N, scale=scale, purpose="to_thresholds")
    values, first = np.array(table.values), np.array(table.first)
    changes = np.append(True, values[1:] != values[:-1])
    if tokens_per_sample is None:
        at = first * (1 if tokens_per_step is None else tokens_per_step)
    else:  # the tokens of all previous steps, each with its own batch
        at = tokens_per_sample * np.append(0.0, np.cumsum(np.diff(first) * values[:-1]))
    rows = zip(at.tolist(), table.values, changes, strict=True)
    return " ".join(f"{_brief(begin)}:{value:.10g}" for begin, value, changed in rows if changed)


def _brief(number: float) -> str:
    """A whole number as text; whole billions as ``250B``."""
    whole = round(number)
    return f"{whole // 10**9}B" if whole and whole % 10**9 == 0 else str(whole)


def write_json(schedule: Schedule, path: str | PathLike[str] | None = None) -> str:
    """``Schedule.to_dict`` as text, also written to ``path`` if given."""
    text = json.dumps(schedule.to_dict(), allow_nan=False)
    if path is not None:
        write_file(path, text + "\n")
    return text


def read_json(source: str | PathLike[str]) -> Schedule:
    """The schedule from JSON text (which begins with a brace) or a file.

    A complete result of ``optlearn solve --json`` is accepted too: its ``schedule`` and ``parameters``.
    """
    is_text = isinstance(source, str) and source.lstrip().startswith("{")
    name = "JSON" if is_text else str(source)
    try:
        data = parse(str(source) if is_text else read_file(source))
    except OSError as error:
        raise SpecificationError(f"{name}: {error.strerror}" if error.strerror else str(error)) from error
    except ValueError as error:
        raise SpecificationError(f"{name} is not JSON: {error}") from error
    content = data.get("schedule", data) if isinstance(data, dict) else None
    if not isinstance(content, dict) or "grid" not in content:
        raise SpecificationError(
            f'{name}: expected {{"grid": […], NAME: […]}}, or such an object under "schedule"'
        )
    try:
        parameters = {**content.get("parameters", {}), **data.get("parameters", {})}
        return Schedule.from_dict({**content, "parameters": parameters})
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise SpecificationError(f"{name}: {error}") from error
