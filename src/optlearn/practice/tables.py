"""Schedules as CSV and JSON."""

import csv
import io
import json
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from optlearn._errors import SpecificationError
from optlearn._io import atomic
from optlearn._schedule import Schedule
from optlearn.practice.steps import total_steps

# Keys of a schedule in JSON that are not names of controls.
RESERVED = ("grid", "mixtures", "parameters")


def write_csv(
    schedule: Schedule, path: str | PathLike[str], *, steps: int | None = None, N: float | None = None
) -> Path:
    """A row for each interval; see ``Schedule.to_csv``.

    Columns: ``alpha_from``, ``alpha_to``; with steps, ``step_from`` and ``step_to`` (the step after
    the last one); each control; and of a mixed control, whose column is its mean, the share of each
    value, ``difficulty=2``. Free parameters are columns too, constant ones.
    """
    columns: dict[str, np.ndarray] = {"alpha_from": schedule.grid[:-1], "alpha_to": schedule.grid[1:]}
    if steps is not None or N is not None:
        total = total_steps(schedule, steps, N, "to_csv")
        first = np.minimum(schedule.first_steps(total / schedule.horizon), total)
        columns |= {"step_from": first, "step_to": np.append(first[1:], total)}
    columns |= {name: schedule[name] for name in schedule.controls}
    for name, mixture in schedule.mixtures.items():
        shares = mixture.shares.T
        columns |= {f"{name}={value:g}": shares[i] for i, value in enumerate(mixture.values)}
    columns |= {name: np.full(schedule.intervals, value) for name, value in schedule.parameters.items()}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
    return _write(text.getvalue(), path)


def write_json(schedule: Schedule, path: str | PathLike[str] | None = None) -> str:
    """Grid and controls as lists, mixtures and free parameters under their own keys."""
    data: dict[str, Any] = {
        "grid": schedule.grid.tolist(),
        **{name: np.asarray(values).tolist() for name, values in schedule.values.items()},
    }
    if schedule.mixtures:
        data["mixtures"] = {
            name: {"values": m.values.tolist(), "shares": m.shares.tolist()}
            for name, m in schedule.mixtures.items()
        }
    if schedule.parameters:
        data["parameters"] = {name: float(value) for name, value in schedule.parameters.items()}
    text = json.dumps(data, allow_nan=False)
    if path is not None:
        _write(text + "\n", path)
    return text


def read_json(source: str | PathLike[str]) -> Schedule:
    """The schedule in JSON text (which begins with a brace), or in a file.

    A whole result of ``optlearn solve --json`` is taken too: its ``schedule`` and ``parameters``.
    """
    if isinstance(source, str) and source.lstrip().startswith("{"):
        text, name = source, "JSON"
    else:
        name = str(source)
        try:
            text = Path(source).read_text(encoding="utf-8")
        except OSError as error:
            raise SpecificationError(f"{name}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise SpecificationError(f"{name} is not JSON: {error}") from error
    try:
        data = json.loads(text)
    except ValueError as error:
        raise SpecificationError(f"{name} is not JSON: {error}") from error
    found = data.get("schedule", data) if isinstance(data, dict) else None
    if not isinstance(found, dict) or "grid" not in found:
        raise SpecificationError(
            f'{name}: expected {{"grid": […], NAME: […]}}, or such an object under "schedule"'
        )
    try:
        return _from_data(found, {**found.get("parameters", {}), **data.get("parameters", {})})
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise SpecificationError(f"{name}: {error}") from error


def _from_data(data: dict[str, Any], parameters: dict[str, Any]) -> Schedule:
    mixtures = {
        name: dict(zip(m["values"], np.asarray(m["shares"], dtype=float).T, strict=True))
        for name, m in data.get("mixtures", {}).items()
    }
    plain = {name: values for name, values in data.items() if name not in RESERVED}
    schedule = Schedule.mixed(data["grid"], mixtures, plain)
    return schedule.with_parameters(**{name: float(value) for name, value in parameters.items()})


def _write(text: str, path: str | PathLike[str]) -> Path:
    with atomic(Path(path)) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)
