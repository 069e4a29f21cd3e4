"""Laws of mixtures: reading, fitting a law that is known, budgets, limits, history, exports, wrong inputs."""

import csv
import warnings
from dataclasses import replace

import numpy as np
import pytest
from tests.laws.test_readers import field, records, scalar

import optlearn as ol
from optlearn.laws import LawWarning, MixtureCurve, MixtureFit, fit
from optlearn.laws._mixture_control import MixtureLaw, state_of
from optlearn.laws._mixture_law import Layout, MixtureCourse, losses_after
from optlearn.laws._mixture_shares import ShareOrder

STEPS, WARMUP, PEAK, EVERY = 1500, 75, 2e-3, 25
LAYOUT = Layout(("old", "new"))
TRUTH = {name: parameter.start for name, parameter in LAYOUT.parameters.items()} | {
    "floor_old": 0.7, "amplitude_old": 0.18, "noise_old": 0.2, "memory_old": 0.4, "forgetting_old": 0.1,
    "floor_new": 0.5, "amplitude_new": 0.2, "noise_new": 0.25, "memory_new": 0.7, "forgetting_new": 0.03,
    "progress_power": 0.53,
}  # fmt: skip
SHARES = {
    "constant": lambda x: np.full_like(x, 0.2),
    "late": lambda x: np.where(x > 0.6, 0.5, 0.0),
    "end": lambda x: np.where(x > 0.8, 1.0, 0.0),
    "alternating": lambda x: 0.4 * (np.floor(10 * x) % 2),
    "little": lambda x: np.full_like(x, 0.05),
}
DECAYS = {"flat": 1e9, "wsd": 5.0, "linear": 1.0}
PILOTS = [
    ("flat", "constant"), ("linear", "constant"), ("flat", "alternating"),
    ("wsd", "end"), ("wsd", "late"), ("wsd", "little"),
]  # fmt: skip


def settings(decay, share):
    """(steps,) rates and shares of the new domain."""
    x = (np.arange(STEPS) + 0.5) / STEPS
    rates = PEAK * np.minimum(1.0, DECAYS[decay] * (1 - x))
    return rates * np.minimum(1.0, (np.arange(STEPS) + 0.5) / WARMUP), SHARES[share](x)


def true_losses(rates, share, layout=LAYOUT, truth=TRUTH):
    """Domain → (steps,) loss after every step."""
    run = (np.full(len(rates), 1 / STEPS), rates / PEAK, np.ones(len(rates)), np.stack([1 - share, share], 1))
    numbers = np.array([[truth[name] for name in layout.names]])
    course = MixtureCourse.stack([run])
    return {name: losses_after(layout, numbers, course, name)[0, 0] for name in layout.losses}


def columns(decay, share, noise=2e-3, seed=0, every=EVERY, **more):
    """A run as a logger would write it: settings every 5 steps, losses less often, blank in between."""
    rates, shares = settings(decay, share)
    rng = np.random.default_rng([seed, sum(map(ord, decay + share))])
    at = np.arange(5, STEPS + 1, 5)
    blocks = shares.reshape(-1, 5).mean(axis=1)
    table = {
        "step": at,
        "lr": rates.reshape(-1, 5).mean(axis=1),
        "share_old": 1 - blocks,
        "share_new": blocks,
    }
    for name, loss in true_losses(rates, shares, **more).items():
        logged = loss[at - 1] * np.exp(noise * rng.standard_normal(len(at)))
        table[f"loss_{name}"] = np.where(at % every == 0, logged, np.nan)
    return table


@pytest.fixture(scope="module")
def fitted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LawWarning)
        return fit({f"{d} {s}": columns(d, s) for d, s in PILOTS}, warmup=WARMUP, peak=PEAK, starts=1)


def test_a_known_law_is_recovered(fitted):
    assert isinstance(fitted, MixtureFit)
    off = {
        name: abs(fitted.parameters[name] - TRUTH[name]) / fitted.standard_errors[name]
        for name in LAYOUT.names
    }
    within = np.mean([miss < 1.96 for miss in off.values()])
    assert within >= 0.85, off
    assert max(off.values()) < 5, off


def test_unseen_schedules_are_predicted(fitted):
    for decay, share in (("wsd", "alternating"), ("linear", "late"), ("wsd", "constant")):
        rates, shares = settings(decay, share)
        told = fitted.predict(rates, shares={"new": shares})
        ends = fitted.interval(rates, {"old": 1 - shares, "new": shares}, draws=16)
        for name, true in true_losses(rates, shares).items():
            assert told[name].shape == (STEPS,)
            assert told[name][-1] == pytest.approx(true[-1], rel=0.006)
            low, high = ends[name]
            assert low[-1] < told[name][-1] < high[-1]


def test_errors_and_summary(fitted):
    table = {"linear late": columns("linear", "late")}
    errors = fitted.errors(table)
    assert errors["PredE"] < 0.01
    assert set(fitted.errors_by_curve(table)["linear late"]) == {"old", "new"}
    assert "domains old, new" in fitted.summary()
    assert set(fitted.to_dict()["standard_errors"]) == set(LAYOUT.names)


@pytest.mark.parametrize(
    ("pilots", "asked", "message"),
    [
        (
            ["flat constant", "linear late"],
            ("wsd", "end"),
            r"share of old from 0\.00 to 1\.00 .* nothing beyond 0\.50 to 1\.00",
        ),
        (
            ["flat constant", "linear little"],
            ("wsd", "late"),
            r"share of old from 0\.50 to 1\.00 .* beyond 0\.80 to 0\.95",
        ),
        (
            ["linear constant", "wsd late"],
            ("wsd", "early"),
            r"share of new that falls by 0\.50 .* beyond a fall by 0\.00$",
        ),
        (
            ["linear constant", "wsd end"],
            ("wsd", "little"),
            r"share of new of 0\.05 on average .* beyond averages of 0\.20 to 0\.20$",
        ),
        (["flat constant", "flat late"], ("wsd", "constant"), r"a rate that falls to .* fewer than 5 losses"),
    ],
)
def test_what_no_pilot_did_is_told(monkeypatch, pilots, asked, message):
    """A law says little of shares, and of rates, that were never tried, and its intervals do not know."""
    monkeypatch.setitem(SHARES, "early", lambda x: np.where(x < 0.4, 0.5, 0.0))
    curves = {name: columns(*name.split()) for name in pilots}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LawWarning)
        found = fit(curves, warmup=WARMUP, peak=PEAK, starts=1)
    rates, shares = settings(*asked)
    with pytest.warns(LawWarning, match=message):
        found.predict(rates, {"new": shares})
    with warnings.catch_warnings():  # what was done by a pilot is known
        warnings.simplefilter("error", LawWarning)
        rates, shares = settings(*pilots[1].split())
        found.predict(rates, {"new": shares})


