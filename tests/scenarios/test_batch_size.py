"""Batch size of a committee: the budget of samples, growth, and what a decaying rate does instead."""

import numpy as np
import pytest

import optlearn as ol
from optlearn._errors import SpecificationError
from optlearn.scenarios import batch_size, learning_rate

# One node under strong noise: no plateau, so that all there is to do is to average the noise out.
ONE_NODE = {"K": 1, "M": 1, "sigma_n": 0.5, "alpha_F": 20.0}


@pytest.fixture(scope="module")
def problem():
    return batch_size()


@pytest.fixture(scope="module")
def direct(problem):
    return ol.solve(problem, method="direct", starts=1)


@pytest.fixture(scope="module")
def growing():
    return ol.solve(batch_size(**ONE_NODE, eta=0.7), method="direct", starts=1)


@pytest.mark.slow
def test_the_optimum_is_certified(direct):
    assert direct.certificate.converged
    assert direct.certificate.hamiltonian_gap < 1e-5 * direct.objective


@pytest.mark.parametrize("solved", [pytest.param("direct", marks=pytest.mark.slow), "growing"])
def test_the_budget_of_samples_is_met_and_used_up(solved, request):
    solution = request.getfixturevalue(solved)
    assert solution.certificate.budget_error < 1e-7
    for schedule in (solution.schedule, solution.whole_numbers.schedule):
        batch = schedule["batch"]
        assert batch.mean() == pytest.approx(4, abs=1e-6)
        assert batch.min() >= 1
        assert batch.max() <= 20 + 1e-9
    np.testing.assert_array_equal(batch, np.round(batch))
    assert solution.objective < solution.whole_numbers.objective < 1.01 * solution.objective


def test_the_optimum_is_below_every_baseline(problem, direct):
    comparison = ol.compare(problem, solution=direct)
    assert [row.name for row in comparison.rows] == [
        "optimum",
        "exponential growth",
        "linear growth",
        "constant",
    ]
    assert all(row.budgets_met for row in comparison.rows)
    assert comparison["constant"].objective > 3 * direct.objective


def test_few_samples_on_the_plateau_and_most_at_the_end(direct):
    batch = direct.schedule["batch"]
    assert np.all(batch[5:60] < 4)  # of 80 intervals, the plateau and the way off it
    assert batch[-1] == pytest.approx(20, abs=1e-3)
    assert batch[-8:].sum() > 0.2 * batch.sum()  # in the last tenth of training


def test_without_a_plateau_the_batch_grows_all_the_time(growing):
    batch = growing.schedule["batch"]
    assert np.all(np.diff(batch) > -1e-6)
    assert batch[0] < 1.01
    assert batch[-1] > 15
    # Nearly exponentially, once it has left its lower bound: the best such growth comes within 5 %.
    comparison = ol.compare(growing.problem, solution=growing)
    assert comparison.rows[0].name == "optimum"
    assert comparison["exponential growth"].objective < 1.05 * growing.objective


def test_a_growing_batch_does_nearly_what_a_decaying_rate_does(growing):
    # The same number of samples: 4 a step.
    fixed_batch = learning_rate(**ONE_NODE, batch=4.0, max_learning_rate=10.0)
    decaying = ol.solve(fixed_batch, method="direct", starts=1, steps=4)
    assert np.all(np.diff(decaying.schedule["learning_rate"]) < 0)
    constant = ol.evaluate(fixed_batch, fixed_batch.baselines["best constant rate"](fixed_batch, 80))
    assert decaying.objective < growing.objective < 1.05 * decaying.objective
    assert constant.objective > 2 * growing.objective


@pytest.mark.parametrize("growth", [-8.0, 0.0, 2.0, 8.0])
@pytest.mark.parametrize("mean", [1.5, 4.0, 19.0])
def test_exponential_growth_has_the_right_mean(growth, mean):
    from optlearn.scenarios._baselines import exponential_growth

    problem = batch_size(K=1, M=1, mean_batch=mean)
    batch = exponential_growth(problem, 30, growth)["batch"]
    assert batch.mean() == pytest.approx(mean, abs=1e-9)
    assert batch.min() >= 1
    assert batch.max() <= 20
    assert np.all(np.diff(batch) * np.sign(growth) >= 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mean_batch": 1}, r"mean_batch must be above 1.*, got 1"),
        ({"mean_batch": 20}, r"mean_batch .*below max_batch = 20.*, got 20"),
        ({"max_batch": "many"}, r"max_batch must be a finite number.*, got 'many'"),
        ({"eta": -1}, r"eta must be at least 0.*, got -1"),
        ({"sigma_n": -0.1}, r"sigma_n must be at least 0.*, got -0.1"),
        ({"alpha_F": 0}, r"alpha_F must be above 0.*, got 0"),
        ({"activation": "tanh"}, r"activation must be one of erf, linear.*, got 'tanh'"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(SpecificationError, match=message):
        batch_size(**arguments)
