"""Running figures: resume, missing data, failures, exit codes, processes."""

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import optlearn
from optlearn._cli import app
from optlearn._errors import SpecificationError
from optlearn._io.files import load_dataset
from optlearn.paper import list_figures, runner
from optlearn.practice.datasets import MissingDataError


def reproduce(tmp_path, **options):
    (result,) = runner.reproduce(["fake"], out=tmp_path, **options)
    return result


def command(tmp_path, *arguments):
    return CliRunner().invoke(app, ["reproduce", *arguments, "--out", str(tmp_path)])


def test_a_figure_has_four_files_with_provenance(figure, tmp_path):
    told = []
    result = reproduce(tmp_path, quick=True, progress=told.append)
    assert result.status == "done"
    assert sorted(p.name for p in (tmp_path / "fake").iterdir()) == [
        "claims.json", "data.nc", "fake.pdf", "fake.png",
    ]  # fmt: skip
    attributes = load_dataset(tmp_path / "fake" / "data.nc").attrs
    assert attributes["optlearn_version"] == optlearn.__version__
    assert json.loads(attributes["options"]) == {"quick": True}
    assert attributes["seconds"] >= 0
    claims = json.loads((tmp_path / "fake" / "claims.json").read_text())
    assert [claim["holds"] for claim in claims] == [True, True]
    assert told == [
        runner.FigureProgress("counting", 0, 1, figure="fake"),
        runner.FigureProgress("drawing", 1, 1, figure="fake"),
    ]


def test_a_finished_figure_is_reused(figure, tmp_path):
    first, second = reproduce(tmp_path), reproduce(tmp_path)
    assert (second.status, second.claims, second.seconds) == ("reused", first.claims, first.seconds)
    assert len(figure.calls) == 1


def test_a_drawing_that_is_missing_is_drawn_from_the_data(figure, tmp_path):
    reproduce(tmp_path)
    (tmp_path / "fake" / "fake.png").unlink()
    assert reproduce(tmp_path).status == "done"
    assert len(figure.calls) == 1
    assert (tmp_path / "fake" / "fake.png").exists()


@pytest.mark.parametrize("change", [{"quick": True}, {"options": {"size": 4}}, {"force": True}])
def test_other_options_are_computed_anew(figure, tmp_path, change):
    reproduce(tmp_path)
    assert reproduce(tmp_path, **change).status == "done"
    assert len(figure.calls) == 2


def test_other_code_computes_anew(figure, tmp_path, monkeypatch):
    reproduce(tmp_path)
    monkeypatch.setattr(runner, "code_digest", lambda: "other")
    assert reproduce(tmp_path).status == "done"
    assert len(figure.calls) == 2


def test_a_damaged_file_is_computed_anew(figure, tmp_path):
    reproduce(tmp_path)
    (tmp_path / "fake" / "data.nc").write_bytes(b"\x89HDF\r\n\x1a\n")
    assert reproduce(tmp_path).status == "done"


def test_an_interruption_leaves_no_drawing_of_other_data(figure, tmp_path):
    reproduce(tmp_path)
    figure.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        reproduce(tmp_path, options={"size": 5})
    assert [p.name for p in (tmp_path / "fake").iterdir()] == ["data.nc"]
    figure.error = None
    assert reproduce(tmp_path).status == "done"  # the old data are still good
    assert len(figure.calls) == 2


def test_an_unknown_figure_or_option(figure, tmp_path):
    with pytest.raises(SpecificationError, match=r"figures must be among fig1.*, got 'fig9'"):
        runner.reproduce(["fig9"], out=tmp_path)
    with pytest.raises(SpecificationError, match="options must be among fake: size; got 'sise'"):
        reproduce(tmp_path, options={"sise": 1})
    with pytest.raises(SpecificationError, match="jobs must be at least 1, got 0"):
        reproduce(tmp_path, jobs=0)


def test_library_warnings_are_kept(figure, tmp_path):
    compute = figure.compute

    def warning(**options):
        import warnings

        warnings.warn("not converged", UserWarning, stacklevel=2)
        return compute(**options)

    warning.__signature__ = __import__("inspect").signature(compute)
    figure.compute = warning
    assert reproduce(tmp_path).warnings == ("not converged",)
    assert reproduce(tmp_path).warnings == ("not converged",)  # reused: still said


# --- the command ----------------------------------------------------------------------------------


