"""``optlearn help``: the pages that errors and warnings name."""

from typing import Annotated

import typer

from optlearn._cli.output import bad_input, console, deliver
from optlearn._errors import SpecificationError, page, topics


def command(
    topic: Annotated[
        str | None,
        typer.Argument(help="What to explain (default: list all).", autocompletion=lambda: list(topics())),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Explain errors and warnings: what is behind them, and what usually helps.

    Example: optlearn help not-converged
    """
    from rich.markdown import Markdown

    if topic is None:
        found = topics()
        lines = "\n".join(f"- `{name}`: {title}" for name, title in found.items())
        deliver({"topics": found}, None, as_json, lambda: console().print(Markdown(lines)))
        return
    try:
        text = page(topic)
    except SpecificationError as error:
        bad_input(str(error))
    deliver({"topic": topic, "page": text}, None, as_json, lambda: console().print(Markdown(text)))
