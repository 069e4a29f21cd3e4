"""The gallery: a page for every file of ``examples/``, and cards that lead to them.

Pages, thumbnails and notebooks are written into ``gallery/`` before Sphinx reads the sources; nothing is
run. What an example has printed and drawn, and how long it took, was stored by ``make gallery``. ``{cards}``
shows the cards of the first page, ``{cards} GROUP`` those of a section. An example without a table in
``examples.toml``, or whose stored result was made by another command, still gets a page, which says so.
"""

import ast
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import nbformat
from docutils import nodes
from PIL import Image
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

DOCS = Path(__file__).resolve().parents[1]
EXAMPLES = DOCS.parent / "examples"
PAGES = DOCS / "gallery"
CARD = (480, 320)  # pixels of a thumbnail
OTHERS = "More"
LONGEST_OUTPUT = 60  # lines
# A command in the text of a script, up to what explains it.
RUN = re.compile(r"Run: (python examples/[^(\n]+?)(?=\s*(?:\(|\n|$|\. |, or))")


def entries() -> dict[str, dict[str, Any]]:
    """Name of every example → its table, with ``stored``: what `make gallery` has kept of it, or None."""
    told = tomllib.loads((DOCS / "examples.toml").read_text(encoding="utf-8"))
    kept = json.loads((DOCS / "gallery.json").read_text(encoding="utf-8"))
    found = {}
    for path in sorted(EXAMPLES.glob("*.py")):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or path.stem
        command = f"python examples/{path.name}"
        plain = {"question": text.splitlines()[0].rstrip("."), "group": OTHERS, "command": command}
        entry = {**plain, **told.get(path.stem, {}), "text": text, "stored": None}
        if kept.get(path.stem, {}).get("command") == entry["command"]:
            entry["stored"] = kept[path.stem]
        if "picture" in entry and not (DOCS / entry["picture"]).exists():
            del entry["picture"]
        found[path.stem] = entry
    order = list(told)
    return dict(sorted(found.items(), key=lambda item: order.index(item[0]) if item[0] in order else 99))


def notebook(name: str) -> nbformat.NotebookNode:
    """The script in cells: its text, then a cell for each function, then what it does as a program."""
    source = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    tree, lines = ast.parse(source), source.splitlines()
    cells = [nbformat.v4.new_markdown_cell(ast.get_docstring(tree) or name)]
    pieces: list[tuple[bool, str]] = []  # is it a definition, and its lines
    end = tree.body[0].end_lineno or 0
    for node in tree.body[1:]:
        first, last = end, node.end_lineno or 0
        if isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'":
            body = [line.removeprefix("    ") for line in lines[node.lineno : last]]
            start = ["import sys", "", f'sys.argv = ["{name}.py"]  # options of the command line go here', ""]
            pieces.append((True, "\n".join([*start, *body])))
        else:
            defined = isinstance(node, ast.FunctionDef | ast.ClassDef)
            pieces.append((defined, "\n".join(lines[first:last])))
        end = last
    joined: list[str] = []
    before = True
    for defined, text in pieces:
        if before or defined or not joined:
            joined.append(text.strip("\n"))
        else:
            joined[-1] += "\n" + text
        before = defined
    cells += [nbformat.v4.new_code_cell(text) for text in joined]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"  # the same at every build
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return nbformat.v4.new_notebook(cells=cells, metadata=kernel)


