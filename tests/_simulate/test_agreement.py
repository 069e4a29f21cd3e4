"""The two simulators have the same distribution, and its mean tends to the theory."""

import numpy as np
import pytest

import optlearn as ol
from optlearn._engine.integrate import integrate
from optlearn._schedule import Mixture, Schedule
from optlearn._simulate.run import simulate, theory_beside
from optlearn.models import curriculum

# About 150 comparisons below, each |z| < 4.5 with probability 1 − 7e-6: a correct program fails with
# probability 1e-3, once for all, since the seeds are fixed.
THRESHOLD = 4.5
# The same number everywhere: another one would compile another program.
SEEDS = 4000


def mean_z(a, b):
    """Welch's z of the difference of two means; 0/0, two constants that are equal, counts as 0."""
    error = np.sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b))
    difference = a.mean() - b.mean()
    return 0.0 if abs(difference) < 1e-12 else difference / error


def variance_z(a, b):
    """z of the ratio of two variances; its error from the measured kurtosis, so not only for normals."""

    def parts(sample):
        centred = sample - sample.mean()
        second = np.mean(centred**2)
        return np.log(second), (np.mean(centred**4) / second**2 - 1) / len(sample)

    if max(a.std(), b.std()) < 1e-12:
        return 0.0
    (log_a, error_a), (log_b, error_b) = parts(a), parts(b)
    return (log_a - log_b) / np.sqrt(error_a + error_b)


def compare(overlaps, weights):
    names = (*overlaps.order_parameters, "error")
    found = {
        name: (
            mean_z(overlaps[name][:, -1], weights[name][:, -1]),
            variance_z(overlaps[name][:, -1], weights[name][:, -1]),
        )
        for name in names
    }
    assert np.max(np.abs(list(found.values()))) < THRESHOLD, found
    # Two that change together in one simulator do so in the other: compare the variance of sums too.
    states = [t.states[:, -1] / t.states[:, -1].std(axis=0).clip(1e-12) for t in (overlaps, weights)]
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(8, states[0].shape[1]))
    sums = [variance_z(*(state @ sign for state in states)) for sign in signs]
    assert np.max(np.abs(sums)) < THRESHOLD, sums


def test_overlaps_and_weights_agree_at_very_small_N(case):
    # So small that a wrong or forgotten term of order 1/N shows.
    common = {"start": case.start, "parameters": case.parameters, "N": 12, "record": 3}
    overlaps = simulate(case.model, case.schedule, **common, seeds=SEEDS, mode="overlaps")
    weights = simulate(case.model, case.schedule, **common, seeds=SEEDS, mode="weights", seed=1)
    compare(overlaps, weights)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("N", "dtype", "seeds"),
    [
        (100, "float32", 1000),
        (100, "float64", 1000),
        (1000, "float32", 300),
    ],
)
def test_they_agree_at_larger_N_in_either_precision_of_the_weights(N, dtype, seeds):
    model = curriculum()
    schedule = Schedule.piecewise([0, 0.1, 0.3], {"difficulty": [2.0, 0.5]})
    common = {"start": model.state(Q11=1, Q22=1), "N": N, "record": 3}
    overlaps = simulate(model, schedule, **common, seeds=SEEDS, mode="overlaps")
    weights = simulate(model, schedule, **common, seeds=seeds, mode="weights", seed=1, dtype=dtype)
    compare(overlaps, weights)


# |mean − theory| may be this over N beside the statistical error: the chain's bias is of order 1/N. The
# factor was chosen, not derived.
ALLOWANCE = 4.0


def check_theory(found, theory, N):
    for name in found.order_parameters:
        difference = np.abs(found.mean(name) - theory[name])[1:]
        allowed = THRESHOLD * found.standard_error(name)[1:] + ALLOWANCE / N
        assert np.all(difference < allowed), (name, difference, allowed)


