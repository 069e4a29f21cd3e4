import warnings

import numpy as np
import pytest

from optlearn._errors import SpecificationError, UnphysicalStateError
from optlearn.practice.fit import AnisotropyWarning, gaussian_mixture


def mixture(n=3000, N=60, sigma=(0.3, 0.1), p=0.3, seed=0):
    """Samples, labels and centroids of x = μ_c/√N + σ_c g."""
    rng = np.random.default_rng(seed)
    centroids = rng.standard_normal((2, N))
    labels = (rng.random(n) > p).astype(int)
    X = centroids[labels] / np.sqrt(N) + np.array(sigma)[labels, None] * rng.standard_normal((n, N))
    return X, labels, centroids


class TestIsotropicData:
    def test_recovers_the_mixture(self):
        X, labels, centroids = mixture()
        fit = gaussian_mixture(X, labels)
        assert fit.N == 60
        assert fit.classes.tolist() == [0, 1]
        np.testing.assert_allclose(fit.sigma, [0.3, 0.1], rtol=0.02)
        np.testing.assert_allclose(fit.probabilities, [0.3, 0.7], atol=0.03)
        np.testing.assert_allclose(fit.centroids, centroids, atol=0.3)
        np.testing.assert_allclose(fit.Omega, fit.centroids @ fit.centroids.T / 60)
        np.testing.assert_allclose(fit.isotropy.ratio, 1, atol=0.03)
        assert fit.isotropy.top_share().max() < 0.05

    def test_more_dimensions_than_samples(self):
        X, labels, _ = mixture(n=120, N=400)
        fit = gaussian_mixture(X, labels)
        np.testing.assert_allclose(fit.isotropy.ratio, 1, atol=0.1)

    def test_finds_the_clusters(self):
        X, labels, _ = mixture(sigma=(0.1, 0.1))
        fit = gaussian_mixture(X, clusters=2, seed=3)
        np.testing.assert_array_equal(fit.assignment, labels)  # the smaller cluster is the first
        again = gaussian_mixture(X, clusters=2, seed=3)
        np.testing.assert_array_equal(fit.assignment, again.assignment)

    def test_images_and_named_labels(self):
        X, labels, _ = mixture(n=200)
        names = np.array(["cat", "dog"])[labels]
        fit = gaussian_mixture(X.reshape(200, 6, 10), names)
        assert fit.classes.tolist() == ["cat", "dog"]
        np.testing.assert_allclose(fit.centroids, gaussian_mixture(X, labels).centroids)

    def test_one_cluster_without_spread(self):
        fit = gaussian_mixture(np.ones((5, 4)), clusters=1)
        np.testing.assert_allclose(fit.sigma, 0, atol=1e-15)
        np.testing.assert_allclose(fit.Omega, 4)


def test_warns_with_numbers_when_the_spread_is_in_few_directions():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 3)) @ rng.standard_normal((3, 50))
    with pytest.warns(AnisotropyWarning, match=r"in about [123]\.\d of 50 directions \(45 if isotropic\)"):
        fit = gaussian_mixture(X, clusters=1)
    assert fit.isotropy.ratio[0] < 0.1
    assert fit.isotropy.top_share(3)[0] == pytest.approx(1)


class TestWeights:
    Q = ((1.0, 0.1), (0.1, 0.8))
    R = ((0.3, -0.1), (0.2, 0.25))

    def test_have_exactly_the_overlaps(self):
        fit = gaussian_mixture(*mixture()[:2])
        weights = fit.weights(self.Q, self.R, seed=4)
        start = fit.start(weights)
        np.testing.assert_allclose(start["Q"], self.Q, atol=1e-14)
        np.testing.assert_allclose(start["R"], self.R, atol=1e-14)
        assert np.abs(weights - fit.weights(self.Q, self.R, seed=5)).max() > 0.1

    def test_impossible_overlaps(self):
        fit = gaussian_mixture(*mixture()[:2])
        with pytest.raises(UnphysicalStateError, match="negative eigenvalue"):
            fit.weights(np.eye(2) * 0.01, self.R)

    def test_problem_of_the_data(self):
        fit = gaussian_mixture(*mixture()[:2])
        weights = fit.weights(self.Q, self.R)
        problem = fit.denoising(weights, Delta_F=0.2, eta=2.0)
        other = fit.denoising({"Q": self.Q, "R": self.R}, Delta_F=0.2, eta=2.0)
        for made in (problem, other):
            np.testing.assert_allclose(made.start.R, self.R, atol=1e-12)
            assert made.settings["N"] == 60
            assert made.settings["test_noise"] == 0.2
            np.testing.assert_allclose(made.settings["sigma"], fit.sigma)
            np.testing.assert_allclose(made.settings["cluster_probabilities"], fit.probabilities)
            np.testing.assert_allclose(made.model.overlaps.Omega, fit.Omega)
        assert problem.horizon == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"X": np.ones(3)}, "X must be samples of shape"),
        ({"X": np.full((3, 2), np.nan), "clusters": 1}, "X must be finite"),
        ({"X": np.ones((3, 2))}, "clusters must be the number to find"),
        ({"X": np.ones((3, 2)), "clusters": 4}, "from 1 to 3"),
        ({"X": np.ones((3, 2)), "labels": [0, 1]}, "labels must be one for each of"),
        ({"X": np.ones((3, 2)), "labels": [0, 1, 1]}, "fewer than two samples"),
        ({"X": np.ones((3, 2)), "labels": [1, 1, 1], "clusters": 2}, "must not both be given"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(SpecificationError, match=message):
        gaussian_mixture(**arguments)


def test_wrong_weights():
    fit = gaussian_mixture(*mixture(n=50)[:2])
    with pytest.raises(SpecificationError, match=r"shape \(K, 60\), .*got shape \(2, 61\)"):
        fit.start(np.ones((2, 61)))
    with pytest.raises(SpecificationError, match=r"shapes \(K, K\) and \(K, 2\), got"):
        fit.weights(np.eye(2), np.ones((2, 3)))


def test_zeros_and_ones_of_mnist(zeros_and_ones):
    with pytest.warns(AnisotropyWarning, match=r"cluster 0 in about 15\.4 of 784 .* cluster 1 in about 6\.3"):
        fit = gaussian_mixture(zeros_and_ones.rows(255 * 5), zeros_and_ones.labels)
    np.testing.assert_allclose(fit.Omega, [[2.7375, 0.79957], [0.79957, 1.1582]], atol=5e-5)
    np.testing.assert_allclose(fit.sigma, [0.050422, 0.033846], atol=5e-7)
    np.testing.assert_allclose(fit.probabilities, [0.46705, 0.53295], atol=5e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AnisotropyWarning)
        found = gaussian_mixture(zeros_and_ones.rows(255 * 5)[::20], clusters=2)
    # k-means finds the digits without being told.
    assert np.mean(found.assignment == zeros_and_ones.labels[::20]) > 0.97
