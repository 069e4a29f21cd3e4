"""Power laws: optima of both phases by both methods, and the schedules that people use."""

import numpy as np
import pytest

import optlearn as ol
from optlearn._errors import SpecificationError

# Half the excess risk at the end (theory sheet, LIN): teacher exponent, recursion → optimum.
OPTIMA = {
    (0.5, False): 0.002621765112,
    (-0.3, False): 0.033739091968,
    (0.5, True): 0.002641041517,
    (-0.3, True): 0.035036489196,
}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["direct", "indirect"])
@pytest.mark.parametrize(("exponent", "recursion"), OPTIMA)
def test_optima(exponent, recursion, method):
    problem = ol.scenarios.power_law(teacher_exponent=exponent, recursion=recursion)
    solution = ol.solve(problem, method=method)
    assert solution.certificate.converged
    assert solution.objective == pytest.approx(OPTIMA[exponent, recursion], rel=1e-6)
    rates = solution.schedule["learning_rate"]
    if exponent > 0:
        assert rates[1] > rates[10] > rates[20] > rates[-1]
    else:
        assert np.all(rates[:28] > 1 - 1e-4 if not recursion else rates[:20] > 1 - 1e-4)


@pytest.mark.slow
def test_the_optimum_of_the_limit_is_not_that_of_sgd():
    for exponent, error in ((0.5, 0.002643109822), (-0.3, 0.035211955431)):
        schedule = ol.solve(
            ol.scenarios.power_law(teacher_exponent=exponent, recursion=False), method="direct"
        ).schedule
        exact = ol.scenarios.power_law(teacher_exponent=exponent)
        assert ol.evaluate(exact, schedule).objective == pytest.approx(error, rel=1e-5)


@pytest.mark.slow
def test_the_optimum_under_a_cap_that_the_limit_allows_diverges():
    """η up to 2, the hard task: a fine optimum of the ODE, and 10²⁴ in reality."""
    hard = {"teacher_exponent": -0.3, "max_rate": 2.0}
    solution = ol.solve(ol.scenarios.power_law(**hard, recursion=False), method="direct")
    assert solution.objective == pytest.approx(0.031175676833, rel=1e-6)
    exact = ol.scenarios.power_law(**hard, recursion=True)
    assert ol.evaluate(exact, solution.schedule).objective > 1e20


# Baselines, with their best first rate where it is known.
BASELINES = {
    (0.5, False): {
        "constant": (0.0055985395, 0.088034),
        "linear": (0.0027029868, 0.564666),
        "cosine": (0.0026723991, 0.567045),
        "WSD": (0.0027029868, None),
    },
    (-0.3, False): {
        "constant": (0.0649114202, 0.402793),
        "linear": (0.0414508898, 1.0),
        "cosine": (0.0415215193, 1.0),
        "WSD": (0.0340293052, 1.0),
    },
    (0.5, True): {
        "constant": (0.0056375923, None),
        "linear": (0.0027160218, None),
        "cosine": (0.0026915577, None),
        "WSD": (0.0027159594, None),
    },
}


@pytest.mark.slow
@pytest.mark.parametrize(("exponent", "recursion"), BASELINES)
def test_baselines(exponent, recursion):
    problem = ol.scenarios.power_law(teacher_exponent=exponent, recursion=recursion)
    found = ol.baselines(problem)
    assert set(found) == {"constant", "linear", "cosine", "WSD", "power decay"}
    for name, (error, rate) in BASELINES[exponent, recursion].items():
        assert ol.evaluate(problem, found[name]).objective == pytest.approx(error, rel=1e-6), name
        if rate is not None and name == "constant":
            assert found[name]["learning_rate"][0] == pytest.approx(rate, abs=1e-4)


# The share of training over which the best WSD decays: teacher exponent, recursion → share.
SHARES = {(-0.3, False): 0.308699, (0.5, True): 0.9625}


@pytest.mark.slow
@pytest.mark.parametrize(("exponent", "recursion"), SHARES)
def test_how_long_the_best_wsd_decays(exponent, recursion):
    problem = ol.scenarios.power_law(teacher_exponent=exponent, recursion=recursion)
    rates = problem.baselines["WSD"](problem, 40)["learning_rate"]
    left = 1 - (np.arange(40) + 0.5) / 40
    assert rates[0] == rates.max()
    # The line of the last ten intervals, back to where it leaves the plateau.
    share = left[-10:] / rates[-10:] * rates[0]
    np.testing.assert_allclose(share, SHARES[exponent, recursion], rtol=1e-3)


