"""The RL perceptron: published closed forms, the generic engine, weights at finite N."""

import jax
import numpy as np
import pytest
from scipy.stats import binom

import optlearn as ol
from optlearn._errors import SpecificationError
from optlearn.models import reward_learner

STATE = {"Q11": 0.8, "M11": 0.3}


@pytest.mark.parametrize("T", [1, 3, 10])
def test_the_published_equations(T):
    """Patel and others, for a reward if all decisions are right."""
    model, eta = reward_learner(T), 0.9
    drift = model.drift(model.state(**STATE), model.settings({"learning_rate": eta}))
    Q, rho = 0.8, 0.3 / np.sqrt(0.8)
    P = 1 - np.arccos(rho) / np.pi
    dQ = eta * np.sqrt(2 * Q / np.pi) * (1 + rho) * P ** (T - 1) + eta**2 * P**T / T
    turned = eta * (1 - rho**2) * P ** (T - 1) / np.sqrt(2 * np.pi * Q) - eta**2 * rho * P**T / (2 * T * Q)
    assert float(drift.Q[0, 0]) == pytest.approx(dQ, rel=1e-9)
    found = drift.M[0, 0] / np.sqrt(Q) - rho * drift.Q[0, 0] / (2 * Q)
    assert float(found) == pytest.approx(turned, rel=1e-9)


@pytest.mark.parametrize(
    ("T", "mistakes", "rule", "accuracy"),
    [
        (1, 0, ol.GaussHermite(30), 1e-7),
        (2, 0, ol.GaussHermite(16), 1e-4),
        (2, 1, ol.GaussHermite(16), 1e-4),
        pytest.param(3, 1, ol.QuasiMonteCarlo(18), 3e-3, marks=pytest.mark.slow),
    ],
)
def test_the_generic_engine_finds_the_closed_forms(T, mistakes, rule, accuracy):
    """A rule over T slots, integrated over their 2T fields, has the moments of one slot."""
    model = reward_learner(T, mistakes, penalty=0.3)
    x, u = model.state(**STATE), model.settings()
    closed, integrated = model.drift(x, u), jax.jit(lambda: model.drift(x, u, quadrature=rule))()
    np.testing.assert_allclose(closed.Q, integrated.Q, rtol=accuracy)
    np.testing.assert_allclose(closed.M, integrated.M, rtol=accuracy)


def test_the_greedy_rate_is_that_of_the_paper():
    """dρ/dα is quadratic in η; its maximum is √(Q/2π) T (1 − ρ²)/(ρP)."""
    T, Q, rho = 3, 0.8, 0.3 / np.sqrt(0.8)
    model = reward_learner(T)

    def turned(eta):
        drift = model.drift(model.state(**STATE), model.settings({"learning_rate": eta}))
        return float(drift.M[0, 0] / np.sqrt(Q) - rho * drift.Q[0, 0] / (2 * Q))

    once, twice = turned(1.0), turned(2.0)
    linear, square = 2 * once - twice / 2, twice / 2 - once
    P = 1 - np.arccos(rho) / np.pi
    expected = np.sqrt(Q / (2 * np.pi)) * T * (1 - rho**2) / (rho * P)
    assert -linear / (2 * square) == pytest.approx(expected, rel=1e-9)


def test_long_episodes_are_hardly_ever_rewarded():
    """Beyond twenty decisions the ways to choose mistakes exceed whole numbers of 64 bits."""
    model, P = reward_learner(40, mistakes=20), 1 - np.arccos(0.3 / np.sqrt(0.8)) / np.pi
    moments = model.moments(0.3 / np.sqrt(0.8), model.settings())
    assert float(moments.square) == pytest.approx(binom.cdf(20, 40, 1 - P) / 40, rel=1e-9)


def test_longer_slots_do_not_matter():
    long, exact = reward_learner(2, 1, 0.3, max_decisions=5), reward_learner(2, 1, 0.3)
    x = exact.state(**STATE)
    np.testing.assert_allclose(
        long.drift(x, long.settings()).Q, exact.drift(x, exact.settings()).Q, rtol=1e-12
    )


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["overlaps", "weights"])
def test_learning_at_finite_size(mode):
    """Two episode lengths in a row, with penalties; what is of order 1/N drops out."""
    model = reward_learner(2, 1, penalty=0.2, max_decisions=3)
    schedule = ol.Schedule.piecewise([0, 0.5, 1.0], {"decisions": [2, 3], "learning_rate": [1.0, 0.6]})
    start = model.state(Q11=1.0, M11=0.2)
    theory = ol.integrate(model, schedule, start=start, record=2)
    sizes, seeds = ((200, 400), 2000) if mode == "overlaps" else ((1000, 2000), 32)
    coarse, fine = (
        ol.simulate(model, schedule, start=start, N=N, seeds=seeds, seed=N, mode=mode, record=2).states[:, -1]
        for N in sizes
    )
    last = np.array([theory[name][-1] for name in theory.order_parameters])
    error = np.sqrt((4 * fine.var(axis=0, ddof=1) + coarse.var(axis=0, ddof=1)) / seeds)
    z = (2 * fine.mean(axis=0) - coarse.mean(axis=0) - last) / error
    assert np.max(np.abs(z)) < 4


def test_bad_input_names_the_argument():
    for changes, message in (({"mistakes": 3}, "mistakes"), ({"max_decisions": 2}, "max_decisions")):
        with pytest.raises(SpecificationError, match=message):
            reward_learner(3, **changes)
