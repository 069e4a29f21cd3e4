"""``optlearn fit-curves``: from logs to a schedule, in a shell."""

import csv
import json

import numpy as np
import pytest
from tests.laws.conftest import PEAK, STEPS, curve
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


def test_bad_logs_are_bad_input(tmp_path, logs):
    run = CliRunner().invoke(app, ["fit-curves", str(tmp_path)])
    assert run.exit_code == 2
    assert "holds neither .csv files nor TensorBoard events" in run.stderr
    run = CliRunner().invoke(app, ["fit-curves", str(logs / "drop.csv")])
    assert run.exit_code == 2
    assert "at least 2 with different rates" in " ".join(run.stderr.split())
