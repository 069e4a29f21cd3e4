"""Selection of samples by a margin: the known optimum, its shape, and SGD beside it."""

import numpy as np
import pytest

import optlearn as ol
from optlearn._control.evaluate import evaluate_anyway
from optlearn.scenarios import selection


@pytest.fixture(scope="module")
def problem():
    return selection()


@pytest.fixture(scope="module")
def solution(problem):
    return ol.solve(problem, method="direct", starts=1)


def test_known_values(problem, solution):
    everything = evaluate_anyway(problem, ol.Schedule.constant(10, {"threshold": 30.0}), record=2)
    assert everything.objective == pytest.approx(0.1213664, abs=1e-7)
    best = problem.baselines["best constant"](problem, 40)
    assert best["threshold"][0] == pytest.approx(1.0565, abs=1e-4)
    assert ol.evaluate(problem, best, record=2).objective == pytest.approx(0.1148317, abs=1e-7)
    assert solution.objective == pytest.approx(0.1019727, abs=1e-7)
    assert solution.certificate.converged


def test_the_student_grows_choosy(solution):
    threshold = solution.schedule["threshold"]
    assert np.all(np.diff(threshold) < 0)
    assert threshold[[0, -1]] == pytest.approx([2.9, 0.4], abs=0.05)


@pytest.mark.slow
def test_sgd_finds_the_same(problem, solution):
    ends = ol.simulate(problem, solution.schedule, N=1000, seeds=48, record=2)["error"][:, -1]
    assert abs(ends.mean() - solution.objective) < 4 * ends.std(ddof=1) / np.sqrt(48) + 5e-4
