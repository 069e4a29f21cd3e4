"""Least squares on your own data, many passes over it: rate and weight decay, and a check by training."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import Array
from optlearn._control.controls import Continuous, Free
from optlearn._control.problem import Problem
from optlearn._schedule import Schedule
from optlearn._signatures import checked
from optlearn._simulate.finite_data import simulate_finite_data
from optlearn.models._finite_data import FiniteData
from optlearn.models._own_data import OwnData
from optlearn.practice.regression import Check, measured_numbers

# Runs that are trained, and intervals of a schedule.
SEEDS, INTERVALS = 16, 20
HIGHEST_RATE, HIGHEST_DECAY = 0.5, 2.0


@dataclass(frozen=True)
class ManyPassesFit:
    """A linear predictor of labels from features that sees its samples many times. Made by ``many_passes``.

    Attributes:
        model: the data as the theory sees them.
        data: X, y, X_test, y_test, centred by the means of the samples that are trained on.
    """

    model: OwnData
    data: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]

    @property
    def kappa(self) -> float:
        """κ, samples for each weight."""
        return self.model.n / self.model.N

    @property
    def largest(self) -> float:
        """λ₁/tr, the share of the largest direction in all variance."""
        values = np.linalg.svd(self.data[0], compute_uv=False) ** 2
        return float(values[0] / values.sum())

    @property
    def noise(self) -> float | None:
        """σ², variance of what no linear predictor explains; None with too few samples to tell.

        From what least squares leave, divided by the samples that are more than the weights.
        """
        X, y, *_ = self.data
        weights, _, rank, _ = np.linalg.lstsq(X, y, rcond=None)
        spare = len(y) - rank - 1  # the mean was fitted as well
        return float(np.sum((X @ weights - y) ** 2) / spare) if spare > 0 else None

    def to_dict(self) -> dict[str, Any]:
        """What was measured, for JSON."""
        return measured_numbers(self.model.n, self.model.N, self.noise, self.largest)

    def learning_rate(self, eta: Array) -> Array:
        """A rate η of the theory as your own loop takes it, for the loss ½(f − y)²: η / E‖x‖²."""
        return eta / self.model.input_power

    def weight_decay(self, decay: Array) -> Array:
        """A decay λ of the theory as your own loop takes it: λ E‖x‖²/N, times the rate, in each step."""
        return decay * self.model.input_power / self.model.N

    def problem(
        self, passes: float = 10.0, max_rate: float = HIGHEST_RATE, decay: float | None = None
    ) -> Problem:
        """The rate over time, and the best constant weight decay, as a problem for ``solve`` and ``compare``.

        Args:
            passes: how often each sample is seen, on average; steps draw one sample each, with replacement.
            max_rate: largest η.
            decay: the weight decay λ; None: the best constant one.
        """
        check = Arguments("many_passes")
        highest = check.number("max_rate", max_rate, 0.0, open_below=True)
        horizon = check.number("passes", passes, 0.0, open_below=True) * self.kappa
        fixed = {} if decay is None else {"weight_decay": check.number("decay", decay, 0.0)}
        return Problem(
            model=self.model,
            start=self.model.start(),
            horizon=horizon,
            controls={"learning_rate": Continuous(0.0, highest, guess=highest / 8)},
            free={} if fixed else {"weight_decay": Free(0.0, HIGHEST_DECAY, guess=0.1)},
            parameters=fixed,
            intervals=INTERVALS,
            name="many_passes",
        )

    def check(
        self,
        problem: Problem,
        schedules: Mapping[str, Schedule],
        sampling: str = "replacement",
        seeds: int = SEEDS,
        seed: int = 0,
    ) -> list[Check]:
        """Predicted and trained test error at the end, under each of the schedules.

        Args:
            problem: from ``problem``.
            schedules: with their free parameters, if the problem has some.
            sampling: "replacement", as the theory has it, or "shuffle", as most training loops do.
            seeds: runs of each.
            seed: of the random numbers.
        """
        found = []
        for name, schedule in schedules.items():
            predicted = _predicted(problem, schedule)
            runs = simulate_finite_data(
                problem,
                schedule,
                data=self.data,
                seeds=seeds,
                seed=seed,
                sampling=sampling,
                parameters=dict(schedule.parameters),
                record=2,
            )
            ends = runs["test_error"][:, -1]
            error = ends.std(ddof=1) / np.sqrt(seeds) if seeds > 1 else np.nan
            found.append(Check(name, predicted, float(ends.mean()), float(error)))
        return found


def _predicted(problem: Problem, schedule: Schedule) -> float:
    from optlearn._control.evaluate import evaluate

    return float(evaluate(problem, schedule, record=2).objective)


@checked
def many_passes(X: Array, y: Array, test_share: float = 0.2, seed: int = 0) -> ManyPassesFit:
    """Measure what many passes of SGD over the same samples do for a linear predictor of ``y`` from ``X``.

    Some samples are held out, at random, for the test error that schedules minimise.

    Args:
        X: (n, N) inputs or features, a row for each sample; there may be more features than samples.
        y: (n,) labels, any numbers.
        test_share: share of the samples that is held out.
        seed: of the choice.
    """
    check = Arguments("many_passes")
    table, labels = (check.numbers(name, part, np.shape(part)) for name, part in (("X", X), ("y", y)))
    if table.ndim != 2 or len(table) < 4:
        check.fail("X", table, "must be a table of at least 4 samples by features")
    if labels.shape != table.shape[:1]:
        needed = f"must be {len(table)} labels, one for each row of X"
        check.fail("y", labels, needed)
    share = check.number("test_share", test_share, 0.0, 1.0, open_below=True)
    held = min(max(1, round(share * len(table))), len(table) - 2)
    order = np.random.default_rng(check.count("seed", seed, 0)).permutation(len(table))
    train, test = order[held:], order[:held]
    mean, middle = table[train].mean(axis=0), labels[train].mean()
    parts = (table[train] - mean, labels[train] - middle, table[test] - mean, labels[test] - middle)
    return ManyPassesFit(FiniteData.from_data(*parts), parts)
