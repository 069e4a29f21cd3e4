"""The code blocks of the pages: README.md and everything below docs/."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted(p for p in (ROOT / "docs").rglob("*.md") if not {"_build", "gallery"} & {*p.parts}),
]

_FENCE = re.compile(r"(?P<indent> *)(?P<fence>`{3,})(?P<info>.*)")
_MARK = re.compile(r"<!-- (?P<key>needs|skip|slow): (?P<value>.+?) -->")
_PYTHON = ("python", "{code-cell}", "py")
_SHELL = ("console", "shell", "bash", "sh")


@dataclass(frozen=True)
class Block:
    """A piece of a page.

    Attributes:
        line: where it begins, counted from 1.
        kind: "python", "doctest" or "shell".
        code: its lines.
        needs: a package without which it is left out.
        skip: why it is not run; empty if it is.
    """

    line: int
    kind: str
    code: str
    needs: str = ""
    skip: str = ""


def blocks(text: str) -> Iterator[Block]:
    """All blocks of a page. `<!-- needs: torch -->` or `<!-- skip: why -->` right above a block marks it."""
    marks: dict[str, str] = {}
    lines = enumerate(text.splitlines(), 1)
    for number, line in lines:
        opening = _FENCE.fullmatch(line)
        if opening:
            inside = []
            for _, inner in lines:
                if inner.strip() == opening["fence"]:
                    break
                inside.append(inner.removeprefix(opening["indent"]))
            kind = _kind(opening["info"].strip())
            if kind:
                code = "\n".join(row for row in inside if not row.startswith(":tags:"))
                yield Block(number, kind, code, marks.get("needs", ""), marks.get("skip", ""))
        elif line.startswith("    ") and line.strip():
            yield Block(number, "shell", line.strip())
        mark = _MARK.fullmatch(line.strip())
        if mark:
            marks[mark["key"]] = mark["value"]
        elif line.strip():
            marks = {}


def slow(text: str) -> str:
    """Why a page takes long, if it says so: `<!-- slow: why -->`."""
    return next((mark["value"] for mark in _MARK.finditer(text) if mark["key"] == "slow"), "")


def _kind(info: str) -> str:
    word = info.split()[0] if info else ""
    if word in _PYTHON:
        return "python"
    if word in _SHELL:
        return "shell"
    return "doctest" if word == "{doctest}" else ""


def commands(text: str) -> Iterator[tuple[int, str]]:
    """Line and text of every command of a page: optlearn, make and python with a file."""
    for block in blocks(text):
        if block.kind == "shell" and not block.skip:
            for offset, line in enumerate(block.code.splitlines()):
                command = line.strip().removeprefix("$ ").removeprefix(".venv/bin/").split("  #")[0].strip()
                if re.match(r"(optlearn|make|python) [a-z-]", command):
                    yield block.line + offset, command
