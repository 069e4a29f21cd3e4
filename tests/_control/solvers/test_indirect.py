import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from optlearn._control.compiled import Rollout
from optlearn._control.hamiltonian.multipliers import project_shares, projection_multiplier
from optlearn._control.runs import Outcome, Start
from optlearn._control.solvers.feasible import FeasibleSet
from optlearn._control.solvers.indirect import Indirect
from optlearn._errors import SpecificationError

# --- known answers ----------------------------------------------------------------------------------


def solve(case, steps=1, **options):
    return Indirect(**options).solve(case.rollout(steps), Start("test", *case.guess()))


def test_reference_values(indirect_case, indirect_solution):
    found = indirect_solution(indirect_case)
    assert found.outcome is Outcome.SOLVED
    assert found.objective == pytest.approx(indirect_case.reference, abs=indirect_case.tolerance)
    assert 0 <= found.gap <= 1e-7 * max(1, abs(found.objective))
    if indirect_case.parameters:
        np.testing.assert_allclose(found.theta, indirect_case.parameters, atol=1e-3)


def test_results_are_feasible_and_consistent(indirect_case, indirect_solution):
    found = indirect_solution(indirect_case)
    problem = indirect_case.compiled()
    relaxation = problem.relaxation
    lower, upper = relaxation.bounds
    assert np.all((found.w >= lower - 1e-12) & (found.w <= upper + 1e-12))
    assert np.all(relaxation.share_sums @ found.w.T <= 1 + 1e-12)
    rows, targets, equal = relaxation.budget_rows
    missed = rows @ found.w.mean(axis=0) - targets
    assert np.all(np.where(equal, np.abs(missed), missed) <= 1e-9)
    rolled = Rollout(problem, indirect_case.intervals).run(found.w, found.theta)
    assert found.objective == rolled.objective
    np.testing.assert_array_equal(found.costates, rolled.costates[1:])


def test_agrees_with_the_direct_method(direct_case, direct_solution, indirect_solution):
    direct, indirect = direct_solution(direct_case), indirect_solution(direct_case)
    size = max(1.0, abs(direct.objective))
    assert indirect.objective == pytest.approx(direct.objective, abs=1e-5 * size)
    # Never worse by more than it says itself.
    assert indirect.objective <= direct.objective + indirect.gap + 1e-8 * size


@pytest.mark.parametrize(
    "name",
    [
        "anti-curriculum",
        "three difficulties",
        "average error",
        "dropout, noise 0.3",
        "dropout, noise 0.1",
        "denoising, noise 0.1, 100 intervals",
        "denoising, noise 0.3, 100 intervals",
        "batch",
    ],
)
def test_costates_and_multipliers_agree_with_the_direct_method(cases, direct_solution, name):
    case = cases[name]
    direct = direct_solution(case)
    found = solve(case, tolerance=1e-9)
    scale = np.abs(direct.costates).max()
    np.testing.assert_allclose(found.costates, direct.costates, atol=1e-3 * scale)
    if name != "anti-curriculum":  # whose multiplier is not unique
        np.testing.assert_allclose(found.budget_multipliers, direct.budget_multipliers, rtol=1e-2, atol=1e-7)


def test_singular_arc_of_the_curriculum(cases):
    found = solve(cases["curriculum"], tolerance=1e-9)
    share = found.w[:, 0]
    middle = np.linspace(0, 12, 241)[:-1] + 0.025
    # Easy to 2.760, hard to 6.220, mixed to 9.051, easy to the end.
    assert np.all(share[middle < 2.7] == 1)
    assert np.all(share[(middle > 2.9) & (middle < 6.1)] < 1e-6)
    assert np.all(share[middle > 9.15] > 1 - 1e-6)
    mixed = share[(middle > 6.6) & (middle < 8.8)]
    assert np.all((mixed > 0.03) & (mixed < 0.2))
    assert found.objective == pytest.approx(0.14684129, abs=1e-8)


# --- starts and options -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["curriculum", "dropout, noise 0.1", "denoising, noise 0.3, 100 intervals"])
def test_every_start_leads_to_the_optimum(cases, name):
    case = cases[name]
    problem = case.compiled()
    lower, upper = problem.relaxation.bounds
    w, theta = case.guess()
    random = lower + (upper - lower) * np.random.default_rng(0).random(w.shape)
    starts = [Start("test", np.broadcast_to(v, w.shape), theta) for v in (lower, upper, random)]
    results = Indirect().run_all(case.rollout(), starts)
    assert len(results) == len(starts)
    for found in results:
        assert found.outcome is Outcome.SOLVED
        assert found.objective == pytest.approx(case.reference, abs=2 * case.tolerance)


