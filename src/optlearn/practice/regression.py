"""Least squares on your own data: the theory's prediction for SGD, its schedule, and training.

``regression`` is one pass, in which every step sees fresh samples; ``many_passes`` sees the same samples many
times, and weight decay matters as well. Both are checked by training on the data themselves.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Float, Int
from optlearn._control.controls import Continuous, Free
from optlearn._control.evaluate import evaluate
from optlearn._control.problem import Problem
from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule
from optlearn._signatures import checked
from optlearn._simulate.finite_data import simulate_finite_data
from optlearn.models._finite_data import FiniteData, OwnData
from optlearn.models._measured import Measured, check_samples, measured
from optlearn.scenarios._least_squares import least_squares

# Number of runs trained together, and intervals of a schedule for one pass and for many.
SEEDS, INTERVALS, MANY_INTERVALS = 16, 40, 20
HIGHEST_RATE, HIGHEST_DECAY = 0.5, 2.0


class Check(NamedTuple):
    """Theory and training under one schedule.

    Attributes:
        name: name of the schedule.
        predicted: predicted final error: excess risk, or test error for many passes.
        trained: mean of the final error over training runs.
        standard_error: standard error of that mean.
    """

    name: str
    predicted: float
    trained: float
    standard_error: float


@dataclass(frozen=True)
class Training:
    """Training runs of SGD.

    Attributes:
        steps: (T,) steps at which it was measured.
        excess: (seeds, T) excess risk of each run.
    """

    steps: Int[np.ndarray, " T"]
    excess: Float[np.ndarray, "seeds T"]

    @property
    def mean(self) -> Float[np.ndarray, " T"]:
        """Mean over runs."""
        return np.asarray(self.excess.mean(axis=0))

    @property
    def standard_error(self) -> Float[np.ndarray, " T"]:
        """Standard error of the mean."""
        return np.asarray(self.excess.std(axis=0, ddof=1) / np.sqrt(len(self.excess)))


@dataclass(frozen=True)
class RegressionFit:
    """A linear predictor of ``y`` from ``X``: the data as described by the theory. Built by ``regression``.

    Attributes:
        measured: spectrum, teacher and noise.
        X, y: the samples.
    """

    measured: Measured
    X: Float[np.ndarray, "n N"]
    y: Float[np.ndarray, " n"]

    @property
    def noise(self) -> float:
        """σ², the residual variance of the best linear predictor: the lower limit of the loss E(f − y)²."""
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
        """A pass of ``steps`` steps as a problem for ``solve`` and ``compare``.

        Args:
            steps: SGD steps.
            control: what is scheduled: "learning_rate" (with one sample in each step), "batch" or "both".
            max_rate: largest η.
            mean_batch: largest mean of the batch size, if it is scheduled.
            max_batch: largest batch size.
            blocks: number of blocks that represent all directions of the data.
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

    def train(self, schedule: Schedule, seeds: int = SEEDS, seed: int = 0, record: int = 11) -> Training:
        """Train linear predictors by SGD on the samples, drawn with replacement, from zero weights.

        Args:
            schedule: schedule of ``learning_rate`` and optionally ``batch``, with the problem's horizon.
            seeds: number of independent runs.
            seed: seed of the random numbers.
            record: number of times at which the excess risk is measured, including both ends.
        """
        check = Arguments("train")
        check.count("seeds", seeds), check.count("record", record, 2)
        rates, batches = self._by_step(schedule)
        stops = np.unique(np.round(np.linspace(0, len(rates), record)).astype(int))
        random, fit = np.random.default_rng(seed), self.measured
        # In single precision, as networks are trained; the excess risk is measured in double.
        table = np.asarray(self.X, dtype=np.float32)
        mean, labels = fit.input_mean.astype(np.float32), (self.y - fit.label_mean).astype(np.float32)
        w = np.zeros((seeds, table.shape[1]), dtype=np.float32)
        excess = []
        for step in range(len(rates) + 1):
            if step in stops:
                excess.append(self.excess(w))
            if step == len(rates):
                break
            # A batch size between two whole numbers is rounded at random, and correct on average.
            size = int(batches[step] + random.random())
            chosen = random.integers(0, len(table), (seeds, size))
            x = table[chosen] - mean
            residual = np.einsum("sbn,sn->sb", x, w) - labels[chosen]
            w -= np.float32(self.learning_rate(rates[step]) / size) * np.einsum("sb,sbn->sn", residual, x)
        return Training(stops, np.stack(excess, axis=1))

    def excess(self, w: Array) -> np.ndarray:
        """(…,) excess risk E(f − f*)² of weights (…, N), over the distribution of the samples."""
        off = (np.asarray(w, dtype=float) - self.measured.weights) @ self.measured.basis
        return np.asarray(off**2 @ self.measured.variances)

    def check(self, schedules: Mapping[str, Schedule], seeds: int = SEEDS, seed: int = 0) -> list[Check]:
        """Predicted and trained final excess risk of a pass under each of the schedules."""
        checks = []
        for name, schedule in schedules.items():
            trained = self.train(schedule, seeds, seed, record=2)
            predicted = float(self.predict(schedule)[-1])
            checks.append(Check(name, predicted, float(trained.mean[-1]), float(trained.standard_error[-1])))
        return checks

    def _by_step(self, schedule: Schedule) -> tuple[Float[np.ndarray, " steps"], Float[np.ndarray, " steps"]]:
        """Rate and batch of every step."""
        if "learning_rate" not in schedule.controls:
            raise SpecificationError(
                f"schedule must hold 'learning_rate', got {', '.join(schedule.controls) or 'nothing'}"
            )
        steps = round(schedule.horizon * self.measured.directions)
        index = np.searchsorted(schedule.first_steps(self.measured.directions), np.arange(steps), "right") - 1
        batch = schedule["batch"][index] if "batch" in schedule.controls else np.ones(steps)
        return schedule["learning_rate"][index], batch


