"""Noise along curves: its algebra, its size and memory from residuals, and errors that hold the truth."""

import warnings

import numpy as np
import pytest
from scipy.stats import norm
from tests.laws.conftest import PEAK, TRUTH, curve
from tests.laws.conftest import STEPS as RUN

from optlearn.laws import Curve, fit
from optlearn.laws._expectations import expectations
from optlearn.laws._fitted_law import REACH, _relative
from optlearn.laws._law import NAMES, PARAMETERS, Course, loss_after
from optlearn.laws._least_squares import NORMAL, Pull, Scale
from optlearn.laws._noise import Noise, robust_size

LONG = 6  # as long as the runs that expectations of paces are from, 24,000 steps
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


def as_expected(seed):
    """Parameters that are off what is expected by normal numbers of spreads, within their bounds."""
    rng, truth = np.random.default_rng([seed, 78]), dict(TRUTH)
    for name, parameter in expectations([], Scale(PEAK, LONG * RUN, 1.0)).items():
        if np.isfinite(parameter.spread):
            number = parameter.encode(parameter.start) + parameter.spread * rng.standard_normal()
            truth[name] = float(np.clip(parameter.decode(number), parameter.lower, parameter.upper))
    return truth


def drawn(size, memory, seed, truth=TRUTH):
    """Four curves of the law itself, with noise of which a share ``memory`` is left at the next point."""
    rng = np.random.default_rng([seed, 77])
    parameters = np.array([[truth[name] for name in NAMES]])
    curves = []
    for name in ("constant", "cosine", "drop", "half"):
        plain = curve(name, noise=0)
        lengths, rates, batches = plain.intervals(plain.edges(plain.step, 0), 0, 1.0)
        course = Course.stack([(lengths / RUN, rates / PEAK, batches)])
        noise = rng.standard_normal(len(plain.step))
        noise[1:] *= np.sqrt(1 - memory**2)
        for i in range(1, len(noise)):
            noise[i] += memory * noise[i - 1]
        loss = loss_after(parameters, course)[0, 0, plain.ends(plain.step, 0)] * np.exp(size * noise)
        curves.append(Curve(name, LONG * plain.step, plain.rate, loss))
    return curves


def hold_the_truth(size, memory, truths, starts):
    """(sets, 13) whether 1.96 standard errors reach the truth."""
    held = []
    for seed, truth in enumerate(truths, 1000):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = fit(drawn(size, memory, seed, truth), starts=starts, same_unit=True)
        held.append([abs(found.parameters[n] - truth[n]) <= 1.96 * found.standard_errors[n] for n in NAMES])
    return np.array(held)


SETS, FITTED = 40, 11  # the powers of sizes are fixed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "memory"),
    [(1e-3, 0.0), (4e-3, 0.0), (1e-2, 0.0), (4e-3, 0.9)],
    ids=["0.1", "0.4", "1", "0.4 remembered"],
)
def test_standard_errors_hold_the_truth(size, memory):
    """Truths are drawn from what is expected: for one that is fixed, no interval that uses it holds 95 %.

    Of 40 sets at 95 % each, a parameter is held in fewer than 33 by chance in 0.07 %, so that one of the 44
    counts here is in 3 % of all seeds, which are fixed. (Outside of 90 to 98 %, 36 to 39 of 40, one is in
    18 %: every parameter within that is too much to ask.) Parameters of a set are correlated; if they are
    worth five, the pooled share has a standard deviation of 1.5 %.
    """
    truths = [as_expected(seed) for seed in range(1000, 1000 + SETS)]
    held = hold_the_truth(size, memory, truths, 3)[:, :FITTED]
    counts = dict(zip(NAMES, held.sum(axis=0).tolist(), strict=False))
    assert min(counts.values()) >= 33, counts
    assert 0.9 <= held.mean() <= (0.99 if memory else 0.98), counts


def test_what_curves_say_little_of_varies_less_than_its_error():
    """Why 40 sets of one truth held 400 of 400 at 1 %: an estimate that is drawn to it hardly varies.

    Its standard error is still the spread of what is expected, as it must be for other truths.
    """
    found = [fit(drawn(1e-2, 0.0, seed), starts=1) for seed in range(4)]
    i = found[0].fitter.free.index("relaxation_power")
    numbers = np.array([each.parameters["relaxation_power"] for each in found])
    assert numbers.std() < 0.6 * np.mean([np.sqrt(each.covariance[i, i]) for each in found])


def test_the_noise_of_a_fit_is_that_of_its_curves():
    """What standard errors are counted in: 1.4e-3 where it is 4e-3, if most points count as outliers."""
    found = fit(drawn(4e-3, 0.0, 0), starts=1)
    assert found.effective_noise == pytest.approx(4e-3, rel=0.1)
    assert found.noise.share == 0


@pytest.mark.parametrize("error", [1e-3, 0.1, 0.4, 1.0, 3.0])
def test_an_interval_around_a_parameter_that_is_fitted_as_its_logarithm(error):
    reach = REACH * _relative(error)
    below = norm.cdf(np.log(1 - reach) / error) if reach < 1 else 0.0
    assert norm.cdf(np.log(1 + reach) / error) - below == pytest.approx(0.95, abs=1e-4)
    assert _relative(1e-8) == pytest.approx(1e-8)


def test_what_is_expected_costs_in_proportion(fitted):
    fitter, z = fitted.fitter, fitted.fitter.encode(fitted.optimum.parameters)
    power, middle = NAMES.index("noise_power"), PARAMETERS["noise_power"]
    z[power] = middle.start + 5 * middle.spread
    squares = np.zeros((2, len(fitter.jacobian(z))))
    squares[:, power - len(z)] = 5.0**2, 6.0**2
    cost = fitter._huber(squares)[0].sum(axis=1) / 2
    assert cost[1] - cost[0] == pytest.approx(fitter.pull[power] * middle.spread)
    assert cost[1] - cost[0] == pytest.approx(NORMAL.rate * fitter.prior**2)
    # Far off it draws, but does not hold; within a spread it holds by the change of its slope.
    assert fitter.hold(z)[power] == 0
    z[power] = middle.start + 0.5 * middle.spread
    assert fitter.hold(z)[power] == pytest.approx(fitter.pull[power] / (NORMAL.corner * middle.spread))
    off = np.linspace(-9, 9, 180_001)
    for pull in (Pull(0.5, 0.1), NORMAL):
        slope = pull.rate * np.minimum(np.abs(off) / pull.corner, 1)
        assert norm.pdf(off) @ slope**2 * (off[1] - off[0]) == pytest.approx(pull.mean_square, rel=1e-6)


def test_slopes_over_a_reach():
    """A head start that is hardly seen at its best value is seen where it may as well be."""
    found = fit(drawn(4e-3, 0.0, 0), starts=1)
    z, fitter = found.fitter.encode(found.optimum.parameters), found.fitter
    tangents = fitter.jacobian(z)[: -len(z)]
    near = fitter.secants(z, np.full(len(z), 1e-5))
    np.testing.assert_allclose(near, tangents, atol=1e-4 * np.abs(tangents).max())
    far = fitter.secants(z, np.full(len(z), 1.0))
    head_start = NAMES.index("head_start")
    ratio = np.linalg.norm(far[:, head_start]) / np.linalg.norm(tangents[:, head_start])
    assert ratio == pytest.approx(np.sinh(1.0), rel=0.15)
    assert found.draws(1).shape == (1, len(NAMES))
