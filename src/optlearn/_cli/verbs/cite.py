"""``optlearn cite``: what to cite."""

from pathlib import Path
from typing import Annotated

import typer

from optlearn._cli import options
from optlearn._cli.output import bad_input, deliver, reporting
from optlearn._progress import Progress


def command(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="A solution, saved as NetCDF (default: of the library alone)."),
    ] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Print the BibTeX entries of the library, or of all that a saved solution was computed with.

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
