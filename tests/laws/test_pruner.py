"""Optuna's trials, stopped by where they will end."""

import numpy as np
import pytest

optuna = pytest.importorskip("optuna")

from optlearn._errors import SpecificationError  # noqa: E402
from optlearn.laws import ForecastPruner, LawWarning  # noqa: E402

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


def pruned(pruner, losses, every=10):
    """What is decided on a trial after the last of its losses."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    trial = optuna.create_study(pruner=pruner).ask()
    for i, loss in enumerate(losses, 1):
        trial.report(loss, every * i)
    return trial.should_prune()


def test_trials_that_diverge_are_pruned(monkeypatch):
    """From the first rung on, forecast or not."""
    monkeypatch.setattr("optlearn.laws._pruner.forecast", None)
    pruner = ForecastPruner(STEPS, lambda trial, step: 1e-3, rungs=(0.4,))
    falling = 2 + 2 / np.sqrt(np.arange(10.0, 161, 10))
    assert pruned(pruner, [*falling[:-1], np.nan])
    assert pruned(pruner, [*falling[:-4], *(10 * falling[-4:])])
    assert not pruned(pruner, [*falling[:5], np.nan])  # before the rung
    assert not pruned(pruner, falling[::4], every=40)  # of four losses


def test_a_trial_that_cannot_be_forecast_goes_on():
    falling = 2 + 2 / np.sqrt(np.arange(10.0, 161, 10))
    with pytest.warns(
        LawWarning, match="no forecast of trial 0, which goes on: curves: rates must not all be"
    ):
        assert not pruned(ForecastPruner(STEPS, lambda trial, step: 0.0), falling)
    for wrong in (None, np.nan, -1.0, "x"):
        pruner = ForecastPruner(STEPS, lambda trial, step, wrong=wrong: 1e-3 if step < 50 else wrong)
        with pytest.raises(
            SpecificationError, match=r"rate must return .* \(here of trial 0 at step 50\), got"
        ):
            pruned(pruner, falling)


def test_rates_of_long_trainings_are_asked_for_now_and_then(monkeypatch):
    plans, asked = [], []

    def noted(run, steps, *, prior, plan):
        plans.append(plan)
        raise SpecificationError("that is enough")

    monkeypatch.setattr("optlearn.laws._pruner.forecast", noted)
    pruner = ForecastPruner(10**6, lambda trial, step: asked.append(step) or 1e-9 * step)
    with pytest.warns(LawWarning, match="that is enough"):
        pruned(pruner, np.linspace(3, 2, 30), every=10**4)
    assert len(asked) <= 2000
    np.testing.assert_allclose(plans[0], 1e-9 * np.arange(1, 10**6 + 1))