def test_plans_of_decays_that_no_pilot_had_are_told():
    curves = {name: columns("flat", name) for name in ("constant", "late")}
    found = fit(curves, warmup=WARMUP, peak=PEAK, starts=1)
    with pytest.warns(LawWarning, match="a rate that falls to 0 is beyond the curves"):
        found.problem(STEPS, (0, PEAK), robust=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LawWarning)
        found.problem(STEPS, robust=False, rates=np.full(STEPS, PEAK))


@pytest.mark.parametrize(
    ("laws", "every", "draws"), [(12, 75, 16), pytest.param(16, EVERY, 32, marks=pytest.mark.slow)]
)
def test_intervals_hold_the_truth(laws, every, draws):
    """Of parameters (95 %) and of final losses that were not fitted (90 %), over laws drawn at random.

    Over 48 others the slow case's hold 91 and 92 %; of 16 of those, drawn again, parameters are outside the
    bounds below in 16 % of all cases, and losses in 29 %, by the scatter of so few.
    """
    parameters, losses, rng = [], [], np.random.default_rng(3)
    for seed in range(laws):
        truth = dict(TRUTH)
        for name, parameter in LAYOUT.parameters.items():
            if np.isfinite(parameter.spread):
                shift = parameter.spread * rng.standard_normal()
                start = parameter.start * np.exp(shift) if parameter.log else parameter.start + shift
                truth[name] = float(np.clip(start, parameter.lower, parameter.upper))
        curves = {f"{d} {s}": columns(d, s, 4e-3, seed, every, truth=truth) for d, s in PILOTS}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LawWarning)
            found = fit(curves, warmup=WARMUP, peak=PEAK, starts=1)
        errors = found.standard_errors
        parameters += [abs(found.parameters[n] - truth[n]) < 1.96 * errors[n] for n in LAYOUT.names]
        for decay, share in (("wsd", "alternating"), ("linear", "late"), ("wsd", "constant")):
            rates, shares = settings(decay, share)
            true = true_losses(rates, shares, truth=truth)
            for name, (low, high) in found.interval(rates, {"new": shares}, draws=draws).items():
                losses.append(low[-1] < true[name][-1] < high[-1])
    assert 0.90 <= np.mean(parameters) <= 0.98, np.mean(parameters)
    assert 0.90 <= np.mean(losses) <= 0.98, np.mean(losses)


