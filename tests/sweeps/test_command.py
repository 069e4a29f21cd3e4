"""``optlearn sweep``."""

import json

import pytest
from typer.testing import CliRunner

from optlearn._cli import app
from optlearn._cli.sweep import _grid

QUICK = ("--intervals", "6", "--starts", "1", "--method", "indirect", "--set", "alpha_F=1")


def run(*arguments):
    return CliRunner().invoke(app, ["sweep", *arguments])


def test_json_lines_a_drawing_and_resume(tmp_path):
    arguments = (
        "dropout",
        "--grid",
        "sigma_n=0.2,0.3",
        "--grid",
        "eta=0.5:1:2",
        *QUICK,
        "--out",
        str(tmp_path),
    )
    done = run(*arguments, "--json", "--plot", "--quiet")
    assert done.exit_code == 0, done.stderr
    *points, end = map(json.loads, done.stdout.splitlines())
    assert [point["done"] for point in points] == [1, 2, 3, 4]
    assert {point["event"] for point in points} == {"point"}
    assert points[1]["coordinates"] == {"sigma_n": 0.2, "eta": 1.0}
    assert points[1]["objective"] > 0
    assert (end["event"], end["points"], end["failed"]) == ("finished", 4, 0)
    assert (tmp_path / "sweep.nc").exists()
    assert (tmp_path / "objective.png").exists()
    assert done.stderr == ""
    again = run(*arguments)
    assert again.exit_code == 2
    assert "already holds a sweep" in again.stderr.replace("\n", " ")
    again = run(*arguments, "--resume", "--json")
    assert all(point["stored"] for point in map(json.loads, again.stdout.splitlines()[:-1]))
    assert again.exit_code == 0


def test_a_point_that_fails_makes_exit_code_3_and_is_shown(tmp_path):
    done = run("dropout", "--grid", "eta=1,-1", *QUICK, "--out", str(tmp_path))
    assert done.exit_code == 3
    assert "2 points, 1 failed, 0 not converged" in done.stdout
    said = done.stderr.replace("\n", " ")
    assert "eta = -1: failed: SpecificationError: committee: eta must be at least" in said
    assert "1/2 eta = 1: 0." in said
    assert "points/s" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense", "--grid", "eta=1,2"], "no scenario 'nonsense'; there are"),
        (["dropout", "--grid", "eta"], "write NAME=FIRST:LAST:COUNT or NAME=V1,V2"),
        (["dropout", "--grid", "eta=1:2"], "write FIRST:LAST:COUNT, such as 0.1:0.5:9"),
        (["dropout", "--grid", "eta=1:2:1"], "a COUNT of at least 2"),
        (["dropout", "--grid", "eta=0:2:3:log"], "for log both ends above 0"),
        (["dropout", "--grid", "eta=1,1"], "over['eta'] must hold every value once, got 1"),
        (["dropout", "--grid", "eta=1,2", "--grid", "eta=3,4"], "--grid eta: given twice"),
        (["dropout", "--grid", "eta=1,2", "--set", "eta=3"], "'eta' is both fixed and swept over"),
        (["dropout", "--grid", "etta=1,2"], "dropout has no argument 'etta'"),
        (["dropout", "--grid", "eta=1,2", "--jobs", "2", "--cluster", "tcp://a:1"], "--jobs, --cluster"),
        (["dropout", "--grid", "eta=1,2", "--jobs", "2", "--batched"], "--batched: choose one"),
    ],
)
def test_bad_input_is_a_sentence_and_exit_code_2(tmp_path, arguments, message):
    done = run(*arguments, "--out", str(tmp_path / "out"), "--quiet")
    assert done.exit_code == 2
    assert message in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_file_whose_problem_is_no_function_has_no_arguments(tmp_path):
    (tmp_path / "fixed.py").write_text("import optlearn as ol\nproblem = ol.scenarios.dropout()\n")
    done = run(str(tmp_path / "fixed.py"), "--grid", "eta=1,2", "--out", str(tmp_path / "out"), "--quiet")
    assert done.exit_code == 2
    assert "has no argument 'eta'; it has none" in done.stderr.replace("\n", " ")


def test_a_folder_that_cannot_be_written_is_exit_code_1():
    done = run("dropout", "--grid", "eta=1,2", "--out", "/proc/no/such/place", "--quiet")
    assert done.exit_code == 1
    assert "cannot write /proc/no/such/place" in done.stderr.replace("\n", " ")


def test_grids():
    found = _grid(["a=0.1:0.5:3", "b=1,2", "c=fig3,figS", "d=0.01:1:3:log", "e=True,False", "f=-1"])
    assert found["a"] == pytest.approx([0.1, 0.3, 0.5], abs=1e-15)
    assert found["b"] == [1, 2]
    assert found["c"] == ["fig3", "figS"]
    assert found["d"] == pytest.approx([0.01, 0.1, 1.0])
    assert found["e"] == [True, False]
    assert found["f"] == [-1]


def test_help():
    text = run("--help").output
    assert all(
        option in text for option in ("--grid", "--jobs", "--cluster", "--resume", "--force", "--json")
    )
