"""``optlearn show``: what is in a file of a solution."""

from pathlib import Path
from typing import Annotated

import typer

from optlearn._cli import options
from optlearn._cli.output import bad_input, console, deliver, exit_code, reporting
from optlearn._progress import Progress


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A solution, saved as NetCDF.")],
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Write a page with plots, certificate and provenance."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw a figure; the ending is its format (png, pdf, svg)."),
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="Write the schedule as a table.")
    ] = None,
    baselines: Annotated[
        bool, options.flag("--baselines", text="Compare with the usual schedules in the report.")
    ] = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show a saved solution: objective, certificate, schedule, and where it comes from.

    `optlearn solve SCENARIO --out FILE.nc` writes such a file, and so does solution.save in Python.

    Example: optlearn show s.nc --report s.html
    """
    if baselines and report is None:
        bad_input("--baselines: is shown in a report; give --report FILE.html")
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
        screen.print(
            f"Saved {where.get('created', '?')} by optlearn {where.get('optlearn_version', '?')}", style="dim"
        )

    deliver(result, None, as_json, for_people)
    raise typer.Exit(exit_code(solution))
