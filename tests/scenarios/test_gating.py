"""Gating: what its page says of the optimum, against every baseline and both solvers."""

import numpy as np
import pytest

import optlearn as ol
from optlearn._errors import SpecificationError


@pytest.fixture(scope="module")
def gain():
    return ol.solve(ol.scenarios.gating(), method="indirect", starts=1)


@pytest.fixture(scope="module")
def baselines(gain):
    problem = gain.problem
    return {n: ol.evaluate(problem, s, record=81) for n, s in ol.baselines(problem).items()}


@pytest.mark.slow
def test_the_optimum_is_converged_and_beats_every_baseline(gain, baselines):
    assert gain.certificate.converged
    assert gain.objective == pytest.approx(0.0233167, abs=2e-7)
    values = {name: run.objective for name, run in baselines.items()}
    assert set(values) == {
        "teacher's gate",
        "best constant",
        "best line",
        "linear network",
        "linear, then gated",
    }
    assert min(values.values()) > 1.01 * gain.objective
    assert values["best constant"] == pytest.approx(0.0260277, abs=2e-7)
    assert values["teacher's gate"] == pytest.approx(0.0451810175, abs=2e-7)


def test_the_gates_sharpen_during_training_and_stay_softer_than_the_teachers(gain):
    gate = gain.schedule["gate"]
    assert np.all(np.diff(gate) > 0)
    assert gate[0] < 0.6
    assert 1.4 < gate[-1] < 2.0


def test_values_are_learned_before_gates(gain):
    when = np.argmax(gain.trajectory["cosine_value"] > 0.7)
    assert gain.trajectory["cosine_gate"][when] < 0.15


@pytest.mark.slow
def test_a_sharp_gate_fills_its_own_weights_with_noise(gain, baselines):
    ours, usual = gain.trajectory, baselines["teacher's gate"]
    assert usual["Q11"][-1] > 1.45
    assert usual["M11"][-1] == pytest.approx(ours["M11"][-1], rel=0.1)
    assert ours["Q11"].max() < 1.1
    for name, by in (("cosine_gate", 0.08), ("cosine_value", 0.02)):
        assert ours[name][-1] > usual[name][-1] + by


def test_with_label_noise_the_gates_soften_again_at_the_end():
    noisy = ol.solve(ol.scenarios.gating(sigma_n=0.5), method="indirect", starts=1)
    assert noisy.certificate.converged
    gate = noisy.schedule["gate"]
    assert 10 < np.argmax(gate) < 30
    assert gate[0] < gate[-1] < gate.max() - 0.1


@pytest.mark.slow  # another program to be built
def test_a_switch_is_open_first_then_gated():
    problem = ol.scenarios.gating(control="switch")
    solution = ol.solve(problem, 40, "indirect", starts=1)
    assert solution.certificate.converged
    gate = solution.schedule["gate"]
    assert np.all(np.diff(gate) >= 0)
    assert gate[0] == 0
    assert 0.8 < solution.schedule.grid[np.argmax(gate)] < 1.5
    values = {
        name: ol.evaluate(problem, make(problem, 40), record=2).objective
        for name, make in problem.baselines.items()
    }
    assert min(values.values()) >= solution.objective - 1e-12  # the one-switch baseline is the optimum
    assert values["linear, then gated"] == pytest.approx(solution.objective, abs=1e-9)
    assert solution.objective < 0.82 * values["teacher's gate"]


@pytest.mark.slow  # another program to be built
def test_a_threshold_is_high_first_then_low():
    problem = ol.scenarios.gating(control="threshold")
    solution = ol.solve(problem, 20, "indirect", starts=1)
    assert solution.certificate.converged
    gate = solution.schedule["gate"]
    assert gate[0] > 0.9
    assert abs(gate[10:]).max() < 0.1
    best = ol.evaluate(problem, problem.baselines["best line"](problem, 20), record=2).objective
    assert solution.objective < best


def test_with_more_gates_the_start_is_random_and_uncoupled():
    problem = ol.scenarios.gating(K=4, M=4, start_overlap=0.1, seed=3)
    start = problem.start
    assert np.all(start.Q[:2, 2:] == 0)
    assert np.all(start.M[:2, 2:] == 0)
    assert np.all(start.M[2:, :2] == 0)
    assert len(np.unique(start.M)) == 9
    np.testing.assert_array_equal(np.diag(start.Q), 1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alpha_F": -1}, r"gating: alpha_F must be above 0.*, got -1"),
        ({"teacher_gain": 0}, r"teacher_gain must be above 0.*, got 0"),
        ({"max_gain": 1.0}, r"max_gain must be at least teacher_gain = 2.*, got 1.0"),
        ({"control": "width"}, r"control must be one of gain, threshold, switch, got 'width'"),
        ({"threshold_range": (0.5, 1.0)}, r"threshold_range .*one below 0 and one above"),
        ({"T": [[1.0, 0.5], [0.5, 1.0]]}, r"T must have no overlap"),
        ({"K": 4}, r"start_overlap must be above 0 with 2 gates.*, got 0.0"),
        ({"K": 5}, r"K must be even.*, got 5"),
        ({"start_norm": 0.0}, r"start_norm must be above 0.*, got 0.0"),
        ({"seed": -1}, r"seed must be a whole number of at least 0.*, got -1"),
    ],
)
def test_a_wrong_argument_is_named(arguments, message):
    with pytest.raises(SpecificationError, match=message):
        ol.scenarios.gating(**arguments)
