"""``{commands}``: the help of every command of ``optlearn``, as the program prints it."""

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from typer.testing import CliRunner

from optlearn._cli import app as cli

WIDTH = "92"


def help_of(*words: str) -> str:
    """What ``optlearn WORDS --help`` prints."""
    plain = {"COLUMNS": WIDTH, "TERMINAL_WIDTH": WIDTH, "NO_COLOR": "1", "TERM": "dumb"}
    shown = CliRunner().invoke(cli, [*words, "--help"], env=plain, prog_name="optlearn")
    assert shown.exit_code == 0, shown.output
    return "\n".join(line.rstrip() for line in shown.output.strip("\n").splitlines())


class Commands(SphinxDirective):
    """All commands."""

    def run(self) -> list[nodes.Node]:
        names = [info.name or info.callback.__name__ for info in cli.registered_commands if info.callback]
        parts = [f"## optlearn {name}\n\n```text\n{help_of(name)}\n```\n" for name in names]
        return self.parse_text_to_nodes("\n".join(parts), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
