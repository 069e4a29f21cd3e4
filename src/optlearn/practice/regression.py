"""Least squares on your own data: one pass as the theory predicts it, its schedule, and training."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import Array
from optlearn._control.problem import Problem
from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule
from optlearn._signatures import checked
from optlearn.models._measured import Measured, check_samples, measured
from optlearn.scenarios._least_squares import least_squares

# Runs that are trained side by side, and intervals of a schedule.
SEEDS, INTERVALS = 16, 40


@dataclass(frozen=True)
class RegressionFit:
    """A linear predictor of ``y`` from ``X``: data as the theory sees them. Made by ``regression``.

    Attributes:
        measured: spectrum, teacher and noise.
        X, y: the samples.
    """

    measured: Measured
    X: np.ndarray
    y: np.ndarray

    @property
    def noise(self) -> float:
        """σ², what the best linear predictor leaves: the loss E(f − y)² that no schedule gets below."""
        return self.measured.noise

    @property
    def largest(self) -> float:
        """λ₁/tr, the share of the largest direction in all variance."""
        return self.measured.largest

    def to_dict(self) -> dict[str, Any]:
        """What was measured, for JSON."""
        samples, features = self.X.shape
        return measured_numbers(samples, features, self.noise, self.largest)

    def learning_rate(self, eta: Array) -> Array:
        """A rate η of the theory as your own loop takes it, for the loss ½(f − y)²: η / E‖x‖²."""
        return eta / self.measured.input_power

    def problem(
        self,
        steps: int,
        control: str = "learning_rate",
        max_rate: float = 1.0,
        mean_batch: float = 4.0,
        max_batch: float = 16.0,
        blocks: int = 16,
    ) -> Problem:
        """One pass of ``steps`` steps as a problem for ``solve`` and ``compare``.

        Args:
            steps: of SGD.
            control: what is scheduled: "learning_rate" (with one sample in each step), "batch" or "both".
            max_rate: largest η.
            mean_batch: largest mean of the batch size, if it is scheduled.
            max_batch: largest batch size.
            blocks: that stand for all directions of the data.
        """
        check = Arguments("regression")
        horizon = check.count("steps", steps) / self.measured.directions
        rate = check.number("max_rate", max_rate, 0.0, open_below=True)
        model = self.measured.linear(check.count("blocks", blocks), training=rate * horizon / 2)
        return least_squares(check, model, horizon, control, rate, mean_batch, max_batch, INTERVALS)

    def predict(self, schedule: Schedule) -> np.ndarray:
        """(steps + 1,) excess risk E(f − f*)² along a pass, by the exact recursion in all directions."""
        rates, batches = self._by_step(schedule)
        return self.measured.excess_curve(rates, batches)

    def train(self, schedule: Schedule, seeds: int = SEEDS, seed: int = 0, record: int = 11) -> "Training":
        """Train linear predictors by SGD on the samples, drawn with replacement, from zero weights.

        Args:
            schedule: of ``learning_rate``, and perhaps ``batch``; its horizon is that of the problem.
            seeds: independent runs.
            seed: of the random numbers.
            record: times at which the excess risk is measured, both ends included.
        """
        check = Arguments("train")
        check.count("seeds", seeds), check.count("record", record, 2)
        rates, batches = self._by_step(schedule)
        stops = np.unique(np.round(np.linspace(0, len(rates), record)).astype(int))
        random, fit = np.random.default_rng(seed), self.measured
        table = np.asarray(self.X, dtype=np.float32)
        mean, labels = fit.input_mean.astype(np.float32), (self.y - fit.label_mean).astype(np.float32)
        w = np.zeros((seeds, table.shape[1]), dtype=np.float32)
        found = []
        for step in range(len(rates) + 1):
            if step in stops:
                found.append(self.excess(w))
            if step == len(rates):
                break
            size = int(batches[step] + random.random())
            chosen = random.integers(0, len(table), (seeds, size))
            x = table[chosen] - mean
            residual = np.einsum("sbn,sn->sb", x, w) - labels[chosen]
            w -= np.float32(self.learning_rate(rates[step]) / size) * np.einsum("sb,sbn->sn", residual, x)
        return Training(stops, np.stack(found, axis=1))

    def excess(self, w: Array) -> np.ndarray:
        """(…,) excess risk E(f − f*)² of weights (…, N), over the distribution of the samples."""
        off = (np.asarray(w, dtype=float) - self.measured.weights) @ self.measured.basis
        return np.asarray(off**2 @ self.measured.variances)

    def check(self, schedules: Mapping[str, Schedule], seeds: int = SEEDS, seed: int = 0) -> list["Check"]:
        """Predicted and trained excess risk at the end of a pass under each of the schedules."""
        found = []
        for name, schedule in schedules.items():
            trained = self.train(schedule, seeds, seed, record=2)
            predicted = float(self.predict(schedule)[-1])
            found.append(Check(name, predicted, float(trained.mean[-1]), float(trained.standard_error[-1])))
        return found

    def _by_step(self, schedule: Schedule) -> tuple[np.ndarray, np.ndarray]:
        """(steps,) rate and batch of every step."""
        if "learning_rate" not in schedule.controls:
            raise SpecificationError(
                f"schedule must hold 'learning_rate', got {', '.join(schedule.controls) or 'nothing'}"
            )
        steps = round(schedule.horizon * self.measured.directions)
        index = np.searchsorted(schedule.first_steps(self.measured.directions), np.arange(steps), "right") - 1
        batch = schedule["batch"][index] if "batch" in schedule.controls else np.ones(steps)
        return schedule["learning_rate"][index], batch


def measured_numbers(samples: int, features: int, noise: float | None, largest: float) -> dict[str, Any]:
    """What fits of regressions tell of their data."""
    return {
        "samples": samples,
        "features": features,
        "kappa": samples / features,
        "noise": noise,
        "largest": largest,
    }


class Check(NamedTuple):
    """Theory against training, under one schedule.

    Attributes:
        name: of the schedule.
        predicted: excess risk at the end.
        trained: mean over runs.
        standard_error: of that mean.
    """

    name: str
    predicted: float
    trained: float
    standard_error: float


@dataclass(frozen=True)
class Training:
    """What SGD gave.

    Attributes:
        steps: (T,) when it was measured.
        excess: (seeds, T) excess risk of each run.
    """

    steps: np.ndarray
    excess: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """(T,) over runs."""
        return np.asarray(self.excess.mean(axis=0))

    @property
    def standard_error(self) -> np.ndarray:
        """(T,) of the mean."""
        return np.asarray(self.excess.std(axis=0, ddof=1) / np.sqrt(len(self.excess)))


@checked
def regression(X: Array, y: Array, *, centre: bool = True) -> RegressionFit:
    """Measure what one pass of SGD will do for a linear predictor of ``y`` from ``X``.

    Works on pixels, random features, or embeddings of a network (``np.load("features.npy")``).

    Args:
        X: (n, N) inputs or features, a row for each sample; more samples than features.
        y: (n,) labels, any numbers.
        centre: subtract the means of inputs and labels, as a trained bias would.
    """
    table, labels = check_samples("regression", X, y)
    return RegressionFit(measured(table, labels, centre), table, labels)