def test_the_command(figure, tmp_path):
    done = command(tmp_path, "fake", "--quiet")
    assert done.exit_code == 0, done.output
    assert "2 / 2" in done.stdout
    assert done.stderr == ""
    shown = json.loads(command(tmp_path, "fake", "--json", "--quiet").stdout)
    assert shown["figures"][0]["status"] == "reused"
    assert shown["figures"][0]["held"] == 2


def test_a_claim_that_fails_is_shown_with_its_number_and_is_no_failure(figure, tmp_path):
    done = command(tmp_path, "fake", "--set", "size=5", "--quiet")
    assert done.exit_code == 0
    assert "FAILS  fake sum: 10" in done.stdout
    assert "claimed: The sum is 3" in done.stdout
    assert "1 / 2" in done.stdout


def test_progress_is_told_on_stderr(figure, tmp_path):
    assert "fake: counting (0 of 1 done)" in command(tmp_path, "fake").stderr


@pytest.mark.parametrize(("named", "code"), [(True, 1), (False, 0)])
def test_missing_data_skips_the_figure(figure, tmp_path, monkeypatch, named, code):
    from optlearn import paper

    # Not item by item: put back in another order, they would be listed in that order by later tests.
    monkeypatch.setattr(paper, "_FIGURES", {"fake": "a fake"})
    figure.error = MissingDataError("mnist: not in /nowhere; fetch it by `fetch mnist`")
    done = command(tmp_path, *(["fake"] if named else []), "--quiet")
    assert done.exit_code == code
    said = done.stderr.replace("\n", " ")
    assert "fake skipped: mnist: not in /nowhere; fetch it by `fetch mnist`" in said
    assert "skipped" in done.stdout


def test_a_figure_that_raises_does_not_stop_the_others(figure, tmp_path, monkeypatch):
    from optlearn import paper

    broken = type(sys)("optlearn.paper.broken")
    broken.TITLE, broken.compute = "", lambda **options: 1 / 0
    monkeypatch.setitem(sys.modules, "optlearn.paper.broken", broken)
    monkeypatch.setitem(paper._FIGURES, "broken", "raises")
    done = command(tmp_path, "broken", "fake", "--quiet")
    assert done.exit_code == 1
    assert "broken failed: ZeroDivisionError" in done.stderr
    assert "2 / 2" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fig9"], "no figure 'fig9'; there are fig1, fig2"),
        (["fake", "--set", "size"], "write NAME=VALUE"),
        (["fake", "--set", "other=1"], "options must be among fake: size; got 'other'"),
        (["fake", "--data-dir", "/no/such/place"], "there is no such folder"),
    ],
)
def test_bad_input_is_a_sentence_and_exit_code_2(figure, tmp_path, arguments, message):
    done = command(tmp_path, *arguments, "--quiet")
    assert done.exit_code == 2
    assert message in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr


def test_help_lists_the_figures_and_loads_nothing_heavy():
    code = (
        "import sys\n"
        "sys.argv = ['optlearn', 'reproduce', '--help']\n"
        "from optlearn._cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "heavy = ('jax', 'casadi', 'scipy', 'matplotlib', 'xarray', 'numpy')\n"
        "print(*[n for n in heavy if n in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == ""
    assert all(name in done.stdout for name in list_figures())


@pytest.mark.slow
def test_figures_in_processes_of_their_own(tmp_path):
    """A real run with two processes: one figure works, the other one is told to fail."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "optlearn._cli", "reproduce", "fig2", "figS_sims", "--jobs", "2"),
            *("--json", "--out", str(tmp_path), "--quick", "--set", "sigmas=(0.3,)", "--set", "intervals=20"),
            *("--set", "dimensions=(1, 1, 1)"),  # too small to simulate
        ],
        capture_output=True, text=True, check=False,
        env={**os.environ, "OPTLEARN_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    first, second = json.loads(done.stdout)["figures"]
    assert (first["figure"], first["status"]) == ("fig2", "done")
    assert (second["figure"], second["status"]) == ("figS_sims", "failed")
    assert "fig2: drawing" in done.stderr
    assert (tmp_path / "fig2" / "fig2.pdf").exists()


def test_a_process_that_dies_is_reported(tmp_path):
    from optlearn.paper.runner import _died

    assert _died("fig1", -9).message == "its process ended with code -9"
