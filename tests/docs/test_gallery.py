"""The gallery's table fits the examples, its stored results fit the table, and notebooks hold the scripts."""

import ast
import importlib.util
import json
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TABLE = tomllib.loads((DOCS / "examples.toml").read_text(encoding="utf-8"))
STORED = json.loads((DOCS / "gallery.json").read_text(encoding="utf-8"))
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))


def loaded(path):
    """A file of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", TABLE)
def test_a_table_fits_its_example(name):
    entry = TABLE[name]
    assert name in EXAMPLES
    assert entry["command"].startswith(f"python examples/{name}.py")
    assert entry["question"].endswith("?")
    if "drawn.png" in entry["command"] or "drawn" in entry:
        assert "picture" in entry  # where it goes
    left, top, right, bottom = entry.get("crop", (0, 0, 1, 1))
    assert 0 <= left < right <= 1
    assert 0 <= top < bottom <= 1


def test_some_cards_are_on_the_first_page():
    assert 4 <= sum(entry.get("first", False) for entry in TABLE.values()) <= 8


@pytest.mark.parametrize("name", STORED)
def test_a_stored_result_says_what_made_it(name):
    kept = STORED[name]
    assert kept["command"] == TABLE[name]["command"]
    assert kept["cpu_seconds"] > 0
    assert {"optlearn", "python", "jax"} <= set(kept["versions"])
    assert str(Path.home()) not in kept["output"]
    if "picture" in TABLE[name]:
        assert (DOCS / TABLE[name]["picture"]).stat().st_size > 1000


class TestNotebooks:
    @pytest.fixture
    def gallery(self):
        for package in ("nbformat", "sphinx", "PIL"):
            pytest.importorskip(package)
        return loaded(DOCS / "_ext" / "gallery.py")

    @pytest.mark.parametrize("name", EXAMPLES)
    def test_a_notebook_holds_its_script(self, gallery, name):
        import nbformat

        made = gallery.notebook(name)
        nbformat.validate(made)
        text, *code = made.cells
        assert text.cell_type == "markdown"
        source = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
        assert ast.get_docstring(ast.parse(source)) == text.source
        joined = "\n".join(cell.source for cell in code)
        # Every definition is in it once, and nothing waits for being run as a program.
        names = [node.name for node in ast.parse(source).body if hasattr(node, "name")]
        assert [node.name for node in ast.parse(joined).body if hasattr(node, "name")] == names
        assert "__main__" not in joined

    def test_a_notebook_runs(self, gallery, tmp_path, monkeypatch):
        monkeypatch.setattr(gallery, "EXAMPLES", tmp_path)
        (tmp_path / "small.py").write_text(
            '"""A text."""\n\nimport argparse\n\nSIZE = 3\n\n\ndef main(size):\n    return size + 1\n\n\n'
            'if __name__ == "__main__":\n    parser = argparse.ArgumentParser()\n'
            '    parser.add_argument("--size", type=int, default=SIZE)\n'
            "    found = main(parser.parse_args().size)\n"
        )
        made, space = gallery.notebook("small"), {}
        monkeypatch.setattr(sys, "argv", ["ipykernel", "--f=connection.json"])
        for cell in made.cells[1:]:
            exec(cell.source, space)
        assert space["found"] == 4
        assert [cell.source.splitlines()[0] for cell in made.cells[1:]] == [
            "import argparse", "def main(size):", "import sys"
        ]  # fmt: skip

    def test_every_example_has_a_page(self, gallery):
        found = gallery.entries()
        assert set(found) == set(EXAMPLES)
        for name, entry in found.items():
            page = gallery.page(name, entry)
            assert f"examples/{name}.py" in page
            assert f"downloads/{name}.ipynb" in page


class TestLinks:
    @pytest.fixture
    def links(self):
        return loaded(DOCS / "check_links.py")

    def test_broken_links_are_found(self, links, tmp_path):
        (tmp_path / "a.html").write_text(
            '<h1 id="here">A</h1><a href="#here">1</a><a href="#nowhere">2</a><a href="b.html">3</a>'
            '<a href="b.html#there">4</a><a href="c.html">5</a><img src="no.png"><a href="https://x.org">6</a>'
        )
        (tmp_path / "b.html").write_text('<h1 id="b">B</h1>')
        broken, external = links.broken_in_pages(tmp_path)
        assert sorted(broken) == [
            "a.html: #nowhere", "a.html: b.html#there", "a.html: c.html", "a.html: no.png"
        ]  # fmt: skip
        assert external == {"https://x.org"}

    @pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"])
    def test_files_beside_the_pages_link_to_what_is_there(self, links, name):
        assert links.broken_in_markdown(ROOT / name)[0] == []


class TestMeasurements:
    KEPT = json.loads((DOCS / "measurements.json").read_text(encoding="utf-8"))

    @pytest.mark.parametrize("section", KEPT)
    def test_every_number_has_its_command_machine_and_versions(self, section):
        for version, entry in self.KEPT[section].items():
            assert entry["versions"]["optlearn"] == version
            assert entry["command"].startswith(("python ", "optlearn "))
            assert entry["machine"]
            assert entry["rows"]

    def test_the_page_shows_sections_that_are_there(self):
        text = (DOCS / "measurements.md").read_text(encoding="utf-8")
        shown = {line.removeprefix("```{measured} ") for line in text.splitlines() if "{measured}" in line}
        assert shown
        assert shown <= set(self.KEPT)

    def test_earlier_versions_stand_beside(self):
        pytest.importorskip("sphinx")
        module = loaded(DOCS / "_ext" / "measurements.py")
        rows, before = [{"name": "a", "s": 1.0}, {"name": "b", "s": 2.5}], [{"name": "a", "s": 3.0}]
        wide = module.with_earlier(rows, before, "0.1", ["s"])
        assert wide[0] == {"name": "a", "s": 1.0, "in 0.1: s": 3.0}
        table = module.table(wide).splitlines()
        assert table[2:] == ["| a | 1 | 3 |", "| b | 2.5 | – |"]