def test_files_frames_and_blanks_are_read(tmp_path, fitted):
    table = columns("wsd", "late")
    with (tmp_path / "run.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["trainer/global_step", "lr", *list(table)[2:4], "val/loss_old", "val/loss_new"])
        for row in zip(*table.values(), strict=True):
            writer.writerow(["" if np.isnan(x) else x for x in row])
    (curve,) = ol.laws.read_mixtures(tmp_path)
    assert set(curve.shares) == {"old", "new"}
    assert np.isfinite(curve.losses["new"]).sum() == STEPS // EVERY
    (same,) = ol.laws.read_mixtures({"run": table})
    np.testing.assert_allclose(same.losses["old"], curve.losses["old"])
    assert ol.laws.read_mixtures({"run": {"step": [1], "lr": [1], "loss": [1]}}) is None


def test_tensorboard_tags_are_read(tmp_path):
    folder = tmp_path / "first-run"
    folder.mkdir()
    events = []
    for step in (20, 40, 60, 80):
        tags = {"train/lr": 0.5, "train/share_old": 0.75, "train/share_new": 0.25, "val/loss_old": 2.0}
        if step > 20:  # the other loss is logged less often
            tags["val/loss_new"] = 3.0
        events += [field(2, step) + field(5, scalar(tag, value, "simple")) for tag, value in tags.items()]
    (folder / "events.out.tfevents.1.host").write_bytes(records(*events))
    (curve,) = ol.laws.read_mixtures(tmp_path)
    assert curve.name == "first-run"
    assert np.isnan(curve.losses["new"][0])
    assert curve.shares["new"].tolist() == [0.25] * 4


def test_runs_with_prefixes_are_told_apart():
    one, two = columns("wsd", "late"), columns("flat", "constant")
    table = {"Step": one["step"]}
    for name, run in (("a", one), ("b", two)):
        table |= {f"{name} - {column}": values for column, values in run.items() if column != "step"}
    assert [curve.name for curve in ol.laws.read_mixtures({"export": table})] == ["a", "b"]


def test_domains_are_told_by_name_not_by_the_order_of_columns(fitted):
    """Logs of TensorBoard, and frames joined from several, have their columns in any order."""
    tables = {f"{d} {s}": columns(d, s) for d, s in PILOTS}
    table = tables["wsd end"]
    shuffled = {
        name: table[name] for name in ("loss_new", "share_new", "step", "share_old", "loss_old", "lr")
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error", LawWarning)
        found = fit(tables | {"wsd end": shuffled}, warmup=WARMUP, peak=PEAK, starts=1)
    assert found.parameters == fitted.parameters
    (curve,) = ol.laws.read_mixtures({"run": shuffled})
    assert fitted.errors([curve])["PredE"] < 0.01
    others = {"step": table["step"], "lr": table["lr"]}
    for kind in ("share", "loss"):
        others |= {f"{kind}_{other}": table[f"{kind}_{own}"] for own, other in (("old", "a"), ("new", "b"))}
    with pytest.raises(ol.SpecificationError, match=r"curve with shares of old, new, got \['a', 'b'\]"):
        fitted.predict(ol.laws.read_mixtures({"run": others})[0])


def test_validation_losses_are_read_where_there_are_both():
    table = columns("wsd", "late")
    for name in ("old", "new"):
        table[f"val/loss_{name}"] = table.pop(f"loss_{name}")
        table[f"train/loss_{name}"] = 1.2 * table[f"val/loss_{name}"]
    (curve,) = ol.laws.read_mixtures({"run": table})
    np.testing.assert_array_equal(
        curve.losses["old"][curve.any_loss], table["val/loss_old"][EVERY // 5 - 1 :: EVERY // 5]
    )
    few = table | {"val/loss_old": np.where(table["step"] % 300, np.nan, table["val/loss_old"])}
    for curve in ol.laws.read_mixtures({"run": table, "other": few}):  # of one kind in all runs
        kept = np.isfinite(table["train/loss_old"])
        np.testing.assert_array_equal(curve.losses["old"][curve.any_loss], table["train/loss_old"][kept])


def test_columns_that_are_no_domains_are_left_out():
    """Extremes in an export of Weights & Biases; the scale of mixed precision; means that Lightning makes."""
    table, extremes = columns("wsd", "late"), {}
    for name, values in table.items():
        extremes |= {f"{name}__MIN": values, f"{name}__MAX": values}
    others = {name: np.full(len(table["step"]), 65536.0) for name in ("loss_scale", "train_loss_step")}
    (curve,) = ol.laws.read_mixtures({"run": table | extremes | others})
    assert list(curve.shares) == list(curve.losses) == ["old", "new"]


def test_what_is_missing_in_a_frame_is_a_blank():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(columns("wsd", "late"))
    (wanted,) = ol.laws.read_mixtures({"run": table})
    for missing in (None, "NA", pandas.NA):
        frame = table.astype(object).where(table.notna(), missing)
        (curve,) = ol.laws.read_mixtures({"run": frame})
        np.testing.assert_array_equal(curve.losses["old"], wanted.losses["old"])


def test_modes_run_for_every_parameter_that_moves_them():
    """Sets of parameters that differ in one number, together and each alone; with three domains, a target."""
    layout = Layout(("a", "b", "c"), ("target",))
    middle = np.array([p.start for p in layout.parameters.values()])
    moved = np.concatenate([middle[None], middle + np.diag(0.01 * middle)])
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.ones(3), (2, 5))
    runs = [(np.full(5, 0.2), rng.uniform(0.1, 1, 5), np.ones(5), share) for share in shares]
    course = MixtureCourse.stack(runs)
    for name in layout.losses:
        together = losses_after(layout, moved, course, name)
        alone = np.concatenate([losses_after(layout, row[None], course, name) for row in moved])
        np.testing.assert_allclose(together, alone, rtol=1e-13)
        changed = np.abs(alone[1:] / alone[0] - 1).max(axis=(1, 2)) > 1e-9
        assert np.flatnonzero(changed).tolist() == layout.columns(name)


def test_targets_and_three_domains_have_their_own_parameters():
    layout = Layout(("a", "b", "c"), ("target",))
    assert "kinship_target_from_b" in layout.names
    assert "transfer_a_from_c" in layout.names
    numbers = np.array([[p.start for p in layout.parameters.values()]])
    shares = np.tile([0.5, 0.3, 0.2], (4, 1))
    course = MixtureCourse.stack([(np.full(4, 0.25), np.ones(4), np.ones(4), shares)])
    losses = [losses_after(layout, numbers, course, name)[0, 0] for name in layout.losses]
    assert np.all(np.diff(losses, axis=1) < 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"share_new": 0.3}, "shares must add up to 1"),
        ({"share_new": -0.2, "share_old": 1.2}, "shares must be at least 0"),
        ({"loss_new": None}, "'new' has a share but no loss"),
        ({"lr": None}, "must have a column lr"),
        ({"share_new": 20.0, "share_old": 80.0}, "is 100 at step 5: divide percent by 100"),
        ({"batch": 32.0}, "must be of one batch size, but 'run' has 32 and 'other' has 64"),
    ],
)
def test_wrong_columns_are_told(change, message):
    table = columns("flat", "constant")
    for name, value in change.items():
        if value is None:
            del table[name]
        else:
            table[name] = np.full(len(table["step"]), value)
    with pytest.raises(ol.SpecificationError, match=message):
        fit({"run": table, "other": columns("wsd", "late") | {"batch": np.full(len(table["step"]), 64.0)}})


def test_a_table_without_rows_is_told():
    """What is left of a frame that was filtered by a misspelt name."""
    table = columns("flat", "constant")
    empty = {name: values[:0] for name, values in table.items()}
    with pytest.raises(ol.SpecificationError, match="curve 'empty' must have rows, got none"):
        fit({"run": table, "empty": empty})


def test_rows_of_one_step_are_one():
    """Settings in a row, each loss in a row of its own, in any order; but not two losses of one step."""
    table = columns("wsd", "late")
    (whole,) = ol.laws.read_mixtures({"run": table})
    kinds = (("loss_new",), ("lr", "share_old", "share_new"), ("loss_old",))
    rows = [
        {"step": table["step"]}
        | {
            name: table[name] if name in kind else np.full(len(table["step"]), np.nan)
            for name in list(table)[1:]
        }
        for kind in kinds
    ]
    order = np.argsort(np.tile(table["step"], 3), kind="stable")
    apart = {name: np.concatenate([part[name] for part in rows])[order] for name in table}
    (curve,) = ol.laws.read_mixtures({"run": apart})
    np.testing.assert_array_equal(curve.step, whole.step)
    for name in ("old", "new"):
        np.testing.assert_array_equal(curve.losses[name], whole.losses[name])
        np.testing.assert_array_equal(curve.shares[name], whole.shares[name])
    twice = {name: np.repeat(values, 2) for name, values in table.items()}
    twice["loss_old"][::2] *= 1.01
    with pytest.raises(ol.SpecificationError, match="steps must increase, but 25 is followed by 25"):
        ol.laws.read_mixtures({"run": twice})


