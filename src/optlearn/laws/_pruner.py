"""An Optuna pruner: successive halving by forecast final losses, not by present ones."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from optlearn._arguments import Arguments
from optlearn._errors import SpecificationError, missing_extra, warn
from optlearn._signatures import checked
from optlearn.laws._curves import UNITS, Curve, LawWarning, as_rates, best_and_last
from optlearn.laws._fit import as_fits
from optlearn.laws._forecast import EARLIEST, Final, forecast
from optlearn.laws._forecaster import LEAST_POINTS

try:
    import optuna
except ModuleNotFoundError as error:
    raise missing_extra("optuna", "laws.ForecastPruner") from error

KNOWN = 200  # steps of a trial at which its rates are passed on, beside those of its losses
ASKED = 2000  # steps of the training at which ``rate`` is called


class ForecastPruner(optuna.pruners.BasePruner):
    """Stops trials whose forecast final loss is not among the best at a rung (asynchronous halving).

    Losses are those that a trial reports, ``trial.report(loss, step)``. At each rung a trial goes on if its
    forecast is among the best ``1 / factor`` of all that have come so far; the first always does. From the
    first rung on, trials that diverge are stopped: those whose last loss is not finite, or above four times
    their lowest. Trials with few losses, or with losses that are not above 0, are not pruned; one that cannot
    be forecast goes on, with a warning.

    Args:
        steps: of the whole training.
        rate: (trial, step) → learning rate after ``step`` steps, for all steps of the training; a trial
            has its ``params``. It is called at 2,000 steps at most; in between rates are interpolated.
        prior: fits of other runs, as in ``laws.fit``.
        rungs: shares of the training at which trials are compared.
        factor: one in so many trials goes on.
    """

    @checked
    def __init__(
        self,
        steps: int,
        rate: Callable[[Any, int], float],
        *,
        prior: Any = None,
        rungs: Sequence[float] = (0.2, 0.4, 0.6),
        factor: float = 2.0,
    ) -> None:
        check = Arguments("ForecastPruner")
        check.count("steps", steps)
        check.number("factor", factor, 1.0, open_below=True)
        shares = np.sort(check.numbers("rungs", list(rungs)))
        if not len(shares) or shares[0] < EARLIEST or shares[-1] >= 1:
            check.fail("rungs", list(rungs), f"must be shares from {EARLIEST:g} to below 1")
        self.steps, self.rate, self.prior, self.factor = steps, rate, as_fits(prior), factor
        self.rungs: list[float] = shares.tolist()
        self.finals: dict[tuple[int, float], Final] = {}

    @override
    def prune(self, study: "optuna.Study", trial: "optuna.trial.FrozenTrial") -> bool:
        if study.direction != optuna.study.StudyDirection.MINIMIZE:
            raise SpecificationError("ForecastPruner: study must minimise, since what is forecast is a loss")
        if trial.last_step is None or trial.last_step >= self.steps:
            return False
        reached = [rung for rung in self.rungs if trial.last_step >= rung * self.steps]
        if not reached:
            return False
        if _diverged(trial):
            return True
        if (trial.number, reached[-1]) in self.finals:
            return False
        final = self._forecast(trial)
        if final is None:
            return False
        self.finals[trial.number, reached[-1]] = final
        at_rung = sorted(f.loss for (_, rung), f in self.finals.items() if rung == reached[-1])
        return final.loss > at_rung[max(int(len(at_rung) / self.factor), 1) - 1]

    def _forecast(self, trial: "optuna.trial.FrozenTrial") -> Final | None:
        """The forecast final loss of a trial under its own rates; None if there is no forecast."""
        rows = [(s, x) for s, x in sorted(trial.intermediate_values.items()) if np.isfinite(x) and x > 0]
        if len(rows) < LEAST_POINTS:
            return None
        rates = self._rates(trial)
        step, loss = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
        between = np.setdiff1d(np.round(np.linspace(0, step[-1], KNOWN)), step)  # more rates there
        rates_there = rates[between.astype(int)]
        run = Curve(
            f"trial {trial.number}", step, rates[step.astype(int)], loss, None, (between, rates_there)
        )
        try:
            return forecast(run, self.steps, prior=self.prior, plan=rates[1:]).finals["planned"]
        except SpecificationError as error:
            warn(f"no forecast of trial {trial.number}, which goes on: {error}", LawWarning)
            return None

    def _rates(self, trial: "optuna.trial.FrozenTrial") -> np.ndarray:
        """(steps + 1,) rates of a trial."""
        asked = np.unique(np.rint(np.linspace(0, self.steps, ASKED)).astype(int))
        returned = [self.rate(trial, step) for step in asked.tolist()]
        rates = as_rates(returned)
        if rates is None:
            i = next(i for i, rate in enumerate(returned) if as_rates([rate]) is None)
            allowed = f"must return a rate of at least 0 (here of trial {trial.number} at step {asked[i]})"
            Arguments("ForecastPruner").fail("rate", returned[i], allowed)
        return np.interp(np.arange(self.steps + 1), asked, rates)


def _diverged(trial: "optuna.trial.FrozenTrial") -> bool:
    """Whether the last loss of a trial is not finite, or far above its lowest."""
    losses = np.array([loss for _, loss in sorted(trial.intermediate_values.items())])
    if not np.isfinite(losses[-1]):
        return True
    best, last = best_and_last(losses[np.isfinite(losses)])
    return last > UNITS * best > 0
