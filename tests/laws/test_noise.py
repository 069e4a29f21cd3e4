"""Noise along curves: its algebra, its size and memory from residuals, and errors that hold the truth."""

import warnings

import numpy as np
import pytest
from tests.laws.conftest import PARAMETERS, PEAK, curve
from tests.laws.conftest import STEPS as RUN

from optlearn.laws import Curve, fit
from optlearn.laws._law import NAMES, Course, loss_after
from optlearn.laws._noise import Noise, robust_size

STEPS = [np.cumsum(1.0 + np.arange(60) % 3), np.arange(2.0, 200.0, 2.0)]


def correlations(noise):
    """The same, point by point."""
    dense = np.zeros((len(noise.gaps),) * 2)
    ends = np.cumsum([len(step) for step in STEPS])
    for step, end in zip(STEPS, ends, strict=True):
        kept = slice(end - len(step), end)
        dense[kept, kept] = np.exp(-np.abs(step[:, None] - step) / noise.memory)
    return noise.share * dense + (1 - noise.share) * np.eye(len(dense))


def noise_with(variance, share, memory):
    gaps = np.concatenate([np.append(np.inf, np.diff(step)) for step in STEPS])
    return Noise(gaps, variance, share, memory)


@pytest.mark.parametrize(("share", "memory"), [(0.0, 1.0), (0.7, 5.0), (1.0, 300.0)])
def test_sums_and_determinants_are_those_of_the_whole_matrix(share, memory):
    noise = noise_with(2.0, share, memory)
    weights = np.random.default_rng(0).standard_normal((len(noise.gaps), 3))
    dense = correlations(noise)
    np.testing.assert_allclose(noise.of_sums(weights), 2.0 * weights.T @ dense @ weights, rtol=1e-9)
    log_determinant, products = noise._whitened(weights)
    assert log_determinant == pytest.approx(np.linalg.slogdet(dense)[1], abs=1e-8)
    np.testing.assert_allclose(products, weights.T @ np.linalg.solve(dense, weights), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("share", "memory"), [(0.0, 1.0), (0.5, 10.0), (1.0, 10.0)])
def test_noise_from_what_a_fit_has_left_of_it(share, memory):
    """Slow noise is partly fitted away; the variance of sums is found nevertheless."""
    true = noise_with(1e-6, share, memory)
    time = np.concatenate(STEPS) / 200
    design = np.stack([np.ones_like(time), time, time**2, np.exp(-5 * time), np.sin(9 * time)], axis=1)
    root = 1e-3 * np.linalg.cholesky(correlations(true))
    directions, _ = np.linalg.qr(design)
    found = []
    for seed in range(20):
        drawn = root @ np.random.default_rng(seed).standard_normal(len(time))
        residuals = drawn - directions @ (directions.T @ drawn)
        found.append(Noise.of(residuals, design, np.zeros(5), STEPS).of_sums(directions))
    ratio = np.diag(np.mean(found, axis=0)) / np.diag(true.of_sums(directions))
    np.testing.assert_allclose(ratio, 1.0, atol=0.3)


def test_the_size_of_noise_does_not_see_spikes():
    residuals = np.random.default_rng(0).standard_normal(1000)
    residuals[::20] = 50.0
    assert robust_size(residuals) == pytest.approx(1.0, rel=0.15)
    assert robust_size(np.zeros(5)) > 0


def drawn(size, memory, seed):
    """Four curves of the law itself, with noise of which a share ``memory`` is left at the next point."""
    rng = np.random.default_rng([seed, 77])
    curves = []
    for name in ("constant", "cosine", "drop", "half"):
        plain = curve(name, noise=0)
        lengths, rates, batches = plain.intervals(plain.edges(plain.step, 0), 0, 1.0)
        course = Course.stack([(lengths / RUN, rates / PEAK, batches)])
        noise = rng.standard_normal(len(plain.step))
        noise[1:] *= np.sqrt(1 - memory**2)
        for i in range(1, len(noise)):
            noise[i] += memory * noise[i - 1]
        loss = loss_after(PARAMETERS, course)[0, 0, plain.ends(plain.step, 0)] * np.exp(size * noise)
        curves.append(Curve(name, plain.step, plain.rate, loss))
    return curves


def hold_the_truth(size, memory, sets):
    """(sets, 10) whether two standard errors reach the truth."""
    held = []
    for seed in range(sets):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = fit(drawn(size, memory, seed), starts=1)
        off = np.abs(found.optimum.parameters - PARAMETERS[0])
        held.append(off <= 1.96 * np.array([found.standard_errors[name] for name in NAMES]))
    return np.array(held)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "memory"), [(1e-3, 0.0), (4e-3, 0.0), (1e-2, 0.0), (4e-3, 0.9)])
def test_standard_errors_hold_the_truth(size, memory):
    """In 40 sets each. At 95 % each, one of the 40 counts is below 32 by chance in 1 % of all runs."""
    held = hold_the_truth(size, memory, 40)
    assert np.all(held.sum(axis=0) >= 32), dict(zip(NAMES, held.sum(axis=0).tolist(), strict=True))
    assert 0.9 <= held.mean() <= 0.99


def test_the_noise_of_a_fit_is_that_of_its_curves():
    """What standard errors are counted in: 1.4e-3 where it is 4e-3, if most points count as outliers."""
    found = fit(drawn(4e-3, 0.0, 0), starts=1)
    assert found.effective_noise == pytest.approx(4e-3, rel=0.1)
    assert found.noise.share == 0
