"""All points at once, with the results of one-by-one solving."""

import numpy as np
import pytest

import optlearn as ol
from optlearn._control.certificate import limits
from optlearn._errors import SpecificationError

OVER = {"eta": [1.5, 2.5, 3.5], "weight_decay": [0.0, 0.05, 0.1]}
QUICK = {"intervals": 40, "steps": 4}


@pytest.fixture(scope="module")
def batched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("batched") / "out"
    return ol.sweep("curriculum", OVER, out=folder, executor="batched", **QUICK), folder


@pytest.mark.slow
def test_the_batch_finds_what_one_by_one_solving_finds(batched):
    found, _ = batched
    alone = ol.sweep("curriculum", OVER, executor="serial", **QUICK)
    assert found["converged"].equals(alone["converged"])
    assert set(found.data_vars) == set(alone.data_vars)
    for mine, other in zip(found["objective"].values.ravel(), alone["objective"].values.ravel(), strict=True):
        assert abs(mine - other) <= limits(other)["relaxation_gap"]
    for mine, other in zip(
        found["relaxed_objective"].values.ravel(), alone["relaxed_objective"].values.ravel(), strict=True
    ):
        assert abs(mine - other) <= limits(other)["hamiltonian_gap"]
    hard = found["schedule_difficulty"].values > 0
    assert np.all(hard.sum(axis=-1) == 20)  # the budget, exactly


@pytest.mark.slow
def test_a_rate_and_a_batch_size_are_as_good_as_one_by_one():
    """What they minimise is a valley that no axis follows; points up to 2.4e-4 too high were certified."""
    over = {"sigma_n2": [0.3, 0.5, 1.0, 2.0], "mean_batch": [1.5, 2.0, 3.0]}
    fixed = {"control": "both", "N": 15, "recursion": False, "alpha_F": 6.0}
    found = ol.sweep("power_law", over, fixed=fixed, executor="batched", intervals=8)
    assert found["converged"].values.all()
    # One by one they take six seconds each: those that were farthest off, and two corners.
    for sigma, mean in ((1.0, 2.0), (0.3, 1.5), (2.0, 3.0)):
        alone = ol.solve(ol.scenarios.power_law(sigma_n2=sigma, mean_batch=mean, **fixed), 8)
        objective = float(found["objective"].sel(sigma_n2=sigma, mean_batch=mean))
        assert objective == pytest.approx(alone.objective, rel=1e-6)
    at = {"sigma_n2": 1.0, "mean_batch": 2.0}
    assert float(found["objective"].sel(at)) == pytest.approx(0.03915280, rel=1e-6)
    # Noise costs, and a larger batch holds less of it: no point is out of order.
    assert np.all(np.diff(found["objective"].values, axis=0) > 0)
    assert np.all(np.diff(found["objective"].values, axis=1) < 0)


@pytest.mark.slow
def test_finished_points_are_not_computed_again(batched):
    found, folder = batched
    next(iter(sorted((folder / "points").glob("*.json")))).unlink()
    told = []
    again = ol.sweep(
        "curriculum", OVER, out=folder, executor="batched", resume=True, progress=told.append, **QUICK
    )
    assert sum(not point.stored for point in told) == 1
    assert abs(again["objective"] - found["objective"]).max() <= 1e-9
    assert again["part"].values.tolist()[0] == [1, 0, 0]


@pytest.mark.parametrize(
    ("scenario", "over", "options", "message"),
    [
        ("curriculum", {"joint": [False, True]}, {}, "got a discrete and a continuous control together"),
        ("curriculum", {"eta": [1.0, 2.0]}, {"method": "greedy"}, "method must be one of auto, indirect"),
        ("dropout", {"eta": [1.0, 2.0]}, {}, r"got free parameters \(rescaling\)"),
    ],
)
def test_what_is_not_solved_in_a_batch_says_so(scenario, over, options, message):
    with pytest.raises(SpecificationError, match=message):
        ol.sweep(scenario, over, executor="batched", **options)


def test_problems_of_different_structure_are_told_apart():
    from dataclasses import replace

    from optlearn._control.batched.stack import stack

    one = ol.scenarios.curriculum()
    with pytest.raises(SpecificationError, match=r"got the number of intervals of .* unlike that of"):
        stack([one, replace(one, intervals=60)])
    with pytest.raises(SpecificationError, match=r"got the budgets of .* unlike that of"):
        stack([one, replace(one, budgets=())])