def test_rows_out_of_order_are_told():
    """One with losses and one without, which alone are both in order."""
    table = columns("flat", "constant")
    table["step"][[13, 14]] = table["step"][[14, 13]]
    with pytest.raises(ol.SpecificationError, match="steps must increase, but 75 is followed by 70"):
        ol.laws.read_mixtures({"run": table})


def test_curves_that_do_not_go_together_are_told():
    one, two = ol.laws.read_mixtures({name: columns("wsd", name) for name in ("late", "constant")})
    renamed = {"a": two.shares["old"], "b": two.shares["new"]}
    losses = {"a": two.losses["old"], "b": two.losses["new"]}
    other = replace(two, shares=renamed, losses=losses)
    for curves, message in (
        ([one, other], "'late' has shares of old, new and 'constant' of a, b"),
        ([one, replace(two, name="late")], "must have different names, got late, late"),
    ):
        with pytest.raises(ol.SpecificationError, match=message):
            fit(curves)
    short = {name: share[:-1] for name, share in one.shares.items()}
    with pytest.raises(ol.SpecificationError, match=r"share_old must be one number for each step, got shape"):
        replace(one, shares=short)
    assert [curve.name for curve in ol.laws.read_mixtures([one, {"b": columns("wsd", "end")}])] == [
        "late",
        "b",
    ]


def test_too_many_domains_are_told():
    numbers = np.ones(4)
    shares = {f"d{i}": numbers / 7 for i in range(7)}
    with pytest.raises(ol.SpecificationError, match="at most 6 domains, got 7"):
        MixtureCurve("run", np.arange(1.0, 5), numbers, shares, dict.fromkeys(shares, numbers))


def test_one_run_equal_shares_and_divergence_are_told():
    good = columns("flat", "constant")
    with pytest.raises(ol.SpecificationError, match="at least 2 with different shares"):
        fit({"run": good})
    with pytest.raises(ol.SpecificationError, match="must differ in their shares"):
        fit({"run": good, "other": columns("wsd", "constant")})
    endless = good["loss_new"].copy()
    endless[200] = np.inf
    with pytest.raises(ol.SpecificationError, match="the run diverged"):
        fit({"run": good | {"loss_new": endless}, "other": columns("wsd", "late")})
    rising = {name: np.where(good["step"] > 800, 2.0, 1.0) * good[name] for name in ("loss_old", "loss_new")}
    with pytest.raises(ol.SpecificationError, match=r"the run diverged: loss_old was .* and ends at"):
        fit({"run": good | rising, "other": columns("wsd", "late")})
    cut = {name: np.where(good["step"] > 800, np.nan, good[name]) for name in ("loss_old", "loss_new")}
    with pytest.raises(ol.SpecificationError, match="no loss is finite after step 800"):
        fit({"run": good | cut, "other": columns("wsd", "late")})


def test_wrong_questions_are_told(fitted):
    rates = np.full(STEPS, PEAK)
    for shares, message in (
        (None, "shares must map domains"),
        ({"cpp": 0.2}, "must be of the domains old, new"),
        ({"new": 20}, r"shares\['new'\] must be at least 0 and at most 1, got 20"),
        ({"new": 0.2, "old": -0.2}, r"shares\['old'\] must be at least 0 and at most 1, got -0.2"),
        ({"new": np.nan}, "at least 0"),
        ({"new": "much"}, r"shares\['new'\] must be numbers, got 'much'"),
        ({"old": 0.5, "new": 0.4}, "must add up to 1"),
    ):
        with pytest.raises(ol.SpecificationError, match=message):
            fitted.predict(rates, shares)
    for options, message in (
        ({"budgets": {"cpp": 0.2}}, "must be of old, new"),
        ({"budgets": {"old": 0.3, "new": 0.3}}, "not enough data"),
        ({"weights": {"cpp": 1.0}}, "must be of old, new"),
        ({"weights": {"old": -1.0, "new": 1.0}}, r"weights\['old'\] must be at least 0, got -1"),
        ({"weights": {"old": 0.0}}, "weights must not all be 0"),
        ({"shares": {"new": 0.3}, "budgets": {"new": 0.2}}, "must be left out where shares are given"),
        ({"shares": {"new": 0.3}, "share_bounds": {"new": (0, 0.2)}}, "must be left out where shares are"),
        ({"history": [1e-3, 1e-3]}, "history must be columns lr and share_NAME, a curve, or a schedule"),
        (
            {"history": {"lr": np.ones(700), "share_new": 0.6}, "budgets": {"new": 0.2}},
            r"budgets\['new'\] = 0.2 is used up: 0.28 of all samples were of it in the 700 steps",
        ),
        ({"budgets": {"old": 0.01}}, r"budgets\['old'\] = 0.01 is used up: 0.05 of all samples .* warm-up"),
        ({"limits": {"old": -1.0}}, r"limits\['old'\] must be above 0, got -1"),
    ):
        with pytest.raises(ol.SpecificationError, match=message):
            fitted.problem(STEPS, (0, PEAK), robust=False, **options)


