"""A file of the user's as a scenario."""

import json
import os
import sys

import pytest
from typer.testing import CliRunner

import optlearn as ol
from optlearn._cli import app
from optlearn._errors import SpecificationError
from optlearn.scenarios._arguments import CodeOnly
from optlearn.scenarios._files import find, known

MODEL = """
import optlearn as ol


class Relaxation(ol.System):
    names = ("e",)
    parameters = {"rate": 0.5, "noise": 0.25}

    def drift(self, x, u):
        return {"e": -2 * u["rate"] * x["e"] + u["rate"] ** 2 * (x["e"] + u["noise"])}

    def error(self, x, u):
        return x["e"]
"""
FUNCTION = '''"""Noisy least squares."""
from own_model import Relaxation
import optlearn as ol


def problem(noise: float = 0.25, horizon: float = 5, label="mine"):
    """A rate against noise.

    Args:
        noise: variance of the labels.
    """
    return ol.Problem(
        model=Relaxation(), start={"e": 1.0}, horizon=horizon, parameters={"noise": noise},
        controls={"rate": ol.Continuous(0, 1)}, intervals=10, name=label,
    )
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own_model.py").write_text(MODEL)
    (tmp_path / "mine.py").write_text(FUNCTION)
    yield tmp_path
    for name in ("own_model", "mine", "other"):
        sys.modules.pop(name, None)


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_a_function_has_arguments_and_a_problem_has_none(folder):
    entry = find("mine.py")
    assert entry.description == "A rate against noise"
    assert {a.name: a.help for a in entry.arguments}["noise"] == "variance of the labels."
    assert [a.name for a in entry.arguments if isinstance(a, CodeOnly)] == ["label"]
    assert entry.function(noise=0.1).parameters["noise"] == 0.1
    (folder / "other.py").write_text("import mine\n\nproblem = mine.problem()\n")
    assert isinstance(find("other.py").function(), ol.Problem)
    assert {"mine.py", "other.py", "curriculum"} <= set(known())


def test_a_file_that_changes_is_run_again(folder):
    assert find("mine.py").function().intervals == 10
    (folder / "mine.py").write_text(FUNCTION.replace("intervals=10", "intervals=7"))
    os.utime(folder / "mine.py", ns=(1, 1))
    assert find("mine.py").function().intervals == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\ny = 1 / 0\n", r"other\.py, line 2: ZeroDivisionError: division by zero"),
        ("def problem(:\n", r"other\.py, line 1: SyntaxError: invalid syntax"),
        ("x = 1\n", r"other\.py must define 'problem', .* and defines x"),
        ("problem = 3\n", r"'problem' in other\.py must be an ol\.Problem or a function .*, got 3"),
        ("import sys\nsys.exit(1)\n", r"other\.py ends the program"),
        ("import nowhere_to_be_found\n", r"other\.py, line 1: ModuleNotFoundError"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line(folder, text, message):
    (folder / "other.py").write_text(text)
    with pytest.raises(SpecificationError, match=message):
        find("other.py")


def test_what_a_function_raises_is_said_with_its_line(folder):
    with pytest.raises(SpecificationError, match=r"mine\.py, line 12: Problem: horizon must be above 0"):
        find("mine.py").function(horizon=-1.0)
    (folder / "other.py").write_text("def problem():\n    return None\n")
    with pytest.raises(SpecificationError, match=r"must return an ol\.Problem, got None"):
        find("other.py").function()
    (folder / "other.py").write_text("def problem(size):\n    return None\n")
    with pytest.raises(SpecificationError, match=r"missing a required argument: 'size'"):
        find("other.py").function()


def test_commands_take_a_file(folder):
    done = run("solve", "mine.py", "--set", "noise=0.1", "--json", "--quiet")
    assert done.exit_code == 0, done.stderr
    solved = json.loads(done.stdout)
    assert solved["arguments"] == {"noise": 0.1}
    done = run("compare", "mine.py", "--json", "--quiet")
    assert done.exit_code == 0, done.stderr
    rows = [row["name"] for row in json.loads(done.stdout)["rows"]]
    assert rows[0] == "optimum"
    assert "best constant" in rows
    done = run("sweep", "mine.py", "--grid", "noise=0.1,0.3", "--baseline", "best constant", "--quiet")
    assert done.exit_code == 0, done.stderr
    assert (folder / "out" / "sweep_mine" / "sweep.nc").is_file()
    shown = run("list", "mine.py", "--quiet").stdout
    assert "mine.py: A rate against noise." in shown
    assert "reach" not in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["solve", "nowhere.py"], "there is no file 'nowhere.py'"),
        (["solve", "mine"], "(for a file: mine.py)"),
        (["solve", "mine.py", "--set", "nose=1"], "has no such argument; it has noise=0.25, horizon=5"),
        (["compare", "mine.py", "--set", "horizon=-1"], "mine.py, line 12: Problem: horizon must be above 0"),
        (["explore", "nowhere.py", "--no-browser"], "there is no file 'nowhere.py'"),
    ],
)
def test_mistakes_on_the_command_line_are_named(folder, arguments, message):
    done = run(*arguments)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())


def test_a_page_shows_no_file_that_was_not_opened(folder):
    pytest.importorskip("panel")
    from optlearn._app import messages

    path = str(folder / "mine.py")
    with pytest.raises(KeyError):
        messages.parameters(path)
    find(path)
    assert messages.defaults(path) == {"noise": 0.25, "horizon": 5}
    assert messages.typed(path, {"noise": 0.3}) == {"noise": "0.3"}
