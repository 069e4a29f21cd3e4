"""Plain English: no docstring of one letter, and none of the phrases that were mended."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
GENERATED = {"_build", "gallery", "_static"}
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "src").rglob("*.md")),
    *sorted(
        p for p in (ROOT / "docs").rglob("*.md") if not GENERATED & {*p.parts} and "decisions" not in p.parts
    ),
]
SHORTEST = 8  # characters of a docstring that says something

# What a native speaker would not write → what was written instead. Decision 049 has more of them.
PHRASES = {
    r"may still be won\b(?!\?)": "possible improvement",
    r"still to be won": "possible improvement",
    r"\bout come\b": "you get",
    r"looks whether": "checks",
    r"is content\b": "finished",
    r"this is no event file|no event file of": "not a TensorBoard event file",
    r"\bscripts? of PyTorch": "PyTorch script",
    r"scheduler of PyTorch": "PyTorch scheduler",
    r"[Bb]y so much the": "this is how far",
    r"[Ww]hat you want of them": "to install any of these",
    r"who has ended": "finished lanes are replaced by waiting ones",
    r"printed all the same": "still printed",
    r"are said in a warning": "is reported in a warning",
    r"goes on where it (was|stopped)": "continues where it stopped",
    r"[Cc]ompute(d)? anew": "recompute",
    r"with an own\b": "with a separate",
    r"knows no start": "does not depend on a start",
    r"\bas schedules that people would try": "usual schedules",
    r"\bmakes? room for": "is replaced by",
    r"turns? signs round": "has the wrong sign",
    r"can only be told": "only … show",
    r"is said, with numbers": "a warning says, with numbers",
    r"asking what is left": "choosing the next pilot run",
    r"may be left to win": "possible improvement",
    r"by another road": "independently",
    r"[Nn]othing of this is typed": "none of this is typed",
    r"stands? against convergence": "counts against convergence",
    r"owes nothing to": "does not depend on",
    r"[Ww]hat you want of\b": "to install any of these",
    r"\bfit together\. What results": "the result is",
    r"is told with\b": "the message says",
    r"turned out otherwise": "turned out to be different",
}


def docstrings(path):
    """Line and text of every docstring of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                yield getattr(node, "lineno", 1), text


def test_docstrings_say_something():
    short = [
        f"{path.relative_to(ROOT)}:{line}: {text!r}"
        for path in SOURCES
        for line, text in docstrings(path)
        if len(text) < SHORTEST and "\n" not in text and re.fullmatch(r"\W*\w{1,2}\W*", text)
    ]
    assert short == []


@pytest.mark.parametrize("phrase", PHRASES, ids=PHRASES.values())
def test_phrases_stay_out(phrase):
    pattern = re.compile(phrase)
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in (*SOURCES, *PAGES)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == [], f"write {PHRASES[phrase]!r} or the like"


def test_the_check_would_find_them(tmp_path):
    """A one-letter docstring and a phrase are found where they stand."""
    file = tmp_path / "letter.py"
    file.write_text('def count():\n    """I."""\n')
    assert list(docstrings(file)) == [(1, "I.")]
    assert any(re.search(phrase, "what may still be won: 2e-7") for phrase in PHRASES)
