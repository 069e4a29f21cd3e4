"""Simulations in batches, and how they approach the theory."""

import numpy as np
import pytest

import optlearn as ol
from optlearn._errors import SpecificationError
from optlearn._simulate.batch import simulate_many
from optlearn.sweeps import finite_size
from optlearn.sweeps.spec import Spec


@pytest.fixture(scope="module")
def problem():
    return ol.scenarios.curriculum(alpha_F=2.0)


@pytest.mark.parametrize(
    "names",
    [
        ("curriculum", "anti-curriculum"),
        pytest.param(("curriculum", "random mix", "random mix"), marks=pytest.mark.slow),  # two programs
    ],
)
def test_a_batch_is_what_single_runs_are(problem, names):
    """Lanes with other schedules and other parameters, and seeds in two parts."""
    other = ol.scenarios.curriculum(alpha_F=2.0, eta=1.0, weight_decay=0.1)
    lanes = [(problem, names[0]), *((other, name) for name in names[1:])]
    schedules = [p.baselines[name](p, 1) for p, name in lanes]
    told = []
    states, errors = simulate_many(
        [p for p, _ in lanes], schedules, N=60, seeds=4, seed=7, at_once=2, progress=told.append
    )
    shares = [news.done / news.total for news in told]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)
    for (one, _), schedule, state, error in zip(lanes, schedules, states, errors, strict=True):
        alone = ol.simulate(one, schedule, N=60, seeds=4, seed=7, record=2)
        np.testing.assert_allclose(error, alone["error"][:, -1], rtol=1e-10)
        first = one.model.layout.names[0]
        np.testing.assert_allclose(state[:, 0], alone[first][:, -1], rtol=1e-10)


def test_batches_that_make_no_sense(problem):
    schedule = ol.baselines(problem)["curriculum"]
    with pytest.raises(SpecificationError, match="2 problems and 1 schedules"):
        simulate_many([problem] * 2, [schedule], N=60, seeds=2)
    longer = ol.scenarios.curriculum(alpha_F=3.0)
    with pytest.raises(SpecificationError, match="schedules of 120 and of 180 steps"):
        simulate_many([problem, longer], [schedule, ol.baselines(longer)["curriculum"]], N=60, seeds=2)
    with pytest.raises(SpecificationError, match="seeds must be a whole number of at least 1, got 0"):
        simulate_many([problem], [schedule], N=60, seeds=0)


def test_a_grid_of_simulations(problem):
    over = {"alpha_F": [1.0, 2.0], "eta": [1.0, 3.0]}
    found = ol.sweeps.simulate(
        "curriculum", over, N=[40, 60], seeds=4, seed=7, at_once=2, schedule="curriculum"
    )
    assert found["error"].dims == ("alpha_F", "eta", "N", "seed")
    assert found["theory"].dims == ("alpha_F", "eta")
    assert np.isfinite(found["error"]).all()
    schedule = problem.baselines["curriculum"](problem, 1)
    alone = ol.simulate(problem, schedule, N=60, seeds=4, seed=7, record=2)
    cut = found.sel(alpha_F=2.0, eta=3.0, N=60)
    np.testing.assert_allclose(cut["error"], alone["error"][:, -1], rtol=1e-10)
    np.testing.assert_allclose(cut["Q11"], alone["Q11"][:, -1], rtol=1e-10)
    assert abs(cut["theory"] - ol.evaluate(problem, schedule).objective) < 1e-12
    with pytest.raises(SpecificationError, match=r"N must hold every dimension once, got \[40, 40\]"):
        ol.sweeps.simulate("curriculum", {"eta": [1.0]}, N=[40, 40], schedule="curriculum")
    with pytest.raises(SpecificationError, match="schedule must be a baseline, one of curriculum"):
        ol.sweeps.simulate("curriculum", {"eta": [1.0]}, N=40, schedule="nonsense")


def test_a_sweep_lends_its_optimal_schedules(serial, tiny):
    spec = Spec(tiny.plain, tiny.OVER)
    found = finite_size._schedule(spec, (1, 2), spec.problem((1, 2)), serial)
    np.testing.assert_array_equal(found["activation"], serial["schedule_activation"][1, 2])
    assert found.parameters == {"rescaling": float(serial["free_rescaling"][1, 2])}
    with pytest.raises(SpecificationError, match="not over the same values of 'eta'"):
        ol.sweeps.simulate(tiny.plain, {**tiny.OVER, "eta": [1.0]}, N=50, schedule=serial)


