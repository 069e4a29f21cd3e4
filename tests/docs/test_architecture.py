"""The page on the architecture says what is there."""

import re
import sys
import tomllib
import warnings
from itertools import pairwise
from pathlib import Path

import optlearn as ol

ROOT = Path(__file__).parents[2]
PACKAGE = Path(ol.__file__).parent
MODULES = {
    path.relative_to(PACKAGE / "_control").with_suffix("").as_posix()
    for path in (PACKAGE / "_control").rglob("*.py")
    if path.stem != "__init__"
}
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def rooms_of_the_page() -> list[set[str]]:
    table = PAGE.split("## Rooms")[1].split("## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return [set(re.findall(r"`(\w+)`", row)) for row in rows]


def test_every_room_is_on_the_page_in_the_order_of_the_layers():
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = [
        {name.strip().removeprefix("optlearn.") for name in line.split("|")}
        for line in contract["contracts"][0]["layers"]
    ]
    page = rooms_of_the_page()
    flat = [room for row in page for room in row]
    assert len(flat) == len(set(flat))
    places = {room: i for i, row in enumerate(page) for room in row}
    for above, below in pairwise(layers):
        for room in above:
            assert all(places[room] <= places[other] for other in below), (room, below)


def test_every_module_and_package_is_a_room():
    there = {
        path.stem
        for path in PACKAGE.iterdir()
        if (path.suffix == ".py" or (path / "__init__.py").exists()) and path.stem != "__init__"
    }
    assert there == {room for row in rooms_of_the_page() for room in row}


def test_a_solve_takes_the_path_of_the_page():
    control, visited = str(PACKAGE / "_control"), set()

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(control):
            visited.add(Path(frame.f_code.co_filename).relative_to(control).with_suffix("").as_posix())

    problem = ol.scenarios.curriculum()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # six intervals cannot imitate the mixture
        sys.setprofile(note)
        try:
            ol.solve(problem, intervals=6, starts=1)
        finally:
            sys.setprofile(None)
    stems = {module.rpartition("/")[2] for module in visited} - {"__init__"}
    assert len(stems) >= 10
    assert stems <= {name for floor in floors_of_the_page() for name in floor}


def floors_of_the_page() -> list[list[str]]:
    """Names of modules, floor by floor from the bottom."""
    block = PAGE.split("## The path of a solve")[1].split("```")[1]
    rows = [re.split(r"\s{2,}", line) for line in block.strip("\n").splitlines()]
    return [re.findall(r"\w+", row[1]) for row in rows]


def test_floors_of_the_page_are_those_of_the_contract():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (control,) = (c for c in contracts["contracts"] if c.get("containers") == ["optlearn._control"])
    layers = [re.findall(r"\w+", line) for line in reversed(control["layers"])]
    height = {name: i for i, names in enumerate(layers) for name in names}
    folder = {module.rpartition("/")[2]: module.split("/")[0] for module in sorted(MODULES)}
    heights = [
        [height[name if name in height else folder[name]] for name in floor] for floor in floors_of_the_page()
    ]
    for below, above in pairwise(heights):
        assert max(below) <= min(above)
    # Nothing of the room is left out, but what no solve needs.
    listed = {name for floor in floors_of_the_page() for name in floor}
    assert {module.split("/")[0] for module in MODULES} - {
        folder[n] for n in listed if n in folder
    } - listed <= {
        "identity",
        "scenario_call",
    }
