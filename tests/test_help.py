"""Every error and warning names a page that is installed with the package."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import optlearn
from optlearn import _errors as errors
from optlearn._cli import app
from optlearn._errors import page, topics

SOURCES = Path(optlearn.__file__).parent


@pytest.mark.parametrize("kind", [errors.SpecificationError, errors.BudgetError, errors.UnphysicalStateError])
def test_errors_name_a_topic_that_exists(kind):
    (note,) = kind("message").__notes__
    assert note == f"More: optlearn help {kind.topic}"
    assert kind.__name__ in page(kind.topic)


def test_so_do_warnings():
    used = {
        topic
        for path in SOURCES.rglob("*.py")
        for topic in re.findall(r"explained\(['\"]([\w-]+)['\"]\)", path.read_text(encoding="utf-8"))
    }
    assert used == {"accuracy", "not-converged"}
    assert used <= set(topics())


def test_the_documentation_shows_every_page():
    text = (Path(__file__).parents[1] / "docs" / "errors.md").read_text(encoding="utf-8")
    for topic in topics():
        assert f"({topic})=\n```{{include}} ../src/optlearn/_help/{topic}.md" in text


class TestCommand:
    def test_prints_a_page(self):
        done = CliRunner().invoke(app, ["help", "budgets"])
        assert done.exit_code == 0
        assert "no schedule meets a budget" in done.stdout
        done = CliRunner().invoke(app, ["help", "budgets", "--json"])
        assert json.loads(done.stdout) == {"topic": "budgets", "page": page("budgets")}

    def test_lists_topics(self):
        done = CliRunner().invoke(app, ["help"])
        assert "not-converged" in done.stdout

    def test_an_unknown_topic(self):
        done = CliRunner().invoke(app, ["help", "life"])
        assert done.exit_code == 2
        assert "topic must be one of accuracy, arguments" in done.stderr
        assert "got 'life'" in done.stderr
