"""`import optlearn` is cheap, and its public surface is what it says."""

import inspect
import subprocess
import sys

import pytest

import optlearn

HEAVY = ("jax", "casadi", "torch", "keras", "panel", "matplotlib", "xarray")


def run(code: str) -> str:
    """Run code in a fresh interpreter, where nothing has been imported yet."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_loads_nothing_heavy():
    loaded = run(
        f"import sys, optlearn; dir(optlearn)\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    )
    assert loaded == ""


@pytest.mark.parametrize("name", optlearn.__all__)
def test_public_name_resolves(name):
    assert getattr(optlearn, name) is not None
    assert name in dir(optlearn)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        _ = optlearn.nonsense


@pytest.mark.parametrize("name", ["simulate", "solve", "sweep", "evaluate"])
def test_a_verb_is_a_plain_function(name):
    assert inspect.isfunction(inspect.unwrap(getattr(optlearn, name)))
