"""What to cite for a computation: the references of the methods and libraries that it used."""

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optlearn._control.solution import Solution

# Scenario → the works that set it up.
_SCENARIOS = {
    "attention": ("cui2024high", "cui2024phase"),
    "batch_size": ("smith2018batch",),
    "curriculum": ("saglietti2022curriculum",),
    "denoising": ("cui2023denoising",),
    "denoising_batch": ("cui2023denoising",),
    "dropout": ("srivastava2014dropout",),
    "gating": ("mignacco2025nonlinear",),
    "imbalance": ("mannelli2024bias", "jain2024bias"),
    "learning_rate": ("saad1997globally",),
    "task_order": ("lee2021continual", "mori2024optimal"),
}


def cite(solution: "Solution | None" = None) -> None:
    """Print the BibTeX entries of what a solution was computed with.

    Args:
        solution: whose scenario, solvers and libraries count; None: the library and its paper alone.
    """
    print(bibtex(solution))


def bibtex(solution: "Solution | None" = None) -> str:
    """The same as text."""
    entries = _entries()
    return "\n\n".join(entries[key] for key in used(solution))


def used(solution: "Solution | None" = None) -> list[str]:
    """Keys of the references, the most important first."""
    keys = ["mignacco2025optimal", "optlearn"]
    return keys if solution is None else [*dict.fromkeys([*keys, *_of(solution)])]


def _of(solution: "Solution") -> Iterator[str]:
    yield from _SCENARIOS.get(solution.problem.name.partition(",")[0], ())  # "curriculum, joint"
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
    # The trajectory was integrated by one of these.
    yield "kidger2021diffrax" if solution.trajectory.info.get("backend") == "OnXla" else "virtanen2020scipy"


@cache
def _entries() -> dict[str, str]:
    """Key → BibTeX entry."""
    text = files("optlearn").joinpath("references.bib").read_text(encoding="utf-8")
    entries = [entry.strip() for entry in text.split("\n\n")]
    return {entry.partition("{")[2].partition(",")[0]: entry for entry in entries}
