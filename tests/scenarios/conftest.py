"""SGD against theory, for the tests of any scenario."""

import numpy as np
import pytest

import optlearn as ol

# |z| below this, for at most 30 order parameters of a scenario: a correct program fails with probability
# 30 · 7e-6 = 2e-4, once for all, since the seeds are fixed.
THRESHOLD = 4.5
SEEDS = 4000


def mean_and_variance(run):
    """Mean over seeds of the final order parameters (n,), and its variance (n,)."""
    final = run.states[:, -1]
    return final.mean(axis=0), final.var(axis=0, ddof=1) / len(final)


def largest_z(difference, variance):
    """Largest |z|; order parameters that do not fluctuate must agree up to round-off."""
    assert np.all(np.abs(difference[variance < 1e-24]) < 1e-9)
    return np.max(np.abs(difference) / np.sqrt(np.maximum(variance, 1e-24)))


@pytest.fixture
def z_of_sgd():
    """(problem, schedule) → largest |z| of SGD in both modes: (chain against theory, weights against chain).

    The chain's mean differs from the theory by c/N + O(1/N²): 2 mean(2N) − mean(N) has no c/N. Weights and
    chain have the same distribution at any N, so these are compared at a very small one.
    """

    def check(problem, schedule):
        common = {"start": problem.start, "record": 2, "seeds": SEEDS, "error": False}
        theory = ol.integrate(
            problem.model, schedule, start=problem.start, parameters=problem.parameters, record=2
        )
        runs = [ol.simulate(problem, schedule, N=N, seed=N, **common) for N in (50, 100)]
        (coarse, coarse_variance), (fine, fine_variance) = map(mean_and_variance, runs)
        chain = largest_z(2 * fine - coarse - theory.states[-1], 4 * fine_variance + coarse_variance)
        pair = [ol.simulate(problem, schedule, N=16, mode=m, **common) for m in ("overlaps", "weights")]
        (a, a_variance), (b, b_variance) = map(mean_and_variance, pair)
        return chain, largest_z(a - b, a_variance + b_variance)

    return check