def test_more_steps_change_little(cases):
    case = cases["dropout, noise 0.3"]
    found = solve(case, steps=2)
    assert found.outcome is Outcome.SOLVED
    assert found.costates.shape == (case.intervals, case.compiled().sizes[0])
    assert found.objective == pytest.approx(0.03408868, abs=5e-8)


def test_switches_to_a_better_minimum_of_the_hamiltonian(cases, direct_solution, indirect_solution):
    case = cases["double well"]
    assert direct_solution(case).objective > case.reference + 0.1  # the well in which it began
    assert indirect_solution(case).objective == pytest.approx(case.reference, abs=1e-9)


def test_iteration_limit_returns_the_best_so_far(cases):
    case = cases["curriculum"]
    found = solve(case, max_iterations=4)
    assert found.outcome is Outcome.ITERATIONS
    assert found.iterations <= 4
    assert case.reference + 1e-6 < found.objective < 0.14695
    assert found.gap >= found.objective - case.reference - 1e-6


@pytest.mark.parametrize("after", [1, 3])
def test_interrupt_returns_the_best_so_far(cases, after):
    case = cases["curriculum"]
    seen = []

    def tell(progress):
        if progress.gap is not None:
            seen.append((progress.iteration, progress.objective, progress.gap))
            if len(seen) == after:
                raise KeyboardInterrupt

    results = Indirect().run_all(case.rollout(), [Start("test", *case.guess())] * 2, tell)
    assert [r.outcome for r in results] == [Outcome.INTERRUPTED]
    assert results[0].objective == seen[-1][1] <= seen[0][1]
    assert np.isfinite(results[0].gap)


def test_objective_never_rises(cases):
    case = cases["dropout, noise 0.1"]
    seen = []
    Indirect().solve(case.rollout(), Start("test", *case.guess()), seen.append)
    iterations, objectives, gaps = np.array([(p.iteration, p.objective, p.gap) for p in seen]).T
    assert np.all(np.diff(iterations) >= 0)
    assert np.all(np.diff(objectives) <= 0)
    assert gaps[-1] <= 1e-7 < gaps[0]


def test_start_that_diverges_is_refused(cases):
    case = cases["double well"]
    w, theta = case.guess()
    w[3] = np.nan
    with pytest.raises(SpecificationError, match="objective of the start is nan"):
        Indirect().solve(case.rollout(), Start("test", w, theta))


# --- projection -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["three difficulties", "joint, two budgets", "average error", "batch", "dropout, noise 0.3"],
)
def test_projection_is_the_nearest_feasible_point(cases, name):
    case = cases[name]
    feasible = FeasibleSet(case.compiled(), case.intervals)
    rng = np.random.default_rng(3)
    start = feasible.join(*case.guess())
    point = start + rng.normal(size=start.shape)
    nearest = feasible.project(point)
    np.testing.assert_allclose(feasible.project(nearest), nearest, atol=1e-9)
    # (point − nearest) · (other − nearest) ≤ 0 for all feasible others: the nearest point.
    for _ in range(20):
        other = feasible.project(start + rng.normal(size=start.shape) * rng.choice([0.1, 1, 10]))
        assert (point - nearest) @ (other - nearest) <= 1e-7
    w, _ = feasible.split(nearest)
    rows, targets, equal = case.compiled().relaxation.budget_rows
    missed = rows @ w.mean(axis=0) - targets
    assert np.all(np.where(equal, np.abs(missed), missed) <= 1e-9)


def test_joining_undoes_splitting(cases):
    case = cases["joint"]
    feasible = FeasibleSet(case.compiled(), case.intervals)
    w, theta = case.guess()
    again, _ = feasible.split(feasible.join(w, theta))
    np.testing.assert_allclose(again, w, atol=1e-14)


@given(
    y=hnp.arrays(float, (7, 2), elements=st.floats(-3, 3)),
    row=hnp.arrays(float, 2, elements=st.sampled_from([-2.0, -0.5, 0.0, 0.3, 1.0])),
    share=st.floats(0, 1),
    start=st.floats(-20, 20),
)
def test_multiplier_meets_any_target_within_reach_from_anywhere(y, row, share, start):
    assume(np.any(row != 0))
    for shares, lowest, highest in (
        (False, np.minimum(row, 0).sum(), np.maximum(row, 0).sum()),
        (True, min(0, row.min()), max(0, row.max())),
    ):
        target = lowest + share * (highest - lowest)
        nu = projection_multiplier(y, row, target, start, shares=shares)
        moved = y - nu * row
        nearest = project_shares(moved) if shares else np.clip(moved, 0.0, 1.0)
        np.testing.assert_allclose((nearest @ row).mean(), target, atol=1e-12)
