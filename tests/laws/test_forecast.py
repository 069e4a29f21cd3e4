"""Runs in progress: forecasts hold what comes, decays begin when they should, and callbacks take over."""

import numpy as np
import pytest
from tests.laws.conftest import PEAK, STEPS, WARMUP, curve, rates, true_loss
from tests.laws.test_prior import cut

from optlearn._errors import SpecificationError
from optlearn.laws import Forecaster, LawWarning, forecast

pytestmark = pytest.mark.filterwarnings("ignore::optlearn.laws.LawWarning")


def decayed(length, steps=STEPS):
    """Final loss of the true law after a linear decay to 0 over the last ``length`` steps."""
    left = np.maximum(steps - np.arange(steps) - 0.5, 0)
    return true_loss(np.minimum(rates("constant", steps), PEAK * np.minimum(1, left / length)))[-1]


@pytest.fixture(scope="module")
def found(fitted):
    return forecast(cut(curve("constant"), STEPS // 2), STEPS, prior=fitted, plan=rates("wsd"))


def test_final_losses(found):
    left = np.arange(STEPS) - STEPS // 2 + 0.5
    share = np.clip(left / (STEPS // 2), 0, 1)
    constant = rates("constant")
    truths = {
        "constant": true_loss(constant)[-1],
        "linear": true_loss(constant * (1 - share))[-1],
        "cosine": true_loss(constant * (1 + np.cos(np.pi * share)) / 2)[-1],
        "planned": true_loss(rates("wsd"))[-1],
        "wsd": decayed(found.decay.length),
    }
    assert set(found.finals) == set(truths)
    for name, truth in truths.items():
        assert found.finals[name].low < truth < found.finals[name].high, name
        assert found.finals[name].loss == pytest.approx(truth, rel=4e-3), name
    assert found.now.low < true_loss(constant)[STEPS // 2 - 1] < found.now.high


def test_the_decay_is_as_good_as_the_best_length(found):
    lengths = np.geomspace(100, STEPS / 2, 12)
    best = min(decayed(length) for length in lengths)
    assert decayed(found.decay.length) == pytest.approx(best, rel=1e-3)
    assert found.decay.earliest <= found.decay.start <= found.decay.latest
    assert found.decay.start + found.decay.length == STEPS
    schedule = found.schedule()
    assert schedule.horizon == STEPS - STEPS // 2
    assert schedule["learning_rate"][0] == pytest.approx(PEAK)
    assert schedule["learning_rate"][-1] < 0.1 * PEAK
    assert f"begin the decay at step {found.decay.start}" in found.summary()
    assert found.to_dict()["decay"]["length"] == found.decay.length


def test_a_run_without_anything_known_has_wide_intervals(found):
    alone = forecast(cut(curve("constant"), STEPS // 2), STEPS)
    widths = [f.finals["wsd"].high - f.finals["wsd"].low for f in (alone, found)]
    assert widths[0] > 2 * widths[1]
    assert alone.finals["wsd"].low < decayed(alone.decay.length) < alone.finals["wsd"].high


def test_wrong_forecasts(fitted):
    run = cut(curve("constant"), STEPS // 2)
    for more, message in (
        ({"steps": STEPS // 2}, "steps must exceed the 2000 of the run"),
        ({"steps": 1000 * STEPS}, "at least 2 % of them"),
        ({"plan": [1.0]}, "plan .*must be 4000 rates"),
        ({"level": 2.0}, "level must lie between 0 and 1"),
    ):
        with pytest.raises(SpecificationError, match=message):
            forecast(run, **{"steps": STEPS, "prior": fitted, **more})
    with pytest.raises(SpecificationError, match="must be a single run; others are pilots="):
        forecast([curve("constant"), curve("drop")], 2 * STEPS)


class Optimizer:
    """What a loop of PyTorch has of one."""

    def __init__(self):
        self.param_groups = [{"lr": PEAK}, {"lr": PEAK / 10}]


def followed(forecaster, optimizer, losses, first, last):
    """Rates of the steps from ``first`` to ``last``, each after the last."""
    used = []
    for step in range(first, last):
        used.append(optimizer.param_groups[0]["lr"])
        # A log every 20 steps, as of a loss on held-out data; rates are set after every step.
        if (step + 1) % 20 == 0:
            forecaster.step(optimizer, losses[step], step + 1)
        else:
            forecaster.set_rates(optimizer, step + 1)
    return used


def test_a_forecaster_takes_over_and_resumes(fitted):
    losses, told = true_loss(rates("constant")), []
    made = {"prior": fitted, "first": 1600, "every": 600, "take_over": True, "report": told.append}
    whole, optimizer = Forecaster(STEPS, **made), Optimizer()
    used = followed(whole, optimizer, losses, WARMUP, STEPS)
    assert whole.decaying
    start = next(i for i, rate in enumerate(used) if rate < PEAK) + WARMUP
    assert abs(start - told[-1].decay.start) <= 600
    assert np.all(np.diff(used) <= 1e-15)
    assert used[-1] < 0.01 * PEAK
    assert optimizer.param_groups[1]["lr"] == pytest.approx(optimizer.param_groups[0]["lr"] / 10)
    # Stopped in the middle of the decay, and resumed from a checkpoint.
    middle = (start + STEPS) // 2
    first, optimizer = Forecaster(STEPS, **made), Optimizer()
    before = followed(first, optimizer, losses, WARMUP, middle)
    again = Forecaster(STEPS, **made)
    again.load_state_dict(first.state_dict())
    after = followed(again, optimizer, losses, middle, STEPS)
    np.testing.assert_allclose(before + after, used)


def test_a_forecaster_that_only_watches(fitted):
    losses, told = true_loss(rates("constant")), []
    forecaster = Forecaster(STEPS, prior=fitted, first=2000, every=1500, report=told.append)
    optimizer = Optimizer()
    used = followed(forecaster, optimizer, losses, WARMUP, 3700)
    assert set(used) == {PEAK}
    assert [f.done for f in told] == [2000, 3500]
    assert forecaster.log(3720, PEAK, float("nan")) is None  # says nothing
    assert forecaster.rate(3720, 5.0) == 5.0
    with pytest.raises(SpecificationError, match="at least 12 losses, got 0"):
        Forecaster(STEPS).forecast()
    assert issubclass(LawWarning, UserWarning)


def test_in_keras(fitted):
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse")
    X = np.random.default_rng(0).standard_normal((256, 4)).astype("float32")
    y = (X @ np.ones((4, 1)) + 0.5 * np.random.default_rng(1).standard_normal((256, 1))).astype("float32")
    told = []
    forecaster = Forecaster(64, prior=fitted, first=40, every=8, take_over=True, report=told.append)
    model.fit(X, y, batch_size=32, epochs=8, verbose=0, callbacks=[forecaster.to_keras()])
    assert told
    assert told[0].done == 40
    assert len(forecaster.state_dict()["rows"]) == 64
    if forecaster.decaying:
        assert float(model.optimizer.learning_rate) < 0.05
