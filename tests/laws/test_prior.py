"""What other fits say: expectations in the units of a new fit, one run alone, several sizes, and units."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from tests.laws.conftest import STEPS, TRUTH, curve, rates, true_loss

from optlearn._errors import SpecificationError
from optlearn.laws import Curve, LawWarning, fit, read_curves
from optlearn.laws._expectations import DIFFER, expectations
from optlearn.laws._law import NAMES, PARAMETERS, at_size
from optlearn.laws._least_squares import Scale


def cut(run, last):
    kept = run.step <= last
    return Curve(run.name, run.step[kept], run.rate[kept], run.loss[kept])


def test_expectations_are_in_the_units_of_the_new_fit(fitted):
    """Twice the steps: modes relax twice as often in a run, and a head start is half as large a part."""
    same = expectations([fitted], fitted.data.scale)
    longer = expectations([fitted], replace(fitted.data.scale, steps=2 * STEPS))
    assert same["speed"].start == pytest.approx(fitted.parameters["speed"])
    assert longer["head_start"].start == pytest.approx(same["head_start"].start / 2)
    fall = fitted.parameters["noise_fall"]  # gradients are smaller at the end of a longer run
    assert longer["speed"].start == pytest.approx(same["speed"].start * 2 ** (1 + fall))
    assert longer["noise"].start == pytest.approx(same["noise"].start * 2**-fall)
    assert same["floor"] == PARAMETERS["floor"]  # no evidence
    for name, differ in DIFFER.items():
        assert differ <= same[name].spread <= PARAMETERS[name].spread, name
    any_network = expectations([], Scale(1, 24000, 1))
    assert {n for n, p in any_network.items() if p != PARAMETERS[n]} <= {"speed"}
    assert any_network["speed"].start == pytest.approx(300)
    assert expectations([], Scale(1, 48000, 1))["speed"].start == pytest.approx(600)  # paces are in steps
    assert expectations([], Scale(1, 1, 1))["speed"].start == PARAMETERS["speed"].lower


def test_of_a_lone_run_what_is_usual_counts_beside_an_uncertain_prior(fitted):
    """Fits that disagree on how noise falls say little of it at another time."""
    scale = replace(fitted.data.scale, steps=STEPS / 8)
    other = replace(fitted, optimum=replace(fitted.optimum, parameters=fitted.optimum.parameters.copy()))
    other.optimum.parameters[list(PARAMETERS).index("noise_fall")] += 1.0
    usual = expectations([], scale, alone=1.0)["noise"]
    for fits, weight in (([fitted], 0.1), ([fitted, other], 0.3)):
        told = expectations(fits, scale)["noise"]
        both = expectations(fits, scale, alone=1.0)["noise"]
        assert both.spread < min(told.spread, usual.spread)
        ways = np.log([told.start, both.start, usual.start])
        share = (ways[1] - ways[0]) / (ways[2] - ways[0])
        assert (share > weight) == (len(fits) == 2)


def test_one_run_alone_and_what_another_network_says(fitted):
    """Half a constant run of a network with another floor; a decay, which it has never had, is predicted."""
    shifted = replace(curve("constant"), loss=curve("constant").loss + 0.4)
    found = fit(cut(shifted, STEPS / 2), prior=fitted)
    decayed = true_loss(rates("wsd"))[-1] + 0.4
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LawWarning)  # it is longer than the run
        assert found.predict(rates("wsd"))[-1] == pytest.approx(decayed, rel=3e-3)
        low, high = (ends[-1] for ends in found.interval(rates("wsd"), level=0.95))
    assert low < decayed < high
    assert found.parameters["floor"] == pytest.approx(TRUTH["floor"] + 0.4, abs=0.1)
    with pytest.raises(SpecificationError, match=r"at least 2 .*prior=.*alone=True"):
        fit(shifted)
    with pytest.raises(SpecificationError, match=r"prior\[0\] must be a LawFit, text or a Path, got 3"):
        fit(shifted, prior=[3])


def test_a_short_run_and_a_drop_count_by_how_the_law_errs_on_other_runs(fitted):
    """A prior whose curves wander around the law says that these do too; a lone run is left as it was."""

    def wandering(run):
        return replace(run, loss=run.loss * (1 + 0.01 * np.sin(4 * np.log(run.step))))

    names = ("constant", "cosine", "drop", "half")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LawWarning)
        wrong = fit([wandering(curve(name)) for name in names], starts=1)
    short = [cut(curve("constant", seed=1), STEPS / 2), cut(curve("drop", seed=1), 0.7 * STEPS)]
    plain, cautious = (fit(short, prior=prior, starts=1).fitter.prior for prior in (fitted, wrong))
    assert cautious > 3 * plain
    assert fit(short, prior=[fitted, wrong], starts=1).fitter.prior == pytest.approx(cautious, rel=0.1)
    alone = [fit(short[0], prior=prior, starts=1).fitter.prior for prior in (fitted, wrong)]
    assert alone[1] == pytest.approx(alone[0], rel=0.5)


def test_an_interval_knows_by_how_much_the_law_misses_the_ends_of_the_priors_curves(fitted):
    """Runs of the family that end lower than any law has it say that a new one may; a run alone cannot."""

    def ending_lower(run, share):
        late = run.step > 0.97 * STEPS
        return replace(run, loss=run.loss * np.where(late, 1 - share, 1.0))

    names = ("constant", "cosine", "drop", "half")
    plan = rates("wsd")
    widths, errors = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LawWarning)  # the law misses them; the plan is long
        for share in (0.0, 0.02):
            prior = fit([ending_lower(curve(name), share) for name in names], starts=1)
            part = fit(cut(curve("constant", seed=1), STEPS / 2), prior=prior, starts=1)
            low, high = part.interval(plan, level=0.95)
            assert low[-1] < part.predict(plan)[-1] < high[-1]
            widths.append(high[-1] / low[-1] - 1)
            errors.append(part.law_error)
            assert part.law_error >= prior.ends_missed
            known = part.data.curves[0]
            alone = fit(known, alone=True, starts=1)
            assert alone.law_error == max(alone.misfit.values())
    assert errors[0] < 2e-3 < 0.01 < errors[1] < 0.03
    assert widths[1] > widths[0] + 2 * errors[1]


def test_sizes():
    """Floor and amplitude of three sizes are powers of it; a fourth is predicted."""
    powers = {"floor_power": 0.06, "amplitude_power": 0.1}
    base = np.array([[{**TRUTH, **powers}[name] for name in NAMES]])
    from optlearn.laws._law import Course, loss_after

    def run(name, size, seed, noisy=1e-3):
        plain = curve(name, noise=0)
        lengths, rate, batches = plain.intervals(plain.edges(plain.step, 0), 0, 1.0)
        course = Course.stack([(lengths / STEPS, rate / 1e-3, batches)])
        loss = loss_after(at_size(base, size), course)[0, 0, plain.ends(plain.step, 0)]
        noise = noisy * np.random.default_rng(seed).standard_normal(len(loss))
        return Curve(f"{name} {size}", plain.step, plain.rate, loss * np.exp(noise))

    curves = [run(name, size, i) for i, size in enumerate((0.1, 0.3)) for name in ("constant", "drop")]
    found = fit(curves, sizes={c.name: 1e9 * float(c.name.split()[1]) for c in curves}, starts=1)
    larger = run("cosine", 1.0, 9, noisy=0)
    predicted = found.predict(larger, size=1e9)
    assert predicted[-1] == pytest.approx(larger.loss[-1], rel=5e-3)
    low, high = (ends[-1] for ends in found.interval(larger, size=1e9, level=0.99))
    assert low < larger.loss[-1] < high
    assert "floor_power" in found.summary()
    with pytest.raises(SpecificationError, match="sizes must hold a number of parameters for every curve"):
        fit(curves, sizes={curves[0].name: 1e8})
    with pytest.raises(SpecificationError, match="sizes must differ"):
        fit(curves, sizes={c.name: 1e8 for c in curves})
    with pytest.raises(SpecificationError, match=r"size .*needs a fit to several sizes"):
        fit(curves[:2], starts=1).predict(larger, size=2.0)


def test_losses_that_end_far_apart_are_of_one_unit_if_they_begin_alike():
    """A rate that is far too low ends 1.6 times as high; first losses say that the unit is the same."""
    high, low = curve("constant"), curve("drop")
    apart = replace(low, loss=low.loss * np.where(low.step > 100, 1.6, 1.0))
    assert len(read_curves([high, apart])) == 2
    late = [Curve(c.name, c.step[20:], c.rate[20:], c.loss[20:]) for c in (high, apart)]
    with pytest.warns(LawWarning, match=r"one unit, but .* has .* at step 4000 .*same_unit=True"):
        read_curves(late)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LawWarning)
        read_curves(late, same_unit=True)
    with pytest.raises(SpecificationError, match="same_unit=True"):
        read_curves([high, replace(low, loss=5 * low.loss)])
