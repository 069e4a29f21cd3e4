"""The law under control: exact, solvable, with the limits that users have."""

import numpy as np
import pytest
from tests.laws.conftest import PARAMETERS, PEAK, STEPS, WARMUP, curve, rates, true_loss

import optlearn as ol
from optlearn._errors import SpecificationError
from optlearn.laws import LawWarning, LossLaw, fit, next_pilot
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
        LossLaw.ensemble(members), schedule, start={"progress": 0.0, "modes": 0.0}, record=[0.6]
    )
    every_step = PEAK * np.repeat([1.0, 0.5, 0.2], np.round(lengths * STEPS).astype(int))
    assert found["error"][-1] == pytest.approx(true_loss(every_step)[-1] + 0.5, rel=1e-12)
    assert len(found.order_parameters) == 2 * (1 + NODES)


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
    """What the pilot logs makes the law better known."""
    schedule = next_pilot(fitted)
    lr = np.repeat(schedule["learning_rate"], np.diff(schedule.grid).astype(int))
    done = np.arange(20, STEPS + 1, 20)
    noise = np.exp(1e-3 * np.random.default_rng(5).standard_normal(len(done)))
    new = {"step": done, "lr": lr[done - 1], "loss": true_loss(lr)[done - 1] * noise}
    again = fit([*fitted.data.curves, {"pilot": new}])
    for name in ("floor", "noise", "speed"):
        assert again.standard_errors[name] < fitted.standard_errors[name]
    np.testing.assert_allclose(again.predict(rates("wsd"))[-1], true_loss(rates("wsd"))[-1], rtol=1e-3)