@pytest.mark.slow
def test_rate_and_batch_together():
    """The rate stays at its cap while batches grow. What a larger batch is worth is the slope of optima."""
    problem = ol.scenarios.power_law(control="both", recursion=False)
    solution = ol.solve(problem)
    assert solution.certificate.converged
    assert solution.objective == pytest.approx(0.001142474352, rel=1e-6)
    batch, rates = solution.schedule["batch"], solution.schedule["learning_rate"]
    assert batch.mean() == pytest.approx(4, abs=1e-6)
    assert batch[1] == pytest.approx(2.0, abs=0.05)
    assert batch.max() == batch[31] == pytest.approx(10.5, abs=0.05)
    assert np.all(rates[:32] > 1 - 1e-4)
    assert np.all(np.diff(rates[31:]) < 0)
    less, more = (
        ol.solve(
            ol.scenarios.power_law(control="both", recursion=False, mean_batch=mean), warm_start=solution
        ).objective
        for mean in (3.99, 4.01)
    )
    assert (less - more) / 0.02 == pytest.approx(1.745407e-4, rel=1e-4)


@pytest.mark.slow
def test_rate_and_batch_together_by_the_minimum_principle():
    problem = ol.scenarios.power_law(control="both", recursion=False)
    # What is left lies along a valley, across intervals, where the gap of first order sees a twentieth of it.
    solution = ol.solve(problem, method="indirect", starts=1, tolerance=1e-9)
    assert solution.certificate.converged
    assert solution.objective == pytest.approx(0.001142474352, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["direct", "indirect"])
def test_the_best_rate_for_batches_of_four(method):
    problem = ol.scenarios.power_law(recursion=False)
    solution = ol.solve(problem.with_parameters(batch=4.0), method=method)
    assert solution.objective == pytest.approx(0.001198555334, rel=1e-6)


def test_the_recursion_is_chosen_by_the_largest_direction():
    assert ol.scenarios.power_law().model.recursion
    assert not ol.scenarios.power_law(exponent=0.3).model.recursion
    assert not ol.scenarios.power_law(max_rate=0.2).model.recursion


def test_a_rate_that_the_limit_allows_diverges():
    """η = 1.5 is below 2, where the limit diverges, and above 1.36, where SGD does."""
    at = ol.Schedule.constant(10, {"learning_rate": 1.5})
    problem = ol.scenarios.power_law(max_rate=1.5, recursion=False)
    assert ol.evaluate(problem, at).objective < 1
    exact = ol.scenarios.power_law(max_rate=1.5, recursion=True)
    assert ol.evaluate(exact, at).objective > 1e3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"control": "momentum"}, "control"),
        ({"N": 1}, "at least 2"),
        ({"exponent": -0.5}, "at least 0"),
        ({"mean_batch": 20.0}, "below max_batch"),
        ({"sigma_n2": -1.0}, "at least 0"),
        ({"max_rate": 0.0}, "above 0"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(SpecificationError, match=message):
        ol.scenarios.power_law(**arguments)


def test_a_probe_reads_files(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 12)) * np.linspace(2, 0.3, 12)
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", X[:, 0] + 0.5 * rng.normal(size=300))
    problem = ol.scenarios.probe(str(tmp_path / "x.npy"), str(tmp_path / "y.npy"), blocks=4)
    assert problem.horizon == pytest.approx(300 / 12)
    assert float(problem.model.parameters["noise"]) == pytest.approx(0.25, rel=0.2)
    with pytest.raises(SpecificationError, match="a file each"):
        ol.scenarios.probe(features="x.npy")
    with pytest.raises(SpecificationError, match=r"must be a file of NumPy"):
        ol.scenarios.probe(str(tmp_path / "none.npy"), str(tmp_path / "y.npy"))


def test_a_probe_is_trained_and_not_simulated():
    problem = ol.scenarios.probe()
    with pytest.raises(SpecificationError, match=r"ol\.fit\.regression"):
        ol.simulate(problem, ol.Schedule.constant(problem.horizon, {"learning_rate": 0.1}), N=60)
