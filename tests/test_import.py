"""`import optlearn` is cheap, and its public surface is what it says."""

import ast
import subprocess
import sys
from pathlib import Path

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
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = optlearn.nonsense


def test_type_checkers_and_the_interpreter_see_the_same_surface():
    tree = ast.parse(Path(optlearn.__file__).read_text(encoding="utf-8"))
    guard = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {
        name.name: f"{statement.module}.{name.name}"
        for statement in guard.body
        if isinstance(statement, ast.ImportFrom)
        for name in statement.names
    }
    table = {
        name: home if name in optlearn._MODULES and name not in ("simulate", "sweep") else f"{home}.{name}"
        for name, home in optlearn._HOME.items()
    }
    assert imported == table


@pytest.mark.parametrize(
    "code",
    [
        "import optlearn as ol",
        "import optlearn as ol; ol.simulate",
        "import optlearn.simulate; import optlearn as ol",
        "from optlearn.simulate import simulate; import optlearn as ol",
    ],
)
def test_simulate_is_callable_whoever_imported_its_room_first(code):
    shown = run(
        f"{code}\nfrom inspect import signature; from optlearn.simulate import simulate\n"
        "print(callable(ol.simulate), signature(ol.simulate) == signature(simulate))"
    )
    assert shown == "True True"
