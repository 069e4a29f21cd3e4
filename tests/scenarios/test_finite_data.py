"""Finite data: the table of schedules, and what early stopping, decay and κ ≈ 1 do."""

import numpy as np
import pytest

import optlearn as ol
from optlearn._errors import SpecificationError
from optlearn.scenarios import finite_data

# Final test errors for κ = ½, 1, 2.
BASELINES = {
    "constant": (0.673360, 0.451977, 0.253628),
    "early stopping": (0.661723, 0.431754, 0.232663),
    "best constant rate": (0.652285, 0.414022, 0.198665),
    "cosine": (0.655911, 0.418448, 0.198750),
}
# Where they are: the best constant rate, the end of training at rate 0.5, the best pair of rate and decay.
RATE, STOP = (0.2273, 0.2364, 0.1801), (2.93, 5.93, 9.50)
PAIR, PAIRS = (0.648198, 0.408777, 0.196869), ((0.379, 0.345), (0.350, 0.157), (0.219, 0.061))
OPTIMA = {
    "rate": ({}, (0.652083, 0.412900, 0.195347)),
    "rate, constant decay": ({"weight_decay": "free"}, (0.645422, 0.402359, 0.188319)),
    "decay, constant rate": ({"control": "weight_decay"}, (0.645741, 0.404633, 0.193635)),
    "both": ({"control": "both"}, (0.644601, 0.401426, 0.187920)),
}
KAPPAS = (0.5, 1.0, 2.0)
# The best constant decay beside a scheduled rate.
FREE = (0.450, 0.226, 0.117)


@pytest.mark.parametrize(("column", "kappa"), [*enumerate(KAPPAS)])
def test_baselines(column, kappa):
    problem = finite_data(kappa)
    schedules = ol.baselines(problem, 100)
    found = {name: ol.evaluate(problem, schedule, record=2).objective for name, schedule in schedules.items()}
    expected = {name: values[column] for name, values in BASELINES.items()}
    assert found == pytest.approx(expected, abs=1e-6)
    assert schedules["best constant rate"]["learning_rate"][0] == pytest.approx(RATE[column], abs=1e-4)
    assert schedules["early stopping"].grid[1] == pytest.approx(STOP[column], abs=0.02)  # a grid
    assert min(found.values()) > problem.model.bayes_error


@pytest.mark.parametrize(("column", "kappa"), [*enumerate(KAPPAS)])
def test_best_constant_pair(column, kappa):
    problem = finite_data(kappa, weight_decay="free")
    schedule = problem.baselines["best constant pair"](problem, 100)
    assert ol.evaluate(problem, schedule, record=2).objective == pytest.approx(PAIR[column], abs=1e-6)
    found = schedule["learning_rate"][0], schedule.parameters["weight_decay"]
    assert found == pytest.approx(PAIRS[column], abs=6e-4)


@pytest.mark.slow
def test_the_optimal_rate_by_two_methods():
    found = [ol.solve(finite_data(), method=method, starts=1) for method in ("direct", "indirect")]
    assert [s.objective for s in found] == pytest.approx([0.412900] * 2, abs=1e-6)
    assert all(s.certificate.converged for s in found)
    # Rather than to stop, it goes on at a lower rate.
    assert np.all(found[0].schedule["learning_rate"] > 0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("column", "kappa"), [*enumerate(KAPPAS)])
@pytest.mark.parametrize("kind", OPTIMA)
def test_optima(kind, column, kappa):
    arguments, expected = OPTIMA[kind]
    solution = ol.solve(finite_data(kappa, **arguments), method="direct", starts=1)
    assert solution.certificate.converged
    assert solution.objective == pytest.approx(expected[column], abs=1e-6)
    if arguments == {"weight_decay": "free"}:
        assert solution.schedule.parameters["weight_decay"] == pytest.approx(FREE[column], abs=6e-4)


def test_the_test_error_of_long_training_has_its_peak_at_one_sample_a_weight():
    def after(kappa, **settings):
        model = ol.models.FiniteData(kappa, nodes=64)
        schedule = ol.Schedule.constant(2000 * kappa, {"learning_rate": 0.05})
        found = ol.integrate(model, schedule, start=model.start(), parameters=settings, record=2)
        return found["test_error"][-1]

    errors = [after(kappa) for kappa in (0.5, 0.9, 1.1, 2.0)]
    assert min(errors[1:3]) > 1.2 * max(errors[0], errors[3])
    decayed = [after(kappa, weight_decay=0.25 / kappa) for kappa in (0.5, 1.0, 2.0)]
    assert decayed[0] > decayed[1] > decayed[2]  # with decay more data never hurt


@pytest.mark.parametrize(("passes", "nodes"), [(20.0, 32), (100.0, 80)])
def test_long_training_has_more_nodes(passes, nodes):
    assert len(finite_data(passes=passes).model.eigenvalues) == nodes


def test_the_nodes_suffice_at_any_share_of_samples():
    for kappa in np.geomspace(1e-3, 1e3, 121):
        assert len(finite_data(float(kappa), passes=100.0).model.eigenvalues) in (32, 80)


@pytest.mark.slow
def test_a_hundred_passes_converge():
    solution = ol.solve(finite_data(passes=100.0), starts=1)
    assert solution.certificate.converged
    # So long a training gets passes only, which end at a gap of 1e-7.
    assert 0.4011481395 - 1e-8 < solution.objective < 0.4011481395 + 1e-7
    assert solution.objective > solution.problem.model.bayes_error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kappa": -1.0}, "kappa"),
        ({"passes": 0}, "passes"),
        ({"passes": 1e9}, "passes must be above 0 and at most 100, got 1000000000"),
        ({"noise": -0.1}, "noise"),
        ({"control": "batch"}, "control"),
        ({"weight_decay": 3.0}, "weight_decay"),
        ({"weight_decay": "best"}, "weight_decay"),
        ({"control": "both", "weight_decay": 0.1}, "weight_decay.*leave it out"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(SpecificationError, match=message):
        finite_data(**arguments)
