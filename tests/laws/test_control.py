"""The law under control: exact, solvable, with the limits that users have."""

import numpy as np
import pytest
from tests.laws.conftest import PARAMETERS, PEAK, STEPS, TRUTH, WARMUP, curve, rates, true_loss

import optlearn as ol
from optlearn._errors import SpecificationError
from optlearn.laws import Curve, LawWarning, LossLaw, fit, next_pilot
from optlearn.laws._control import most_telling
from optlearn.laws._law import NAMES, NODES

BOUNDS = (0.0, PEAK)
HISTORY = rates("constant")[:WARMUP]


@pytest.fixture(scope="module")
def plain(fitted):
    """The optimum by the best parameters alone."""
    return ol.solve(fitted.problem(STEPS, BOUNDS, robust=False, history=HISTORY), method="direct", starts=1)


def test_the_system_is_the_law_itself():
    lengths = np.array([0.1, 0.2, 0.3])
    schedule = ol.Schedule.piecewise(np.append(0, np.cumsum(lengths)), {"learning_rate": [1.0, 0.5, 0.2]})
    members = np.repeat(PARAMETERS, 2, axis=0)
    members[1, NAMES.index("floor")] += 1.0
    found = ol.integrate(
        LossLaw.ensemble(members), schedule, start={"progress": 0.0, "path": 0.0, "modes": 0.0}, record=[0.6]
    )
    every_step = PEAK * np.repeat([1.0, 0.5, 0.2], np.round(lengths * STEPS).astype(int))
    assert found["error"][-1] == pytest.approx(true_loss(every_step)[-1] + 0.5, rel=1e-12)
    assert len(found.order_parameters) == 2 * (2 + NODES)


def test_the_optimum_is_better_than_what_everybody_uses(fitted, plain):
    assert plain.certificate.converged
    assert plain.certificate.hamiltonian_gap < 1e-6
    for name in plain.problem.baselines:
        baseline = plain.problem.baselines[name](plain.problem, 100)
        assert plain.objective < ol.evaluate(plain.problem, baseline, record=2).objective - 1e-4
    schedule = fitted.schedule(plain, HISTORY)
    assert schedule.horizon == STEPS
    np.testing.assert_array_equal(schedule["learning_rate"][:WARMUP], HISTORY)
    # What the solver promises is what the fit predicts; and, since the fit is good, what is true.
    assert fitted.predict(schedule)[-1] == pytest.approx(plain.objective, abs=1e-6)
    every_step = np.repeat(schedule["learning_rate"], np.diff(schedule.grid).astype(int))
    assert true_loss(every_step)[-1] < min(true_loss(rates(name))[-1] for name in ("linear", "wsd", "cosine"))
    low, high = (ends[-1] for ends in fitted.interval(schedule))
    assert low < plain.objective < high


def test_robust_over_the_ensemble(fitted, plain):
    problem = fitted.problem(STEPS, BOUNDS, robust=4, history=HISTORY)
    assert len(problem.model.members) == 4
    solution = ol.solve(problem, method="indirect", starts=1)
    assert solution.certificate.converged
    # No schedule does better on average over the members, that of the best parameters neither.
    assert solution.objective <= ol.evaluate(problem, plain.schedule, record=2).objective + 1e-7


def test_limits_that_users_have(fitted):
    problem = fitted.problem(STEPS, (0.1 * PEAK, PEAK), robust=False, history=HISTORY, grain=100)
    assert problem.intervals == 38
    solution = ol.solve(problem, method="direct", starts=1)
    true = fitted.schedule(solution, HISTORY)
    assert true["learning_rate"][WARMUP:].min() >= 0.1 * PEAK * (1 - 1e-6)
    np.testing.assert_array_equal(np.diff(true.grid[WARMUP:]), 100)


def test_the_rate_does_not_rise_if_it_must_not():
    model = LossLaw.of(PARAMETERS[0], falling=True)
    rising = ol.Schedule.piecewise([0, 0.5, 1], {"learning_rate": [0.3, 1.0]})
    start = {"progress": 0.0, "modes": 0.0, "lowest": 1.0}
    falling = ol.integrate(model, rising, start=start, record=[1.0])
    schedule = ol.Schedule.constant(1, {"learning_rate": 0.3})
    constant = ol.integrate(
        LossLaw.of(PARAMETERS[0]), schedule, start={"progress": 0.0, "modes": 0.0}, record=[1.0]
    )
    assert falling["error"][-1] == pytest.approx(constant["error"][-1], rel=1e-12)


