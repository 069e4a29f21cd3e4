"""What was measured, kept for the page of measurements: ``docs/measurements.json``.

Section → version of optlearn → the command, machine, versions and rows. A section that is measured again
under the same version replaces what was there; other versions stay, so that the page shows how a number has
changed.
"""

import json
from pathlib import Path
from typing import Any

from benchmarks.machine import machine

FILE = Path(__file__).resolve().parent.parent / "docs" / "measurements.json"

# Rows of a table: column → value.
Rows = list[dict[str, Any]]


def record(
    section: str,
    command: str,
    rows: Rows,
    *,
    note: str = "",
    made_on: str | None = None,
    versions: dict[str, str] | None = None,
) -> None:
    """Keep the rows of a section.

    Args:
        section: its name; ``docs/measurements.md`` says where it is shown.
        command: what measures it again.
        rows: of the table, all with the same first column.
        note: what a reader should know.
        made_on: the machine, if it was not this one.
        versions: what it was measured with, optlearn among them, if not what is installed here.
    """
    kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    here = machine()
    used = versions or here["versions"]
    entry = {"command": command, "machine": made_on or here["machine"], "versions": used}
    kept.setdefault(section, {})[used["optlearn"]] = {**entry, "note": note, "rows": rows}
    FILE.write_text(json.dumps(kept, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
