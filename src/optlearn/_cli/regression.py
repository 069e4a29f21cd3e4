"""``optlearn fit --task regression``: features and labels in, a schedule and its check by training out."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optlearn._cli.output import (
    SOLUTION_FILES,
    bad_input,
    check_folder,
    console,
    deliver,
    exit_code,
    reporting,
    write_solution,
)
from optlearn._progress import Progress

if TYPE_CHECKING:
    import numpy as np

    from optlearn._control.problem import Problem
    from optlearn._control.solution import Solution
    from optlearn.practice.regression import Check, ManyPassesFit, RegressionFit

Data = tuple[str, str | None, Path | None]


@dataclass(frozen=True)
class Regression:
    """What was asked for.

    Attributes:
        passes: how often each sample is seen; 1: the theory of fresh samples.
        test_share: share of the samples that is held out, for several passes.
        seeds: trainings that check the prediction.
        seed: of everything random.
        intervals: of the schedule; None: as many as usual.
        limits: of the solver.
    """

    passes: float
    test_share: float
    seeds: int
    seed: int
    intervals: int | None
    limits: Mapping[str, Any]

    def run(self, file: Path, data: Data, out: Path | None, as_json: bool, quiet: bool) -> int:
        """Read, solve, train, tell; the exit code."""
        check_folder(out)
        if not self.passes >= 1:
            bad_input(f"--passes must be at least 1, got {self.passes:g}")
        with reporting(quiet) as tell:
            from optlearn._control.solve import solve
            from optlearn.practice.samples import read_samples

            tell(Progress("reading the data"))
            X, y = read_samples(file, *data)
            tell(Progress("measuring the spectrum"))
            fit, problem = self._fit(X, y)
            limits = {"starts": 1, **self.limits}
            solution = solve(problem, self.intervals, seed=self.seed, progress=tell, **limits)
            tell(Progress("training"))
            checks = self._check(fit, problem, solution)
        facts = self._facts(fit, solution)
        result = {
            "task": "regression",
            "passes": self.passes,
            "fit": facts,
            "checks": [check._asdict() for check in checks],
            **solution.to_dict(),
        }
        deliver(result, None, as_json, lambda: _show(facts, checks, solution, out))
        if out is not None:
            write_solution(solution, out)
        return exit_code(solution)

    def _fit(self, X: "np.ndarray", y: "np.ndarray") -> "tuple[RegressionFit | ManyPassesFit, Problem]":
        """The data as the theory sees them, and what to optimise."""
        from optlearn.practice.regression import many_passes, regression

        if self.passes > 1:
            many = many_passes(X, y, self.test_share, self.seed)
            return many, many.problem(self.passes)
        once = regression(X, y)
        return once, once.problem(len(y))

    def _check(
        self, fit: "RegressionFit | ManyPassesFit", problem: "Problem", solution: "Solution"
    ) -> "list[Check]":
        """The optimum and a constant rate, as predicted and as trained."""
        import numpy as np

        from optlearn._schedule import Schedule
        from optlearn.practice.regression import ManyPassesFit

        schedule = solution.schedule
        mean = float(np.average(schedule["learning_rate"], weights=np.diff(schedule.grid)))
        constant = Schedule.constant(problem.horizon, {"learning_rate": mean})
        schedules = {"optimum": schedule, "its mean rate": constant.with_parameters(**solution.parameters)}
        if not isinstance(fit, ManyPassesFit):
            return fit.check(schedules, self.seeds, self.seed)
        found = []
        for sampling in ("replacement", "shuffle"):
            for check in fit.check(problem, schedules, sampling, self.seeds, self.seed):
                name = check.name if sampling == "replacement" else f"{check.name}, shuffled"
                found.append(check._replace(name=name))
        return found

    def _facts(self, fit: "RegressionFit | ManyPassesFit", solution: "Solution") -> dict[str, Any]:
        """What was measured, and the schedule in the units of a training loop."""
        from optlearn.practice.regression import ManyPassesFit

        rates = fit.learning_rate(solution.schedule["learning_rate"])
        facts = fit.to_dict() | {"learning_rates": [float(rate) for rate in rates]}
        if isinstance(fit, ManyPassesFit):
            facts["weight_decay"] = float(fit.weight_decay(solution.parameters["weight_decay"]))
        return facts


def _show(facts: Mapping[str, Any], checks: "list[Check]", solution: "Solution", out: Path | None) -> None:
    from rich.table import Table

    screen = console()
    noise = "not known (as many weights as samples)" if facts["noise"] is None else f"{facts['noise']:.4g}"
    screen.print(
        f"{facts['samples']} samples of {facts['features']} features (κ = {facts['kappa']:.3g}); largest "
        f"direction {facts['largest']:.2g} of all variance; noise of the labels {noise}"
    )
    screen.print(solution)
    rates = facts["learning_rates"]
    screen.print(
        f"In your own loop, for the loss ½(f − y)²: learning rate from {rates[0]:.4g} to {rates[-1]:.4g}"
        + (f", weight decay {facts['weight_decay']:.4g}" if "weight_decay" in facts else "")
    )
    table = Table(title="Error at the end")
    for heading in ("schedule", "predicted", "trained", "±"):
        table.add_column(heading, justify="left" if heading == "schedule" else "right")
    for check in checks:
        table.add_row(
            check.name, f"{check.predicted:.5g}", f"{check.trained:.5g}", f"{check.standard_error:.1g}"
        )
    screen.print(table)
    if out is not None:
        screen.print(f"{out}: {', '.join(SOLUTION_FILES)}", style="dim")
