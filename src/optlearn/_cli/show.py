"""Verbs that show something: scenarios, saved solutions, references, help pages, the explorer."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optlearn._cli import inputs
from optlearn._cli.inputs import argument, flag, option, scenario_argument, settings_option
from optlearn._cli.output import bad_input, console, deliver, exit_code, reporting
from optlearn._control.scenario_call import COMMON
from optlearn._errors import SpecificationError, how_to_install, page, topics
from optlearn._progress import Progress
from optlearn.scenarios import list_scenarios
from optlearn.scenarios._arguments import Argument, Choice, CodeOnly, Flag, Number
from optlearn.scenarios._catalogue import Entry
from optlearn.scenarios._files import find, is_file

if TYPE_CHECKING:
    from optlearn._control.problem import Problem

_KINDS: dict[type[Argument], str] = {Number: "number", Flag: "flag", Choice: "choice", CodeOnly: "other"}


def run_list(
    scenario: Annotated[
        str | None, scenario_argument("The scenario to describe (default: list all).")
    ] = None,
    settings: inputs.Settings = None,
    as_json: inputs.Json = False,
    quiet: inputs.Quiet = False,
) -> None:
    """List the scenarios that are ready to use, or describe one.

    The description gives the meaning and default of every argument and the range that the explorer offers
    (values outside it are allowed); then the controls, free parameters and baselines under the given --set.

    Example: optlearn list curriculum
    """
    if scenario is None:
        if settings:
            bad_input("--set: name a scenario too, such as optlearn list curriculum --set joint=true")
        lines = list_scenarios()
        deliver({"scenarios": lines}, None, as_json, lambda: _show_all(lines))
        return
    chosen = inputs.scenario_arguments(scenario, settings, None)
    with reporting(quiet) as tell:
        entry = find(scenario)
        problem = inputs.make_problem(scenario, chosen, tell)
        from optlearn._control.baselines import baselines_of

        others = [(arguments, entry.function(**{**chosen, **arguments})) for arguments in entry.variants]
    result = {
        "scenario": scenario,
        "description": entry.description,
        "arguments": [_described(each) for each in entry.arguments],
        **_chosen(problem),
        "baselines": list(baselines_of(problem)),
        "variants": [{"arguments": arguments, **_chosen(other)} for arguments, other in others],
        "citations": entry.citations,
    }
    deliver(result, None, as_json, lambda: _show_one(entry, result))


def _described(setting: Argument) -> dict[str, Any]:
    """Everything about an argument, for JSON."""
    facts = {"name": setting.name, "kind": _KINDS[type(setting)], "default": setting.default}
    facts["meaning"] = setting.help
    if isinstance(setting, Number):
        facts |= {"lowest": setting.low, "highest": setting.high, "step": setting.step}
        facts |= {"whole": setting.whole, "optional": setting.optional}
    elif isinstance(setting, Choice):
        facts["choices"] = setting.known
    elif isinstance(setting, CodeOnly):
        facts["reason"] = setting.reason
    return facts


def _chosen(problem: "Problem") -> dict[str, Any]:
    """The optimised quantities: controls and free parameters, with their ranges or values."""
    within = {n: {"from_to": [limits.lower, limits.upper]} for n, limits in problem.continuous.items()}
    values = {n: {"values": list(control.values)} for n, control in problem.discrete.items()}
    free = {n: {"from_to": [limits.lower, limits.upper]} for n, limits in problem.free.items()}
    controls = {name: (within | values)[name] for name in problem.controls}
    return {"controls": controls, "free": free, "intervals": problem.intervals}


def _show_all(lines: Mapping[str, str]) -> None:
    """Print names, with one line each."""
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    for name, line in lines.items():
        table.add_row(f"[bold]{name}[/bold]", line)
    console().print(table)
    console().print("\nDescribe one of them: optlearn list NAME", style="dim")


def _show_one(entry: Entry, result: Mapping[str, Any]) -> None:
    from rich.table import Table

    screen = console()
    screen.print(f"[bold]{result['scenario']}[/bold]: {entry.description}.\n")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("argument", "default", "range", "meaning"):
        table.add_column(heading, no_wrap=heading == "argument")
    for each in entry.arguments:
        table.add_row(each.name, str(each.default), each.allowed, each.help)
    if not is_file(result["scenario"]):
        for name, (_, meaning) in COMMON.items():
            table.add_row(name, "None", "", meaning)
    screen.print(table)
    for chosen in (result, *result["variants"]):
        settings = chosen["arguments"] if chosen is not result else {}
        with_them = ", with " + ", ".join(f"{name}={value}" for name, value in settings.items())
        screen.print(f"\nControls{with_them if settings else ''}: {_limits(chosen['controls'])}")
        if chosen["free"]:
            screen.print(f"Free parameters: {_limits(chosen['free'])}")
    screen.print(f"\nBaselines: {', '.join(result['baselines'])}", markup=False)


def _limits(chosen: Mapping[str, Mapping[str, Any]]) -> str:
    return "; ".join(
        f"{name}, from {limits['from_to'][0]:g} to {limits['from_to'][1]:g}"
        if "from_to" in limits
        else f"{name}, {' or '.join(f'{value:g}' for value in limits['values'])}"
        for name, limits in chosen.items()
    )


def run_show(
    file: Annotated[Path, argument("FILE", "A solution, saved as NetCDF.")],
    report: Annotated[
        Path | None, option("FILE.html", "Write a page with plots, certificate and provenance.")
    ] = None,
    plot: Annotated[
        Path | None, option("FILE", "Draw a figure; the ending is its format (png, pdf, svg).")
    ] = None,
    csv: Annotated[Path | None, option("FILE.csv", "Write the schedule as a table.")] = None,
    baselines: Annotated[
        bool, flag("Compare with the usual schedules in the report.", "--baselines")
    ] = False,
    as_json: inputs.Json = False,
    quiet: inputs.Quiet = False,
) -> None:
    """Show a saved solution: objective, certificate, schedule and provenance.

    `optlearn solve SCENARIO --out FILE.nc` writes such a file, and so does solution.save in Python.

    Example: optlearn show s.nc --report s.html
    """
    if baselines and report is None:
        bad_input("--baselines belongs to a report: add --report FILE.html")
    with reporting(quiet) as tell:
        from optlearn._control.identity import ProblemNotInFileError
        from optlearn._io.solutions import load

        tell(Progress("reading"))
        try:
            solution = load(file)
            if report is not None:
                tell(Progress("writing the report"))
                solution.report(report, baselines=baselines)
            if plot is not None:
                from optlearn.plotting.style import save_figure

                tell(Progress("drawing"))
                save_figure(solution.plot(), plot)
            if csv is not None:
                solution.schedule.to_csv(csv)
        except (OSError, ValueError, ProblemNotInFileError) as error:
            bad_input(str(error))
    call = solution.problem.made_by
    result = {
        **({} if call is None else {"scenario": call.scenario, "arguments": dict(call.arguments)}),
        **solution.to_dict(),
        "options": dict(solution.options),
        "provenance": dict(solution.provenance),
    }

    def for_people() -> None:
        screen = console()
        screen.print(solution)
        where = solution.provenance
        version = where.get("optlearn_version", "?")
        screen.print(f"Saved {where.get('created', '?')} by optlearn {version}", style="dim")

    deliver(result, None, as_json, for_people)
    raise typer.Exit(exit_code(solution))


def run_cite(
    file: Annotated[
        Path | None, argument("FILE", "A solution, saved as NetCDF (default: the library alone).")
    ] = None,
    as_json: inputs.Json = False,
    quiet: inputs.Quiet = False,
) -> None:
    """Print the BibTeX entries to cite for the library, or for a saved solution.

    Example: optlearn cite s.nc >> references.bib
    """
    solution = None
    with reporting(quiet) as tell:
        from optlearn._citations import bibtex, used

        if file is not None:
            from optlearn._io.solutions import load

            tell(Progress("reading"))
            try:
                solution = load(file)
            except (OSError, ValueError) as error:
                bad_input(str(error))
    entries = bibtex(solution)
    deliver({"keys": used(solution), "bibtex": entries}, None, as_json, lambda: typer.echo(entries))


def run_explore(
    scenario: Annotated[
        str, scenario_argument("The first scenario, or a file that defines `problem`.")
    ] = "curriculum",
    settings: Annotated[list[str] | None, settings_option("An initial value of a parameter.")] = None,
    port: Annotated[int, option("PORT", "Port on 127.0.0.1; 0: any free one.", min=0, max=65535)] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser.")] = True,
    as_json: Annotated[bool, flag("Print the address as one JSON object.", "--json")] = False,
) -> None:
    """Open the explorer in a browser: move parameters, watch the optimal schedule, download it.

    The page is served to this machine only and needs no network. Press Ctrl-C to stop it.

    Example: optlearn explore dropout --set sigma_n=0.2
    """
    values = inputs.scenario_arguments(scenario, settings, None)
    if find_spec("panel") is None:
        bad_input(f"the explorer needs Panel, which is not installed: {how_to_install('app')}")
    console(stderr=True).print("loading …", style="dim")
    from optlearn._app import serve

    def started(url: str) -> None:
        deliver(
            {"url": url},
            None,
            as_json,
            lambda: console().print(f"{url}\nPress Ctrl-C to stop.", markup=False),
        )

    try:
        serve(scenario, values, port=port, browser=browser, started=started)
    except SpecificationError as error:
        bad_input(f"--set: {error}")
    except OSError as error:
        bad_input(f"--port {port}: {error.strerror or error}")
    except KeyboardInterrupt:
        console(stderr=True).print("stopped", style="yellow")


def run_help(
    topic: Annotated[
        str | None,
        typer.Argument(help="What to explain (default: list all).", autocompletion=lambda: list(topics())),
    ] = None,
    as_json: inputs.Json = False,
) -> None:
    """Explain errors and warnings: their causes, and what usually helps.

    Example: optlearn help not-converged
    """
    from rich.markdown import Markdown

    if topic is None:
        titles = topics()
        lines = "\n".join(f"- `{name}`: {title}" for name, title in titles.items())
        deliver({"topics": titles}, None, as_json, lambda: console().print(Markdown(lines)))
        return
    try:
        text = page(topic)
    except SpecificationError as error:
        bad_input(str(error))
    deliver({"topic": topic, "page": text}, None, as_json, lambda: console().print(Markdown(text)))
