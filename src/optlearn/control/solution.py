"""What a solver hands back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from optlearn.control.certificate import Certificate
from optlearn.control.outcome import Outcome
from optlearn.control.problem import Problem
from optlearn.theory.schedule import Schedule
from optlearn.theory.trajectory import Trajectory


class NotConvergedWarning(UserWarning):
    """A solution's certificate does not say converged; ``certificate.reasons`` says why."""


@dataclass(frozen=True)
class Variant:
    """Another schedule for the same problem, and its re-integrated objective."""

    schedule: Schedule
    objective: float


@dataclass(frozen=True)
class Solution:
    """The best schedule found, and the evidence.

    Attributes:
        problem: what was solved.
        schedule: controls on the grid of training time.
        objective: re-integrated to full accuracy, never the solver's own grid value.
        parameters: free parameters.
        trajectory: order parameters and error under the schedule.
        costates: derivative of the objective with respect to each order parameter, along training.
        certificate: how optimal it is.
        relaxed: with discrete controls, the best schedule that may mix values sample by sample.
        whole: for controls with ``whole=True``, the best schedule of whole numbers.
        method: what was used.
        outcome: how the solver ended, with advice.
        seconds: wall-clock time.
        notes: what was done, step by step.
    """

    problem: Problem
    schedule: Schedule
    objective: float
    parameters: Mapping[str, float]
    trajectory: Trajectory
    costates: Trajectory
    certificate: Certificate
    method: str
    outcome: Outcome
    seconds: float
    relaxed: Variant | None = None
    whole: Variant | None = None
    notes: tuple[str, ...] = field(default_factory=tuple)

    def summary(self) -> str:
        """A few lines of text."""
        c = self.certificate
        lines = [
            f"{self.problem.name}: objective {self.objective:.10g} ({self.method}, "
            f"{self.schedule.intervals} intervals, {self.seconds:.1f} s)",
            f"  {'converged' if c.converged else 'NOT CONVERGED: ' + '; '.join(c.reasons)}",
            f"  hamiltonian gap {c.hamiltonian_gap:.1e}, "
            f"integration error {c.integration_error:.1e}, budget error {c.budget_error:.1e}",
            f"  starts: {c.starts.agreeing} of {c.starts.tried} within 1e-6 of the best",
        ]
        if self.relaxed is not None:
            lines.append(
                f"  best mixed schedule {self.relaxed.objective:.10g} (relaxation gap {c.relaxation_gap:.1e})"
            )
        if self.whole is not None:
            lines.append(f"  best whole-number schedule {self.whole.objective:.10g}")
        if self.parameters:
            lines.append("  " + ", ".join(f"{n} = {v:.6g}" for n, v in self.parameters.items()))
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, for JSON."""
        made: dict[str, Any] = {
            "problem": self.problem.name,
            "objective": self.objective,
            "schedule": schedule_dict(self.schedule),
            "parameters": dict(self.parameters),
            "certificate": self.certificate.to_dict(),
            "method": self.method,
            "outcome": self.outcome.name.lower(),
            "seconds": self.seconds,
            "notes": list(self.notes),
        }
        for name in ("relaxed", "whole"):
            variant = getattr(self, name)
            if variant is not None:
                made[name] = {
                    "objective": variant.objective,
                    "schedule": schedule_dict(variant.schedule),
                }
        return made

    def __repr__(self) -> str:
        return f"<Solution {self.summary()}>"


def schedule_dict(schedule: Schedule) -> dict[str, list[float]]:
    """Grid and values (the mean of a mixed control), as lists."""
    return {
        "grid": schedule.grid.tolist(),
        **{name: schedule[name].tolist() for name in schedule.controls},
    }
