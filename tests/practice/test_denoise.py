import jax
import jax.numpy as jnp
import numpy as np
import pytest

import optlearn as ol
from optlearn._errors import SpecificationError
from optlearn.practice import denoise
from optlearn.practice.fit import gaussian_mixture


def constant(noise, alpha_F=1.0):
    return ol.Schedule.constant(alpha_F, {"noise": noise})


def test_a_step_is_the_gradient_of_the_loss():
    rng = np.random.default_rng(0)
    N, K, noise, eta, skip_rate = 7, 2, 0.3, 0.7, 1.3
    x, w = rng.standard_normal(N), rng.standard_normal((K, N))
    z = denoise._stream("noise", 5, 0).standard_normal(N)  # what `train` draws

    def loss(w, b):
        noisy = jnp.asarray(np.sqrt(1 - noise) * x + np.sqrt(noise) * z)
        output = b * noisy + w.T @ (w @ noisy) / N
        return jnp.sum((x - output) ** 2) / 2

    dw, db = jax.grad(loss, argnums=(0, 1))(jnp.asarray(w), jnp.asarray(0.2))
    run = denoise.train(
        x[None, None],
        w,
        {"a": constant(noise, 1 / N)},
        np.eye(N),
        noise,
        eta=eta,
        skip_rate=skip_rate,
        skip=0.2,
        seed=5,
    )
    np.testing.assert_allclose(run.weights[0, 0], w - eta * dw, rtol=1e-12)
    np.testing.assert_allclose(run.skip[0, 0], 0.2 - skip_rate / N**2 * db, rtol=1e-12)


def test_error_is_the_mean_over_noise_of_the_reconstruction():
    rng = np.random.default_rng(1)
    X, w = rng.standard_normal((40, 12)), rng.standard_normal((2, 12))
    exact = denoise.mean_squared_error(w, 0.3, X.T @ X / len(X), 0.25)
    many = np.tile(X, (5000, 1))
    noisy, denoised = denoise.reconstruct(many, w, 0.3, 0.25, seed=2)
    errors = np.sum((many - denoised) ** 2, axis=1)
    assert abs(errors.mean() - exact) < 4 * errors.std() / np.sqrt(len(errors))
    assert np.var(noisy - np.sqrt(0.75) * many) == pytest.approx(0.25, rel=0.01)


def test_schedules_are_compared_on_the_same_images_noise_and_weights():
    rng = np.random.default_rng(2)
    images, w = 0.1 * rng.standard_normal((3, 20, 20)), rng.standard_normal((3, 2, 20))
    schedule = ol.Schedule.piecewise([0, 0.5, 1], {"noise": [0.2, 0.2]})
    run = denoise.train(images, w, {"a": constant(0.2), "b": schedule}, np.eye(20), 0.3, records=5)
    np.testing.assert_array_equal(run.error[:, 0], run.error[:, 1])
    np.testing.assert_array_equal(run.alpha, [0, 0.25, 0.5, 0.75, 1])
    assert run.improvement("a", "b").shape == (3, 5)
    np.testing.assert_array_equal(np.nan_to_num(run.improvement("a", "b")), 0)
    assert len(np.unique(run.error[:, 0, -1])) == 3
    last = denoise.train(images[2:], w[2], {"b": schedule}, np.eye(20), [0.3], records=2, first_set=2)
    np.testing.assert_allclose(last.error[0, 0], run.error[2, 1, [0, -1]], rtol=1e-12)


def test_step_has_the_noise_of_its_training_time():
    schedule = ol.Schedule.piecewise([0, 0.3, 1], {"noise": [0.1, 0.6]})
    values = denoise._noise_of_steps("a", schedule, 10, 10)
    np.testing.assert_array_equal(values, [0.1] * 3 + [0.6] * 7)