def test_the_mean_of_the_chain_tends_to_the_theory(case):
    if not case.theory:
        pytest.skip("no closed form; the drift's own tests compare it with SGD")
    N = 400
    parameters = dict(case.parameters)
    if "N" in case.model.parameters:
        parameters["N"] = N
    common = {"start": case.start, "parameters": parameters, "record": 3}
    theory = integrate(case.model, case.schedule, **common)
    found = simulate(case.model, case.schedule, **common, N=N, seeds=SEEDS)
    check_theory(found, theory, N)


@pytest.mark.slow
def test_the_mean_of_sgd_tends_to_the_theory():
    model = curriculum()
    schedule = Schedule.piecewise([0, 0.5, 1], {"difficulty": [0.0, 2.0]})
    common = {"start": model.state(Q11=1, Q22=1), "record": 3}
    theory = integrate(model, schedule, **common)
    found = simulate(model, schedule, **common, N=1000, seeds=50, mode="weights")
    check_theory(found, theory, 1000)


@pytest.mark.slow
def test_the_spread_vanishes_like_one_over_root_N():
    model = curriculum()
    schedule = Schedule.constant(0.05, {"difficulty": 1.0})
    spreads = {}
    for N in (100, 10_000):
        found = simulate(model, schedule, start=model.state(Q11=1, Q22=1), N=N, seeds=SEEDS, record=3)
        spreads[N] = np.array([found[name][:, -1].std() for name in ("Q11", "Q22", "M11")])
    np.testing.assert_allclose(spreads[100] / spreads[10_000], 10, rtol=0.15)


LESSONS = {
    "easy": {"difficulty": 0.2, "learning_rate": 3.0},
    "hard": {"difficulty": 2.0, "learning_rate": 1.0},
}


def lessons() -> ol.Problem:
    """Two lessons, each with its difficulty and its learning rate."""
    model = curriculum()
    return ol.Problem(
        model=model,
        start=model.state(Q11=1, Q22=1),
        horizon=1.0,
        controls={"lesson": ol.Discrete(LESSONS)},
    )


@pytest.mark.parametrize("mode", ["overlaps", "weights"])
def test_a_mode_by_name_is_what_it_sets(mode):
    problem, grid, order = lessons(), [0, 0.3, 0.6, 1.0], [1.0, 0.0, 1.0]
    set_by_hand = {
        name: [LESSONS[("easy", "hard")[int(number)]][name] for number in order] for name in LESSONS["easy"]
    }
    options = {"start": problem.start, "N": 12, "record": 4, "seeds": 50, "mode": mode}
    found = simulate(problem, Schedule.piecewise(grid, {"lesson": order}), **options)
    expected = simulate(curriculum(), Schedule.piecewise(grid, set_by_hand), **options)
    for name in (*expected.order_parameters, "error"):
        np.testing.assert_array_equal(found[name], expected[name])


def test_modes_drawn_at_random_follow_the_relaxed_theory():
    problem, N = lessons(), 400
    shares = Mixture(np.array([0.0, 1.0]), np.array([[0.7, 0.3], [0.2, 0.8]]))
    schedule = Schedule(np.array([0, 0.4, 1.0]), {}, {"lesson": shares})
    found = simulate(problem, schedule, N=N, seeds=SEEDS, record=3)
    theory = theory_beside(found, problem, schedule)
    check_theory(found, theory, N)
    # Neither lesson alone gives this: the test can fail.
    alone = ol.integrate(
        problem.model, Schedule.constant(1.0, {"lesson": 1.0}), start=problem.start, record=found.alpha
    )
    with pytest.raises(AssertionError):
        check_theory(found, alone, N)


def test_modes_of_what_has_no_overlaps_are_refused():
    model = ol.models.FiniteData()
    problem = ol.Problem(
        model=model,
        start=model.start(),
        horizon=1.0,
        controls={"pace": ol.Discrete({"slow": {"learning_rate": 0.1}, "fast": {"learning_rate": 0.5}})},
    )
    with pytest.raises(
        ol.SpecificationError, match="modes by name of a LearningModel only, not of FiniteData"
    ):
        ol.simulate(problem, Schedule.constant(1.0, {"pace": 0.0}), N=20)
