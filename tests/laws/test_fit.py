"""Fits recover a law that is known, say how well, and refuse what says nothing."""

import time
import warnings
from dataclasses import replace

import numpy as np
import pytest
from tests.laws.conftest import PEAK, STEPS, TRUTH, curve, rates, true_loss

from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule
from optlearn.laws import Curve, LawWarning, fit, next_pilot
from optlearn.laws._fitted_law import METRICS
from optlearn.laws._law import NAMES

# Of the published multi-power law, fitted to the same three curves: R2, MAE, RMSE, PredE, WorstE.
PUBLISHED = {
    "25M": (0.9988, 0.00376, 0.00465, 0.00110, 0.00409),
    "100M": (0.9983, 0.00435, 0.00592, 0.00142, 0.00583),
}
TRAIN = ("cosine_24000", "constant_24000", "wsdcon_9")
TEST = (
    "constant_72000", "cosine_72000", "wsd_20000_24000", "wsdld_20000_24000", "wsdcon_3", "wsdcon_18",
)  # fmt: skip


def test_predicts_schedules_that_were_not_fitted(fitted):
    for name in ("wsd", "linear"):
        predicted, truth = fitted.predict(rates(name)), true_loss(rates(name))
        np.testing.assert_allclose(predicted[400:], truth[400:], rtol=2e-3)
        low, high = fitted.interval(rates(name), level=0.99)
        assert low[-1] < truth[-1] < high[-1]
        assert high[-1] - low[-1] < 0.02


def test_parameters_with_their_errors(fitted):
    for name in ("floor", "amplitude", "exponent", "noise", "speed"):
        off = abs(fitted.parameters[name] - TRUTH[name])
        assert off < 4 * fitted.standard_errors[name], name
    assert fitted.point_noise == pytest.approx(1e-3, rel=0.15)
    assert fitted.doubts == ()
    draws = fitted.draws(200)
    assert draws.shape == (200, len(NAMES))
    floor = NAMES.index("floor")
    assert draws[:, floor].std() == pytest.approx(fitted.standard_errors["floor"], rel=0.6)
    np.testing.assert_array_equal(draws[0], fitted.optimum.parameters)


def test_metrics_are_what_they_say():
    measured = Curve("m", np.array([1.0, 2, 3]), np.full(3, PEAK), np.array([2.0, 4.0, 8.0]))
    from optlearn.laws._fitted_law import _metrics

    found = _metrics(measured.loss, np.array([2.0, 5.0, 8.0]))
    expected = (1 - 1 / ((measured.loss - 14 / 3) ** 2).sum(), 1 / 3, np.sqrt(1 / 3), 0.25 / 3, 0.25)
    assert tuple(found) == METRICS
    np.testing.assert_allclose(list(found.values()), expected)


def test_a_curve_is_predicted_at_its_own_steps(fitted):
    logged = curve("wsd", noise=0)
    # Rates between logged steps are interpolated, so this is less exact than a rate for every step.
    exact = fitted.predict(rates("wsd"))[logged.step.astype(int) - 1]
    np.testing.assert_allclose(fitted.predict(logged)[20:], exact[20:], rtol=3e-4)
    frame = {"step": logged.step, "lr": logged.rate}
    np.testing.assert_array_equal(fitted.predict(frame), fitted.predict(logged))
    errors = fitted.errors({"wsd": logged})
    assert errors["R2"] > 0.999
    assert errors["WorstE"] < 5e-3


def test_rates_between_seldom_losses_count(fitted):
    """A drop between two losses that are 200 steps apart is known to the step where rates are logged."""
    full = curve("drop", noise=0)
    seldom, others = full.step % 200 == 60, full.step % 200 != 60
    exact = fitted.predict(rates("drop"))[full.step[seldom].astype(int) - 1]
    alone = Curve("alone", full.step[seldom], full.rate[seldom], full.loss[seldom])
    informed = replace(alone, between=(full.step[others], full.rate[others]))
    off = [np.abs(fitted.predict(c) / exact - 1)[1:].max() for c in (alone, informed)]
    assert off[1] < 1e-3 < 3e-3 < off[0]


def test_leave_one_out_and_bootstrap(fitted):
    errors = fitted.leave_one_out()
    assert set(errors) == {"constant", "cosine", "drop", "half"}
    assert max(e["PredE"] for e in errors.values()) < 5e-3
    again = fitted.bootstrap(3)
    assert again.shape == (3, len(NAMES))
    assert again[:, NAMES.index("floor")].std() > 0


def test_an_unlogged_warmup():
    late = [
        Curve(c.name, c.step[keep], c.rate[keep], c.loss[keep])
        for c in (curve(name, noise=0) for name in ("constant", "cosine", "drop"))
        if (keep := c.step >= 220) is not None
    ]
    known = {"relaxation_power": TRUTH["relaxation_power"]}  # far from what is expected
    with_warmup = fit(late, warmup=200, fixed=known)
    np.testing.assert_allclose(with_warmup.predict(rates("wsd"))[-1], true_loss(rates("wsd"))[-1], rtol=1e-3)
    with pytest.warns(LawWarning, match=r"logs begin at step 220; .*warmup="):
        fit(late)


def test_special_cases_fix_exponents():
    sgd = fit([curve(name) for name in ("constant", "cosine", "drop")], law="sgd", starts=1)
    assert sgd.parameters["relaxation_power"] == sgd.parameters["progress_power"] == 1.0
    assert sgd.standard_errors["progress_power"] == 0.0
    assert "(fixed)" in sgd.summary()
    with pytest.raises(SpecificationError, match="law must be one of general, multi-power, sgd, momentum"):
        fit([curve("constant"), curve("drop")], law="cubic")
    with pytest.raises(SpecificationError, match="fixed must name parameters"):
        fit([curve("constant"), curve("drop")], fixed={"kappa": 1})


