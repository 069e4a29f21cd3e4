"""Optuna's trials, stopped by where they will end."""

import numpy as np
import pytest

optuna = pytest.importorskip("optuna")

from optlearn._errors import SpecificationError  # noqa: E402
from optlearn.laws import ForecastPruner  # noqa: E402

STEPS = 400


def test_a_trial_that_begins_slowly_and_ends_best_is_kept():
    """Losses of trials 0 to 2 are the lowest at the first rung, that of trial 3 at the end."""
    floors = [(2.4, 1.0), (2.5, 1.0), (2.6, 1.0), (2.0, 4.0), (3.0, 1.0)]
    pruner = ForecastPruner(STEPS, lambda trial, step: 1e-3, rungs=(0.4,))

    def objective(trial):
        floor, size = floors[trial.number]
        for step in range(10, STEPS + 1, 10):
            trial.report(floor + size * 2 / np.sqrt(step), step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return floor + size * 2 / np.sqrt(STEPS)

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(pruner=pruner)
    study.optimize(objective, n_trials=len(floors))
    states = [trial.state.name for trial in study.trials]
    at_rung = [floor + size * 2 / np.sqrt(160) for floor, size in floors]
    assert at_rung[3] > at_rung[0]
    assert states[0] == states[3] == "COMPLETE"
    assert states[4] == "PRUNED"
    assert study.best_trial.number == 3


def test_what_is_refused():
    with pytest.raises(SpecificationError, match="rungs"):
        ForecastPruner(STEPS, lambda trial, step: 1e-3, rungs=(1.0,))
    with pytest.raises(SpecificationError, match="factor"):
        ForecastPruner(STEPS, lambda trial, step: 1e-3, factor=1.0)
    study = optuna.create_study(direction="maximize", pruner=ForecastPruner(STEPS, lambda trial, step: 1e-3))
    trial = study.ask()
    trial.report(1.0, 100)
    with pytest.raises(SpecificationError, match="must minimise"):
        trial.should_prune()
