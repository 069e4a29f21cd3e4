"""The catalogue: entries are complete, and a file is all that a new scenario needs."""

import inspect
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import optlearn as ol
from optlearn import _citations, scenarios
from optlearn._control.scenario_call import COMMON
from optlearn._errors import SpecificationError
from optlearn.scenarios import _catalogue
from optlearn.scenarios._arguments import Choice, CodeOnly, Flag, Number, arguments_of
from optlearn.scenarios._catalogue import catalogue

every_scenario = pytest.mark.parametrize("entry", catalogue().values(), ids=catalogue())
PAGES = Path(__file__).parents[2] / "docs" / "scenarios"

# A scenario as a user would write it.
PLUGGED = '''
"""A file that was put into the folder."""
import dataclasses
from typing import Annotated

import optlearn as ol
from optlearn.scenarios._catalogue import Example, scenario

REFERENCE = "@misc{made2026up,\\n  title = {Made up}\\n}"


@scenario(citations=(REFERENCE,), example=Example({"activation": [1, 0.5]}, 4))
def plugged_in(size: Annotated[float, (1, 3, 0.5)] = 2.0) -> "ol.Problem":
    """What somebody else wants to know.

    Args:
        size: how long it takes.
    """
    return dataclasses.replace(ol.scenarios.dropout(alpha_F=size), name="plugged_in")
'''


@pytest.fixture
def plugged_in(tmp_path, monkeypatch):
    (tmp_path / "_plugged_in.py").write_text(PLUGGED)
    monkeypatch.setattr(scenarios, "__path__", [*scenarios.__path__, str(tmp_path)])
    monkeypatch.setattr(_catalogue, "_ENTRIES", dict(_catalogue._ENTRIES))
    catalogue.cache_clear()
    yield catalogue()["plugged_in"]
    sys.modules.pop("optlearn.scenarios._plugged_in")
    vars(scenarios).pop("_plugged_in", None)
    catalogue.cache_clear()


def test_a_file_is_all_that_a_new_scenario_needs(plugged_in):
    assert scenarios.list_scenarios()["plugged_in"] == "What somebody else wants to know"
    assert "plugged_in" in dir(scenarios)
    (size,) = plugged_in.arguments
    assert (size.low, size.high, size.help, size.main) == (1, 3, "how long it takes.", True)
    problem = scenarios.plugged_in(size=1.5)
    assert problem.made_by.arguments == {"size": 1.5}
    solution = ol.solve(problem, intervals=4, starts=1)
    assert "@misc{made2026up," in _citations.bibtex(solution)


def test_importing_all_of_it_loads_nothing_heavy():
    code = (
        "import sys\nfrom optlearn.scenarios._catalogue import catalogue\n"
        "assert [entry.arguments for entry in catalogue().values()]\n"
        "print(*[n for n in ('jax', 'casadi', 'scipy', 'matplotlib') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@every_scenario
def test_an_entry_is_complete(entry):
    name = entry.name
    assert 10 < len(entry.description) < 100
    assert getattr(scenarios, name) is entry.function
    assert pickle.loads(pickle.dumps(entry.function)) is entry.function
    assert entry.citations
    assert all(_citations.entry(key).startswith("@") for key in entry.citations)
    assert (PAGES / f"{name}.md").exists()
    signature = inspect.signature(entry.function).parameters
    assert {argument.name.partition("[")[0] for argument in entry.arguments} == set(signature) - set(COMMON)
    assert all(argument.help for argument in entry.arguments)
    problem = entry.function()
    assert problem.name == name
    assert set(entry.example.values) == set(entry.function(**entry.example.arguments).controls)
    for arguments in entry.variants:
        varied = entry.function(**arguments)
        assert (varied.controls, set(varied.free)) != (problem.controls, set(problem.free))


@every_scenario
def test_every_value_that_a_control_offers_is_admissible(entry):
    signature = inspect.signature(entry.function).parameters
    for argument in entry.arguments:
        for value in offered(argument):
            name, bracket, rest = argument.name.partition("[")
            if bracket:
                values = list(signature[name].default)
                values[int(rest.rstrip("]"))] = value
                value = tuple(values)
            needs = NEEDS.get((entry.name, name, value), {})
            assert isinstance(entry.function(**{name: value, **needs}), ol.Problem)


# What else has to be set for a value, as the message of the scenario says.
NEEDS = {("gating", "K", 4): {"start_overlap": 0.1}}


def offered(argument):
    """The ends of a slider, or all choices."""
    if isinstance(argument, Number):
        return [argument.read(str(argument.low)), argument.read(str(argument.high))]
    if isinstance(argument, Choice):
        return argument.known
    return (True, False) if isinstance(argument, Flag) else ()


@every_scenario
def test_sliders_reach_their_defaults_in_whole_steps(entry):
    for argument in entry.arguments:
        if isinstance(argument, Number) and not (argument.optional and argument.default is None):
            steps = (argument.default - argument.low) / argument.step
            assert argument.low <= argument.default <= argument.high
            assert steps == pytest.approx(round(steps), abs=1e-6), argument


def test_what_has_no_control_says_why():
    (T,) = (a for a in catalogue()["dropout"].arguments if a.name == "T")
    assert isinstance(T, CodeOnly)
    with pytest.raises(SpecificationError, match="T = 2: has no control, since it is a matrix"):
        T.read("2")

    def silent(matrix: object = None) -> None:
        """No reason."""

    with pytest.raises(SpecificationError, match=r"silent\(matrix=None\): has no control; say why"):
        arguments_of(silent, {}, (), {})
    with pytest.raises(SpecificationError, match="its entry names the unknown argument 'nothing'"):
        arguments_of(silent, {"nothing": (0, 1, 0.1)}, (), {"matrix": "a matrix"})
