"""What holds for every scenario in the catalogue, at the size of its example.

SGD follows its drift, two methods agree, budgets are met, baselines lose, bad input is refused by name, and
the call that made a problem makes it again.
"""

from typing import NamedTuple

import jax
import numpy as np
import pytest

import optlearn as ol
from optlearn._control.compare import broken_limits
from optlearn._errors import SpecificationError
from optlearn.scenarios._catalogue import catalogue
from optlearn.sweeps.finite_size import problem_at

every_scenario = pytest.mark.parametrize("entry", catalogue().values(), ids=catalogue())

# |z| below this for 139 order parameters in all, 64 of them of finite data with its few seeds: a correct
# program fails with probability 75 · 7e-6 + 64 · 2e-5 = 2e-3, once for all, since the seeds are fixed.
THRESHOLD, SIZES = 4.5, (200, 400)
# Every seed of finite data draws a data set of its own, which takes long.
SEEDS = {"finite_data": 100}
DURATION = 0.25  # training time of a run


@every_scenario
def test_bad_input_names_the_argument(entry):
    (name,) = entry.example.wrong
    with pytest.raises(SpecificationError, match=name):
        entry.function(**entry.example.wrong)


@every_scenario
def test_the_call_that_made_a_problem_makes_it_again(entry):
    for arguments in (entry.example.arguments, *entry.variants):
        problem = entry.function(**arguments)
        assert problem.made_by.scenario == entry.name
        assert dict(arguments).items() <= problem.made_by.arguments.items()
        again = entry.function(**problem.made_by.arguments)
        for part in ("controls", "budgets", "free", "horizon", "intervals", "name", "made_by"):
            assert getattr(again, part) == getattr(problem, part), part
        assert list(again.baselines) == list(problem.baselines)
        for of in (lambda p: [p.start], lambda p: [p.settings[name] for name in sorted(p.settings)]):
            pairs = zip(jax.tree.leaves(of(again)), jax.tree.leaves(of(problem)), strict=True)
            assert all(np.array_equal(a, b) for a, b in pairs)


# Two seconds or more each, of programs that are compiled.
SIMULATED_FOR_LONG = ("attention", "batch_size", "denoising", "denoising_batch", "diffusion", "finite_data")


# A probe is trained on given samples (tests/practice/test_regression.py); power laws have more blocks at a
# larger N (tests/models/test_linear.py, test_adam.py); deep linear networks have no large input
# (tests/models/test_deep_linear.py).
@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(entry, id=name, marks=[pytest.mark.slow] * (name in SIMULATED_FOR_LONG))
        for name, entry in catalogue().items()
        if name not in ("adam", "learning_effort", "power_law", "probe")
    ],
)
def test_sgd_follows_the_drift(entry):
    # The chain's mean differs from the theory by d(N) = c/N + O(1/N²): 2 d(2N) − d(N) has no c/N.
    coarse, fine = (deviation(entry, N) for N in SIZES)
    difference, error = 2 * fine.mean - coarse.mean, np.sqrt(4 * fine.variance + coarse.variance)
    fluctuates = error > 1e-12
    # A drift that is wrong by half of what was learned would be seen.
    assert np.max(fine.moved[fluctuates] / error[fluctuates]) > 2 * THRESHOLD
    assert np.all(np.abs(difference[~fluctuates]) < 1e-9)
    z = np.abs(difference[fluctuates]) / error[fluctuates]
    assert np.max(z) < THRESHOLD, z


class Deviation(NamedTuple):
    """Final order parameters (n,): mean over seeds minus theory, its variance, and the theory's change."""

    mean: np.ndarray
    variance: np.ndarray
    moved: np.ndarray


def deviation(entry, N):
    problem, depends_on_N = problem_at(entry.name, N, entry.example.arguments)
    grid = np.array([0.0, 0.5, 1.0]) * min(DURATION, problem.horizon)
    schedule = ol.Schedule.piecewise(grid, entry.example.values)
    expected = theory(entry.name, N if depends_on_N else None, problem, schedule)
    seeds = SEEDS.get(entry.name, 1000)
    run = ol.simulate(problem, schedule, N=N, seeds=seeds, seed=N, record=2, error=False)
    first, last = np.stack([expected[name] for name in run.order_parameters], axis=-1)
    final = run.states[:, -1]
    return Deviation(final.mean(axis=0) - last, final.var(axis=0, ddof=1) / seeds, np.abs(last - first))


THEORIES = {}


def theory(name, N, problem, schedule):
    """The course in theory, at its two ends; computed once where N does not matter."""
    if (name, N) not in THEORIES:
        THEORIES[name, N] = ol.integrate(
            problem.model,
            schedule,
            start=problem.start,
            parameters=problem.parameters,
            record=2,
            quadrature=problem.quadrature,
        )
    return THEORIES[name, N]


# Attention, which one method alone can solve, takes twenty seconds; the many baselines of networks of several
# layers, and gates, take ten.
TAKE_LONG = (
    "adam",
    "attention",
    "fine_tuning",
    "finite_data",
    "gating",
    "layers",
    "power_law",
    "probe",
    "task_order",
)


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(entry, id=name, marks=[pytest.mark.slow] * (name in TAKE_LONG))
        for name, entry in catalogue().items()
    ],
)
@pytest.mark.filterwarnings("ignore::optlearn.NotConvergedWarning")  # a coarse grid leaves a relaxation gap
def test_methods_agree_on_an_optimum_that_meets_its_budgets_and_beats_every_baseline(entry):
    example, problem = entry.example, entry.function(**entry.example.arguments)
    found = [ol.solve(problem, example.intervals, method, starts=1) for method in example.methods]
    # A baseline may switch within an interval of the coarse grid; so may, in effect, what mixes values there.
    best = [s.objective if s.relaxed is None else s.relaxed.objective for s in found]
    np.testing.assert_allclose(best, best[0], rtol=2e-6)
    for solution in found:
        assert solution.outcome.ok
        assert solution.certificate.budget_error < 1e-9
        assert broken_limits(problem, solution.schedule) == []
    assert problem.baselines
    for name, schedule in ol.baselines(problem, example.intervals).items():
        assert ol.evaluate(problem, schedule, record=2).objective > min(best) - 1e-9, name
