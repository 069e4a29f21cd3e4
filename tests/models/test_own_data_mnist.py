"""Random features of MNIST with flipped labels: theory, training with replacement, and shuffled training."""

import os
from pathlib import Path

import numpy as np
import pytest

import optlearn as ol
from optlearn.models import FiniteData
from optlearn.practice import datasets

pytestmark = pytest.mark.slow
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
SEEDS = 16


@pytest.fixture(scope="module")
def given():
    """800 images of 800 random ReLU features; parity of the digit, one label in ten flipped."""
    folder = Path(os.environ.get(datasets.ENVIRONMENT) or SHARED)
    if datasets.MNIST.missing(datasets.MNIST.locate(folder)):
        pytest.skip(f"MNIST is not in {folder}; set {datasets.ENVIRONMENT} to the folder that has it")
    rng = np.random.default_rng(0)
    weights, bias = rng.standard_normal((784, 800)) / 28, 0.1 * rng.standard_normal(800)
    tables = []
    for split, count in (("train", 800), ("test", 4000)):
        images = datasets.mnist(split, folder)
        chosen = rng.permutation(len(images.images))[:count]
        pixels = np.asarray(images.images[chosen], dtype=float).reshape(count, -1) / 255
        flipped = np.where(rng.random(count) < 0.1, -1.0, 1.0)
        labels = np.where(images.labels[chosen] % 2 == 1, 1.0, -1.0) * flipped
        tables += [np.maximum(pixels @ weights + bias, 0), labels]
    mean = tables[0].mean(axis=0)
    return tables[0] - mean, tables[1], tables[2] - mean, tables[3]


@pytest.fixture(scope="module")
def problem(given):
    model = FiniteData.from_data(*given)
    controls = {"learning_rate": ol.Continuous(0, 0.5, guess=0.05)}
    return ol.Problem(model=model, start=model.start(), horizon=10.0, controls=controls, intervals=20)


def trained(problem, given, schedule, sampling="replacement"):
    runs = ol.simulate_finite_data(problem, schedule, data=given, seeds=SEEDS, sampling=sampling, record=2)
    return runs["test_error"][:, -1].mean()


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.3])
def test_theory_is_within_two_per_cent_of_training(problem, given, rate):
    schedule = ol.Schedule.constant(10.0, {"learning_rate": rate})
    theory = ol.evaluate(problem, schedule, record=2).objective
    assert trained(problem, given, schedule) == pytest.approx(theory, rel=0.02)


def test_what_the_optimal_schedule_wins(problem, given):
    solution = ol.solve(problem, method="indirect", starts=1)
    assert solution.certificate.converged
    constants = [ol.Schedule.constant(10.0, {"learning_rate": rate}) for rate in (0.02, 0.03, 0.04, 0.06)]
    values = [ol.evaluate(problem, schedule, record=2).objective for schedule in constants]
    best = constants[int(np.argmin(values))]
    assert solution.objective < min(values)
    for sampling in ("replacement", "shuffle"):
        ends = [trained(problem, given, s, sampling) for s in (solution.schedule, best)]
        assert ends[0] == pytest.approx(solution.objective, rel=0.02)
