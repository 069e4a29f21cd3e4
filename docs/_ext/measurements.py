"""``{measured} SECTION``: a table of ``measurements.json``, with the command, machine and versions behind it.

Where a section was measured under more than one version of optlearn, ``:change: COLUMN; COLUMN`` adds what
the version before had in these columns.
"""

import csv
import json
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

FILE = Path(__file__).resolve().parents[1] / "measurements.json"
PUBLIC = FILE.with_name("benchmarks.csv")
MISSING = "–"


def shown(value: Any) -> str:
    """A cell."""
    if value is None or value == "":
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    if isinstance(value, float):
        return f"{value:.1e}" if value >= 1e6 else f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def table(rows: list[dict[str, Any]]) -> str:
    """A Markdown table; rows may lack columns."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = [columns, ["---"] * len(columns)]
    lines += [[shown(row.get(column)) for column in columns] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def with_earlier(
    rows: list[dict[str, Any]], before: list[dict[str, Any]], version: str, columns: list[str]
) -> list[dict[str, Any]]:
    """Rows, and beside each of the columns what the earlier version had."""
    key = next(iter(rows[0]))
    earlier = {row[key]: row for row in before}
    result = []
    for row in rows:
        wide: dict[str, Any] = {}
        for name, value in row.items():
            wide[name] = value
            if name in columns:
                wide[f"in {version}: {name}"] = earlier.get(row[key], {}).get(name)
        result.append(wide)
    return result


class Measured(SphinxDirective):
    """One section."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar = {"change": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(FILE))
        kept = json.loads(FILE.read_text(encoding="utf-8"))
        if self.arguments[0] not in kept:
            raise self.error(
                f"measurements.json has no section {self.arguments[0]!r}; there are {list(kept)}"
            )
        versions = kept[self.arguments[0]]
        newest, *before = sorted(versions, key=lambda v: [int(p) for p in v.split(".")], reverse=True)
        entry = versions[newest]
        rows = entry["rows"]
        notes = [entry["note"]]
        if before and "change" in self.options:
            columns = [column.strip() for column in self.options["change"].split(";")]
            rows = with_earlier(rows, versions[before[0]]["rows"], before[0], columns)
            notes.append(f"{before[0]}: {versions[before[0]]['note']}")
        used = ", ".join(f"{name} {version}" for name, version in entry["versions"].items())
        parts = [
            table(rows),
            f"```console\n{entry['command']}\n```",
            f"{entry['machine']}; {used}. {' '.join(note for note in notes if note)}",
        ]
        return self.parse_text_to_nodes("\n\n".join(parts))


class PublicBenchmarks(SphinxDirective):
    """The table of ``python -m benchmarks control``: the default method and a plain transcription."""

    SHOWN: ClassVar = ("problem", "objective", "excess", "converged", "honest", "seconds")

    def run(self) -> list[nodes.Node]:
        if not PUBLIC.exists():
            text = "This table has not been computed yet: `python -m benchmarks control` writes it."
            return self.parse_text_to_nodes(text)
        self.env.note_dependency(str(PUBLIC))
        with PUBLIC.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        ours = [row for row in rows if row["method"] == "auto"]
        plain = {row["problem"]: row for row in rows if row["method"] == "CasADi/IPOPT"}
        wide = [
            {
                **{name: row[name] for name in self.SHOWN},
                "excess of CasADi/IPOPT": plain.get(row["problem"], {}).get("excess"),
            }
            for row in ours
        ]
        honest = sum(row["honest"] == "yes" for row in ours)
        text = f"{honest} of {len(ours)} problems have no wrong claim of convergence."
        command = "```console\npython -m benchmarks control\n```"
        return self.parse_text_to_nodes(f"{text}\n\n{table(wide)}\n\n{command}")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("measured", Measured)
    app.add_directive("public-benchmarks", PublicBenchmarks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
