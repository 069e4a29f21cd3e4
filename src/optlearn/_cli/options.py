"""Options that several commands have, each defined once."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from optlearn.scenarios import list_scenarios


class Method(StrEnum):
    """How to solve."""

    auto = "auto"
    indirect = "indirect"
    direct = "direct"
    greedy = "greedy"


def scenario_argument(text: str = "Name of a scenario; `optlearn list` shows them.") -> Any:
    """The name of a scenario, completed by the shell."""
    return typer.Argument(metavar="SCENARIO", help=text, autocompletion=lambda: list(list_scenarios()))


def settings_option(text: str) -> Any:
    """``--set NAME=VALUE``, as often as wanted."""
    return typer.Option("--set", metavar="NAME=VALUE", help=f"{text} Repeatable.")


def flag(*names: str, text: str) -> Any:
    """A switch that is off unless it is given."""
    return typer.Option(*names, help=text)


def whole(text: str, *names: str, lowest: int = 1) -> Any:
    """A whole number of at least ``lowest``."""
    return typer.Option(*names, metavar="COUNT", min=lowest, help=text)


def folder(text: str) -> Any:
    """A folder."""
    return typer.Option(metavar="DIR", help=text)


Scenario = Annotated[str, scenario_argument()]
Settings = Annotated[
    list[str] | None,
    settings_option("An argument of the scenario, such as eta=2 or 'Delta=(0, 2)'."),
]
MethodOption = Annotated[
    Method, typer.Option(metavar="METHOD", help="How to solve: auto, indirect, direct or greedy.")
]
Intervals = Annotated[int | None, whole("Control intervals (default: the scenario's).")]
Starts = Annotated[int | None, whole("First guesses to optimise (default: the solver's).")]
MaxIterations = Annotated[int | None, whole("Iteration limit (default: the solver's).")]
Seed = Annotated[int, typer.Option(metavar="SEED", min=0, help="Seed of everything random.")]
OutFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the JSON result to this file.")]
Json = Annotated[bool, flag("--json", text="Print one JSON object on stdout.")]
Quiet = Annotated[bool, flag("--quiet", "-q", text="No progress on stderr.")]
