"""Pages that explain errors and warnings, as they are installed with the package.

``optlearn help TOPIC`` prints one. A page is a Markdown file in this folder, named like its topic.
"""

from importlib.resources import files

from optlearn._errors import SpecificationError


def topics() -> dict[str, str]:
    """Every topic → its title."""
    pages = (item for item in files(__name__).iterdir() if item.name.endswith(".md"))
    titles = {item.name.removesuffix(".md"): item.read_text(encoding="utf-8") for item in pages}
    return {topic: titles[topic].partition("\n")[0].removeprefix("# ") for topic in sorted(titles)}


def page(topic: str) -> str:
    """The page of a topic, as Markdown."""
    if topic not in topics():
        raise SpecificationError(f"topic must be one of {', '.join(topics())}, got {topic!r}")
    return (files(__name__) / f"{topic}.md").read_text(encoding="utf-8")
