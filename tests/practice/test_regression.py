"""Least squares on given data: what is measured, predicted, and trained."""

import numpy as np
import pytest

import optlearn as ol
from optlearn._errors import SpecificationError
from optlearn.practice import datasets


@pytest.fixture(scope="module")
def gaussian():
    rng = np.random.default_rng(0)
    widths = np.repeat([2.0, 0.7, 0.3], [2, 8, 20])
    X = 1.5 + rng.normal(size=(20_000, 30)) * widths
    y = 3 + X @ np.linspace(1, 0, 30) + 0.8 * rng.normal(size=20_000)
    return ol.fit.regression(X, y)


def test_what_is_measured(gaussian):
    assert gaussian.noise == pytest.approx(0.64, rel=0.03)
    assert gaussian.largest == pytest.approx(4 / 13.72, rel=0.05)
    np.testing.assert_allclose(gaussian.measured.weights, np.linspace(1, 0, 30), atol=0.1)
    np.testing.assert_allclose(gaussian.measured.noise_shape, 1, atol=0.1)
    assert gaussian.predict(ol.Schedule.constant(0.1, {"learning_rate": 0.5}))[0] == pytest.approx(
        np.var(gaussian.y) - gaussian.noise, rel=1e-9
    )


def test_training_is_as_predicted(gaussian):
    schedule = ol.Schedule.from_function(10, {"learning_rate": lambda a: 0.6 * (1 - a / 10)}, 20)
    trained = gaussian.train(schedule, seeds=200, record=4)
    predicted = gaussian.predict(schedule)[trained.steps]
    scores = (trained.mean - predicted)[1:] / trained.standard_error[1:]
    assert np.all(np.abs(scores) < 4), scores
    (row,) = gaussian.check({"line": schedule}, seeds=8)
    assert row.predicted == predicted[-1]
    assert row.trained == pytest.approx(row.predicted, rel=0.5)


def test_blocks_predict_what_all_directions_do(gaussian):
    problem = gaussian.problem(steps=600, blocks=12)
    schedule = ol.Schedule.constant(problem.horizon, {"learning_rate": 0.4})
    few = 2 * ol.evaluate(problem, schedule).objective
    assert few == pytest.approx(gaussian.predict(schedule)[-1], rel=0.02)
    assert problem.model.spectrum.reduction_error < 0.05


def test_batches_are_played(gaussian):
    schedule = ol.Schedule.piecewise([0, 2, 4], {"learning_rate": [0.6, 0.6], "batch": [1.0, 6.5]})
    trained = gaussian.train(schedule, seeds=200, record=2)
    assert trained.mean[-1] == pytest.approx(gaussian.predict(schedule)[-1], rel=0.15)
    assert gaussian.learning_rate(0.6) == pytest.approx(0.6 / gaussian.measured.variances.sum())


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.ones((5, 8)), np.ones(5), "more samples"),
        (np.ones(5), np.ones(5), "more samples"),
        (np.ones((50, 3)), np.arange(50.0), "a feature that varies"),
        (np.random.default_rng(0).normal(size=(50, 3)), np.ones(50), "must vary"),
        (np.random.default_rng(0).normal(size=(50, 3)), np.ones(49), "one for each row"),
        (np.full((50, 3), np.nan), np.arange(50.0), "finite"),
        ("pixels", np.ones(3), "X must be an array of real numbers"),
    ],
)
def test_bad_data(X, y, message):
    with pytest.raises(SpecificationError, match=message):
        ol.fit.regression(X, y)


def test_bad_schedules(gaussian):
    with pytest.raises(SpecificationError, match="must hold 'learning_rate'"):
        gaussian.predict(ol.Schedule.constant(1, {"batch": 2.0}))
    with pytest.raises(SpecificationError, match="at least 1"):
        gaussian.problem(steps=0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pixels", "features"])
def test_theory_predicts_training_on_mnist(kind, real_mnist):
    images = datasets.mnist("train", real_mnist)
    chosen = np.random.default_rng(0).permutation(len(images))[:50_000]
    X, y = images.rows()[chosen], np.where(images.labels[chosen] % 2 == 1, 1.0, -1.0)
    if kind == "features":
        X = np.maximum(X @ np.random.default_rng(0).normal(size=(784, 1000)) / 28, 0.0)
    fit = ol.fit.regression(X, y)
    horizon = 20_000 / fit.measured.directions
    schedules = {f"{r}": ol.Schedule.constant(horizon, {"learning_rate": r}) for r in (0.1, 0.3, 0.6)}
    schedules["line"] = ol.Schedule.from_function(
        horizon, {"learning_rate": lambda a: 0.6 * (1 - a / horizon)}, 200
    )
    for row in fit.check(schedules, seeds=64):
        assert row.trained == pytest.approx(row.predicted, rel=0.05, abs=3 * row.standard_error), row