def test_families_use_up_the_budget(fitted):
    members = fitted.family("new", 0.2, STEPS, (0, PEAK), robust=2)
    cautious = [m.objective + m.error for m in members]
    assert cautious == sorted(cautious)
    for member in members[:: len(members) // 8]:
        lengths = np.diff(member.schedule.grid)
        used = lengths @ member.schedule["share_new"] / STEPS
        assert 0.2 - 2e-3 <= used <= 0.2 + 1e-12
    stream = members[0].schedule.to_interleaved({"old": ["o"], "new": ["n"]}, batch_size=7)
    assert stream.used(len(stream))["new"] <= 0.2 * STEPS * 7
    kept = fitted.family(
        "new", 0.2, STEPS, (0, PEAK), robust=2, limits={"old": members[0].losses["old"] + 1e-9}
    )
    assert len(kept) < len(members)
    pilot = ol.laws.next_pilot(fitted, STEPS, (0, PEAK), domain="new", budget=0.2)
    assert pilot.horizon == STEPS


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limits": {"cpp": 1.0}}, "limits must be of old, new, got 'cpp'"),
        ({"limits": {"old": 0.1}}, "are kept by no schedule of the family"),
        ({"decays": [0.2, 0.0]}, "decays must be above 0"),
        ({"decays": [-1.0]}, "decays must be from 0 to 1"),
        ({"decays": []}, "decays must be a list of numbers"),
        ({"budget": 1.0, "shapes": ["step"]}, "share that exceeds the budget of 1, got"),
        ({"steps": 50}, "steps must exceed the warm-up of 75, got 50"),
        ({"domain": "cpp"}, "domain must be one of old, new, got 'cpp'"),
    ],
)
def test_families_that_cannot_be_are_told(fitted, options, message):
    with pytest.raises(ol.SpecificationError, match=message):
        fitted.family(**{"domain": "new", "budget": 0.2, "steps": STEPS, "robust": 1, **options})


def test_a_pilot_of_an_unknown_domain_or_no_budget_is_told(fitted):
    for options, message in (({"domain": "cpp"}, "must be one of old, new"), ({"budget": 0.0}, "above 0")):
        with pytest.raises(ol.SpecificationError, match=message):
            ol.laws.next_pilot(fitted, STEPS, (0, PEAK), **options)


def test_what_is_done_may_be_columns_a_curve_or_a_schedule(fitted):
    """All the same state, by all that was trained."""
    (curve,) = (c for c in fitted.data.curves if c.name == "flat constant")
    rates, shares = settings("flat", "constant")
    edges = np.arange(STEPS + 1.0)
    schedule = ol.Schedule.piecewise(
        edges, {"learning_rate": rates, "share_old": 1 - shares, "share_new": shares}
    )
    states = []
    for history in ({"lr": rates, "share_new": shares}, curve, schedule):
        problem = fitted.problem(2 * STEPS, (0, PEAK), robust=False, history=history)
        assert problem.horizon == pytest.approx(1.0)
        states.append(problem.start[0])
    for state in states[1:]:
        for name, values in states[0].items():
            np.testing.assert_allclose(state[name], values, rtol=5e-3, err_msg=name)
    nothing = fitted.problem(STEPS, (0, PEAK), robust=False, history={"lr": [], "share_new": []})
    assert nothing.horizon == 1.0


def test_a_plan_needs_the_history_of_its_problem(fitted):
    """Without it, its steps would be counted from the wrong one."""
    rates, shares = settings("flat", "constant")
    history = {"lr": rates[:700], "share_new": shares[:700]}
    problem = fitted.problem(STEPS, (0, PEAK), robust=False, history=history, intervals=4)
    solution = ol.solve(problem, method="indirect", starts=1)
    assert fitted.schedule(solution, history).horizon == STEPS
    for other in (None, {"lr": rates[:600], "share_new": shares[:600]}):
        with pytest.raises(ol.SpecificationError, match="with the history of its problem, of 700 steps, got"):
            fitted.schedule(solution, other)


def test_schedules_of_ones_own_are_compared(fitted):
    """Losses are those of ``predict``; a loss that is less certain has to be lower to come first."""
    pairs = {
        f"{d} {s}": settings(d, s) for d, s in (("wsd", "late"), ("flat", "constant"), ("linear", "end"))
    }
    ranked = fitted.compare({name: (rates, {"new": share}) for name, (rates, share) in pairs.items()})
    assert {each.name for each in ranked} == set(pairs)
    for each in ranked:
        rates, share = pairs[each.name]
        told = {name: loss[-1] for name, loss in fitted.predict(rates, {"new": share}).items()}
        assert each.losses == pytest.approx(told)
        assert each.objective == pytest.approx(np.mean(list(told.values())))
        assert each.error > 0
    cautious = [each.objective + each.error for each in ranked]
    assert cautious == sorted(cautious)
    (alone,) = fitted.compare({"plan": fitted.family("new", 0.2, robust=1)[0].schedule}, weights={"new": 2.0})
    assert alone.objective == pytest.approx(2 * alone.losses["new"])


@pytest.mark.parametrize(
    ("schedules", "options", "message"),
    [
        ({}, {}, "must name at least one schedule"),
        ({"a": np.ones(5)}, {}, "shares must map domains"),
        ({"a": (np.ones(5), {"new": 1.2})}, {}, "must be at least 0"),
        ({"a": (np.ones(5), {"new": 0.2})}, {"weights": {"cpp": 1.0}}, "must be of old, new"),
        ({"a": (np.ones(5), {"new": 0.2})}, {"weights": {"old": 0.0}}, "must not all be 0"),
    ],
)
def test_schedules_that_cannot_be_compared_are_told(fitted, schedules, options, message):
    with pytest.raises(ol.SpecificationError, match=message):
        fitted.compare(schedules, **options)


def test_a_limit_that_no_data_reaches_is_told_at_once(fitted):
    """Before anything is solved: not even a run on this domain alone comes near."""
    alone = fitted.problem(STEPS, (0, PEAK), robust=False, budgets={"new": 0.0}, weights={"old": 1.0})
    lowest = ol.solve(alone, method="direct", starts=1).objective
    for limit in (0.5, 0.997 * lowest):
        with pytest.raises(
            ol.SpecificationError, match=r"limits\['old'\] = .* is out of reach: with no other"
        ):
            fitted.problem(STEPS, (0, PEAK), robust=False, budgets={"new": 0.2}, limits={"old": limit})
    fitted.problem(STEPS, (0, PEAK), robust=False, budgets={"new": 0.2}, limits={"old": lowest})


