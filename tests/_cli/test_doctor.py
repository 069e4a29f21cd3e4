"""``optlearn doctor`` on a sound installation, and on broken ones."""

import json
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from optlearn._cli import app, doctor


def run(*arguments):
    return CliRunner().invoke(app, ["doctor", *arguments])


def test_a_sound_installation():
    result = run("--json")
    found = json.loads(result.stdout)
    assert found["sound"], found
    assert result.exit_code == 0
    names = {finding["name"] for finding in found["findings"]}
    assert {"JAX arithmetic", "precision", "IPOPT", "devices", "a tiny problem"} <= names


@pytest.fixture
def only(monkeypatch):
    """Run one check alone."""
    return lambda check: monkeypatch.setattr(doctor, "CHECKS", (check,))


def test_a_faulty_jax_is_named_with_the_cure(monkeypatch, only):
    only(doctor._jax_numbers)
    monkeypatch.setattr(
        "optlearn._theory.expectation.wrong_rows", lambda batch: 3616 if batch == 20000 else 0
    )
    result = run()
    assert result.exit_code == 1
    assert "3616 of 20000 rows" in result.stdout
    assert "jax!=0.10.2" in result.stdout


def test_casadi_without_ipopt(monkeypatch, only):
    only(doctor._ipopt)
    monkeypatch.setattr("casadi.has_nlpsol", lambda name: False)
    result = run()
    assert result.exit_code == 1
    assert "method='indirect'" in result.stdout


def test_a_missing_package(monkeypatch, only):
    only(doctor._packages)
    monkeypatch.setattr(doctor, "NEEDED", ("numpy", "no-such-package"))
    result = run()
    assert result.exit_code == 1
    assert "missing: no-such-package" in result.stdout


def test_absent_extras_come_with_a_command_that_works_in_a_clone(monkeypatch, only):
    only(doctor._extras)
    monkeypatch.setattr(doctor, "find_spec", lambda module: None if module in ("panel", "keras") else module)
    result = run("--json")
    _, absent = json.loads(result.stdout)["findings"]
    assert absent["status"] == "note"
    assert "pip install -c constraints.txt '.[keras,app]' in the folder" in absent["advice"]


def test_every_extra_for_users_is_looked_for():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    there = set(tomllib.loads(text)["project"]["optional-dependencies"])
    assert set(doctor.EXTRAS) == there - {"docs", "test"}


def test_a_check_that_breaks_down_is_a_finding(only):
    def broken():
        raise RuntimeError("no luck")

    only(broken)
    result = run()
    assert result.exit_code == 1
    assert "RuntimeError: no luck" in result.stdout


def test_a_gpu_that_jax_does_not_see_is_only_a_note(monkeypatch, only):
    only(doctor._devices)
    monkeypatch.setattr("shutil.which", lambda name: "nvidia-smi")
    result = run("--json")
    (finding,) = json.loads(result.stdout)["findings"]
    assert finding["status"] == "note"
    assert result.exit_code == 0