def test_training_on_gaussian_clusters_follows_the_theory():
    rng = np.random.default_rng(3)
    N, sets, sigma, delta = 400, 8, 0.1, 0.3
    centroids = rng.standard_normal((2, N))
    labels = rng.integers(0, 2, (sets, N))
    images = centroids[labels] / np.sqrt(N) + sigma * rng.standard_normal((sets, N, N))
    # The mixture itself, not a sample, gives the overlaps and the moments of the test images.
    copies = np.repeat(centroids / np.sqrt(N), 500, axis=0)
    fit = gaussian_mixture(copies + sigma * rng.standard_normal(copies.shape), np.repeat([0, 1], 500))
    fit = type(fit)(fit.classes, centroids, np.full(2, sigma), np.full(2, 0.5), fit.assignment, fit.isotropy)
    start = {"Q": np.eye(2) * 0.5, "R": np.array([[0.2, 0.0], [0.05, 0.2]])}
    weights = np.stack([fit.weights(**start, seed=s) for s in range(sets)])
    moment = centroids.T @ centroids / (2 * N) + sigma**2 * np.eye(N)
    schedule = ol.Schedule.piecewise([0, 0.5, 1.0], {"noise": [0.5, 0.1]})
    run = denoise.train(images, weights, {"a": schedule}, moment, delta, eta=2.0, skip_rate=5.0)
    expected = ol.evaluate(fit.denoising(start, delta, eta=2.0, skip_rate=5.0, finite_size=True), schedule)
    scale = np.sqrt(sets)
    for found, wanted in (
        (run.error[:, 0, -1], expected.objective),
        (run.skip[:, 0], expected["b"][-1]),
        (run.overlaps[:, 0, -1, 0, 0], expected["Q11"][-1]),
    ):
        # Corrections of order 1/N, and the scatter over training sets.
        assert abs(found.mean() - wanted) < 4 * found.std(ddof=1) / scale + 0.01 * abs(wanted)


def test_training_sets_and_what_is_held_out():
    rng = np.random.default_rng(4)
    X = rng.standard_normal((30, 5))
    chosen = denoise.training_sets(30, 3, 10, seed=1)
    assert all(len(set(row)) == 10 for row in chosen.tolist())
    assert len({tuple(row) for row in chosen.tolist()}) == 3
    moments = denoise.held_out_moment(X, chosen)
    rest = np.delete(X, chosen[1], axis=0)
    np.testing.assert_allclose(moments[1], rest.T @ rest / 20, atol=1e-12)
    with pytest.raises(SpecificationError, match="training must leave images to test on, got all 30"):
        denoise.held_out_moment(X, denoise.training_sets(30, 1, 30))


def test_interval_of_a_mean():
    values = np.random.default_rng(5).standard_normal((4000, 10))
    mean, half = denoise.mean_interval(values.T)
    assert np.mean(np.abs(mean) < half) == pytest.approx(0.95, abs=0.015)
    assert denoise.mean_interval([[1.0]])[1] == np.inf


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"schedules": {"a": constant(0.2, 2.0)}},
            "20 steps at N = 10; the training set has 10 images",
        ),
        ({"weights": np.ones((2, 11))}, r"weights must have shape .*, got \(2, 11\)"),
        ({"images": np.ones((10, 10))}, "images must be finite numbers in 3 axes"),
        ({"second_moment": np.eye(9)}, "second_moment must have shape"),
    ],
)
def test_wrong_arguments(change, message):
    good = {
        "images": np.ones((1, 10, 10)),
        "weights": np.ones((2, 10)),
        "schedules": {"a": constant(0.2)},
        "second_moment": np.eye(10),
        "test_noise": 0.2,
    }
    with pytest.raises(SpecificationError, match=message):
        denoise.train(**{**good, **change})


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_divergence_is_said():
    with pytest.raises(FloatingPointError, match="training diverged under schedule 'a'"):
        denoise.train(np.ones((1, 10, 10)), np.ones((2, 10)), {"a": constant(0.2)}, np.eye(10), 0.2, eta=1e6)
