"""What holds for every scenario: SGD follows its drift, two methods agree, budgets are met, baselines lose.

A scenario that is not in ``REGISTRY`` fails the first test.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import optlearn as ol
from optlearn import scenarios
from optlearn._control.compare import broken_limits
from optlearn._errors import SpecificationError
from optlearn.sweeps.finite_size import problem_at


@dataclass(frozen=True)
class Entry:
    """How to test a scenario in little time.

    Attributes:
        values: of its controls in the first and in the second half of a run of SGD.
        intervals: of a coarse grid.
        arguments: of the scenario.
        wrong: an argument that must be refused.
        methods: that have to agree.
    """

    values: dict[str, list[float]]
    intervals: int
    arguments: dict[str, Any] = field(default_factory=dict)
    wrong: dict[str, Any] = field(default_factory=lambda: {"alpha_F": 0.0})
    methods: tuple[str, ...] = ("direct", "indirect")


REGISTRY = {
    # Its direct runs take minutes; ``test_attention`` compares sweeps with one, and with a general minimiser.
    "attention": Entry({"temperature": [3.0, 0.8]}, 8, methods=("indirect",)),
    "batch_size": Entry({"batch": [1.0, 3.0]}, 20, {"sigma_n": 0.5, "alpha_F": 10.0}),
    "curriculum": Entry({"difficulty": [0.0, 2.0]}, 240),
    "denoising": Entry({"noise": [0.6, 0.2]}, 40, {"finite_size": True}),
    "denoising_batch": Entry({"batch": [1.0, 4.0]}, 20, {"finite_size": True}),
    "dropout": Entry({"activation": [1.0, 0.6]}, 20),
    "gating": Entry({"gate": [0.5, 2.0]}, 10),
    "imbalance": Entry({"sampling": [0.1, 0.7]}, 60),
    "learning_rate": Entry({"learning_rate": [2.0, 0.5]}, 20, {"alpha_F": 20.0}),
    "task_order": Entry({"task": [1.0, 0.0]}, 150),
}


def test_every_scenario_is_registered():
    assert set(REGISTRY) == set(scenarios.list_scenarios())


@pytest.mark.parametrize("name", REGISTRY)
def test_bad_input_names_the_argument(name):
    wrong = REGISTRY[name].wrong
    with pytest.raises(SpecificationError, match=next(iter(wrong))):
        getattr(scenarios, name)(**wrong)


# |z| < 4.5 for at most 30 order parameters of ten scenarios: a correct program fails with probability
# 300 · 7e-6 = 2e-3, once for all, since the seeds are fixed.
THRESHOLD, SEEDS = 4.5, 2000


@pytest.mark.slow
@pytest.mark.parametrize("name", REGISTRY)
def test_sgd_follows_the_drift(name):
    # The chain's mean differs from the theory by d(N) = c/N + O(1/N²): 2 d(2N) − d(N) has no c/N.
    coarse, fine = (deviation(name, N) for N in (200, 400))
    difference = 2 * fine[0] - coarse[0]
    error = np.sqrt(4 * fine[1] + coarse[1])
    fluctuates = error > 1e-12
    assert np.any(fluctuates)
    assert np.all(np.abs(difference[~fluctuates]) < 1e-9)
    z = np.abs(difference[fluctuates]) / error[fluctuates]
    assert np.max(z) < THRESHOLD, z


def deviation(name, N):
    """Mean over seeds minus theory of the final order parameters (n,), and its variance (n,)."""
    entry = REGISTRY[name]
    problem, _ = problem_at(name, N, entry.arguments)
    grid = np.array([0.0, 0.5, 1.0]) * min(1.0, problem.horizon)
    schedule = ol.Schedule.piecewise(grid, entry.values)
    theory = ol.integrate(
        problem.model,
        schedule,
        start=problem.start,
        parameters=problem.parameters,
        record=2,
        rule=problem.rule,
    )
    assert np.max(np.abs(theory.states[-1] - theory.states[0])) > 0.01  # something has been learned
    run = ol.simulate(problem, schedule, N=N, seeds=SEEDS, seed=N, record=2, error=False)
    final = run.states[:, -1]
    return final.mean(axis=0) - theory.states[-1], final.var(axis=0, ddof=1) / SEEDS


@pytest.mark.slow
@pytest.mark.parametrize("name", REGISTRY)
def test_methods_agree_on_an_optimum_that_meets_its_budgets_and_beats_every_baseline(name):
    entry = REGISTRY[name]
    problem = getattr(scenarios, name)(**entry.arguments)
    found = [ol.solve(problem, entry.intervals, method, starts=2) for method in entry.methods]
    best = [s.objective if s.relaxed is None else s.relaxed.objective for s in found]
    np.testing.assert_allclose(best, best[0], rtol=2e-5)
    for solution in found:
        assert solution.outcome.ok
        assert solution.certificate.budget_error < 1e-9
        assert broken_limits(problem, solution.schedule) == []
    lowest = min(solution.objective for solution in found)
    for baseline, schedule in ol.baselines(problem, entry.intervals).items():
        assert ol.evaluate(problem, schedule, record=2).objective >= lowest - 1e-9, baseline
