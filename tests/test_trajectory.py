"""Trajectories: statistics over seeds, access, and the labelled data set."""

import numpy as np
import pytest
from scipy import stats

from optlearn._trajectory import Trajectory

ALPHA = np.linspace(0, 2, 5)
RUNS = np.random.default_rng(3).normal(size=(7, 5))


def simulated():
    return Trajectory(ALPHA, {"Q11": RUNS, "M11": 2 * RUNS, "error": RUNS**2}, ("Q11", "M11"))


def theoretical(dense=None):
    return Trajectory(ALPHA, {"Q11": ALPHA, "error": 1 - ALPHA}, ("Q11",), {"N": 3}, dense)


def test_access():
    assert simulated().seeds == 7
    assert simulated().states.shape == (7, 5, 2)
    assert theoretical().seeds == 0
    assert theoretical().states.shape == (5, 1)
    assert theoretical().objective == -1
    assert simulated().objective == pytest.approx(np.mean(RUNS[:, -1] ** 2))
    with pytest.raises(KeyError, match=r"no 'Q22' in this trajectory; it has \['Q11', 'error'\]"):
        theoretical()["Q22"]


def test_mean_and_standard_error():
    np.testing.assert_allclose(simulated().mean("Q11"), RUNS.sum(axis=0) / 7)
    np.testing.assert_allclose(simulated().standard_error("Q11"), stats.sem(RUNS, axis=0))
    np.testing.assert_array_equal(theoretical().mean("Q11"), ALPHA)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_band_is_that_of_a_t_test(level):
    low, high = simulated().band("Q11", level)
    interval = stats.ttest_1samp(RUNS, 0.0, axis=0).confidence_interval(level)
    np.testing.assert_allclose(low, interval.low)
    np.testing.assert_allclose(high, interval.high)


def test_band_covers_the_mean_as_often_as_it_says():
    # 20,000 independent means of 5 runs: the share covered has standard deviation 0.0028.
    runs = np.random.default_rng(0).normal(1.5, 2.0, size=(5, 20_000))
    low, high = Trajectory(np.arange(20_000.0), {"Q11": runs}, ("Q11",)).band("Q11", 0.8)
    assert np.mean((low < 1.5) & (high > 1.5)) == pytest.approx(0.8, abs=4.5 * 0.0028)


def test_scores_are_normal_however_few_the_seeds():
    # 20,000 means of 3 runs: the share beyond 3 is 0.0027 with standard deviation 0.00037. Of deviations
    # in estimated standard errors it would be 0.095.
    runs = np.random.default_rng(1).normal(1.5, 2.0, size=(3, 20_000))
    scores = Trajectory(1 + np.arange(20_000.0), {"Q11": runs}, ("Q11",)).z_scores(
        "Q11", np.full(20_000, 1.5)
    )
    assert np.mean(np.abs(scores) > 3) == pytest.approx(0.0027, abs=4.5 * 0.00037)
    assert abs(scores.mean()) < 4.5 / np.sqrt(20_000)


def test_scores_need_an_expectation_at_every_time():
    with pytest.raises(ValueError, match=r"expected: shape \(3,\); one number at each of 5 times"):
        simulated().z_scores("Q11", np.zeros(3))


def test_scores_of_many_seeds_are_deviations_in_standard_errors():
    runs = np.random.default_rng(2).normal(1.0, 1.0, size=(100_000, 2))
    course = Trajectory(np.array([0.0, 1.0]), {"Q11": runs}, ("Q11",))
    start, end = course.z_scores("Q11", np.full(2, 0.5))
    assert np.isnan(start)
    deviation = (runs[:, 1].mean() - 0.5) / course.standard_error("Q11")[1]
    assert deviation > 100  # of no probability that a number can hold
    assert end == pytest.approx(deviation)


@pytest.mark.parametrize("trajectory", [theoretical(), Trajectory(ALPHA, {"Q11": RUNS[:1]}, ())])
def test_too_few_seeds(trajectory):
    for statistic in (trajectory.standard_error, trajectory.band):
        with pytest.raises(ValueError, match="at least two seeds"):
            statistic("Q11")


@pytest.mark.parametrize("level", [0, 1, 95, -0.5, np.nan])
def test_wrong_level(level):
    with pytest.raises(ValueError, match="between 0 and 1"):
        simulated().band("Q11", level)


def test_at_uses_the_dense_output():
    trajectory = theoretical(lambda times: np.stack([times**2], axis=1))
    assert trajectory.at(1.5)["Q11"].shape == ()
    assert trajectory.at(1.5)["Q11"] == 2.25
    np.testing.assert_array_equal(trajectory.at([[0.0, 1.0]])["Q11"], [[0, 1]])


@pytest.mark.parametrize("alpha", [-0.1, 2.1, [0.0, 3.0], np.nan])
def test_at_outside_training(alpha):
    with pytest.raises(ValueError, match="outside training, 0 to 2"):
        theoretical(lambda times: times[:, None]).at(alpha)


def test_at_without_dense_output():
    with pytest.raises(ValueError, match="only integrated trajectories"):
        simulated().at(1.0)


def test_to_dataset():
    theory, simulation = theoretical().to_dataset(), simulated().to_dataset()
    assert theory["Q11"].dims == ("alpha",)
    assert theory["error"].sel(alpha=2.0) == -1
    assert simulation["M11"].dims == ("seed", "alpha")
    np.testing.assert_array_equal(simulation["M11"].mean("seed"), simulated().mean("M11"))
