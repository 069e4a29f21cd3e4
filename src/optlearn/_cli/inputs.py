"""Options shared by several verbs, and the problems, schedules and solutions that they refer to."""

import ast
import inspect
import shlex
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optlearn._cli.output import bad_input
from optlearn._errors import SpecificationError
from optlearn._progress import Progress, Report
from optlearn.scenarios import list_scenarios
from optlearn.scenarios._catalogue import no_scenario
from optlearn.scenarios._files import check_file, find, is_file

if TYPE_CHECKING:
    from optlearn._control.problem import Problem
    from optlearn._schedule import Schedule

OPTIMAL = "optimal"

# --- options -------------------------------------------------------------------------------------


Method = StrEnum("Method", ["auto", "indirect", "direct", "greedy"])


def argument(metavar: str, text: str, **more: Any) -> Any:
    """A positional argument; the help calls it ``metavar``."""
    return typer.Argument(metavar=metavar, help=text, **more)


def option(metavar: str, text: str, *names: str, **more: Any) -> Any:
    """``--name VALUE``; the help calls the value ``metavar``."""
    return typer.Option(*names, metavar=metavar, help=text, **more)


def scenario_argument(
    text: str = "A scenario (`optlearn list` shows them), or a file that defines `problem`.",
) -> Any:
    """The name of a scenario, completed by the shell."""
    return argument("SCENARIO", text, autocompletion=lambda: list(list_scenarios()))


def settings_option(text: str) -> Any:
    """``--set NAME=VALUE``, repeatable."""
    return option("NAME=VALUE", f"{text} Repeatable.", "--set")


def flag(text: str, *names: str) -> Any:
    """A switch that is off unless it is given."""
    return typer.Option(*names, help=text)


def whole(text: str, *names: str, lowest: int = 1) -> Any:
    """A whole number of at least ``lowest``."""
    return option("COUNT", text, *names, min=lowest)


Scenario = Annotated[str, scenario_argument()]
Settings = Annotated[
    list[str] | None, settings_option("An argument of the scenario, such as eta=2 or 'Delta=(0, 2)'.")
]
MethodOption = Annotated[Method, option("METHOD", "How to solve: auto, indirect, direct or greedy.")]
Intervals = Annotated[int | None, whole("Control intervals (default: the problem's).")]
Starts = Annotated[int | None, whole("First guesses to optimise (default: the solver's).")]
MaxIterations = Annotated[int | None, whole("Iteration limit (default: the solver's).")]
Seed = Annotated[int, option("SEED", "Seed of everything random.", min=0)]
OutFile = Annotated[Path | None, option("FILE", "Write the JSON result to this file.")]
Json = Annotated[bool, flag("Print one JSON object on stdout.", "--json")]
Quiet = Annotated[bool, flag("No progress on stderr.", "--quiet", "-q")]

# --- what they refer to -----------------------------------------------------------------------------


def scenario_arguments(scenario: str, settings: list[str] | None, out: Path | None) -> dict[str, Any]:
    """Arguments of the scenario, after the checks that need no imports."""
    if is_file(scenario):
        try:
            check_file(scenario)
        except SpecificationError as error:
            bad_input(str(error))
    elif scenario not in list_scenarios():
        hint = f" (for a file: {scenario}.py)" if Path(f"{scenario}.py").is_file() else ""
        bad_input(f"{no_scenario(scenario)}{hint}")
    if out is not None:
        if out.is_dir():
            bad_input(f"--out {out}: this is a directory")
        if not out.absolute().parent.is_dir():
            bad_input(f"--out {out}: there is no directory {out.absolute().parent}")
    return read_settings(settings, "eta=2")


