"""Check every link between built pages, and in Markdown files beside them: check_links.py HTML [FILE.md …]

A link to a page, an anchor, a picture or a download that is not there is an error. Links to other sites are
listed in ``external-links.txt`` beside the pages; `make links` follows them where there is a network.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """Where a page links to, and what can be linked to in it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name == "id" and value:
                self.anchors.add(value)
            if name in ("href", "src") and value and tag in ("a", "img", "script", "link", "source"):
                self.links.append(value)


def broken_in_pages(folder: Path) -> tuple[list[str], set[str]]:
    """Links that lead nowhere, and those to other sites."""
    pages = {path.resolve(): Page(path) for path in folder.rglob("*.html")}
    broken, external = [], set()
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                external.add(link)
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            there = f"{path.relative_to(folder.resolve())}: {link}"
            anchors = pages[target].anchors if target in pages else {unquote(parts.fragment)}
            if not target.exists() or (parts.fragment and unquote(parts.fragment) not in anchors):
                broken.append(there)
    return broken, external


def broken_in_markdown(path: Path) -> tuple[list[str], set[str]]:
    """The same for a Markdown file; anchors are not looked at."""
    broken, external = [], set()
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if urlsplit(link).scheme:
            external.add(link)
        elif not (path.parent / urlsplit(link).path).exists():
            broken.append(f"{path.name}: {link}")
    return broken, external


def main(html: str, *files: str) -> int:
    """Print what is broken; the exit code."""
    folder = Path(html)
    found = [broken_in_pages(folder), *(broken_in_markdown(Path(file)) for file in files)]
    broken = [link for links, _ in found for link in links]
    external = sorted(set().union(*(links for _, links in found)))
    (folder / "external-links.txt").write_text("\n".join(external) + "\n", encoding="utf-8")
    for link in broken:
        print(f"broken link: {link}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
