"""What page and solver say to each other, beside ``Progress``: plain data that can be pickled."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from optlearn._control.certificate import Certificate
from optlearn._schedule import Schedule
from optlearn._trajectory import Trajectory


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
class Failed:
    """A request came to nothing.

    Attributes:
        reason: a sentence for the user.
        expected: is it about the request (bad input), rather than a fault?
    """

    reason: str
    expected: bool = False


@dataclass(frozen=True)
class Done:
    """A request has been worked on to its end; nothing more will be heard of it."""


@dataclass(frozen=True)
class Found:
    """An optimum.

    Attributes:
        schedule: of the solution.
        mixed: with discrete controls, the best schedule that may mix values; else None.
        objective: re-integrated to full accuracy.
        trajectory: order parameters and error.
        costates: derivative of the objective with respect to each order parameter.
        certificate: of the solution.
        words: the certificate as questions and answers.
        full: was it solved on the scenario's own grid, from several starts?
        method: of the solver.
        seconds: wall-clock time from the request to here.
        remarks: warnings.
    """

    schedule: Schedule
    mixed: Schedule | None
    objective: float
    trajectory: Trajectory
    costates: Trajectory
    certificate: Certificate
    words: tuple[tuple[str, str], ...]
    full: bool
    method: str
    seconds: float
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Usual:
    """A schedule that people would try.

    Attributes:
        name: of the baseline.
        objective: re-integrated; None if the schedule leaves the physical region.
        trajectory: its course; None likewise.
        note: what it breaks of bounds and budgets, or why it cannot be followed.
    """

    name: str
    objective: float | None
    trajectory: Trajectory | None
    note: str = ""


@dataclass(frozen=True)
class Compared:
    """The usual schedules, from the best to the worst."""

    usual: tuple[Usual, ...]


@dataclass(frozen=True)
class Simulated:
    """A simulation so far.

    Attributes:
        theory: order parameters and error, at the times of the simulation.
        simulated: the same with an axis of seeds.
        seeds: how many there will be.
        N: input dimension.
        seconds: since it began.
    """

    theory: Trajectory
    simulated: Trajectory
    seeds: int
    N: int
    seconds: float

    def largest_z(self) -> tuple[float, str, float]:
        """The largest deviation of the mean from theory as a normal score, of what, and at which α."""
        found = (0.0, "error", 0.0)
        for name in self.simulated.values:
            z = np.nan_to_num(np.abs(self.simulated.z_scores(name, self.theory[name])))
            worst = int(np.argmax(z))
            found = max(found, (float(z[worst]), name, float(self.simulated.alpha[worst])))
        return found
