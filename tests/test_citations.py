"""What a solution says to cite."""

import dataclasses
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import optlearn as ol
from optlearn import _citations as citations
from optlearn._cli import app


@pytest.fixture(scope="module")
def solution():
    return ol.solve(ol.scenarios.dropout(), intervals=8, starts=1)


def test_prints_bibtex_of_what_was_used(solution, capsys):
    ol.cite(solution)
    printed = capsys.readouterr().out
    for key in ("mignacco2025optimal", "srivastava2014dropout", "wachter2006ipopt", "virtanen2020scipy"):
        assert f"{{{key}," in printed
    assert printed.count("@") == printed.count("\n@") + 1 == len(citations.used(solution))


@pytest.mark.parametrize(
    ("method", "present", "absent"),
    [("indirect", "schmidt2009pqn", "wachter2006ipopt"), ("direct", "wachter2006ipopt", "schmidt2009pqn")],
)
def test_only_the_solver_that_ran(solution, method, present, absent):
    used = citations.used(dataclasses.replace(solution, method=method))
    assert present in used
    assert absent not in used


def test_rounding_is_cited_where_it_happens(solution):
    assert "sager2012integer" not in citations.used(solution)
    used = citations.used(dataclasses.replace(solution, problem=ol.scenarios.curriculum()))
    assert {"sager2012integer", "saglietti2022curriculum"} <= set(used)


def test_a_variant_of_a_scenario_cites_what_the_scenario_does(solution):
    variant = dataclasses.replace(solution, problem=ol.scenarios.curriculum(joint=True))
    assert variant.problem.name != "curriculum"
    assert "saglietti2022curriculum" in citations.used(variant)


def test_references_are_bibtex():
    entries = citations._entries()
    assert all(entry.startswith("@") and entry.endswith("}") for entry in entries.values())


def test_the_command_prints_the_same(solution, tmp_path):
    solution.save(tmp_path / "s.nc")
    done = CliRunner().invoke(app, ["cite", str(tmp_path / "s.nc"), "--quiet"])
    assert done.stdout.strip() == citations.bibtex(solution)
    alone = CliRunner().invoke(app, ["cite", "--json", "--quiet"])
    assert json.loads(alone.stdout)["keys"] == ["mignacco2025optimal", "optlearn"]
    missing = CliRunner().invoke(app, ["cite", str(tmp_path / "no.nc"), "--quiet"])
    assert missing.exit_code == 2
    assert "there is no such file" in missing.stderr


def test_without_a_solution_the_paper_and_the_library(capsys):
    ol.cite()
    assert capsys.readouterr().out.count("@") == 2


def test_all_citations_name_this_version():
    root = Path(__file__).parents[1]
    assert f"version = {{{ol.__version__}}}" in citations._entries()["optlearn"]
    assert f"version: {ol.__version__}\n" in (root / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version = {{{ol.__version__}}}" in (root / "README.md").read_text(encoding="utf-8")
    assert f"## [{ol.__version__}]" in (root / "CHANGELOG.md").read_text(encoding="utf-8")
