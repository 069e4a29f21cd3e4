"""Learning rate of a committee: the plateau, the locally optimal schedule, and decay under noise."""

import numpy as np
import pytest

import optlearn as ol
from optlearn._errors import SpecificationError
from optlearn.scenarios import learning_rate

HALF_PLATEAU = 0.006  # half the error of a committee that stays on the symmetric plateau


@pytest.fixture(scope="module")
def problem():
    return learning_rate()


@pytest.fixture(scope="module")
def direct(problem):
    return ol.solve(problem, method="direct", starts=1)


@pytest.fixture(scope="module")
def comparison(problem, direct):
    return ol.compare(problem, solution=direct)


@pytest.fixture(scope="module")
def noisy():
    # One node, so that there is no plateau: all that is left is to average the noise out.
    return ol.solve(learning_rate(K=1, M=1, sigma_n=0.5, alpha_F=100.0), intervals=200, starts=1)


def leaving_time(trajectory):
    """When the error falls below half the plateau's for good."""
    above = np.flatnonzero(trajectory["error"] > HALF_PLATEAU)[-1]
    if above + 1 == len(trajectory.alpha):
        return np.inf
    left, right = trajectory["error"][above : above + 2]
    share = (left - HALF_PLATEAU) / (left - right)
    return trajectory.alpha[above] + share * (trajectory.alpha[above + 1] - trajectory.alpha[above])


def test_the_optimum_is_certified(direct):
    assert direct.certificate.converged
    assert direct.objective == pytest.approx(0.00092668, rel=1e-4)


def test_the_optimum_is_below_every_baseline(comparison):
    assert comparison.rows[0].name == "optimum"
    assert len(comparison.rows) == 8
    assert all(row.budgets_met for row in comparison.rows)
    assert comparison["best constant rate"].objective > 2 * comparison["optimum"].objective


def test_the_locally_optimal_rate_stays_on_the_plateau(problem, comparison):
    # It lowers the error as fast as possible, which on the plateau means a vanishing rate: for ever.
    greedy = ol.evaluate(problem, comparison.schedules["greedy"], record=801)
    assert leaving_time(greedy) == np.inf
    assert comparison.schedules["greedy"]["learning_rate"][-1] < 0.05
    assert comparison["greedy"].objective > 10 * comparison["optimum"].objective
    # At every moment of the first phase it is ahead.
    best = ol.evaluate(problem, comparison.schedules["optimum"], record=801)
    early = greedy.alpha < 40
    assert np.all(greedy["error"][early] <= best["error"][early] * (1 + 1e-9))


def test_the_optimum_leaves_the_plateau_sooner_than_any_constant_rate(problem, direct):
    best = leaving_time(ol.evaluate(problem, direct.schedule, record=801))
    constants = np.arange(1.0, 2.5, 0.1)
    times = [
        leaving_time(ol.evaluate(problem, ol.Schedule.constant(80.0, {"learning_rate": eta}), record=801))
        for eta in constants
    ]
    fastest = int(np.argmin(times))
    assert 0 < fastest < len(times) - 1  # the scan holds the best constant
    assert best < min(times) - 0.2
    # The plateau is left by a rate far above the one at which the start is left.
    rate = direct.schedule["learning_rate"]
    assert rate[0] < 0.8
    assert np.all(rate[5:70] > 1.6)
    assert rate[-1] < 0.7


def test_under_noise_the_rate_decays_like_one_over_time(noisy):
    assert noisy.certificate.converged
    alpha = (noisy.schedule.grid[1:] + noisy.schedule.grid[:-1]) / 2
    rate = noisy.schedule["learning_rate"]
    # η = 1/(c (α − α₀)): steeper than 1/α by the offset α₀, which matters less and less.
    exponents = [
        np.polyfit(np.log(alpha[now]), np.log(rate[now]), 1)[0]
        for now in ((alpha > 15) & (alpha < 30), (alpha > 30) & (alpha < 60), (alpha > 60) & (alpha < 90))
    ]
    assert exponents == sorted(exponents)
    assert -1.06 < exponents[-1] < -1
    # Near the teacher the error falls at the rate η E[g'²] with E[g'²] = 2/(π√3): this is c.
    late = (alpha > 30) & (alpha < 80)
    slope, offset = np.polyfit(alpha[late], 1 / rate[late], 1)
    assert slope == pytest.approx(2 / (np.pi * np.sqrt(3)), rel=0.04)
    np.testing.assert_allclose(1 / rate[late], slope * alpha[late] + offset, rtol=0.01)


def test_under_noise_no_constant_rate_comes_near(noisy):
    values = [
        ol.evaluate(noisy.problem, ol.Schedule.constant(100.0, {"learning_rate": eta}), record=2).objective
        for eta in np.linspace(0.02, 0.3, 8)
    ]
    assert noisy.objective < 0.7 * min(values)


def test_a_student_larger_than_its_teacher():
    problem = learning_rate(K=2, M=1, sigma_n=0.3, alpha_F=10.0)
    methods = ("direct", "indirect")
    direct, indirect = (ol.solve(problem, intervals=20, method=m, starts=1) for m in methods)
    assert direct.certificate.converged
    assert indirect.objective == pytest.approx(direct.objective, rel=1e-5)
    assert direct.objective < ol.evaluate(problem, problem.baselines["greedy"](problem, 20)).objective


def test_the_start_is_random_but_reproducible():
    start = learning_rate(K=3, M=2, start_norm=0.2, start_overlap=0.1).start
    np.testing.assert_array_equal(np.diag(start.Q), 0.2)
    assert 0 < np.abs(start.M).max() < 0.4 * np.sqrt(0.2)
    np.testing.assert_array_equal(start.M, learning_rate(K=3, M=2, start_norm=0.2, start_overlap=0.1).start.M)
    other = learning_rate(K=3, M=2, start_norm=0.2, start_overlap=0.1, seed=1).start
    assert np.all(other.M != start.M)


def test_the_cosines_of_the_start_have_the_stated_size():
    # 2000 normal numbers: their standard deviation is known to 1.6 %; 4.5 of those.
    start = learning_rate(K=20, M=100, start_norm=2.0, start_overlap=0.01, T=3.0).start
    cosines = start.M / np.sqrt(2.0 * 3.0)
    assert cosines.std() == pytest.approx(0.01, rel=4.5 * 0.0158)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alpha_F": -1}, r"alpha_F must be above 0.*, got -1"),
        ({"eta": 4}, r"eta must be from 0 to 3.*, got 4"),
        ({"max_learning_rate": 0}, r"max_learning_rate must be above 0.*, got 0"),
        ({"K": 0}, r"K must be a whole number.*, got 0"),
        ({"M": 1.5}, r"M must be a whole number.*, got 1.5"),
        ({"activation": "relu"}, r"activation must be one of erf, linear.*, got 'relu'"),
        ({"start_norm": 0}, r"start_norm must be above 0.*, got 0"),
        ({"start_overlap": 0.5}, r"start_overlap must be from 0 to 0.3.*, got 0.5"),
        ({"seed": -1}, r"seed must be a whole number of at least 0.*, got -1"),
        ({"batch": 0}, r"batch must be at least 1.*, got 0"),
        ({"T": [[1, 2], [2, 1]]}, "positive semidefinite"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(SpecificationError, match=message):
        learning_rate(**arguments)
