"""Solutions: what solvers return."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optlearn._control.certificate import Certificate
from optlearn._control.problem import Problem
from optlearn._control.runs import Curvature, Outcome, RunRecord
from optlearn._control.summary import summary
from optlearn._errors import explained, warn
from optlearn._schedule import Schedule
from optlearn._signatures import checked
from optlearn._trajectory import Trajectory

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.text import Text

    from optlearn._planning.feedback import Feedback


class NotConvergedWarning(UserWarning):
    """A solution is not certified as converged; ``certificate.reasons`` explains why."""


def warn_not_converged(name: str, certificate: Certificate) -> None:
    """Warn unless the certificate says converged."""
    if not certificate.converged:
        warn(
            f"{name}: not converged: {'; '.join(certificate.reasons)}. {explained('not-converged')}",
            NotConvergedWarning,
        )


@dataclass(frozen=True)
class Variant:
    """Another schedule for the same problem, and its re-integrated objective."""

    schedule: Schedule
    objective: float


@dataclass(frozen=True)
class Solution:
    """The best schedule found, and the evidence.

    Attributes:
        problem: the problem that was solved.
        schedule: controls on the grid of training time.
        objective: re-integrated to full accuracy, never the solver's own grid value.
        parameters: free parameters.
        trajectory: order parameters and error under the schedule.
        costates: derivative of the objective with respect to each order parameter, along training.
        certificate: the evidence that it is optimal.
        relaxed: with discrete controls, the best schedule that may mix values sample by sample.
        whole_numbers: for controls with ``whole_numbers=True``, the best schedule of whole numbers.
        method: the method that found it.
        outcome: how the solver ended, with advice.
        seconds: wall-clock time.
        runs: a record of each run: start, solver, outcome, iterations, objective, seconds, steps.
        options: the options of ``solve``, including the seed.
        provenance: of a solution from a file: when it was saved, versions, git revision.
        weights: for a worst case, the multipliers of the members, which add up to 1 and are positive only for
            the worst members; then those of limits and of path bounds: how much the objective falls per unit
            by which a limit is relaxed. Empty if a single cost is minimised.
        past: after replanning, the schedule until then; all other times count from there on.
        curvature: of the objective, as learned by forward and backward passes: a solve that starts from this
            solution reuses it. It is not saved.
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
    whole_numbers: Variant | None = None
    runs: tuple[RunRecord, ...] = ()
    notes: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, str] = field(default_factory=dict)
    weights: tuple[float, ...] = ()
    past: Schedule | None = None
    curvature: Curvature | None = field(default=None, repr=False, compare=False)

    @property
    def full_schedule(self) -> Schedule:
        """The schedule from the beginning of training, including the past if there is one; for adapters."""
        schedule = self.schedule.with_parameters(**self.parameters)
        return schedule if self.past is None else self.past.followed_by(schedule)

    @property
    def mixed_schedule(self) -> Schedule:
        """The best schedule that may mix values; solvers, which work on shares, can start from it."""
        return self.schedule if self.relaxed is None else self.relaxed.schedule

    def replan(
        self,
        at: float,
        state: Any = None,
        horizon: float | None = None,
        parameters: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> "Solution":
        """The optimal remainder of training from α = ``at`` on; the schedule before that is kept.

        The result's ``schedule``, trajectory and objective cover the remainder, from time 0;
        ``full_schedule`` covers all of training, for adapters. Budgets hold for the whole of training,
        including the past; if no grid from ``at`` on can hold the remaining shares, the old plan is kept up
        to the next edge of its grid. Free parameters that training reads keep their values.

        Args:
            at: training time, from the beginning.
            state: the complete state measured at that time, in the form of ``Problem.start`` or as a flat
                array (default: the predicted one).
            horizon: new end of training (default: as planned).
            parameters: values of parameters that turned out to be different.
            options: options of ``ol.solve`` (default: one start, the old schedule; intervals as long as
                before).
        """
        from optlearn._planning.replan import replan

        return replan(self, at, state, horizon, parameters, **options)

    def feedback(self) -> "Feedback":
        """Linear feedback: corrections of the controls for measured deviations, from the second variation."""
        from optlearn._planning.feedback import feedback

        return feedback(self)

    def summary(self) -> str:
        """Objective, certificate and the shape of the schedule, in a few lines of text."""
        return summary(self)

    @checked
    def save(self, path: str | PathLike[str]) -> Path:
        """Write everything to a NetCDF file, with provenance; ``ol.load`` reads it.

        The file appears under its name only when it is complete.
        """
        from optlearn._io.solutions import save_solution

        return save_solution(self, path)

    def plot(self) -> "Figure":
        """A figure of the schedule, the error, the order parameters and the certificate."""
        from optlearn.plotting import plot_solution

        return plot_solution(self)

    @checked
    def report(self, path: str | PathLike[str], *, baselines: bool = False) -> Path:
        """Write a self-contained HTML page: summary, plots, certificate, provenance.

        Args:
            path: file to write.
            baselines: compare with the problem's baseline schedules, which takes a few seconds.
        """
        from optlearn.plotting.report import write_report

        return write_report(self, path, baselines=baselines)

    @checked
    def export(self, path: str | PathLike[str], *, N: int | None = None, steps: int | None = None) -> Path:
        """Write a PyTorch script that trains a small network under the schedule and prints the loss.

        Args:
            path: file to write.
            N: input dimension of the network.
            steps: optimiser steps; None for N·α_F.
        """
        from optlearn.practice.script import training_script

        made_by = self.problem.made_by
        name = f"{self.problem.name}; objective {self.objective:.6g} in theory"
        training_script(
            self.schedule.with_parameters(**self.parameters), path,
            arguments=made_by.arguments if made_by else None, N=N, steps=steps,
            title=f"Training under the optimal schedule of {name}.",
        )  # fmt: skip
        return Path(path)

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
            "runs": [run.to_dict() for run in self.runs],
        }
        for name in ("relaxed", "whole_numbers"):
            variant = getattr(self, name)
            if variant is not None:
                made[name] = {"objective": variant.objective, "schedule": schedule_dict(variant.schedule)}
        return made

    def __repr__(self) -> str:
        return f"<Solution {self.summary()}>"

    def __rich__(self) -> "Text":
        from rich.text import Text

        title, verdict, *details = self.summary().split("\n")
        colour = "green" if self.certificate.converged else "red bold"
        return Text.assemble((title + "\n", "bold"), (verdict + "\n", colour), "\n".join(details))

    def _repr_html_(self) -> str:
        from optlearn.plotting.report import fragment

        return fragment(self)


def schedule_dict(schedule: Schedule) -> dict[str, Any]:
    """Grid and values (the mean of a mixed control), as lists."""
    return Schedule(schedule.grid, {name: schedule[name] for name in schedule.controls}).to_dict()
