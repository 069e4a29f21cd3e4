"""The schedule to take away: JSON, CSV, and scripts of PyTorch and of optax that train."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from optlearn import __version__
from optlearn._app.messages import Found
from optlearn._json import plain
from optlearn.practice.script import Framework, training_script


class File(NamedTuple):
    """A file: its name, its text and its media type."""

    name: str
    text: str
    kind: str


def as_json(scenario: str, arguments: Mapping[str, Any], found: Found) -> File:
    """What was solved and what was found; ``Schedule.from_json`` and ``optlearn`` read it."""
    content = {
        "scenario": scenario,
        "arguments": {name: plain(value) for name, value in arguments.items()},
        "objective": found.objective,
        "schedule": found.schedule.to_dict(),
        "parameters": dict(found.schedule.parameters),
        "certificate": found.certificate.to_dict(),
        "method": found.method,
        "seconds": found.seconds,
        "optlearn": __version__,
    }
    return File(f"{scenario}.json", json.dumps(content, allow_nan=False, indent=1) + "\n", "application/json")


def as_csv(scenario: str, arguments: Mapping[str, Any], found: Found) -> File:
    """A row for each interval."""
    with tempfile.TemporaryDirectory() as folder:
        text = found.schedule.to_csv(Path(folder) / "schedule.csv").read_text(encoding="utf-8")
    return File(f"{scenario}.csv", text, "text/csv")


def as_torch(scenario: str, arguments: Mapping[str, Any], found: Found) -> File:
    """A script of PyTorch that trains under the schedule."""
    return _script("torch", f"{scenario}_torch.py", scenario, arguments, found)


def as_optax(scenario: str, arguments: Mapping[str, Any], found: Found) -> File:
    """A script of JAX and optax that trains under the schedule."""
    return _script("jax", f"{scenario}_optax.py", scenario, arguments, found)


FILES = {"json": as_json, "csv": as_csv, "torch": as_torch, "optax": as_optax}


def _script(
    framework: Framework, name: str, scenario: str, arguments: Mapping[str, Any], found: Found
) -> File:
    given = ", ".join(f"{argument}={plain(value)!r}" for argument, value in arguments.items())
    title = (
        f"Training under a schedule of {', '.join(found.schedule.controls)}, optimal for {scenario}.\n\n"
        f"{scenario}({given}): final error {found.objective:.8g} in theory."
    )
    text = training_script(found.schedule, framework=framework, arguments=arguments, title=title)
    return File(name, text, "text/x-python")
