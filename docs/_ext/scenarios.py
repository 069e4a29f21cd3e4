"""``{scenarios}``: a table of all scenarios in the catalogue, with what each controls.

A scenario without a page of its own in ``docs/scenarios`` is a warning, and with -W the build fails.
"""

from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from optlearn.scenarios._catalogue import Entry, catalogue

logger = logging.getLogger(__name__)


def controls(entry: Entry) -> str:
    """Names of all controls of a scenario and its variants, and of what is free."""
    problems = [entry.function(**arguments) for arguments in ({}, *entry.variants)]
    names = dict.fromkeys(name for problem in problems for name in problem.controls)
    free = dict.fromkeys(name for problem in problems for name in problem.free)
    return ", ".join([*(f"`{name}`" for name in names), *(f"free `{name}`" for name in free)])


class Scenarios(SphinxDirective):
    """The table."""

    def run(self) -> list[nodes.Node]:
        rows = []
        for name, entry in catalogue().items():
            if not Path(self.env.srcdir, "scenarios", f"{name}.md").exists():
                logger.warning("scenario %s has no page docs/scenarios/%s.md", name, name, type="scenarios")
            rows.append(f"| [`{name}`](/scenarios/{name}.md) | {entry.description} | {controls(entry)} |")
        head = ["| scenario | what is found | controls |", "|---|---|---|"]
        return self.parse_text_to_nodes("\n".join([*head, *rows]))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("scenarios", Scenarios)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
