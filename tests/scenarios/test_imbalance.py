"""Imbalance: what its page says of the optimum, against every baseline and both solvers."""

import numpy as np
import pytest

import optlearn as ol
from optlearn._control.compare import broken_limits
from optlearn._errors import SpecificationError


def solved(**arguments):
    return ol.solve(ol.scenarios.imbalance(**arguments), method="direct", starts=1)


def objectives(solution, skip=()):
    problem = solution.problem
    schedules = {name: make(problem, 60) for name, make in problem.baselines.items() if name not in skip}
    return {name: ol.evaluate(problem, s, record=2).objective for name, s in schedules.items()}


@pytest.fixture(scope="module")
def worst():
    return solved()


def test_the_optimum_is_converged_and_beats_every_baseline(worst):
    assert worst.certificate.converged
    values = objectives(worst)
    assert set(values) == {
        "natural share",
        "half and half",
        "best constant",
        "natural, then half and half",
        "majority, then minority",
        "minority, then majority",
    }
    assert min(values.values()) > worst.objective + 1e-4
    assert values["natural share"] == pytest.approx(0.2939364, abs=1e-7)
    assert worst.objective == pytest.approx(0.2102641, abs=1e-7)
    assert values["natural, then half and half"] == pytest.approx(values["half and half"], abs=1e-9)
    # The best constant wins most of it; of the rest, a single switch wins nearly all.
    assert values["best constant"] - worst.objective > 20 * (
        values["majority, then minority"] - worst.objective
    )


def test_majority_then_a_mixture_then_minority(worst):
    sampling = worst.schedule["sampling"]
    assert np.all(sampling[:28] < 1e-3)
    assert np.all((sampling[31:48] > 0.2) & (sampling[31:48] < 0.35))
    assert np.all(sampling[-8:] > 1 - 1e-3)


def test_both_groups_end_with_the_same_error(worst):
    a, b = (worst.trajectory[f"error_{group}"][-1] for group in ("majority", "minority"))
    assert abs(a - b) < 1e-3
    assert 0 < worst.objective - max(a, b) < 0.005 / 2


def test_the_narrow_group_last_leaves_less_noise(worst):
    """Share of the squared norm that lies along neither teachers nor centroids."""
    problem, overlaps = worst.problem, worst.problem.model.overlaps
    known = np.linalg.pinv(np.block([[overlaps.T, overlaps.S], [overlaps.S.T, overlaps.Omega]]), rcond=1e-10)

    def noise(schedule):
        x = ol.evaluate(problem, schedule, record=2)
        along = np.array([x[name][-1] for name in ("M11", "M12", "R11", "R12")])
        return 1 - along @ known @ along / x["Q11"][-1]

    names = ("best constant", "minority, then majority")
    constant, reversed_order = (noise(problem.baselines[name](problem, 60)) for name in names)
    assert noise(worst.schedule) < 0.21 < constant < 0.23 < 0.25 < reversed_order


def test_the_variance_decides_which_group_comes_first_not_the_share(worst):
    mirrored = solved(variance=(0.5, 1.0))
    assert mirrored.objective == pytest.approx(worst.objective, abs=1e-8)
    np.testing.assert_allclose(mirrored.schedule["sampling"], 1 - worst.schedule["sampling"], atol=2e-3)
    rarer = solved(share=0.05)
    assert rarer.objective == pytest.approx(worst.objective, abs=1e-8)


def test_with_equal_variances_nothing_beats_half_and_half():
    problem = ol.scenarios.imbalance(variance=(1.0, 1.0))
    solution = ol.solve(problem, intervals=20, method="direct", starts=1)
    half = ol.evaluate(problem, problem.baselines["half and half"](problem, 20), record=2)
    assert half.objective - solution.objective < 1e-6


def test_the_same_samples_in_another_order():
    kept = solved(fixed_share=True)
    assert kept.certificate.converged
    assert np.mean(kept.schedule["sampling"]) == pytest.approx(0.2, abs=1e-7)
    values = objectives(kept, skip={"best window"})
    assert values["minority last"] - kept.objective < 1e-6
    assert values["minority last"] < 0.73 * values["shuffled"] < 0.73 * values["minority first"]
    problem = kept.problem
    for make in problem.baselines.values():
        assert broken_limits(problem, make(problem, 60)) == []


@pytest.mark.parametrize("objective", ["mean", "balanced", "worst"])
def test_sampling_beats_weights(objective, worst):
    sampled = worst if objective == "worst" else solved(objective=objective)
    weighted = solved(objective=objective, control="reweighting")
    assert sampled.certificate.converged
    assert weighted.certificate.converged
    assert sampled.objective < weighted.objective - 1e-3
    if objective == "mean":
        assert np.mean(sampled.schedule["sampling"]) < 0.01


def test_sampling_and_rate_together_beat_either(worst):
    both, rate = solved(control="both"), solved(control="learning_rate")
    assert both.certificate.converged
    assert rate.certificate.converged
    assert both.objective < worst.objective - 0.01
    assert worst.objective < rate.objective - 0.01
    assert min(objectives(both, skip={"linear rate", "cosine rate", "exponential rate"}).values()) > 0.2
    # The mixture is gone: with a small rate at the end there is less noise to be annealed.
    assert np.mean((both.schedule["sampling"] > 0.01) & (both.schedule["sampling"] < 0.99)) < 0.1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"share": 1.0}, r"imbalance: share must be above 0 and below 1.*, got 1.0"),
        ({"objective": "best"}, r"objective must be one of mean, balanced, worst, got 'best'"),
        (
            {"control": "luck"},
            r"control must be one of sampling, .*, got 'luck'",
        ),
        ({"alpha_F": 0}, r"alpha_F must be above 0.*, got 0"),
        ({"max_learning_rate": 0}, r"max_learning_rate must be above 0.*, got 0"),
        ({"control": "both", "eta": 3}, r"eta must be at most max_learning_rate = 1.5.*, got 3"),
        ({"control": "reweighting", "fixed_share": True}, r"fixed_share .*only if sampling.*, got True"),
        ({"fixed_share": 1}, r"fixed_share must be True or False.*, got 1"),
    ],
)
def test_a_wrong_argument_is_named(arguments, message):
    with pytest.raises(SpecificationError, match=message):
        ol.scenarios.imbalance(**arguments)