def test_batch_sizes_are_part_of_the_noise():
    curves = []
    for name, batch in (("constant", 1.0), ("cosine", 1.0), ("drop", 1.0), ("constant", 4.0)):
        plain = curve(name, noise=0)
        loss = true_loss(rates(name), batch)[plain.step.astype(int) - 1]
        curves.append(Curve(f"{name} {batch}", plain.step, plain.rate, loss, np.full(len(loss), 32 * batch)))
    found = fit(curves)
    assert found.errors(curves)["WorstE"] < 2e-3
    with pytest.raises(SpecificationError, match="batch must be logged in all curves or in none"):
        fit([*curves, curve("half")])


@pytest.mark.parametrize(
    ("curves", "message"),
    [
        ([curve("constant")], "at least 2 with different rates, got 1.*cannot be told from what time does"),
        ([curve("constant", seed=i, steps=s) for i, s in enumerate((4000, 4000))], "different names"),
        (
            [curve("constant"), replace(curve("drop"), loss=curve("drop").loss / np.log(2))],
            "one unit, but 'constant' has .* at step 50 .*bits are nats × 1.44.*same_unit=True",
        ),
        (
            [curve("constant"), replace(curve("constant", seed=1), name="again")],
            "must differ in their rates, .*noise, speed, shape and the powers cannot be identified",
        ),
    ],
)  # fmt: skip
def test_curves_that_say_too_little(curves, message):
    with pytest.raises(SpecificationError, match=message):
        fit(curves)


def test_a_law_that_does_not_describe_the_curves():
    odd = curve("drop", noise=0)
    bump = Curve("bump", odd.step, odd.rate, odd.loss * (1 + 0.05 * np.sin(odd.step / 200)))
    with pytest.warns(LawWarning, match=r"misses curve 'bump' by \d.* % of the loss beyond its noise"):
        fit([curve("constant"), curve("cosine"), bump], starts=1)


@pytest.mark.parametrize("size", list(PUBLISHED))
def test_language_models(language_models, size):
    files = {name: language_models / size / f"{name}.csv" for name in (*TRAIN, *TEST)}
    began = time.process_time()
    found = fit({name: files[name] for name in TRAIN}, warmup=2160)
    assert time.process_time() - began < 10
    errors = found.errors({name: files[name] for name in TEST})
    better = sum(
        (errors[m] > p) if m == "R2" else (errors[m] < p)
        for m, p in zip(METRICS, PUBLISHED[size], strict=True)
    )
    assert better >= {"25M": 4, "100M": 5}[size]
    assert errors["R2"] > 0.95 * PUBLISHED[size][0]
    assert all(errors[m] < 1.05 * p for m, p in zip(METRICS[1:], PUBLISHED[size][1:], strict=True))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: f.predict([PEAK, np.nan]), "predict: lr must be one rate for every step"),
        (lambda f: f.predict("abc"), "predict: lr must be one rate for every step.*got 'abc'"),
        (lambda f: f.predict([PEAK, 1j]), "predict: lr must be one rate for every step"),
        (lambda f: f.predict({}), "must have a column step"),
        (lambda f: f.predict({"step": [1, 2, 3], "lr": [PEAK, PEAK]}), r"one length, .* step \(3,\), lr"),
        (lambda f: f.predict(Schedule.constant(9, {"batch": 1.0})), "must be a schedule of learning_rate"),
        (lambda f: f.interval([PEAK], draws=0), "interval: draws must be a whole number of at least 1"),
        (lambda f: f.interval([PEAK], level=1.0), "level must lie between 0 and 1"),
        (lambda f: f.draws(-5), "draws: count must be a whole number of at least 1, got -5"),
        (lambda f: f.draws(2, seed=-1), "draws: seed must be a whole number of at least 0, got -1"),
        (lambda f: f.bootstrap(0), "bootstrap: count must be a whole number of at least 1, got 0"),
        (lambda f: f.schedule("a"), "schedule: solution must be a Solution or a Schedule, got 'a'"),
        (lambda f: f.schedule(Schedule.constant(9, {"batch": 1.0})), "solution must be one of a problem"),
        (lambda f: f.plot("a"), "plot: schedule must be a Schedule or None, got 'a'"),
        (lambda f: f.problem(robust=-3), "robust must be a whole number of at least 1, got -3"),
        (lambda f: f.problem(history=[-PEAK]), "history must be a rate of at least 0 for each step done"),
        (lambda f: next_pilot("a"), "next_pilot: fit must be a fit of laws.fit, got 'a'"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_of_a_fit(fitted, call, message):
    with pytest.raises(SpecificationError, match=message):
        call(fitted)


def test_predictions_beyond_the_curves_come_with_a_warning(fitted):
    with pytest.warns(LawWarning, match=r"a rate of 0.1 is beyond the curves, .* nothing beyond 0.001"):
        fitted.predict(100 * rates("wsd"))
    with pytest.warns(LawWarning, match="a training of 9000 steps is beyond the curves"):
        fitted.interval(np.full(9000, PEAK), draws=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LawWarning)
        assert fitted.predict(np.full(STEPS, PEAK)).shape == (STEPS,)


def test_without_a_decay_progress_is_expected_to_follow_the_rate():
    """A rate and its half do not tell noise from progress; a decay that is logged all the way does."""
    without, with_decay = (
        fit([curve(name) for name in names], starts=1).fitter.expected["progress_power"]
        for names in (("constant", "half"), ("constant", "half", "wsd"))
    )
    assert without.start == 1.0
    assert without.spread < 0.1 < with_decay.spread