@pytest.mark.filterwarnings("ignore:a share of new of:optlearn.laws.LawWarning")
def test_a_limit_that_cannot_be_met_is_named(fitted):
    """The reason names the limit and what was reached, and does not speak of budgets."""
    limit = 0.9  # much of the new domain would reach it, a fiftieth of all samples does not
    options = {"robust": False, "intervals": 8, "budgets": {"new": 0.02}, "limits": {"new": limit}}
    with pytest.warns(ol.NotConvergedWarning):
        solution = ol.solve(fitted.problem(STEPS, (0, PEAK), **options), method="indirect", starts=1)
    reached = fitted.predict(fitted.schedule(solution))["new"][-1]
    (reason,) = solution.certificate.reasons
    assert reason.startswith(f"loss_new is {reached:.3f}"[:-1])
    assert f"it must be at most {limit:g}: no schedule was found that keeps this limit" in reason


@pytest.mark.filterwarnings("ignore:a share of new of:optlearn.laws.LawWarning")
@pytest.mark.parametrize("fixed", [{"budgets": {"new": 0.0}}, {"share_bounds": {"new": (0.3, 0.3)}}])
def test_a_share_that_is_fixed_is_no_control(fitted, fixed):
    problem = fitted.problem(STEPS, (0, PEAK), robust=False, intervals=8, **fixed)
    assert set(problem.controls) == {"learning_rate"}
    solution = ol.solve(problem, method="direct", starts=1)
    assert solution.certificate.converged
    plan = fitted.schedule(solution)
    share = fixed.get("share_bounds", {"new": (0.0, 0.0)})["new"][0]
    np.testing.assert_allclose(plan["share_new"][WARMUP:], share, atol=1e-12)
    final = sum(loss[-1] for loss in fitted.predict(plan).values()) / 2
    assert final == pytest.approx(solution.objective, rel=1e-3)
    with pytest.raises(ol.SpecificationError, match="leave nothing to choose of any share"):
        fitted.problem(STEPS, (0, PEAK), rates=np.full(STEPS, PEAK), **fixed)


@pytest.mark.parametrize(
    ("budgets", "name", "ends"), [({}, "old", (0.6, 0.9)), ({"new": 0.2}, "new", (0.1, 0.4))]
)
def test_bounds_of_any_domain_count(fitted, budgets, name, ends):
    """Those of a domain that has what another leaves are bounds of that other."""
    bounds = {"old": (0.6, 0.9)}
    problem = fitted.problem(STEPS, (0, PEAK), robust=False, budgets=budgets, share_bounds=bounds)
    control = problem.controls[f"share_{name}"]
    assert (control.lower, control.upper) == pytest.approx(ends)
    assert [budget.control for budget in problem.budgets] == [f"share_{name}" for name in budgets]


def test_wrong_bounds_of_shares_are_told(fitted):
    for bounds, message in (
        ({"old": (0.6, 1.0), "new": (0.5, 1.0)}, "must leave room for shares that add up to 1"),
        ({"old": (0.0, 0.3), "new": (0.0, 0.5)}, "must leave room for shares that add up to 1"),
        ({"old": (0.6, 0.4)}, r"share_bounds\['old'\] must be the lowest and the highest share"),
        ({"old": (0.6, 1.4)}, r"share_bounds\['old'\] must be from 0 to 1, got"),
    ):
        with pytest.raises(ol.SpecificationError, match=message):
            fitted.problem(STEPS, (0, PEAK), robust=False, share_bounds=bounds)


@pytest.mark.slow
def test_plans_keep_budgets_limits_and_history(fitted):
    problem = fitted.problem(STEPS, (0, PEAK), robust=False, budgets={"new": 0.2}, intervals=15)
    free = ol.solve(problem, method="indirect", starts=1)
    plan = fitted.schedule(free)
    assert np.diff(plan.grid) @ plan["share_new"] / STEPS <= 0.2 + 1e-9
    told = {name: loss[-1] for name, loss in fitted.predict(plan).items()}
    assert np.mean(list(told.values())) == pytest.approx(free.objective, abs=2e-3)
    best = fitted.family("new", 0.2, STEPS, (0, PEAK), robust=False)[0]
    assert free.objective < best.objective + 1e-3
    limit = told["old"] - 0.004
    limited = fitted.problem(
        STEPS, (0, PEAK), robust=False, budgets={"new": 0.2}, limits={"old": limit}, intervals=15
    )
    kept = fitted.schedule(ol.solve(limited, starts=1))
    assert fitted.predict(kept)["old"][-1] <= limit + 2e-3
    rates, shares = settings("flat", "constant")
    history = {"lr": rates[:700], "share_new": shares[:700]}
    rest = fitted.problem(STEPS, (0, PEAK), robust=False, budgets={"new": 0.2}, history=history, intervals=10)
    assert rest.horizon == pytest.approx(800 / STEPS)
    whole = fitted.schedule(ol.solve(rest, method="indirect", starts=1), history)
    assert np.diff(whole.grid) @ whole["share_new"] / STEPS <= 0.2 + 1e-9


def test_what_is_controlled_is_the_law_that_was_fitted():
    """Of three domains and a target, over intervals of other rates and shares, from the first step on."""
    layout, rng = Layout(("a", "b", "c"), ("target",)), np.random.default_rng(0)
    numbers = np.array([p.start for p in layout.parameters.values()]) * rng.uniform(
        0.9, 1.1, len(layout.names)
    )
    shares, rates, length = rng.dirichlet(np.ones(3), 5), rng.uniform(0.1, 1, 5), 0.2
    run = (np.full(5, length), rates, np.ones(5), shares)
    order = ShareOrder.of(layout.domains, {})
    system = MixtureLaw.of(layout, numbers, order, {}, np.array([-1.0, 0.0, 1.0]))
    (state,) = state_of(layout, numbers[None], (np.zeros(1), np.ones(1), np.ones(1), shares[:1]))
    found = []
    for rate, share in zip(rates, shares, strict=True):
        controls = order.near(dict(zip(layout.domains, share, strict=True)))
        state = system.advance(state, {"learning_rate": rate, **controls}, length)
        found.append(system.losses(state))
    course = MixtureCourse.stack([run])
    wanted = [losses_after(layout, numbers[None], course, name)[0, 0] for name in layout.losses]
    np.testing.assert_allclose(np.array(found).T, wanted, rtol=1e-8)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"budgets": {"new": 0.2}}, ["constant", "step"]),
        ({"budgets": {"old": 0.7, "new": 0.4}}, ["constant"]),
        ({"shares": {"new": 0.2}}, ["constant"]),
        ({"rates": np.full(STEPS, PEAK), "budgets": {"new": 0.2}}, ["constant", "step"]),
    ],
)
def test_plans_start_from_usual_shapes(fitted, options, names):
    problem = fitted.problem(STEPS, (0, PEAK), robust=False, **options)
    assert list(problem.baselines) == names
    for baseline in problem.baselines.values():
        schedule = baseline(problem, 30)
        assert set(schedule.controls) == set(problem.controls)
        for budget in problem.budgets:
            assert schedule[budget.control].mean() <= budget.mean * (1 + 1e-9)


