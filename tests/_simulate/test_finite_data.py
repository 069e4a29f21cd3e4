"""SGD on fixed samples against its equations, and shuffled passes, which are another process."""

import numpy as np
import pytest

import optlearn as ol
from optlearn._errors import SpecificationError
from optlearn.models import FiniteData

NAMES = ("Q", "M", "train_error", "test_error")

# κ, η, Q at the start, passes, other settings.
CASES = [
    (1.0, 0.5, 0.5, 5, {}),
    (0.5, 0.3, 0.0, 5, {"weight_decay": 0.2}),
    (2.0, 0.5, 0.5, 3, {"batch": 3.0, "input_noise": 0.3, "label_noise": 0.4}),
]
MORE = [
    (0.5, 1.0, 0.0, 10, {}),
    (1.0, 0.3, 1.0, 10, {"weight_decay": 0.2}),
    (2.0, 1.0, 0.0, 10, {}),
    (4.0, 0.6, 1.0, 10, {}),
    (1.0, 1.5, 0.0, 10, {"batch": 8.0}),
    (2.0, 0.6, 0.0, 10, {"input_noise": 0.5}),
    (1.0, 0.6, 0.0, 10, {"label_noise": 0.5}),
]


def deviations(case, N, seeds):
    kappa, eta, Q, passes, settings = case
    model = FiniteData(kappa)
    horizon = passes * kappa / settings.get("batch", 1.0)
    schedule = ol.Schedule.constant(horizon, {"learning_rate": eta})
    given = {"start": model.start(Q=Q), "parameters": settings, "record": 5}
    theory = ol.integrate(model, schedule, **given)
    runs = ol.simulate_finite_data(model, schedule, N=N, seeds=seeds, **given)
    z = []
    for name in NAMES:
        error = runs[name][:, 1:].std(axis=0, ddof=1) / np.sqrt(seeds)
        z.append((runs[name][:, 1:].mean(axis=0) - theory[name][1:]) / error)
    return np.array(z)


@pytest.mark.parametrize("case", CASES[:1])
def test_sgd_follows_the_equations(case):
    assert np.max(np.abs(deviations(case, N=300, seeds=32))) < 4


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES + MORE)
def test_sgd_follows_the_equations_at_N_500(case):
    # Training errors are skewed over seeds: with few of them, z is not normal.
    z = deviations(case, N=500, seeds=48)
    assert np.max(np.abs(z)) < 4.5
    assert np.sqrt(np.mean(z**2)) < 2


@pytest.mark.slow
def test_shuffled_passes_are_another_process():
    model = FiniteData(2.0)
    schedule = ol.Schedule.constant(10, {"learning_rate": 0.6})
    ends = {}
    for sampling in ("replacement", "shuffle"):
        runs = ol.simulate_finite_data(model, schedule, N=200, seeds=24, sampling=sampling, record=2)
        final = runs["test_error"][:, -1]
        ends[sampling] = final.mean(), final.std(ddof=1) / np.sqrt(len(final))
    theory = ol.integrate(model, schedule, start=model.start(), record=2)["test_error"][-1]
    (drawn, error), (shuffled, other) = ends["replacement"], ends["shuffle"]
    assert abs(drawn - theory) < 4 * error
    assert shuffled < theory - 5 * other


@pytest.mark.slow
def test_every_shuffled_pass_takes_each_sample_once():
    # One pass at a rate that fits a sample exactly in one step, on orthogonal inputs: all are learned.
    X, y = np.sqrt(40) * np.eye(40), np.arange(40.0)
    given = (X, y, X, y)
    model = FiniteData.from_data(*given)
    schedule = ol.Schedule.constant(1.0, {"learning_rate": 1.0})
    once = ol.simulate_finite_data(model, schedule, data=given, seeds=2, sampling="shuffle", record=2)
    np.testing.assert_allclose(once["train_error"][:, -1], 0, atol=1e-20)
    drawn = ol.simulate_finite_data(model, schedule, data=given, seeds=2, record=2)
    assert np.all(drawn["train_error"][:, -1] > 1)


def test_sgd_on_given_data_follows_its_equations():
    rng = np.random.default_rng(1)
    X, X_test = rng.standard_normal((150, 100)), rng.standard_normal((80, 100))
    given = (X, np.sign(X[:, 0]), X_test, np.sign(X_test[:, 0]))
    model = FiniteData.from_data(*given)
    schedule = ol.Schedule.piecewise([0, 4, 8], {"learning_rate": [0.6, 0.2]})
    theory = ol.integrate(model, schedule, start=model.start(), record=5)
    runs = ol.simulate_finite_data(model, schedule, data=given, seeds=64, record=5)
    for name in ("Q", "train_error", "test_error"):
        # At N = 100 the equations are accurate to a few per cent.
        np.testing.assert_allclose(runs[name].mean(axis=0), theory[name], rtol=0.04, atol=0.002)


@pytest.mark.slow
def test_simulate_of_a_problem_is_the_same():
    model = FiniteData(1.0)
    problem = ol.Problem(
        model=model, start=model.start(), horizon=2, controls={"learning_rate": ol.Continuous(0, 1)}
    )
    schedule = ol.Schedule.constant(2, {"learning_rate": 0.5})
    one = ol.simulate(problem, schedule, N=50, seeds=2, record=3)
    other = ol.simulate_finite_data(problem, schedule, N=50, seeds=2, record=3)
    np.testing.assert_array_equal(one["test_error"], other["test_error"])
    assert one.info["sampling"] == "replacement"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sampling": "epochs"}, "sampling must be one of replacement, shuffle, got 'epochs'"),
        ({"N": None}, "N must be a whole number of at least 2, got None"),
        ({"seeds": 0}, "seeds must be a whole number of at least 1, got 0"),
        ({"parameters": {"batch": 0.5}}, "batch must be at least 1, got 0.5"),
        ({"start": {"response": np.ones(32), "variance": np.zeros(32)}}, "start must be model.start"),
        ({"model": "data"}, "model must be FiniteData, got str"),
    ],
)
def test_bad_input(changes, message):
    given = {"model": FiniteData(1.0), "N": 20, "seeds": 1} | changes
    with pytest.raises(SpecificationError, match=message):
        ol.simulate_finite_data(schedule=ol.Schedule.constant(1, {"learning_rate": 0.5}), **given)