def page(name: str, entry: dict[str, Any]) -> str:
    """Markdown of one example."""
    first, _, rest = entry["text"].partition("\n")
    stored = entry["stored"]
    subtitle = first.removeprefix(entry["question"]).strip()
    parts = [
        f"# {entry['question']}",
        f"*{subtitle}*" if subtitle else "",
        RUN.sub(r"Run: `\1`", rest.strip()),
    ]
    if "picture" in entry:
        parts.append(f"![{first}](/{entry['picture']})")
    download = f"{{download}}`{name}.py <../../examples/{name}.py>`"
    parts.append(f"Download: {download}, {{download}}`{name}.ipynb <downloads/{name}.ipynb>`.")
    command = entry["command"].replace(" --out drawn.png", "")
    parts.append(f"```console\n{command}\n```")
    if stored is None:
        parts.append("There is no stored result: run the command to see one.")
    else:
        versions = ", ".join(f"{key} {value}" for key, value in stored["versions"].items())
        parts.append(
            f"Took {stored['cpu_seconds']:.0f} s of CPU time, imports and compilation included "
            f"({stored['machine']}; {versions})."
        )
    parts.append(entry.get("note", ""))
    if stored is not None and stored["output"].strip():
        shown = stored["output"].rstrip().splitlines()
        left = len(shown) - LONGEST_OUTPUT
        if left > 0:
            shown = [*shown[:LONGEST_OUTPUT], f"… ({left} more lines)"]
        text = "\n".join(line.rstrip() for line in shown)
        parts.append(f"## What it prints\n\n```text\n{text}\n```")
    parts.append(f"## The script\n\n```{{literalinclude}} ../../examples/{name}.py\n:language: python\n```")
    return "\n\n".join(part for part in parts if part) + "\n"


def index(found: dict[str, dict[str, Any]]) -> str:
    """Markdown of the gallery's first page."""
    groups = dict.fromkeys(entry["group"] for entry in found.values())
    parts = [
        "# Gallery",
        "Each question is answered by a script that you can run, change and download, also as a notebook. "
        "Pictures, printed output and times are stored results; every page shows the command that made them, "
        "and `make gallery` recreates them.",
    ]
    parts += [f"## {group}\n\n```{{cards}} {group}\n```" for group in groups]
    listed = "\n".join(found)
    parts.append(f"```{{toctree}}\n:hidden:\n\n{listed}\n```")
    return "\n\n".join(parts) + "\n"


def thumbnail(entry: dict[str, Any], path: Path) -> None:
    """The part of the picture that the card shows, on white."""
    with Image.open(DOCS / entry["picture"]) as picture:
        wide, high = picture.size
        left, top, right, bottom = entry.get("crop", (0, 0, 1, 1))
        box = (round(left * wide), round(top * high), round(right * wide), round(bottom * high))
        part = picture.convert("RGBA").crop(box)
    part.thumbnail(CARD, Image.Resampling.LANCZOS)
    card = Image.new("RGB", CARD, "white")
    card.paste(part, ((CARD[0] - part.width) // 2, (CARD[1] - part.height) // 2), part)
    card.save(path, optimize=True)


def write(path: Path, text: str) -> None:
    """Write a file unless it holds this already: Sphinx reads again what has changed."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def make_pages(app: Sphinx) -> None:
    """All pages, thumbnails and notebooks."""
    found = entries()
    for old in PAGES.glob("*.md"):
        if old.stem not in {*found, "index"}:
            old.unlink()
    (PAGES / "cards").mkdir(parents=True, exist_ok=True)
    for name, entry in found.items():
        write(PAGES / f"{name}.md", page(name, entry))
        write(PAGES / "downloads" / f"{name}.ipynb", nbformat.writes(notebook(name)) + "\n")
        if "picture" in entry:
            thumbnail(entry, PAGES / "cards" / f"{name}.png")
    write(PAGES / "index.md", index(found))


class Cards(SphinxDirective):
    """Thumbnails with their questions."""

    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        parts = []
        for name, entry in entries().items():
            if (entry["group"] == self.arguments[0]) if self.arguments else entry.get("first"):
                link = f"[{entry['question']}](/gallery/{name}.md)"
                image = (
                    f"[![](/gallery/cards/{name}.png)](/gallery/{name}.md)\n\n" if "picture" in entry else ""
                )
                parts.append(f"```{{container}} card\n{image}{link}\n```")
        grid = nodes.container(classes=["cards"])
        grid += self.parse_text_to_nodes("\n\n".join(parts))
        return [grid]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("cards", Cards)
    app.connect("builder-inited", make_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
