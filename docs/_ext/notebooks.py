"""A link at the top of every page that is a notebook: downloads it as ``.ipynb``, with its outputs."""

from pathlib import PurePosixPath

from sphinx.application import Sphinx

MARK = "file_format: mystnb"


def add_link(app: Sphinx, name: str, source: list[str]) -> None:
    """After the first heading."""
    if not source[0].startswith("---") or MARK not in source[0].split("---")[1]:
        return
    lines = source[0].splitlines()
    heading = next(number for number, line in enumerate(lines) if line.startswith("# "))
    file = f"{PurePosixPath(name).name}.ipynb"
    lines[heading] += f"\n\n{{nb-download}}`Download this page as a notebook <{file}>`\n"
    source[0] = "\n".join(lines) + "\n"


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", add_link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
