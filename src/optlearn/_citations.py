"""What to cite for a computation: the references of the methods and libraries that it used."""

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from optlearn._signatures import checked
from optlearn.scenarios._catalogue import catalogue

if TYPE_CHECKING:
    from optlearn._control.solution import Solution


@checked
def cite(solution: "Solution | None" = None) -> None:
    """Print the BibTeX entries to cite for a solution.

    Args:
        solution: its scenario, solvers and libraries are cited; None: only the library and its paper.
    """
    print(bibtex(solution))


def bibtex(solution: "Solution | None" = None) -> str:
    """The same entries as text."""
    return "\n\n".join(entry(reference) for reference in used(solution))


def used(solution: "Solution | None" = None) -> list[str]:
    """Keys of the references, or entries given with a scenario, the most important first."""
    keys = ["mignacco2025optimal", "optlearn"]
    return keys if solution is None else [*dict.fromkeys([*keys, *_of(solution)])]


def _of(solution: "Solution") -> Iterator[str]:
    name = solution.problem.name.partition(",")[0]  # "curriculum, joint"
    if name in catalogue():
        yield from catalogue()[name].citations
    yield "saad1995line"
    # Sweeps come before the direct method in "auto"; locally optimal schedules need neither.
    if solution.method in ("auto", "indirect"):
        yield "schmidt2009pqn"
    if solution.method in ("auto", "direct"):
        yield "wachter2006ipopt"
    if solution.problem.discrete:
        yield "sager2012integer"
    yield "jax2018github"
    yield "andersson2019casadi"
    yield "virtanen2020scipy"


def entry(reference: str) -> str:
    """The BibTeX entry of a key; an entry is returned as it is."""
    return reference.strip() if reference.lstrip().startswith("@") else _entries()[reference]


@cache
def _entries() -> dict[str, str]:
    """Key → BibTeX entry."""
    text = files("optlearn").joinpath("references.bib").read_text(encoding="utf-8")
    entries = [entry.strip() for entry in text.split("\n\n")]
    return {entry.partition("{")[2].partition(",")[0]: entry for entry in entries}