@dataclass(frozen=True)
class ManyPassesFit:
    """A linear predictor of labels from features, trained in many passes. Built by ``many_passes``.

    Attributes:
        model: the data as described by the theory.
        data: X, y, X_test, y_test, centred by the means of the training samples.
    """

    model: OwnData
    data: tuple[
        Float[np.ndarray, "n N"], Float[np.ndarray, " n"], Float[np.ndarray, "m N"], Float[np.ndarray, " m"]
    ]

    @property
    def kappa(self) -> float:
        """κ, samples per weight."""
        return self.model.n / self.model.N

    @property
    def largest(self) -> float:
        """λ₁/tr, the share of the largest direction in all variance."""
        values = np.linalg.svd(self.data[0], compute_uv=False) ** 2
        return float(values[0] / values.sum())

    @property
    def noise(self) -> float | None:
        """σ², the variance that no linear predictor explains; None with too few samples to estimate it.

        The residual sum of squares divided by the degrees of freedom.
        """
        X, y, *_ = self.data
        weights, _, rank, _ = np.linalg.lstsq(X, y, rcond=None)
        freedom = len(y) - rank - 1  # the mean is fitted too
        return float(np.sum((X @ weights - y) ** 2) / freedom) if freedom > 0 else None

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
            passes: average number of times that each sample is seen; each step draws one sample, with
                replacement.
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
            intervals=MANY_INTERVALS,
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
        """Predicted and trained final test error under each of the schedules.

        Args:
            problem: a problem from ``problem``.
            schedules: schedules, with free parameters if the problem has any.
            sampling: "replacement", as in the theory, or "shuffle", as in most training loops.
            seeds: number of runs under each schedule.
            seed: seed of the random numbers.
        """
        options: dict[str, Any] = {"data": self.data, "seeds": seeds, "seed": seed, "sampling": sampling}
        checks = []
        for name, schedule in schedules.items():
            predicted = float(evaluate(problem, schedule, record=2).objective)
            free = dict(schedule.parameters)
            runs = simulate_finite_data(problem, schedule, parameters=free, record=2, **options)
            ends = runs["test_error"][:, -1]
            error = ends.std(ddof=1) / np.sqrt(seeds) if seeds > 1 else np.nan
            checks.append(Check(name, predicted, float(ends.mean()), float(error)))
        return checks


@checked
def regression(X: Array, y: Array, *, centre: bool = True) -> RegressionFit:
    """Measure the data's statistics that determine one pass of SGD on a linear predictor of ``y`` from ``X``.

    Works on pixels, random features, or embeddings of a network (``np.load("features.npy")``).

    Args:
        X: (n, N) inputs or features, a row for each sample; more samples than features.
        y: (n,) labels, any numbers.
        centre: subtract the means of inputs and labels, as a trained bias would.
    """
    table, labels = check_samples("regression", X, y)
    return RegressionFit(measured(table, labels, centre), table, labels)


@checked
def many_passes(X: Array, y: Array, test_share: float = 0.2, seed: int = 0) -> ManyPassesFit:
    """Measure the statistics that determine many passes of SGD on a linear predictor of ``y`` from ``X``.

    Random samples are held out for the test error that schedules minimise.

    Args:
        X: (n, N) inputs or features, a row for each sample; there may be more features than samples.
        y: (n,) labels, any numbers.
        test_share: share of held-out samples; at least one is held out, and at least 2 are trained on.
        seed: seed of the choice.
    """
    check = Arguments("many_passes")
    table, labels = (check.numbers(name, part, np.shape(part)) for name, part in (("X", X), ("y", y)))
    if table.ndim != 2 or len(table) < 4:
        check.fail("X", table, "must be a table of at least 4 samples by features")
    if labels.shape != table.shape[:1]:
        check.fail("y", labels, f"must be {len(table)} labels, one for each row of X")
    held = max(1, round(check.number("test_share", test_share, 0.0, 1.0, open_below=True) * len(table)))
    if held > len(table) - 2:
        check.fail("test_share", test_share, f"must leave at least 2 of {len(table)} samples to train on")
    order = np.random.default_rng(check.count("seed", seed, 0)).permutation(len(table))
    train, test = order[held:], order[:held]
    mean, middle = table[train].mean(axis=0), labels[train].mean()
    parts = (table[train] - mean, labels[train] - middle, table[test] - mean, labels[test] - middle)
    return ManyPassesFit(FiniteData.from_data(*parts), parts)


def measured_numbers(samples: int, features: int, noise: float | None, largest: float) -> dict[str, Any]:
    """Measurements common to both kinds of fit, for JSON."""
    sizes = {"samples": samples, "features": features, "kappa": samples / features}
    return sizes | {"noise": noise, "largest": largest}