def test_given_rates_and_shares_enter_a_problem(fitted):
    rates, shares = settings("wsd", "late")
    schedules = {
        "rates": fitted.problem(STEPS, (0, PEAK), robust=False, rates=rates, budgets={"new": 0.2}),
        "shares": fitted.problem(STEPS, (0, PEAK), robust=False, shares={"new": shares}),
    }
    assert set(schedules["rates"].controls) == {"share_new"}
    assert set(schedules["shares"].controls) == {"learning_rate"}
    # Settings that are given count at the middle of each interval.
    grid = np.linspace(0, schedules["shares"].horizon, 76)
    flat = ol.Schedule.piecewise(grid, {"learning_rate": np.ones(75)})
    ended = ol.evaluate(schedules["shares"], flat)
    constant = np.full(STEPS, PEAK) * np.minimum(1.0, (np.arange(STEPS) + 0.5) / WARMUP)
    told = fitted.predict(constant, {"new": shares})
    assert ended.objective == pytest.approx(np.mean([loss[-1] for loss in told.values()]), rel=2e-3)


def test_exports_show_what_the_schedule_says():
    grid = np.array([0, 10, 40, 60])
    new = np.array([0.0, 0.25, 0.5])
    schedule = ol.Schedule.piecewise(
        grid, {"learning_rate": np.ones(3), "share_old": 1 - new, "share_new": new}
    )
    wanted = round(8 * float(np.diff(grid) @ new))
    at = schedule.to_shares()
    assert at(0) == {"old": 1.0, "new": 0.0}
    assert at(40)["new"] == 0.5
    phases = schedule.to_phases()
    assert [(p.start, p.steps) for p in phases] == [(0, 10), (10, 30), (40, 20)]
    assert phases[-1].probabilities == [0.5, 0.5]
    stream = schedule.to_interleaved({"old": ["o"] * 7, "new": ["n"] * 3}, batch_size=8)
    shown = list(stream)
    assert len(shown) == 480
    assert shown.count("n") == wanted
    resumed = schedule.to_interleaved({"old": ["o"] * 7, "new": ["n"] * 3}, batch_size=8)
    resumed.load_state_dict({"done": 100})
    assert list(resumed) == shown[100:]
    pytest.importorskip("torch")
    domains = np.array(["old"] * 300 + ["new"] * 150)
    sampler = schedule.to_torch_sampler(domains, batch_size=8, seed=1)
    assert int((domains[list(sampler)] == "new").sum()) == wanted
    with pytest.raises(ol.SpecificationError, match="share_NAME"):
        ol.Schedule.constant(10, {"learning_rate": 1.0}).to_phases()


def test_phases_are_as_near_as_asked():
    """To their mean, which a long interval may draw far to one side."""
    new = np.linspace(0.0, 0.1, 60)
    grid = np.append(0.0, 1000.0 + np.arange(60))
    schedule = ol.Schedule.piecewise(
        grid, {"learning_rate": np.ones(60), "share_old": 1 - new, "share_new": new}
    )
    phases = schedule.to_phases(tolerance=0.02)
    assert len(phases) < 10
    for phase in phases:
        inside = (grid[:-1] >= phase.start) & (grid[:-1] < phase.start + phase.steps)
        assert np.abs(new[inside] - phase.shares["new"]).max() <= 0.02
    assert sum(p.steps * p.shares["new"] for p in phases) == pytest.approx(np.diff(grid) @ new)


def test_exports_that_cannot_be_are_told():
    schedule = ol.Schedule.piecewise([0, 10], {name: np.full(1, 0.5) for name in ("share_old", "share_new")})
    stream = schedule.to_interleaved({"old": iter("abc"), "new": ["n"]}, batch_size=2)
    with pytest.raises(ol.SpecificationError, match=r"stream 'old' .* a generator ends for good"):
        list(stream)
    with pytest.raises(ol.SpecificationError, match="done must be a whole number from 0 to 20, got None"):
        stream.load_state_dict({"samples": 3})
    stream = schedule.to_interleaved({"old": ["o"], "new": ["n"]}, batch_size=2)
    assert len(list(stream)) == 20
    with pytest.raises(ol.SpecificationError, match="the whole training, 20 samples, has been shown"):
        list(stream)  # as a second epoch would, and train on nothing
    torch = pytest.importorskip("torch")
    with pytest.raises(ol.SpecificationError, match="In a DataLoader of PyTorch, wrap it in an IterableD"):
        next(iter(torch.utils.data.DataLoader(stream)))
    for domains, message in (
        (["old", "code"], "domains must be of old, new, got 'code'"),
        (["old", "old"], r"domains must hold samples of 'new', which the schedule shows, got \['old'\]"),
    ):
        with pytest.raises(ol.SpecificationError, match=message):
            schedule.to_torch_sampler(domains, batch_size=2)


