"""``optlearn explore``, without its page."""

import json
import socket
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import optlearn as ol
from optlearn._app.messages import FILES, typed
from optlearn._app.solver import _optimum
from optlearn._app.worker import Worker
from optlearn._cli import app
from optlearn._errors import SpecificationError


def run(*arguments):
    return CliRunner().invoke(app, ["explore", *arguments])


def test_help_loads_nothing_heavy():
    code = (
        "import sys\nfrom optlearn._cli import app\n"
        "try: app(['explore', '--help'])\nexcept SystemExit: pass\n"
        "print([n for n in ('jax', 'casadi', 'panel', 'bokeh', 'torch', 'matplotlib') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "127.0.0.1" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_an_unknown_scenario_is_bad_input():
    shown = run("nonsense", "--no-browser")
    assert shown.exit_code == 2
    assert "no scenario 'nonsense'" in shown.stderr


def test_without_panel_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "panel", None)
    shown = run("--no-browser")
    assert shown.exit_code == 2
    assert "pip install -c constraints.txt '.[app]'" in shown.stderr


def test_a_taken_port_and_a_wrong_value_are_bad_input(monkeypatch):
    pytest.importorskip("panel")
    monkeypatch.setattr(Worker, "start", lambda worker: None)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        shown = run("--no-browser", "--port", port)
    assert shown.exit_code == 2
    assert f"--port {port}" in shown.stderr
    shown = run("--no-browser", "--set", "eta=99")
    assert shown.exit_code == 2
    assert "eta must be a number from 0.5 to 6, got 99" in shown.stderr


def test_arguments_become_what_would_be_typed():
    given = {"Delta": (0, 1.5), "joint": True, "eta": 2}
    assert typed("curriculum", given) == {"Delta[0]": "0", "Delta[1]": "1.5", "joint": "true", "eta": "2"}
    with pytest.raises(
        SpecificationError, match=r"^nonsense: curriculum has no such control; it has weight_decay"
    ):
        typed("curriculum", {"nonsense": 1})


@pytest.mark.filterwarnings("ignore::optlearn.NotConvergedWarning")  # a coarse grid
def test_the_page_s_json_goes_through_compare(tmp_path):
    """Under its own name too, which is that of a baseline."""
    solution = ol.solve(ol.scenarios.curriculum(), intervals=24, method="indirect", starts=1)
    optimum = _optimum(solution, full=False, seconds=0.0, remarks=())
    file = FILES["json"]("curriculum", {}, optimum)
    path = tmp_path / file.name
    path.write_text(file.text, encoding="utf-8")
    options = ["--schedule", str(path), "--intervals", "24", "--starts", "1", "--json"]
    shown = CliRunner().invoke(app, ["compare", "curriculum", *options])
    rows = {row["name"]: row for row in json.loads(shown.stdout)["rows"]}
    assert {"curriculum", "curriculum.json", "solution"} <= set(rows)  # not converged on a coarse grid
    assert rows["curriculum.json"]["objective"] == pytest.approx(optimum.objective, rel=1e-9)
