"""Two groups: closed forms against quadratures of other kinds, and the drift against single SGD steps."""

import jax
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr

from optlearn._engine.functions import pack
from optlearn._engine.tracing.trace import trace
from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule
from optlearn._simulate.run import simulate
from optlearn._theory.expectation import GaussHermite
from optlearn.models import imbalance

UNEQUAL = {
    "share": 0.3,
    "variance": (1.0, 0.4),
    "mean": (0.7, 0.4),
    "alignment": (0.6, -0.2),
    "similarity": 0.3,
    "eta": 0.7,
    "batch": 2.0,
    "sampling": 0.45,
    "reweighting": 0.6,
}


# The labels' jumps are cut; 30 nodes a side reach 6.6 standard deviations, beyond which lies 5e-11.
RULE = GaussHermite(30)


def outputs(model, flat, **overrides):
    """Drift (n,), error, and observables at a flat state, without compiling."""
    u = model.settings(overrides)
    names = []

    def listed(constants, flat):
        model, u = constants
        x = model.layout.unflatten(flat)
        seen = model.observables(x, u)
        names[:] = seen
        return (model.layout.flatten(model.closed_drift(x, u)), model.closed_error(x, u), *seen.values())

    found = trace(listed, (model, u), flat).function("outputs")(pack((model, u)), flat)
    drift, error, *seen = (np.array(part).ravel() for part in found)
    return drift, float(error[0]), {name: float(value[0]) for name, value in zip(names, seen, strict=True)}


def test_the_closed_drift_is_the_quadrature(tools):
    model = imbalance(**UNEQUAL)
    states, u = tools.random_states(model, 4, 1.5), model.settings()
    generic = tools.jit(
        lambda states: jax.lax.map(lambda flat: tools.flat_drift(model, RULE)(flat, u), states)
    )
    closed = [outputs(model, flat)[0] for flat in states]
    np.testing.assert_allclose(closed, generic(states), rtol=0, atol=1e-8)


def wrong_signs(h, k, r):
    """P(XY < 0) of normals with means h, k, variances 1, correlation r: Y given X, then X."""

    def given(z):
        other = ndtr(-np.sign(h + z) * (k + r * z) / np.sqrt(1 - r * r))
        return np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) * other

    options = {"epsabs": 1e-13, "epsrel": 1e-13}
    return quad(given, -9, -h, **options)[0] + quad(given, -h, 9, **options)[0]


def test_the_error_of_a_group_is_the_rate_of_its_wrong_signs(tools):
    model = imbalance(**UNEQUAL)
    S = model.overlaps.S
    for flat in tools.random_states(model, 5, 1.5):
        x, (_, error, seen) = model.layout.unflatten(flat), outputs(model, flat)
        exact = []
        for c, group in enumerate(("majority", "minority")):
            sigma, Q = np.sqrt(UNEQUAL["variance"][c]), x.Q[0, 0]
            h, k, r = S[c, c] / sigma, x.R[0, c] / (sigma * np.sqrt(Q)), x.M[0, c] / np.sqrt(Q)
            exact.append(wrong_signs(h, k, r))
            assert seen[f"error_{group}"] == pytest.approx(exact[c], abs=1e-10)
            assert seen[f"cosine_{group}"] == pytest.approx(r)
        assert error == pytest.approx(0.7 * exact[0] + 0.3 * exact[1], abs=1e-10)


def test_criteria_weigh_the_two_errors(tools):
    balanced, worst = (imbalance(**UNEQUAL, criterion=c, smoothing=0.01) for c in ("balanced", "worst"))
    for flat in tools.random_states(worst, 3, 1.5):
        _, error, seen = outputs(worst, flat)
        a, b = seen["error_majority"], seen["error_minority"]
        assert outputs(balanced, flat)[1] == pytest.approx((a + b) / 2, abs=1e-14)
        assert 0 <= error - max(a, b) <= 0.01 / 2


def test_without_weights_both_errors_are_a_half_and_have_a_gradient(tools):
    model = imbalance(criterion="worst")
    u = model.settings()
    value, slope = tools.jit(jax.value_and_grad(lambda flat: tools.flat_error(model)(flat, u)))(
        np.zeros(model.layout.size)
    )
    assert float(value) == pytest.approx(0.5 + float(u["smoothing"]) / 2, abs=1e-12)
    assert np.all(np.isfinite(slope))


def test_weights_pull_like_sampling_but_are_noisier(tools):
    """The same mean gradient at the natural share; its square is larger, the rarer the group."""
    model = imbalance(share=0.1, variance=(1.0, 0.4))
    for flat in tools.random_states(model, 3, 1.5):
        (weighted, *_), (sampled, *_) = (
            outputs(model, flat, **{control: 0.6}) for control in ("reweighting", "sampling")
        )
        np.testing.assert_allclose(weighted[1:], sampled[1:], rtol=0, atol=1e-14)
        assert weighted[0] > sampled[0]


# One step on fresh data, many times: its mean change times N is the drift, up to terms of order 1/N that
# are a tenth of the statistical error or less. 5 numbers in 2 modes, |z| < 4: a correct program fails
# with probability 6e-4, once for all, since seeds are fixed.
Z = 4.0


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "N", "seeds"), [("overlaps", 100_000, 20_000), ("weights", 1000, 3000)])
def test_the_drift_is_the_mean_of_single_steps(mode, N, seeds):
    model = imbalance(**(UNEQUAL | {"batch": 1.0}))
    start = model.state(Q=[[0.6]], M=[[0.3, 0.2]], R=[[0.21, -0.12]])
    single = Schedule.constant(1 / N, {})
    options = {"dtype": "float64"} if mode == "weights" else {}
    found = simulate(
        model, single, start=start, N=N, seeds=seeds, mode=mode, record=[1 / N], error=False, **options
    )
    change = N * (found.states[:, -1] - np.asarray(model.layout.flatten(start)))
    drift = outputs(model, np.asarray(model.layout.flatten(start)))[0]
    z = (change.mean(axis=0) - drift) / (change.std(axis=0) / np.sqrt(seeds))
    assert np.max(np.abs(z)) < Z, z


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"share": 0.0}, r"imbalance: share must be above 0 and below 1.*, got 0.0"),
        ({"share": "few"}, r"share must be a finite number.*, got 'few'"),
        ({"variance": (1.0, 0.0)}, r"variance must be 2 numbers, each above 0.*, got \(1.0, 0.0\)"),
        ({"variance": (1.0, 1.0, 1.0)}, r"variance .*must be 2 numbers"),
        ({"mean": (-1.0, 1.0)}, r"mean .*at least 0"),
        ({"alignment": (1.5, 0.0)}, r"alignment .*from -1 to 1"),
        ({"similarity": 2.0}, r"similarity must be from -1 to 1.*, got 2.0"),
        (
            {"alignment": (1.0, -1.0), "similarity": 1.0},
            "must be a cosine .* 1 and -1 can",
        ),
        ({"sampling": 1.2}, r"sampling must be from 0 to 1.*, got 1.2"),
        ({"reweighting": -0.1}, r"reweighting must be from 0 to 1.*, got -0.1"),
        ({"criterion": "best"}, r"criterion must be one of balanced, mean, worst.*, got 'best'"),
        ({"smoothing": 0.0}, r"smoothing must be above 0.*, got 0.0"),
        ({"eta": -1.0}, r"eta must be at least 0.*, got -1.0"),
        ({"batch": 0.0}, r"batch must be at least 1.*, got 0.0"),
    ],
)
def test_a_wrong_argument_is_named(arguments, message):
    with pytest.raises(SpecificationError, match=message):
        imbalance(**arguments)