def test_a_running_training_is_planned_anew(fitted, plain):
    """Half of the optimum is done and the horizon stays: the rest of it is what was planned."""
    schedule = fitted.schedule(plain, HISTORY)
    every_step = np.repeat(schedule["learning_rate"], np.diff(schedule.grid).astype(int))
    done = every_step[: STEPS // 2 + WARMUP // 2]
    again = ol.solve(
        fitted.problem(STEPS, BOUNDS, robust=False, history=done, grain=38), method="direct", starts=1
    )
    assert again.objective == pytest.approx(plain.objective, abs=1e-6)
    longer = ol.solve(
        fitted.problem(2 * STEPS, BOUNDS, robust=False, history=done), method="direct", starts=1
    )
    assert longer.objective < plain.objective - 0.02


@pytest.mark.slow
def test_batch_size_by_tokens():
    curves = []
    for name, batch in (("constant", 1.0), ("cosine", 1.0), ("drop", 1.0), ("constant", 4.0)):
        logged = curve(name, noise=0)
        loss = true_loss(rates(name), batch)[logged.step.astype(int) - 1]
        columns = {
            "step": logged.step,
            "lr": logged.rate,
            "loss": loss,
            "batch": np.full(len(loss), 32 * batch),
        }
        curves.append((f"{name} {batch}", columns))
    found = fit(dict(curves))
    options = {"robust": False, "history": HISTORY, "batch": (32, 128), "tokens": True}
    both = ol.solve(found.problem(STEPS, BOUNDS, **options), method="direct", starts=1)
    alone = ol.solve(found.problem(STEPS, BOUNDS, robust=False, history=HISTORY), method="direct", starts=1)
    assert both.certificate.converged
    assert both.objective <= alone.objective + 1e-7
    true = found.schedule(both, HISTORY)
    assert true["batch"].min() >= 32 * (1 - 1e-6)
    with pytest.raises(SpecificationError, match="needs mean_batch"):
        found.problem(STEPS, BOUNDS, batch=(32, 128))


def test_what_cannot_be_asked(fitted):
    with pytest.warns(LawWarning, match=r"a rate of 0.002 is beyond the curves, .* beyond 0.001"):
        fitted.problem(STEPS, (0, 2 * PEAK))
    with pytest.warns(LawWarning, match=r"a training of 20000 steps is beyond the curves"):
        fitted.problem(20_000)
    for arguments, message in (
        ({"bounds": (PEAK, 0)}, "bounds must be rates with 0 ≤ lowest < highest"),
        ({"grain": 7}, "grain must divide the 3800 steps that are left, got 7"),
        ({"history": np.ones(STEPS)}, "steps must exceed the 4000 that are given beforehand"),
        ({"batch": (1, 2)}, "the curves must log a column batch"),
    ):
        with pytest.raises(SpecificationError, match=message):
            fitted.problem(**arguments)


def test_a_logged_warmup_is_planned_too(fitted):
    assert fitted.warmup == WARMUP
    first = fitted.schedule(fitted.problem(STEPS, BOUNDS).baselines["linear"](fitted.problem(STEPS), 100))
    np.testing.assert_allclose(first["learning_rate"][:WARMUP], HISTORY, rtol=0.02)
    assert next_pilot(fitted)["learning_rate"][0] < 0.1 * PEAK


def test_the_next_pilot_is_a_run_of_its_own(fitted):
    pilot = next_pilot(fitted)
    assert pilot.horizon == STEPS
    assert pilot["learning_rate"].max() <= PEAK
    # Running it makes the best schedule better known.
    lr = np.repeat(pilot["learning_rate"], np.diff(pilot.grid).astype(int))
    assert np.isfinite(fitted.predict(lr)[-1])
    with pytest.raises(SpecificationError, match="bounds must be rates"):
        next_pilot(fitted, bounds=(1.0, 0.5))


def test_most_telling():
    # Schedules 0 and 1 compete; 2 moves with their difference, by more than the noise; 3 says nothing of it.
    rng = np.random.default_rng(0)
    difference, other = rng.standard_normal((2, 500))
    near = np.stack([0.1 * difference, np.zeros(500), 0.5 + difference, 1.9 + 0.1 * other], axis=1)
    finals = np.append(100 + near, 200 + 10 * difference[:, None], axis=1)  # the last is far off
    assert most_telling(finals, 0.2) == 2


@pytest.mark.slow
def test_fit_run_refit_in_four_lines(fitted):
    """What the pilot logs makes the law better known, above all where schedules differ.

    The pilot is chosen to tell schedules apart; parameters that they share need not be better known.
    """
    schedule = next_pilot(fitted)
    lr = np.repeat(schedule["learning_rate"], np.diff(schedule.grid).astype(int))
    done = np.arange(20, STEPS + 1, 20)
    noise = np.exp(1e-3 * np.random.default_rng(5).standard_normal(len(done)))
    new = {"step": done, "lr": lr[done - 1], "loss": true_loss(lr)[done - 1] * noise}
    again = fit([*fitted.data.curves, {"pilot": new}])
    for name in ("floor", "speed"):
        assert again.standard_errors[name] < fitted.standard_errors[name]
    (low, high), (low_again, high_again) = (each.interval(rates("wsd")) for each in (fitted, again))
    assert high_again[-1] - low_again[-1] < high[-1] - low[-1]
    np.testing.assert_allclose(again.predict(rates("wsd"))[-1], true_loss(rates("wsd"))[-1], rtol=1e-3)


# --- batches -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def batches():
    """A fit to runs of two batches, and of one that changes, of a law that is known."""
    runs = []
    for name, batch in (("constant", 32), ("cosine", 32), ("drop", 32), ("constant", 128), ("linear", 128)):
        logged = curve(name)
        loss = true_loss(rates(name), batch / 32)[logged.step.astype(int) - 1]
        runs.append(Curve(f"{name} {batch}", logged.step, logged.rate, loss, np.full(len(loss), 1.0 * batch)))
    logged = curve("constant")
    batch = np.where(logged.step <= STEPS / 2, 32.0, 128.0)
    per_step = np.where(np.arange(STEPS) < STEPS / 2, 1.0, 4.0)
    loss = true_loss(rates("constant"), per_step)[logged.step.astype(int) - 1]
    return fit([*runs, Curve("ramp", logged.step, logged.rate, loss, batch)])


def test_the_law_of_the_batch_is_found(batches):
    assert batches.batch == 32
    for name, within in (("critical_batch", 0.4), ("batch_power", 0.06)):
        error = abs(batches.parameters[name] - TRUTH[name])
        assert error < min(within, 4 * batches.standard_errors[name] + 0.02), name


@pytest.mark.parametrize(
    "price",
    [{"tokens": True}, {"seconds": {16: 0.8, 32: 1.0, 64: 1.5, 128: 2.5}}, {"mean_batch": 48}],
    ids=lambda price: next(iter(price)),
)
def test_a_ramp_keeps_its_price_and_its_switches(batches, price):
    options = {"robust": False, "history": HISTORY, "batch": (16, 128), "switches": 2, "grain": 100}
    solution = ol.solve(batches.problem(STEPS, BOUNDS, **options, **price), method="indirect", starts=1)
    schedule = batches.schedule(solution, HISTORY)
    # What was planned by the price is what is predicted by steps, but for their rounding to whole ones.
    assert batches.predict(schedule)[-1] == pytest.approx(solution.objective, abs=2e-5)
    planned, steps = schedule["batch"][len(HISTORY) :], np.diff(schedule.grid)
    assert set(planned) <= {16.0, 32.0, 64.0, 128.0}
    assert np.count_nonzero(np.diff(planned)) <= 2
    each = {
        "tokens": schedule["batch"] / 32,
        "seconds": np.interp(schedule["batch"], [16, 32, 64, 128], [0.8, 1.0, 1.5, 2.5]),
        "mean_batch": np.ones(len(steps)),
    }[next(iter(price))]
    assert steps @ each == pytest.approx(STEPS, abs=8)
    if "mean_batch" in price:
        assert steps[len(HISTORY) :] @ planned <= 48 * steps[len(HISTORY) :].sum() * (1 + 1e-3)


def test_what_cannot_be_asked_of_batches(batches):
    for options, message in (
        ({"batch": (16, 100), "switches": 1, "tokens": True}, "power of two"),
        ({"batch": (64, 32), "tokens": True}, "lowest and the highest"),
        ({"batch": (16, 64), "seconds": {32: 1.0}}, "at least two batches"),
        ({"batch": (16, 64), "seconds": {32: 1.0, 64: 2.0}}, "must cover batches from 16 to 64"),
        ({"batch": (16, 64), "seconds": {16: 1.0, 64: -2.0}}, "above 0"),
        ({"batch": (16, 64), "tokens": True, "seconds": {16: 1.0, 64: 2.0}}, "must be left out"),
        ({"batch": (16, 64), "switches": -1, "tokens": True}, "switches"),
    ):
        with pytest.raises(SpecificationError, match=message):
            batches.problem(STEPS, BOUNDS, **options)


def test_exports_of_a_ramp():
    values = {"batch": np.array([768.0, 768.0, 1536.0])}
    ramp = ol.Schedule.piecewise(np.array([0.0, 100.0, 250.0, 300.0]), values)
    assert ramp.to_thresholds("batch", steps=300) == "0:768 250:1536"
    tokens = {"unit": "tokens", "steps": 300}
    assert ramp.to_thresholds("batch", **tokens, tokens_per_sample=1e9 / 768) == "0:768 250B:1536"
    assert ramp.to_thresholds("batch", **tokens, tokens_per_sample=2048) == "0:768 393216000:1536"
    with pytest.raises(SpecificationError, match="tokens_per_sample"):
        ramp.to_thresholds("batch", **tokens)
    sizes = ramp.to_batches()
    assert (sizes(0), sizes(249), sizes(250), sizes(10**9)) == (768, 768, 1536, 1536)
    assert (len(sizes), sizes.samples) == (300, 250 * 768 + 50 * 1536)
    whole = list(sizes.batches(range(1000)))
    assert [len(batch) for batch in whole] == [768] * 250 + [1536] * 50
    assert whole[1][:3] == [768, 769, 770]
    assert list(sizes.batches(range(1000), done=251)) == whole[251:]
    with pytest.raises(SpecificationError, match="at least one index"):
        list(sizes.batches([]))
    with pytest.raises(SpecificationError, match="at most the 300 steps"):
        sizes.batches(range(10), done=301)
