"""Messages between user, page and solver: typed parameters, requests and events, files to download.

Requests and events, like ``Progress``, are sent between processes: they are plain data that can be pickled.
"""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from optlearn import __version__
from optlearn._control.certificate import Certificate
from optlearn._errors import SpecificationError
from optlearn._json import plain
from optlearn._schedule import Schedule
from optlearn._trajectory import Trajectory
from optlearn.practice.script import CONTROLS, Framework, training_script
from optlearn.scenarios._arguments import Argument, CodeOnly, Value
from optlearn.scenarios._files import known

# --- parameters ------------------------------------------------------------------------------------


def parameters(scenario: str) -> tuple[Argument, ...]:
    """Parameters of a scenario that can be moved, the main ones first."""
    return tuple(a for a in known()[scenario].arguments if not isinstance(a, CodeOnly))


def defaults(scenario: str) -> dict[str, Value]:
    """Name → initial value."""
    return {parameter.name: parameter.default for parameter in parameters(scenario)}


def arguments(scenario: str, values: Mapping[str, Value]) -> dict[str, Any]:
    """Arguments of the scenario's function; the entries ``name[i]`` of a sequence are joined again."""
    by_argument: dict[str, Any] = {}
    for name, value in sorted(values.items()):
        argument = name.partition("[")[0]
        if argument == name:
            by_argument[name] = value
        else:
            by_argument[argument] = (*by_argument.get(argument, ()), value)
    return by_argument