@pytest.mark.parametrize("steps", [7, 25, 61, 1001])
def test_exports_of_another_length_keep_budgets(steps):
    """Intervals that end within a step are rounded, which must not move samples between domains."""
    rng = np.random.default_rng(steps)
    names, grid = ("a", "b", "c"), np.array([0.0, 3.3, 4.1, 20.6, 48.2, 60.0])
    table = rng.dirichlet(0.3 * np.ones(3), 5)
    shares = {f"share_{name}": column for name, column in zip(names, table.T, strict=True)}
    schedule = ol.Schedule.piecewise(grid, {"learning_rate": np.ones(5), **shares})
    wanted = np.diff(grid) @ table / 60 * steps
    phases = schedule.to_phases(steps=steps)
    np.testing.assert_allclose(sum(p.steps * np.array(p.probabilities) for p in phases), wanted)
    at = schedule.to_shares(steps=steps)
    np.testing.assert_allclose(sum(np.array(list(at(step).values())) for step in range(steps)), wanted)
    stream = schedule.to_interleaved({name: [name] for name in names}, batch_size=4, steps=steps)
    assert np.abs(np.array(list(stream.used(len(stream)).values())) - 4 * wanted).max() < 1


def test_plans_keep_a_budget_of_every_domain_to_the_sample(fitted):
    """Of the one that has what others leave, too; edges of intervals are no whole steps."""
    problem = fitted.problem(STEPS, (0, PEAK), robust=False, budgets={"old": 0.5, "new": 0.5}, intervals=13)
    plan = fitted.schedule(ol.solve(problem, method="indirect", starts=1))
    stream = plan.to_interleaved({"old": ["o"], "new": ["n"]}, batch_size=32)
    assert stream.used(len(stream)) == {"old": 16 * STEPS, "new": 16 * STEPS}


def test_curves_can_be_made_by_hand():
    table = columns("wsd", "late")
    curve = MixtureCurve(
        "run", table["step"], table["lr"],
        {"old": table["share_old"], "new": table["share_new"]},
        {"old": table["loss_old"], "new": table["loss_new"]},
    )  # fmt: skip
    assert curve.steps == STEPS
    run, ends = curve.run(("old", "new"), WARMUP, STEPS, PEAK)
    assert run[0].sum() == pytest.approx(1.0)
    assert len(ends) == STEPS // EVERY
    assert run[0] @ run[3][:, 1] == pytest.approx(0.2)


@pytest.mark.slow
def test_the_front_of_two_domains_falls(fitted):
    problem = fitted.problem(STEPS, (0, PEAK), robust=False, budgets={"new": 0.2}, intervals=8)
    front = ol.pareto(
        problem, {"old": fitted.objective("old"), "new": fitted.objective("new")}, points=3, starts=1
    )
    assert np.all(np.diff(front.values["old"]) > 0)
    assert np.all(np.diff(front.values["new"]) < 0)


def several_domains(names):
    """A fit to runs with much of each domain, and with each at the end: learned if shown, else forgotten."""
    x, count, runs = (np.arange(1000) + 0.5) / 1000, len(names), {}
    rates = np.minimum(1.0, 4 * (1 - x))
    for own, much in zip(np.eye(count), names, strict=True):
        end = np.where(x[:, None] > 0.7, own, (1 - own) / (count - 1))
        for name, shares in (("much", np.tile(0.3 / count + 0.7 * own, (1000, 1))), ("end", end)):
            known, noise, losses = np.zeros(count), 0.0, []
            for step, (rate, shown) in enumerate(zip(rates, shares, strict=True)):
                known = known + rate * (0.05 * shown * (1 - known) - 0.004 * (1 - shown) * known)
                noise += 0.05 * rate * (rate - noise)
                losses.append(0.8 + 4 * (step + 100) ** -0.5 + 0.1 * noise + 0.4 * (1 - known))
            table = {"step": np.arange(25, 1001, 25), "lr": rates.reshape(-1, 25).mean(axis=1)}
            for k, domain in enumerate(names):
                table[f"share_{domain}"] = shares[:, k].reshape(-1, 25).mean(axis=1)
                table[f"loss_{domain}"] = np.array(losses)[24::25, k]
            runs[f"{name} {much}"] = table
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LawWarning)
        return fit(runs, peak=1.0, starts=1)


@pytest.mark.slow
@pytest.mark.parametrize(("names", "options"), [("abc", {}), ("abcde", {"method": "direct", "starts": 1})])
def test_plans_for_several_domains_have_a_certificate(names, options):
    """Without bounds on shares; one domain is scarce, and a schedule of a family is not better."""
    found = several_domains(names)
    problem = found.problem(1000, (0, 1.0), robust=False, intervals=12, budgets={"c": 0.1})
    solution = ol.solve(problem, **options)
    assert solution.certificate.converged, solution.certificate.reasons
    assert solution.certificate.hamiltonian_gap < 1e-8
    plan = found.schedule(solution)
    np.testing.assert_allclose(sum(plan[f"share_{name}"] for name in names), 1.0)
    assert np.diff(plan.grid) @ plan["share_c"] <= 100 * (1 + 1e-9)
    told = np.mean([loss[-1] for loss in found.predict(plan).values()])
    assert told == pytest.approx(solution.objective, rel=1e-4)
    assert solution.objective < found.family("c", 0.1, 1000, (0, 1.0), robust=False)[0].objective


@pytest.mark.slow
def test_a_plan_with_bounds_and_a_budget_of_every_domain():
    """Budgets of shares that are no controls themselves are kept too."""
    found = several_domains("abc")
    budgets, bounds = {"a": 0.5, "b": 0.3, "c": 0.25}, {"a": (0.1, 0.7), "c": (0.05, 1.0)}
    problem = found.problem(1000, (0, 1.0), robust=False, intervals=8, budgets=budgets, share_bounds=bounds)
    solution = ol.solve(problem, method="direct", starts=1)
    assert solution.certificate.converged, solution.certificate.reasons
    plan = found.schedule(solution)
    for name, most in budgets.items():
        assert np.diff(plan.grid) @ plan[f"share_{name}"] <= 1000 * most * (1 + 1e-5)
        low, high = bounds.get(name, (0.0, 1.0))
        after = plan[f"share_{name}"][found.warmup :]
        assert low - 1e-5 <= after.min() <= after.max() <= high + 1e-5
