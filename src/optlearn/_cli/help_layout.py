"""Help that reads well: paragraphs that fill the line, and flags without a type."""

import inspect
from typing import Any

from typer.core import TyperCommand, TyperGroup

# Paragraphs that begin so keep their lines.
AS_WRITTEN = ("Example", "- ")


def filled(docstring: str | None) -> str:
    """A docstring whose paragraphs are one line each, so that only the terminal breaks them."""
    paragraphs = inspect.cleandoc(docstring or "").split("\n\n")
    return "\n\n".join(p if p.startswith(AS_WRITTEN) else p.replace("\n", " ") for p in paragraphs)


def _without_type(parameters: Any) -> Any:
    """A flag takes no value, so that there is no type to be shown."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


class Command(TyperCommand):
    """A command."""

    def get_params(self, ctx: Any) -> Any:
        """Arguments and options, --help among them."""
        return _without_type(super().get_params(ctx))


class Group(TyperGroup):
    """The command ``optlearn`` itself."""

    def get_params(self, ctx: Any) -> Any:
        """Options, --help among them."""
        return _without_type(super().get_params(ctx))
