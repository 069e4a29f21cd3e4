"""Baselines have the values of the theory sheet, where two integrators agreed to 1e-13."""

import numpy as np
import pytest

import optlearn as ol
from optlearn import scenarios

ORDER = ("curriculum", "anti-curriculum", "random mix", "best two-switch")
# λ̄ = λη: objectives in that order, and the first easy phase of the best two-switch
CURRICULUM = {
    0.0: ((0.155861767207, 0.162820122204, 0.152777477165, 0.146850711861), 2.802341),
    0.05: ((0.165077510581, 0.158974582015, 0.156496937816, 0.148615093372), 2.152741),
    0.2: ((0.192473127927, 0.157057657528, 0.178035964032, 0.155995997867), 0.712268),
    0.5: ((0.233272904503, 0.170127511996, 0.217846620425, 0.170127511996), 0.0),
}
# σ_n: p=p_f=1; best p=p_f (and p); best p with free p_f (and p, p_f)
DROPOUT = {
    0.1: (0.0165711895, (0.0154113559, 0.89040), (0.0151374373, 0.96286, 0.89921)),
    0.2: (0.0348561505, (0.0253333083, 0.76639), (0.0252980294, 0.74148, 0.76722)),
    0.3: (0.0631696099, (0.0364315111, 0.68760), (0.0363595799, 0.65906, 0.69347)),
}
# Δ_F: Δ = Δ_F at α = 0.8; b = b*, B = 5 at α = 1.2. Printed with 10 decimals, from overlaps with 8.
DENOISING = {
    0.1: (8.8867355133, 8.5587060786),
    0.3: (9.5197451679, 9.3529263153),
    0.5: (9.8421690460, 9.6780193570),
}


def objective(problem, schedule):
    return ol.evaluate(problem, schedule, record=2).objective


@pytest.mark.parametrize("decay", CURRICULUM)
def test_curriculum(decay):
    problem = scenarios.curriculum(weight_decay=decay / 3)
    schedules = ol.baselines(problem)
    assert tuple(schedules) == ORDER
    values, first_phase = CURRICULUM[decay]
    for name, value in zip(ORDER, values, strict=True):
        assert objective(problem, schedules[name]) == pytest.approx(value, abs=2e-12)
    best = schedules["best two-switch"]
    a = best.grid[1] if best["difficulty"][0] == 0.0 else 0.0
    assert a == pytest.approx(first_phase, abs=1e-6)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_curriculum_spends_its_share_on_easy_samples(share):
    problem = scenarios.curriculum(easy_share=share)
    for schedule in ol.baselines(problem).values():
        lengths = np.diff(schedule.grid) / schedule.horizon
        assert 1 - lengths @ schedule["difficulty"] / 2 == pytest.approx(share, abs=1e-12)


def test_a_learning_rate_can_take_many_shapes():
    problem = scenarios.curriculum(joint=True)
    schedules = ol.baselines(problem, intervals=60)
    values = {name: objective(problem, s) for name, s in schedules.items()}
    assert values["constant rate"] == pytest.approx(CURRICULUM[0.0][0][0], abs=2e-12)
    # Each shape contains the best constant, but the one that starts and ends at 0.
    for shape in ("linear rate", "cosine rate", "exponential rate"):
        assert values[shape] < values["best constant rate"] < values["constant rate"]
    assert values["warm-up-stable-decay"] < values["best constant rate"]
    # No shape beats the joint optimum of the theory sheet.
    assert min(values.values()) > 0.10838035
    for schedule in schedules.values():
        assert schedule.intervals == 60
        assert np.all((schedule["difficulty"] == 0) == (schedule.grid[:-1] < 6 - 1e-9))


def test_a_switch_off_the_grid_still_meets_the_budget():
    problem = scenarios.curriculum(joint=True, easy_share=0.3)
    schedule = problem.baselines["constant rate"](problem, 7)
    assert schedule.intervals == 8
    easy = np.diff(schedule.grid)[schedule["difficulty"] == 0].sum()
    assert easy == pytest.approx(0.3 * 12, abs=1e-12)


@pytest.mark.parametrize("sigma_n", DROPOUT)
def test_dropout(sigma_n):
    problem = scenarios.dropout(sigma_n=sigma_n)
    schedules = ol.baselines(problem)
    without, (tied_value, tied_p), (free_value, free_p, free_rescaling) = DROPOUT[sigma_n]
    none, tied, free = schedules.values()
    assert objective(problem, none) == pytest.approx(without, abs=1e-10)
    assert objective(problem, tied) == pytest.approx(tied_value, abs=1e-10)
    assert objective(problem, free) == pytest.approx(free_value, abs=1e-10)
    assert tied["activation"][0] == pytest.approx(tied_p, abs=6e-6)
    assert tied["activation"][0] == tied.parameters["rescaling"]
    assert free["activation"][0] == pytest.approx(free_p, abs=6e-6)
    assert free.parameters["rescaling"] == pytest.approx(free_rescaling, abs=6e-6)


@pytest.mark.parametrize("Delta_F", DENOISING)
def test_denoising(Delta_F):
    problem = scenarios.denoising(Delta_F=Delta_F)
    schedules = ol.baselines(problem)
    constant, best = (objective(problem, s) for s in schedules.values())
    assert constant == pytest.approx(DENOISING[Delta_F][0], rel=1e-9)
    assert best < constant
    noise = schedules["best constant"]["noise"][0]
    for other in (noise - 1e-3, noise + 1e-3):
        if 0.01 <= other <= 0.99:
            there = objective(problem, ol.Schedule.constant(0.8, {"noise": other}))
            assert there > best


@pytest.mark.parametrize("Delta_F", DENOISING)
def test_denoising_batch(Delta_F):
    problem = scenarios.denoising_batch(Delta_F=Delta_F)
    schedules = ol.baselines(problem)
    constant, growing = (objective(problem, s) for s in schedules.values())
    assert constant == pytest.approx(DENOISING[Delta_F][1], rel=1e-9)
    assert growing < constant  # the optimum grows
    line = schedules["linear growth"]["batch"]
    assert line.mean() == pytest.approx(5, abs=1e-12)
    assert line.min() >= 1


def test_linear_growth_stays_within_the_bounds():
    problem = scenarios.denoising_batch(mean_batch=40)
    line = ol.baselines(problem)["linear growth"]["batch"]
    assert line.max() <= 50
    assert line.mean() == pytest.approx(40, abs=1e-12)
