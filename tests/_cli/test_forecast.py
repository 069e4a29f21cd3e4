"""``optlearn forecast``: a run in progress, in a shell."""

import csv
import json

import pytest
from tests.laws.conftest import STEPS, curve
from typer.testing import CliRunner

from optlearn._cli import app


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")
    (folder / "small").mkdir()
    for name, last in (("small/constant", STEPS), ("small/cosine", STEPS), ("run", STEPS // 2)):
        done = curve("constant" if name == "run" else name.partition("/")[2])
        with (folder / f"{name}.csv").open("w", newline="") as file:
            rows = [r for r in zip(done.step, done.rate, done.loss, strict=True) if r[0] <= last]
            csv.writer(file).writerows([("step", "lr", "loss"), *rows])
    return folder


def test_a_run_in_progress(logs):
    asked = ["forecast", str(logs / "run.csv"), "--steps", str(STEPS), "--prior", str(logs / "small"), "-q"]
    run = CliRunner().invoke(app, [*asked, "--json"])
    assert run.exit_code == 0, run.stderr
    result = json.loads(run.stdout)
    assert set(result["finals"]) == {"constant", "wsd", "linear", "cosine"}
    assert result["finals"]["wsd"]["loss"] < result["finals"]["constant"]["loss"]
    assert STEPS // 2 <= result["decay"]["start"] < STEPS


def test_wrong_numbers_are_refused_before_other_runs_are_fitted(logs):
    """A prior that is not there would be the next complaint."""
    run, nowhere = str(logs / "run.csv"), ["--prior", str(logs / "nowhere")]
    for wrong, message in (
        (["--steps", "10"], "steps must exceed the 2000 of the run"),
        (["--steps", str(STEPS), "--level", "95"], "level must lie between 0 and 1, got 95"),
        (["--steps", str(STEPS), "--end", "-1"], "end must be from 0 to 1, got -1"),
        (["--steps", str(STEPS)], "nowhere"),
    ):
        bad = CliRunner().invoke(app, ["forecast", run, *wrong, *nowhere])
        assert bad.exit_code == 2
        assert message in " ".join(bad.stderr.split())
