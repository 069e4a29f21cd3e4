"""An Optuna pruner: successive halving by where trials will end, not by where they are."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from optlearn._arguments import Arguments
from optlearn._errors import SpecificationError, missing_extra
from optlearn._signatures import checked
from optlearn.laws._curves import Curve
from optlearn.laws._fit import as_fits
from optlearn.laws._forecast import EARLIEST, Final, forecast
from optlearn.laws._forecaster import LEAST_POINTS

try:
    import optuna
except ModuleNotFoundError as error:
    raise missing_extra("optuna", "laws.ForecastPruner") from error

KNOWN = 200  # steps of a trial at which its rates are asked for, beside those of its losses


class ForecastPruner(optuna.pruners.BasePruner):
    """Stops trials whose forecast final loss is not among the best at a rung (asynchronous halving).

    Losses are those that a trial reports, ``trial.report(loss, step)``. At each rung a trial goes on if its
    forecast is among the best ``1 / factor`` of all that have come so far; the first always does. Trials with
    few losses, or whose losses are no numbers above 0, are left to others.

    Args:
        steps: of the whole training.
        rate: (trial, step) → learning rate after ``step`` steps, for all steps of the training; a trial
            has its ``params``.
        prior: fits of other runs, as in ``laws.fit``.
        rungs: shares of the training at which trials are compared.
        factor: one of so many goes on.
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
        if not reached or (trial.number, reached[-1]) in self.finals:
            return False
        final = self._forecast(trial)
        if final is None:
            return False
        self.finals[trial.number, reached[-1]] = final
        at_rung = sorted(f.loss for (_, rung), f in self.finals.items() if rung == reached[-1])
        return final.loss > at_rung[max(int(len(at_rung) / self.factor), 1) - 1]

    def _forecast(self, trial: "optuna.trial.FrozenTrial") -> Final | None:
        """Where a trial ends under its own rates; None if there is too little to tell from."""
        rows = [(s, x) for s, x in sorted(trial.intermediate_values.items()) if np.isfinite(x) and x > 0]
        if len(rows) < LEAST_POINTS:
            return None
        rates = np.array([float(self.rate(trial, step)) for step in range(self.steps + 1)])
        step, loss = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
        between = np.setdiff1d(np.round(np.linspace(0, step[-1], KNOWN)), step)  # rates are known there too
        rates_there = rates[between.astype(int)]
        run = Curve(
            f"trial {trial.number}", step, rates[step.astype(int)], loss, None, (between, rates_there)
        )
        return forecast(run, self.steps, prior=self.prior, plan=rates[1:]).finals["planned"]