def read_settings(settings: list[str] | None, example: str) -> dict[str, Any]:
    """The values of ``--set``: name → value."""
    read: dict[str, Any] = {}
    for item in settings or []:
        name, equals, text = item.partition("=")
        name = name.strip()
        if not (equals and name and text.strip()):
            bad_input(f"--set {item!r}: write NAME=VALUE, such as {example}")
        if name in read:
            bad_input(f"--set {name}: given twice")
        read[name] = literal(text.strip())
    return read


def by_name(option: str, texts: list[str] | None) -> dict[str, float]:
    """Numbers of a repeatable option NAME=NUMBER."""
    numbers = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        try:
            numbers[name.strip()] = float(value)
        except ValueError:
            equals = ""
        if not equals or not name.strip():
            raise SpecificationError(f"{option} must be NAME=NUMBER, such as cpp=0.2, got {text!r}")
    return numbers


def literal(text: str) -> Any:
    """A Python literal; a bare word is text, so that start=fig3 needs no quotes."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def allowed_arguments(scenario: str) -> dict[str, inspect.Parameter]:
    """Parameters of a scenario's function."""
    return dict(inspect.signature(find(scenario).function).parameters)


def make_problem(scenario: str, arguments: Mapping[str, Any], tell: Report) -> "Problem":
    """The scenario's problem."""
    allowed = allowed_arguments(scenario)
    for name in arguments:
        if name not in allowed:
            has = [n if p.default is p.empty else f"{n}={p.default!r}" for n, p in allowed.items()]
            shown = ", ".join(has) or "none, since its problem is not a function"
            raise SpecificationError(f"--set {name}: {scenario} has no such argument; it has {shown}")
    from optlearn._control import solve

    del solve  # imported with everything it needs, while interruptions are held back
    tell(Progress("setting up the problem"))
    try:
        problem = find(scenario).function(**arguments)
    except (TypeError, ValueError) as error:  # an invalid value that no check catches is still bad input
        raise SpecificationError(str(error)) from error
    return problem


def with_dimension(scenario: str, arguments: dict[str, Any], N: int) -> dict[str, Any]:
    """The arguments with the simulation's N, where the scenario's error depends on it."""
    if "N" not in allowed_arguments(scenario):
        return arguments
    if arguments.setdefault("N", N) != N:
        raise SpecificationError(
            f"--set N={arguments['N']} and --N {N}: the theory and the simulation need the same N"
        )
    return arguments


def command_line(verb: str, scenario: str, settings: list[str] | None, **options: Any) -> str:
    """A shell command that does something else with the same problem."""
    words = ["optlearn", verb, scenario]
    for setting in settings or []:
        words += ["--set", setting]
    for name, value in chosen(**options).items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)


def chosen(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def baseline_or_file(problem: "Problem", name: str, intervals: int | None) -> "Schedule":
    """The baseline or the file with this name, as a schedule."""
    from optlearn._control.baselines import baselines_of

    usual = baselines_of(problem)
    if name in usual:
        return usual[name](problem, problem.intervals if intervals is None else intervals)
    path = Path(name)
    if not path.is_file():
        names = ", ".join(repr(n) for n in (OPTIMAL, *usual))
        raise SpecificationError(f"--schedule {name!r}: no such file, and none of {names}")
    return read_schedule(path)


def read_schedules(files: Sequence[str], taken: Collection[str]) -> "dict[str, Schedule]":
    """File name, without its extension unless the name is taken → its schedule."""
    paths = [Path(file) for file in files]
    schedules = {path.name if path.stem in taken else path.stem: read_schedule(path) for path in paths}
    if len(schedules) < len(files):
        raise SpecificationError("--schedule: two files have the same name")
    return schedules


def read_schedule(path: Path) -> "Schedule":
    """A schedule from a file: JSON of ``optlearn solve`` or ``schedule.to_json``, or a saved solution."""
    from optlearn._schedule import Schedule

    if path.suffix != ".nc":
        return Schedule.from_json(path)
    from optlearn._io.solutions import load

    try:
        return load(path).schedule
    except OSError as error:
        raise SpecificationError(str(error)) from error
