"""Many passes over given samples: what is measured, and what is refused."""

import numpy as np
import pytest

import optlearn as ol
from optlearn._errors import SpecificationError


@pytest.fixture(scope="module")
def samples():
    rng = np.random.default_rng(0)
    X = 3 + rng.standard_normal((3000, 30)) * np.repeat([2.0, 0.5], [10, 20])
    return X, 7 + X @ np.linspace(1, 0, 30) + 0.5 * rng.standard_normal(3000)


def test_what_is_measured(samples):
    fit = ol.fit.many_passes(*samples, test_share=0.25)
    assert fit.to_dict()["samples"] == 2250
    assert fit.kappa == pytest.approx(75)
    assert fit.noise == pytest.approx(0.25, rel=0.1)
    assert fit.largest == pytest.approx(4 / 45, rel=0.2)
    assert fit.learning_rate(0.45) == pytest.approx(0.01, rel=0.05)
    assert fit.weight_decay(1.0) == pytest.approx(45 / 30, rel=0.05)
    problem = fit.problem(passes=2, decay=0.1)
    assert problem.horizon == pytest.approx(150)
    assert not problem.free


def test_noise_is_not_known_with_as_many_weights_as_samples(samples):
    X, y = samples
    assert ol.fit.many_passes(X[:36], y[:36], test_share=0.2).noise is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": np.ones((3, 2)), "y": np.ones(3)}, "at least 4 samples"),
        ({"y": np.ones(5)}, "must be 3000 labels, one for each row of X"),
        ({"X": np.ones((3000, 2))}, "a feature that is not constant"),
        ({"test_share": 0.0}, "test_share must be above 0"),
        ({"y": np.full(3000, np.nan)}, "y must be"),
    ],
)
def test_bad_input(samples, changes, message):
    with pytest.raises(SpecificationError, match=message):
        ol.fit.many_passes(**{"X": samples[0], "y": samples[1]} | changes)


def test_bad_problems(samples):
    fit = ol.fit.many_passes(*samples)
    with pytest.raises(SpecificationError, match="passes must be above 0, got 0"):
        fit.problem(0)
    with pytest.raises(SpecificationError, match="max_rate"):
        fit.problem(max_rate=-1)
