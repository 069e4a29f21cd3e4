"""Runs in progress: forecasts hold what comes, decays begin when they should, and callbacks take over."""

import importlib
import json
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from tests.laws.conftest import PEAK, STEPS, WARMUP, curve, rates, true_loss
from tests.laws.test_prior import cut

from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule
from optlearn.laws import Curve, Forecaster, LawWarning, fit, forecast, promising
from optlearn.laws._forecast import _Ahead, planned_rates
from optlearn.laws._law import NAMES, Course, loss_after

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


def test_a_run_of_which_nothing_is_known(found):
    """What a decay gains is guessed within a factor of three, and told from how the run began."""
    alone = forecast(cut(curve("constant"), STEPS // 2), STEPS)
    assert alone.fit.fitter.expected["noise"].spread > 3 * found.fit.fitter.expected["noise"].spread
    assert alone.finals["wsd"].low < decayed(alone.decay.length) < alone.finals["wsd"].high
    assert alone.finals["wsd"].high - alone.finals["wsd"].low > 0.02


def test_plausible_parameters_of_a_lone_run_reach_along_the_valley(monkeypatch):
    """What the noise of a constant run is, and what its floor, is one unknown: chains must walk along it.

    Chains of 80 steps hold what chains of 1,280 do.
    """
    found = fit([cut(curve("constant"), STEPS // 2)], alone=True)
    noise, flat = NAMES.index("noise"), found.data.stepwise(rates("constant"))
    spreads = []
    for steps in (80, 1280):
        monkeypatch.setattr("optlearn.laws._fitted_law.CHAIN", steps)
        drawn = found._draw(48, 1)
        spreads.append(np.log(drawn[:, noise]).std())
        finals = loss_after(drawn, Course.stack([flat]))[:, 0, -1]
        assert finals.std() < 0.01  # whatever the noise, a constant rate goes on as it did
    assert spreads[0] == pytest.approx(spreads[1], rel=0.35)
    assert min(spreads) > 0.25


def test_wrong_forecasts(fitted):
    run = cut(curve("constant"), STEPS // 2)
    for more, message in (
        ({"steps": STEPS // 2}, "steps must exceed the 2000 of the run"),
        ({"steps": 1000 * STEPS}, "steps must be at most 100000: 2000 of them are known, and less than 2 %"),
        ({"plan": [1.0]}, "plan .*must be 4000 rates"),
        ({"level": 2.0}, "level must lie between 0 and 1"),
    ):
        with pytest.raises(SpecificationError, match=message):
            forecast(run, **{"steps": STEPS, "prior": fitted, **more})
    with pytest.raises(SpecificationError, match="must be a single run; others are pilots="):
        forecast([curve("constant"), curve("drop")], 2 * STEPS)


def test_logs_of_every_step_are_thinned(fitted, monkeypatch):
    """Each of 64 draws goes through a few hundred intervals, whose rates are means."""
    lr, done, intervals = rates("wsd"), 3800, []
    dense = Curve("run", np.arange(1.0, done + 1), lr[:done], true_loss(lr)[:done])

    def counted(members, course, *state):
        intervals.append(course.lengths.shape[-1])
        return loss_after(members, course, *state)

    monkeypatch.setattr("optlearn.laws._forecast.loss_after", counted)
    members = fitted.draws(4)
    ahead = _Ahead(fitted, dense, STEPS, members)
    assert max(intervals) < 500
    whole = loss_after(members, Course.stack([fitted.data.stepwise(lr[:done])]))[:, 0, -1]
    np.testing.assert_allclose(ahead.now, whole, rtol=2e-4)


def test_a_plan_of_another_run_is_told(fitted):
    run, plan = cut(curve("constant"), STEPS // 2), rates("wsd")
    with warnings.catch_warnings():
        warnings.simplefilter("error", LawWarning)
        planned = planned_rates(plan, STEPS, run)
    in_steps = Schedule.piecewise(np.arange(STEPS + 1.0), {"learning_rate": plan})
    np.testing.assert_array_equal(planned_rates(in_steps, STEPS, run), planned)
    with pytest.raises(
        SpecificationError, match=r"plan must be 5000 rates .* or a schedule of them in steps"
    ):
        planned_rates(in_steps, STEPS + 1000, run)
    with pytest.warns(LawWarning) as told:
        forecast(run, STEPS, prior=fitted, plan=np.full(STEPS, 5 * PEAK), draws=4)
    said = " ".join(str(each.message) for each in told)
    assert "a rate of 0.005 is beyond the curves" in said
    assert "plan must hold the rates of all steps" in said
    assert "differs from what 'constant' logged by 4" in said


def test_rates_that_were_not_logged():
    """They are read with the losses, before anything else is wrong."""
    run, lr = curve("constant"), rates("constant")
    table, given = {"step": run.step, "loss": run.loss}, {"a": lr, "b": lambda step: PEAK}
    with pytest.raises(SpecificationError, match="steps must exceed the 4000 of the run"):
        forecast({"a": table}, STEPS, rates=given)
    with pytest.raises(SpecificationError, match="plans must be of runs, got c"):
        promising({"a": table, "b": table}, STEPS, rates=given, plans={"c": lr})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"warmup": 1990},
            "warmup must leave at least 3 losses of every curve, but 'constant' ends at step 2",
        ),
        ({"first_step": 1990}, "first_step must leave at least 3 losses .* step 2000, got 1990"),
    ],
)
def test_a_warmup_as_long_as_the_run(options, message):
    with pytest.raises(SpecificationError, match=message):
        forecast(cut(curve("constant"), STEPS // 2), STEPS, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bounds": (0,)}, r"bounds must be rates with 0 ≤ lowest < highest, got \(0,\)"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"switches": 2}, "switches must be left out unless the batch is controlled, batch=.*, got 2"),
        ({"mean_batch": 3.0}, "mean_batch must be left out unless the batch is controlled"),
    ],
)
def test_wrong_problems(fitted, options, message):
    with pytest.raises(SpecificationError, match=message):
        fitted.problem(**options)


def test_a_run_that_ended_at_no_rate_has_nothing_to_decay(fitted):
    done = curve("wsd")
    over = replace(done, rate=np.where(done.step < done.steps, done.rate, 0.0))
    with pytest.raises(SpecificationError, match=r"curve must end at a rate above 0, .*plan=…, got 0"):
        forecast(over, 2 * STEPS, prior=fitted)
    again = forecast(over, 2 * STEPS, prior=fitted, plan=np.full(2 * STEPS, 5e-4))
    assert again.finals["planned"].low < again.finals["planned"].loss < again.finals["constant"].high


def test_a_run_in_its_decay_is_not_told_to_begin_one(fitted):
    """The drop has fallen to a part of the peak, half way."""
    drop = curve("drop")
    done = forecast(drop.until(0.9 * STEPS), STEPS, prior=fitted)
    assert done.fallen_to == pytest.approx(drop.rate[-1] / drop.rate.max())
    assert f"the decay has begun: the rate is {done.fallen_to:.2g} of its peak" in done.summary()
    assert "hold it, and begin the rest of the decay" in done.summary()
    assert done.to_dict()["fallen_to"] == done.fallen_to


def test_logs_may_stand_for_their_fit(fitted, tmp_path):
    """A folder as the prior, for a forecast and for a fit."""
    for name in ("constant", "wsd", "cosine"):
        run = curve(name)
        rows = np.column_stack([run.step, run.rate, run.loss])
        np.savetxt(tmp_path / f"{name}.csv", rows, delimiter=",", header="step,lr,loss", comments="")
    run = cut(curve("constant"), STEPS // 2)
    prior = fit(tmp_path)
    finals = [forecast(run, STEPS, prior=each).finals["wsd"].loss for each in (tmp_path, [prior])]
    assert finals[0] == finals[1]
    assert fit(run, prior=str(tmp_path)).parameters == fit(run, prior=prior).parameters
    with pytest.raises(SpecificationError, match=r"prior must be a fit .* or several, got ..int"):
        forecast(run, STEPS, prior=3)
    for nowhere in ("", str(tmp_path / "nowhere")):
        with pytest.raises(SpecificationError, match=f"there is no such file or folder, got '{nowhere}'"):
            forecast(run, STEPS, prior=nowhere)


def test_a_run_that_leaves_the_law_is_told(fitted):
    """Half of it tells that it rises, where the law still describes the whole to 1 %."""
    run = curve("constant", seed=5).until(STEPS // 2)
    rising = replace(run, loss=run.loss + 1.2e-4 * np.maximum(run.step - 1000, 0))
    with pytest.warns(LawWarning, match=r"first half the present loss .* missed by 3.* %"):
        found = forecast(rising, STEPS, prior=fitted)
    assert not found.fit.doubts
    assert found.doubts[-1] in found.summary()
    assert found.to_dict()["doubts"] == list(found.doubts)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LawWarning)
        assert not forecast(run, STEPS, prior=fitted).doubts


def test_rates_after_the_last_loss_are_part_of_the_run(fitted):
    """Validation losses are rare: a drop after the last one, and the steps since, are known and done."""
    lr = rates("constant")
    lr[STEPS // 2 :] *= 0.2
    losses, later, last = curve("constant", noise=0).until(1800), np.arange(1820.0, 2401, 20), 2400
    found = forecast(
        replace(losses, between=(later, lr[later.astype(int) - 1])), STEPS, prior=fitted, plan=lr
    )
    assert found.done == found.to_dict()["done"] == last
    assert found.now.low < true_loss(lr)[last - 1] < found.now.high
    for name in ("constant", "planned"):
        assert found.finals[name].loss == pytest.approx(true_loss(lr)[-1], rel=2e-3), name
    assert found.schedule().horizon == STEPS - last


def test_a_prior_in_another_unit_is_told(fitted):
    """Noise is told in the unit of the prior's losses."""
    run = cut(curve("constant"), STEPS // 2)
    bits = replace(run, loss=run.loss / np.log(2))
    with pytest.warns(LawWarning, match=r"prior must be of losses in the unit.*'prior: .*same_unit=True"):
        forecast(bits, STEPS, prior=fitted)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LawWarning)
        forecast(bits, STEPS, prior=fitted, same_unit=True)
        forecast(run, STEPS, prior=fitted)


def test_a_training_goes_on_where_no_forecast_can_be_made():
    """Steps without a finite loss count as steps; a loss that explodes is a warning."""
    forecaster, optimizer = Forecaster(400, first=100, every=100, report=None), Optimizer()
    for step in range(1, 200):
        forecaster.step(optimizer, np.nan if step % 10 == 0 else 3.0 + 1 / step)
    assert forecaster.state_dict()["rows"][-1][0] == 199
    forecaster.latest = None
    for step in range(200, 300):
        forecaster.step(optimizer, 3.0 + step)
    with pytest.warns(LawWarning, match="no forecast after step 300: .*diverged"):
        assert forecaster.step(optimizer, 400.0) is None


def test_values_that_are_no_numbers_are_left_out():
    """Of any step; but the steps themselves must be known."""
    forecaster = Forecaster(100, report=None)
    for step, (rate, loss) in enumerate(
        [(PEAK, 3.0), (np.nan, 3.0), (-1.0, 3.0), (None, 3.0), (PEAK, None), (PEAK, "x"), (PEAK, np.inf)], 1
    ):
        assert forecaster.log(step, rate, loss) is None
    assert forecaster.state_dict()["rows"] == [[1, PEAK, 3.0]]
    assert forecaster.state_dict()["done"] == 7
    for step in ("a", np.nan, 1.5, -1, None):
        with pytest.raises(SpecificationError, match="step must be a whole number of steps done, got"):
            forecaster.log(step, PEAK, 3.0)


def test_long_trainings_are_kept_short():
    """Rows of a log of every step are means over equal spans; the last is as it was logged."""
    steps = 9000
    forecaster = Forecaster(2 * steps, first=2 * steps - 1, report=None)
    for step in range(1, steps + 1):
        forecaster.log(step, PEAK * step, 2.0 + 1 / step)
    rows = np.array(forecaster.state_dict()["rows"])
    assert len(rows) <= 4000
    assert np.all(np.diff(rows[:, 0]) > 0)
    np.testing.assert_array_equal(rows[-1], [steps, PEAK * steps, 2.0 + 1 / steps])
    np.testing.assert_allclose(rows[:, 1], PEAK * rows[:, 0], atol=PEAK)
    np.testing.assert_allclose(rows[100:, 2], 2.0 + 1 / rows[100:, 0], rtol=1e-4)


def test_a_frozen_first_group_is_passed_over():
    forecaster, optimizer = Forecaster(100, report=None), SimpleNamespace()
    optimizer.param_groups = [{"lr": 0.0}, {"lr": PEAK}, {"lr": PEAK / 2}]
    forecaster.step(optimizer, 3.0)
    assert forecaster.state_dict()["rows"] == [[1, PEAK, 3.0]]
    forecaster.load_state_dict({**forecaster.state_dict(), "decay": [50, PEAK, 40]})
    forecaster.set_rates(optimizer, 74)
    given = [group["lr"] for group in optimizer.param_groups]
    np.testing.assert_allclose(given, [0.0, 0.51 * PEAK, 0.255 * PEAK])


def test_a_training_that_begins_again_before_its_decay_decides_anew():
    forecaster = Forecaster(100, report=None)
    state = {"rows": [], "done": 60, "next": 60, "decay": [50, PEAK, 40], "given": [PEAK]}
    forecaster.load_state_dict(state)
    forecaster.log(45, PEAK, 3.0)
    assert forecaster.decaying  # after the decision, before the decay
    forecaster.log(30, PEAK, 3.0)
    assert not forecaster.decaying
    assert forecaster.rate(60, PEAK) == PEAK
    assert forecaster.state_dict()["next"] == 40


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({}, "state must be what state_dict gave, got {}"),
        (None, "state must be what state_dict gave, got None"),
        ({"rows": "abc", "next": 1, "decay": None, "given": None}, "state must be what state_dict gave"),
        ({**Forecaster(1000).state_dict(), "steps": 1000}, "steps must be the 1000 of the training that was"),
    ],
)
def test_states_of_something_else(state, message):
    forecaster = Forecaster(100)
    before = forecaster.state_dict()
    with pytest.raises(SpecificationError, match=message):
        forecaster.load_state_dict(state)
    assert forecaster.state_dict() == before
    older = {name: value for name, value in before.items() if name != "steps"}
    forecaster.load_state_dict({**older, "decay": [50, PEAK]})
    assert forecaster.decaying


def test_what_could_never_forecast_is_refused_at_once():
    with pytest.raises(
        SpecificationError, match="first must be below the 100 steps of the training, got 1000"
    ):
        Forecaster(100, first=1000)
    with pytest.raises(SpecificationError, match="there is no file or folder 'nope'"):
        Forecaster(100, pilots="nope")


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


def test_a_run_of_a_few_points(fitted):
    """Seven losses for eleven numbers: what is expected makes up for it."""
    found = forecast(cut(curve("constant"), 320), STEPS, prior=fitted)
    assert len(found.fit.data.losses[0]) == 7
    assert np.isfinite([final for finals in found.finals.values() for final in finals]).all()
    assert found.finals["constant"].low < true_loss(rates("constant"))[-1] < found.finals["constant"].high


@pytest.mark.parametrize("known", [320, 400, 600])
def test_few_losses_and_no_prior(known):
    """Too few to check the law with: intervals are wide, and say why. Of seven, there is no forecast."""
    run = cut(curve("constant"), known)
    if known == 320:
        with pytest.raises(
            SpecificationError, match=r"at least 8 losses from step 20\d? on, or a prior, got 7"
        ):
            forecast(run, STEPS)
        return
    few = forecast(run, STEPS)
    assert any("fewer than 6 losses that count" in doubt for doubt in few.doubts) == (known == 400)
    truth = true_loss(rates("constant"))[-1]
    final = few.finals["constant"]
    assert final.low < truth < final.high
    if known == 400:
        assert final.high - final.low > 2 * 1.96 * 0.02 * np.log2(STEPS / known) * final.loss


def stand_in(monkeypatch, adapter, **names):
    """An adapter over stand-ins of its framework, ``module = {name: class}``, which need not be installed."""
    for module, contents in names.items():
        made = ModuleType(module)
        for name in contents:
            setattr(made, name, type(name, (), {}))
        monkeypatch.setitem(sys.modules, module.replace("__", "."), made)
    monkeypatch.delitem(sys.modules, adapter, raising=False)
    imported = importlib.import_module(adapter)
    monkeypatch.delitem(sys.modules, adapter)
    return imported


def watched(fitted):
    return Forecaster(STEPS, prior=fitted, first=2800, every=400, take_over=True, report=None)


def test_the_calls_of_hugging_face(fitted, monkeypatch):
    module = stand_in(
        monkeypatch, "optlearn.laws._forecast_huggingface",
        transformers=["TrainerCallback"], transformers__trainer_callback=["ExportableState"],
    )  # fmt: skip
    losses, optimizer, state = true_loss(rates("constant")), Optimizer(), SimpleNamespace(global_step=0)
    state.stateful_callbacks = {}
    callback = module.HuggingFaceForecast(watched(fitted))
    for step in range(20, STEPS, 20):
        state.global_step = step
        callback.on_log(None, state, None, {"loss": losses[step - 1], "learning_rate": PEAK})
        callback.on_log(None, state, None, {"eval_loss": 1.0})
        callback.on_step_begin(None, state, None, optimizer=optimizer)
    assert len(callback.forecaster.state_dict()["rows"]) == len(range(20, STEPS, 20))
    assert 0 < optimizer.param_groups[0]["lr"] < 0.1 * PEAK
    again = module.HuggingFaceForecast(watched(fitted))
    state.stateful_callbacks = {"HuggingFaceForecast": callback.state()}
    again.on_train_begin(None, state, None)
    assert again.forecaster.state_dict() == callback.forecaster.state_dict()


def test_the_calls_of_lightning(fitted, monkeypatch):
    module = stand_in(
        monkeypatch, "optlearn.laws._forecast_lightning", lightning=[], lightning__pytorch=["Callback"]
    )
    losses, optimizer = true_loss(rates("constant")), Optimizer()
    callback = module.LightningForecast(watched(fitted), "train_loss")
    trainer = SimpleNamespace(global_step=0, callback_metrics={}, optimizers=[optimizer])
    callback.on_train_batch_end(trainer, None, None, None, 0)  # nothing was logged
    for step in range(20, STEPS, 20):
        callback.on_before_optimizer_step(trainer, None, optimizer)
        trainer.global_step, trainer.callback_metrics = step, {"train_loss": losses[step - 1]}
        callback.on_train_batch_end(trainer, None, None, None, step)
    assert 0 < optimizer.param_groups[0]["lr"] < 0.1 * PEAK
    again = module.LightningForecast(watched(fitted), "train_loss")
    again.load_state_dict(callback.state_dict())
    assert again.forecaster.decaying


KERAS = """
import json, warnings, keras, numpy as np, optlearn as ol
warnings.simplefilter("ignore")
keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)
X = rng.standard_normal((512, 8)).astype("float32")
y = (X @ np.ones((8, 1)) + rng.standard_normal((512, 1))).astype("float32")
model = keras.Sequential([keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.05), loss="mse")
told = []
forecaster = ol.laws.Forecaster(128, first=64, every=32, take_over=True, report=told.append)
model.fit(X, y, batch_size=32, epochs=8, verbose=0, callbacks=[forecaster.to_keras()])
rows = forecaster.state_dict()["rows"]
print(json.dumps([len(rows), rows[-1][1], [f.done for f in told], min(r[2] for r in rows)]))
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("keras") is None, reason="needs the extra keras")
def test_in_keras(tmp_path):
    environment = {**os.environ, "KERAS_BACKEND": "jax", "KERAS_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", KERAS], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    rows, last_rate, told, lowest = json.loads(done.stdout.splitlines()[-1])
    assert rows == 128
    assert told[0] == 64
    assert last_rate < 0.02  # taken over from 0.05
    assert 0.2 < lowest < 2  # losses of batches, not means over an epoch


def test_which_run_will_be_best(fitted):
    """A lower floor shows later than a quick start."""
    run = cut(curve("constant"), STEPS // 2)
    slow = replace(run, name="lower floor", loss=run.loss + 0.3 * (STEPS / 10 / run.step) - 0.1)
    runs = [run, slow, replace(run, name="higher floor", loss=run.loss + 0.1)]
    first, second, third = promising(runs, STEPS, prior=fitted, same_unit=True)
    assert [p.name for p in (first, second, third)] == ["lower floor", "constant", "higher floor"]
    assert first.best > 0.9 > 0.1 > third.best
    assert first.best + second.best + third.best == pytest.approx(1.0)
    with pytest.raises(SpecificationError, match="must be at least 2"):
        promising(run, STEPS, prior=fitted)
    with pytest.raises(SpecificationError, match="plans must be of runs, got other"):
        promising(runs, STEPS, prior=fitted, same_unit=True, plans={"other": rates("wsd")})


def test_runs_that_cannot_be_forecast_come_last(fitted):
    """They say why; a finished one counts with its last loss, and first losses may differ."""
    run = cut(curve("constant"), STEPS // 2)
    over = {"step": run.step * 2, "lr": run.rate, "loss": 1.5 * run.loss}
    bad = {
        "short": replace(run.until(60), name="short"),
        "diverged": {"step": run.step, "lr": run.rate, "loss": np.linspace(3, 30, len(run.step))},
        "lost": {"step": run.step, "lr": run.rate, "loss": np.append(run.loss[:-1], np.nan)},
    }
    with pytest.warns(LawWarning) as told:
        ranked = promising({"over": over, **bad, "constant": run}, STEPS, prior=fitted)
    assert [p.name for p in ranked[:2]] == ["constant", "over"]
    assert {p.name for p in ranked[2:]} == set(bad)
    assert ranked[0].best == 1.0
    assert ranked[1].final.loss == over["loss"][-1]
    assert all(np.isnan(p.final.loss) and p.best == 0.0 for p in ranked[2:])
    said = "\n".join(str(each.message) for each in told)
    for why in (
        "'short', which comes last: forecast: steps must be at most 3000",
        "'diverged', which comes last: curve 'diverged': the run diverged",
        "'lost', which comes last: curve 'lost': loss is nan at step 2000",
        "losses of one network in one unit",
    ):
        assert why in said


def test_plans_are_checked_before_anything_is_fitted(monkeypatch):
    monkeypatch.setattr("optlearn.laws._promising.forecast", None)
    run = cut(curve("constant"), STEPS // 2)
    with pytest.raises(SpecificationError, match="plan must be 4000 rates"):
        promising([run, replace(run, name="b")], STEPS, plans={"b": [1.0]})
