"""Arrows between the rooms point one way.

theory → models → (control, simulate) → scenarios → practice → (paper, sweep, app) → cli: a room
imports from itself and from rooms of a lower level, also inside functions and under
`TYPE_CHECKING`. `io`, `citations` and, to the right of them, `plotting` serve `scenarios` and everything to
its right.

Objects that users hold have methods of one line whose work is done in a room to the right, such as
`schedule.to_torch()`. These are named below, and may import that room inside functions only.
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
    {"io", "processes", "citations"},
    {"plotting"},
    {"scenarios"},
    {"practice"},
    {"paper", "sweep", "app"},
    {SURFACE},
    {"cli"},
    {"__main__"},
]
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
FREE = {"__version__"}
# File → rooms to its right that its functions may hand work over to.
HANDS_OVER = {
    ("theory", "schedule"): {"practice"},  # schedule.to_optax, to_torch, to_keras, to_csv, to_json
    ("control", "solution"): {"io", "plotting"},  # solution.save, plot, report
    ("io", "solutions"): {"scenarios"},  # a file names a scenario, and only that can make the problem
}


def imported_modules(source: str, module: tuple[str, ...]) -> Iterator[tuple[int, str, bool]]:
    """Line and dotted name of everything that `optlearn.<module>` imports, made absolute.

    `module` is the path of the file below the package, ("theory", "order") for theory/order.py. The
    last entry says whether it is imported inside a function.
    """
    package = ("optlearn", *module[:-1])
    tree = ast.parse(source)
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    inside = {id(node) for function in functions for node in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, id(node) in inside
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            stem = ".".join((*base, *([node.module] if node.module else [])))
            for alias in node.names:
                yield node.lineno, f"{stem}.{alias.name}", id(node) in inside


def violations(source: str, module: tuple[str, ...]) -> list[str]:
    room = module[0]
    if room not in LEVEL:
        return [f"{room}: give this room a level in {Path(__file__).name}"]
    found = []
    for line, name, in_function in imported_modules(source, module):
        top, _, rest = name.partition(".")
        target = rest.partition(".")[0] or SURFACE
        if top != "optlearn" or target in FREE:
            continue
        target = target if target in LEVEL or (ROOT / target).is_dir() else SURFACE
        if in_function and target in HANDS_OVER.get(module, ()):
            continue
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
        ("theory/schedule", "from optlearn.practice.tables import write_csv"),
        ("theory/schedule", "def f():\n    from optlearn.scenarios import dropout"),
        ("theory/order", "def f():\n    from optlearn.practice.tables import write_csv"),
        ("io/files", "from optlearn.plotting import look"),
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
        ("plotting/look", "from optlearn.io import atomic"),
        ("theory/schedule", "def f():\n    from optlearn.practice.tables import write_csv"),
    ],
)
def test_a_right_arrow_passes(module, source):
    assert violations(source, tuple(module.split("/"))) == []