def typed(scenario: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Arguments of the scenario's function as texts for the controls.

    Raises:
        SpecificationError: an argument has no control, or its control does not accept the value.
    """
    controls = {argument.name: argument for argument in known()[scenario].arguments}
    texts = {}
    for name, value in values.items():
        several = isinstance(value, Sequence) and not isinstance(value, str) and name not in controls
        entries = {f"{name}[{i}]": entry for i, entry in enumerate(value)} if several else {name: value}
        for key, entry in entries.items():
            if key not in controls:
                names = ", ".join(defaults(scenario))
                raise SpecificationError(f"{key}: {scenario} has no such control; it has {names}")
            texts[key] = as_text(entry)
            controls[key].read(texts[key])
    return texts


def as_text(value: Any) -> str:
    """A value as text for a control; None, an empty box, as a word."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


# --- requests and events ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Solve:
    """Find the optimum; ``full``: on the scenario's own grid and from several starts."""

    scenario: str
    arguments: Mapping[str, Any]
    full: bool = False


@dataclass(frozen=True)
class Simulate:
    """Run SGD under a schedule, by the exact chain of the overlaps."""

    scenario: str
    arguments: Mapping[str, Any]
    schedule: Schedule
    N: int
    seeds: int


@dataclass(frozen=True)
class Waiting:
    """A request is waiting for others."""

    before: int  # how many

    def of(self, kind: str) -> str:
        """In words: "2 solves before yours"."""
        return f"{self.before} {kind}{'' if self.before == 1 else 's'} before yours"


@dataclass(frozen=True)
class Failed:
    """A request failed."""

    reason: str  # message for the user
    expected: bool = False  # is it bad input rather than a fault of the program?


@dataclass(frozen=True)
class Done:
    """A request is finished and sends no further events."""


@dataclass(frozen=True)
class Optimum:
    """The result of a solve; it may not be converged."""

    schedule: Schedule
    mixed: Schedule | None  # with discrete controls, the best schedule that may mix values
    objective: float  # re-integrated to full accuracy
    called: str  # name of the objective: "final error", …
    trajectory: Trajectory  # order parameters and error
    costates: Trajectory  # derivative of the objective with respect to each order parameter
    certificate: Certificate
    words: tuple[tuple[str, str], ...]  # the certificate as questions and answers
    full: bool  # was it solved on the scenario's own grid, from several starts?
    method: str
    seconds: float  # wall-clock time from the request to here
    remarks: tuple[str, ...] = ()  # warnings


@dataclass(frozen=True)
class Usual:
    """A usual schedule to compare with."""

    name: str
    objective: float | None  # re-integrated; None if the schedule leaves the physical region
    trajectory: Trajectory | None  # None likewise
    schedule: Schedule | None = None  # None likewise
    note: str = ""  # violations of bounds and budgets, or why it cannot be followed


@dataclass(frozen=True)
class Compared:
    """The usual schedules, from the best to the worst."""

    usual: tuple[Usual, ...]


@dataclass(frozen=True)
class Simulated:
    """Results of a simulation so far."""

    theory: Trajectory  # order parameters and error, at the times of the simulation
    simulated: Trajectory  # the same with an axis of seeds
    seeds: int  # final number of seeds
    N: int
    seconds: float  # seconds since it began

    def largest_z(self) -> tuple[float, str, float]:
        """The largest deviation of the mean from theory as a normal score, with quantity and α."""
        largest = (0.0, "error", 0.0)
        for name in self.simulated.values:
            z = np.nan_to_num(np.abs(self.simulated.z_scores(name, self.theory[name])))
            worst = int(np.argmax(z))
            largest = max(largest, (float(z[worst]), name, float(self.simulated.alpha[worst])))
        return largest


# --- files -----------------------------------------------------------------------------------------


class File(NamedTuple):
    """A file: its name, its text and its media type."""

    name: str
    text: str
    kind: str


def as_json(scenario: str, arguments: Mapping[str, Any], optimum: Optimum) -> File:
    """The problem and its result; ``Schedule.from_json`` and ``optlearn`` read it."""
    content = {
        "scenario": scenario,
        "arguments": {name: plain(value) for name, value in arguments.items()},
        "objective": optimum.objective,
        "schedule": optimum.schedule.to_dict(),
        "parameters": dict(optimum.schedule.parameters),
        "certificate": optimum.certificate.to_dict(),
        "method": optimum.method,
        "seconds": optimum.seconds,
        "optlearn": __version__,
    }
    return File(
        f"{Path(scenario).stem}.json",
        json.dumps(content, allow_nan=False, indent=1) + "\n",
        "application/json",
    )


def as_csv(scenario: str, arguments: Mapping[str, Any], optimum: Optimum) -> File:
    """A table with a row for each interval."""
    with tempfile.TemporaryDirectory() as folder:
        text = optimum.schedule.to_csv(Path(folder) / "schedule.csv").read_text(encoding="utf-8")
    return File(f"{Path(scenario).stem}.csv", text, "text/csv")


def as_script(framework: Framework, scenario: str, arguments: Mapping[str, Any], optimum: Optimum) -> File:
    """A PyTorch script, or one for JAX and optax, that trains under the schedule."""
    call = ", ".join(f"{argument}={plain(value)!r}" for argument, value in arguments.items())
    what = "optimal" if optimum.certificate.converged else "solved, but not converged,"
    title = (
        f"Training under a schedule of {', '.join(optimum.schedule.controls)}, {what} for {scenario}.\n\n"
        f"{scenario}({call}): {optimum.called} {optimum.objective:.8g} in theory."
    )
    text = training_script(optimum.schedule, framework=framework, arguments=arguments, title=title)
    name = {"torch": "torch", "jax": "optax"}[framework]
    return File(f"{Path(scenario).stem}_{name}.py", text, "text/x-python")


FILES: Mapping[str, Callable[[str, Mapping[str, Any], Optimum], File]] = {
    "json": as_json,
    "csv": as_csv,
    "torch": partial(as_script, "torch"),
    "optax": partial(as_script, "jax"),
}


def files_of(optimum: Optimum) -> tuple[str, ...]:
    """Names of the available files; scripts only for controls that they can follow."""
    scripts = set(optimum.schedule.controls) <= set(CONTROLS)
    return tuple(name for name in FILES if scripts or name in ("json", "csv"))
