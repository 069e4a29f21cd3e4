"""Arrows between the rooms point one way.

theory → models → (control, simulate) → scenarios → practice → (paper, sweep, app) → cli: a room
imports from itself and from rooms of a lower level, also inside functions and under
`TYPE_CHECKING`. `plotting` and `io` serve `scenarios` and everything to its right.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import optlearn

ROOT = Path(optlearn.__file__).parent
SURFACE = "__init__"  # the names of the package itself, as in `from optlearn import Schedule`
LEVELS = [
    {"theory"},
    {"models"},
    {"control", "simulate"},
    {"plotting", "io"},
    {"scenarios"},
    {"practice"},
    {"paper", "sweep", "app"},
    {SURFACE},
    {"cli"},
    {"__main__"},
]
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
FREE = {"__version__"}


def imported_modules(source: str, module: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything that `optlearn.<module>` imports, made absolute.

    `module` is the path of the file below the package, ("theory", "order") for theory/order.py.
    """
    package = ("optlearn", *module[:-1])
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            stem = ".".join((*base, *([node.module] if node.module else [])))
            for alias in node.names:
                yield node.lineno, f"{stem}.{alias.name}"


def violations(source: str, module: tuple[str, ...]) -> list[str]:
    room = module[0]
    if room not in LEVEL:
        return [f"{room}: give this room a level in {Path(__file__).name}"]
    found = []
    for line, name in imported_modules(source, module):
        top, _, rest = name.partition(".")
        target = rest.partition(".")[0] or SURFACE
        if top != "optlearn" or target in FREE:
            continue
        target = target if target in LEVEL or (ROOT / target).is_dir() else SURFACE
        if target != room and LEVEL.get(target, len(LEVELS)) >= LEVEL[room]:
            found.append(f"{'/'.join(module)}:{line}: {room} imports {name}")
    return found


FILES = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=str)
def test_imports_point_one_way(path):
    source = (ROOT / path).read_text(encoding="utf-8")
    assert violations(source, path.with_suffix("").parts) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("theory/order", "import optlearn.control"),
        ("theory/order", "from optlearn.models.committee import Committee"),
        ("theory/order", "from ..models import committee"),
        ("theory/__init__", "from .. import models"),
        ("theory/order", "def f():\n    from optlearn import control"),
        ("theory/order", "from optlearn import Schedule"),
        ("theory/order", "import optlearn as ol"),
        ("models/committee", "if TYPE_CHECKING:\n    from optlearn.scenarios import dropout"),
        ("control/direct", "from optlearn.simulate import simulate"),
        ("control/direct", "from optlearn import io"),
        ("practice/fit", "from optlearn.paper import fig4"),
        ("plotting", "import optlearn.scenarios"),
        ("app/page", "import optlearn.cli"),
        ("attic/old", "import numpy"),
    ],
)
def test_a_wrong_arrow_is_found(module, source):
    assert len(violations(source, tuple(module.split("/")))) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("theory/order", "import jax\nfrom optlearn.theory.fields import Fields"),
        ("theory/order", "from .fields import Fields\nfrom . import fields"),
        ("models/committee", "from ..theory.fields import Fields"),
        ("simulate/weights", "from optlearn import models"),
        ("scenarios/curriculum", "from optlearn import io, plotting"),
        ("sweep/run", "from optlearn import __version__\nfrom optlearn.control import Problem"),
        ("cli", "import optlearn as ol"),
    ],
)
def test_a_right_arrow_passes(module, source):
    assert violations(source, tuple(module.split("/"))) == []
