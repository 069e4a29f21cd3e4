"""``optlearn list``: the scenarios, and all about one of them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from optlearn._cli import options
from optlearn._cli.inputs import make_problem, scenario_arguments
from optlearn._cli.output import bad_input, console, deliver, reporting
from optlearn._control.scenario_call import COMMON
from optlearn.scenarios import list_scenarios
from optlearn.scenarios._arguments import Argument, Choice, CodeOnly, Flag, Number
from optlearn.scenarios._catalogue import Entry, catalogue

if TYPE_CHECKING:
    from optlearn._control.problem import Problem

_KINDS: dict[type[Argument], str] = {Number: "number", Flag: "flag", Choice: "choice", CodeOnly: "other"}


def command(
    scenario: Annotated[
        str | None, options.scenario_argument("A scenario to describe (default: name them all).")
    ] = None,
    settings: options.Settings = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show the scenarios that are ready to use, or all arguments of one.

    Of a scenario: what its arguments mean, their defaults, and the ranges that the explorer offers (others
    can be set all the same); then its controls, free parameters and baselines, as --set makes them.

    Example: optlearn list curriculum
    """
    if scenario is None:
        if settings:
            bad_input("--set: name a scenario too, such as optlearn list curriculum --set joint=true")
        known = list_scenarios()
        deliver({"scenarios": known}, None, as_json, lambda: _show_all(known))
        return
    given = scenario_arguments(scenario, settings, None)
    entry = catalogue()[scenario]
    with reporting(quiet) as tell:
        problem = make_problem(scenario, given, tell)
        others = [(arguments, entry.function(**{**given, **arguments})) for arguments in entry.variants]
    result = {
        "scenario": scenario,
        "description": entry.description,
        "arguments": [_described(argument) for argument in entry.arguments],
        **_chosen(problem),
        "baselines": list(problem.baselines),
        "variants": [{"arguments": arguments, **_chosen(other)} for arguments, other in others],
        "citations": entry.citations,
    }
    deliver(result, None, as_json, lambda: _show_one(entry, result))


def _described(argument: Argument) -> dict[str, Any]:
    """Everything about an argument, for JSON."""
    found = {
        "name": argument.name,
        "kind": _KINDS[type(argument)],
        "default": argument.default,
        "meaning": argument.help,
    }
    if isinstance(argument, Number):
        found |= {"lowest": argument.low, "highest": argument.high, "step": argument.step}
        found |= {"whole": argument.whole, "optional": argument.optional}
    elif isinstance(argument, Choice):
        found["choices"] = argument.known
    elif isinstance(argument, CodeOnly):
        found["reason"] = argument.reason
    return found


def _chosen(problem: "Problem") -> dict[str, Any]:
    """What is optimised: controls, and free parameters, with what they may be."""
    within = {name: [limits.lower, limits.upper] for name, limits in problem.continuous.items()}
    values = {name: list(control.values) for name, control in problem.discrete.items()}
    kinds = {
        name: {"from_to": within[name]} if name in within else {"values": values[name]}
        for name in problem.controls
    }
    free = {name: {"from_to": [limits.lower, limits.upper]} for name, limits in problem.free.items()}
    return {"controls": kinds, "free": free, "intervals": problem.intervals}


def _show_all(known: Mapping[str, str]) -> None:
    """Names and one line each."""
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    for name, line in known.items():
        table.add_row(f"[bold]{name}[/bold]", line)
    console().print(table)
    console().print("\nAll about one of them: optlearn list NAME", style="dim")


def _show_one(entry: Entry, result: Mapping[str, Any]) -> None:
    from rich.table import Table

    screen = console()
    screen.print(f"[bold]{entry.name}[/bold]: {entry.description}.\n")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("argument", "default", "range", "meaning"):
        table.add_column(heading, no_wrap=heading == "argument")
    for argument in entry.arguments:
        table.add_row(argument.name, str(argument.default), argument.allowed, argument.help)
    for name, (_, meaning) in COMMON.items():
        table.add_row(name, "None", "", meaning)
    screen.print(table)
    rows = [("", result), *((_setting(v["arguments"]), v) for v in result["variants"])]
    for setting, chosen in rows:
        screen.print(f"\nControls{f', with {setting}' if setting else ''}: {_limits(chosen['controls'])}")
        if chosen["free"]:
            screen.print(f"Free parameters: {_limits(chosen['free'])}")
    screen.print(f"\nBaselines: {', '.join(result['baselines'])}", markup=False)


def _setting(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in arguments.items())


def _limits(chosen: Mapping[str, Mapping[str, Any]]) -> str:
    return "; ".join(
        f"{name}, from {limits['from_to'][0]:g} to {limits['from_to'][1]:g}"
        if "from_to" in limits
        else f"{name}, {' or '.join(f'{value:g}' for value in limits['values'])}"
        for name, limits in chosen.items()
    )