# --- finite size ------------------------------------------------------------------------------------


def test_a_power_law_is_recovered_with_its_error():
    N = np.array([100.0, 1000.0, 10000.0])
    law = finite_size.fit_power_law(N, -3.0 * N**-1.5, 0.01 * N**-1.5)
    assert law.exponent == pytest.approx(1.5)
    assert law.prefactor == pytest.approx(-3.0)
    assert law.chi2 == pytest.approx(0.0, abs=1e-9)
    assert law(100.0) == pytest.approx(-0.003)
    # Relative errors of 1/300 at three points two decades apart: σ = (1/300)/√Σ(x − x̄)².
    assert law.exponent_error == pytest.approx(1 / 300 / np.sqrt(2) / np.log(10))
    assert finite_size.fit_power_law(N[:1], N[:1], N[:1]) is None
    assert finite_size.fit_power_law(N, np.array([1.0, -1.0, 1.0]), N) is None


def with_N(N):
    """A scenario that depends on N itself: the problem above at N = 200, others elsewhere."""
    return ol.scenarios.curriculum(alpha_F=2.0, eta=3.0 * N / 200)


@pytest.fixture(scope="module")
def measured():
    return finite_size.measure(
        "curriculum", (100, 200, 400), 600, baselines=["anti-curriculum"], fixed={"alpha_F": 2.0}, seed=1
    )


@pytest.mark.slow
def test_the_variance_falls_like_one_over_N(measured, problem):
    """Exponent 1 within 4 standard errors: false-alarm rate 6e-5 for each of the two."""
    assert measured["variance"].dims == ("schedule", "N")
    assert measured["seeds"].values.tolist() == [600] * 3
    for schedule in ("optimum", "anti-curriculum"):
        law = finite_size.fit_variance(measured, schedule)
        assert law.points == 3
        assert abs(law.exponent - 1) < 4 * law.exponent_error
    theory = ol.evaluate(problem, problem.baselines["anti-curriculum"](problem, 1)).objective
    assert (abs(measured["theory"].sel(schedule="anti-curriculum") - theory) < 1e-12).all()


@pytest.mark.slow
def test_the_crossover_is_where_the_gain_is_as_large_as_the_scatter(measured):
    ratio, _ = finite_size.advantage(measured, "anti-curriculum")
    gain = measured["theory"][1] - measured["theory"][0]
    np.testing.assert_allclose(ratio, gain / np.sqrt(measured["variance"].sum("schedule")))
    inside = measured.assign(variance=measured["variance"] * ratio[1] ** 2)
    assert finite_size.crossover(inside, "anti-curriculum") == pytest.approx(200.0)
    outside = measured.assign(variance=measured["variance"] / 1e4)
    _, law = finite_size.advantage(outside, "anti-curriculum")
    N = finite_size.crossover(outside, "anti-curriculum")
    assert N < 100
    assert law(N) == pytest.approx(1.0)
    nothing = measured.assign(theory=0 * measured["theory"])
    assert np.isnan(finite_size.crossover(nothing, "anti-curriculum"))


@pytest.mark.slow
def test_a_scenario_with_an_N_of_its_own_is_solved_at_each_N(measured):
    found = finite_size.measure(with_N, (200, 400), 600, baselines=["anti-curriculum"], seed=1)
    np.testing.assert_allclose(found["mean"].sel(N=200), measured["mean"].sel(N=200), rtol=1e-9)
    np.testing.assert_allclose(found["theory"].sel(N=200), measured["theory"].sel(N=200), rtol=1e-12)
    assert (abs(found["theory"].sel(N=400) - measured["theory"].sel(N=400)) > 1e-3).all()
    assert (abs(found["bias"].sel(N=400)) < 0.01).all()  # mean and theory are of the same problem


def test_too_few_runs_for_a_variance():
    with pytest.raises(
        SpecificationError, match="seeds must be at least 4 for a variance and its error, got 3"
    ):
        finite_size.moments(np.ones(3), 1.0)
