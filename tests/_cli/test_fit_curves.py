"""``optlearn fit-curves``: from logs to a schedule, in a shell."""

import csv
import json

import numpy as np
import pytest
from tests.laws.conftest import PEAK, STEPS, curve
from tests.laws.test_mixtures import PILOTS, columns
from typer.testing import CliRunner

from optlearn._cli import app


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")
    for name in ("constant", "cosine", "drop"):
        run = curve(name)
        with (folder / f"{name}.csv").open("w", newline="") as file:
            rows = zip(run.step, run.rate, run.loss, strict=True)
            csv.writer(file).writerows([("step", "lr", "loss"), *rows])
    return folder


def test_the_whole_way(logs, tmp_path):
    out = tmp_path / "result"
    run = CliRunner().invoke(
        app, ["fit-curves", str(logs), "--best-fit", "--intervals", "40", "--out", str(out), "--json", "-q"]
    )
    assert run.exit_code == 0, run.stderr
    result = json.loads(run.stdout)
    assert result["certificate"]["converged"]
    assert result["predicted"]["low"] < result["predicted"]["loss"] < result["predicted"]["high"]
    assert set(result["leave_one_out"]) == {"constant", "cosine", "drop"}
    rates = np.array(result["schedule"]["learning_rate"])
    assert rates.max() == pytest.approx(PEAK, rel=1e-3)
    assert rates[-1] < 0.2 * PEAK
    assert result["schedule"]["grid"][-1] == STEPS
    assert 0 <= result["shapes"]["wsd"]["cost"] < result["shapes"]["cosine"]["cost"]
    assert sorted(path.name for path in out.iterdir()) == [
        "curves.png", "next_pilot.csv", "schedule.csv", "schedule.json",
    ]  # fmt: skip


def test_that_rates_are_beyond_the_curves_is_said_once(logs, recwarn):
    """Not for every shape, and not with a line of Python's."""
    options = ["--best-fit", "--intervals", "20", "--highest", str(2 * PEAK), "--json", "-q"]
    run = CliRunner().invoke(app, ["fit-curves", str(logs), *options])
    assert run.stderr.count("beyond the curves") == 1
    assert not recwarn.list


def test_bad_logs_are_bad_input(tmp_path, logs):
    run = CliRunner().invoke(app, ["fit-curves", str(tmp_path)])
    assert run.exit_code == 2
    assert "holds neither .csv files nor TensorBoard events" in run.stderr
    run = CliRunner().invoke(app, ["fit-curves", str(logs / "drop.csv")])
    assert run.exit_code == 2
    assert "at least 2 with different rates" in " ".join(run.stderr.split())


@pytest.fixture(scope="module")
def mixtures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixtures")
    for decay, share in PILOTS:
        table = columns(decay, share)
        with (folder / f"{decay}-{share}.csv").open("w", newline="") as file:
            rows = [["" if np.isnan(x) else x for x in row] for row in zip(*table.values(), strict=True)]
            csv.writer(file).writerows([list(table), *rows])
    return folder


@pytest.mark.slow
def test_mixtures_are_planned_from_a_folder(mixtures, tmp_path):
    out = tmp_path / "result"
    options = ["--warmup", "75", "--best-fit", "--budget", "new=0.2", "--intervals", "12"]
    run = CliRunner().invoke(app, ["fit-curves", str(mixtures), *options, "--out", str(out), "--json", "-q"])
    assert run.exit_code == 0, run.stderr
    result = json.loads(run.stdout)
    assert result["certificate"]["hamiltonian_gap"] < 1e-5
    grid, share = np.array(result["schedule"]["grid"]), np.array(result["schedule"]["share_new"])
    assert np.diff(grid) @ share / grid[-1] <= 0.2 + 1e-9
    assert result["predicted"]["new"]["low"] < result["predicted"]["new"]["loss"]
    assert sum(phase["steps"] for phase in result["phases"]) == grid[-1]
    assert len(result["family"]) == 5
    assert sorted(path.name for path in out.iterdir()) == [
        "curves.png", "next_pilot.csv", "phases.csv", "schedule.csv", "schedule.json",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "kept"), [(0.97, 5), (0.955, 0)])
def test_shapes_beside_a_plan_keep_its_limits(mixtures, limit, kept):
    options = ["--warmup", "75", "--best-fit", "--budget", "new=0.2", "--limit", f"old={limit}"]
    run = CliRunner().invoke(app, ["fit-curves", str(mixtures), *options, "--intervals", "8", "--json", "-q"])
    assert run.exit_code == 0, run.stderr
    family = json.loads(run.stdout)["family"]
    assert len(family) == kept
    assert all(member["losses"]["old"] <= limit for member in family)


def test_wrong_budgets_are_told(mixtures, logs):
    run = CliRunner().invoke(app, ["fit-curves", str(logs), "--budget", "cpp=0.2"])
    assert run.exit_code == 2
    assert "is for curves of mixtures" in " ".join(run.stderr.split())
    run = CliRunner().invoke(app, ["fit-curves", str(mixtures), "--falling"])
    assert run.exit_code == 2
    assert "--falling is for curves of one loss" in " ".join(run.stderr.split())
    run = CliRunner().invoke(app, ["fit-curves", str(mixtures), "--budget", "new"])
    assert run.exit_code == 2
    assert "NAME=NUMBER" in " ".join(run.stderr.split())
