"""Claims of the paper, each with the number found and whether it holds."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from optlearn._errors import DataFileError
from optlearn._io import read_json, write_file
from optlearn._json import finite, plain


@dataclass(frozen=True)
class Claim:
    """One claim, checked.

    Attributes:
        id: short name, unique within its figure.
        text: the claim, in a sentence.
        found: what was found: a number, text, or a list or mapping of them.
        expected: what the claim says about it.
        holds: does it?
        note: what a reader should know, above all of a claim that does not hold.
    """

    id: str
    text: str
    found: Any
    expected: Any
    holds: bool
    note: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "found", plain(self.found, number=_ten_digits))
        object.__setattr__(self, "expected", plain(self.expected, number=_ten_digits))
        object.__setattr__(self, "holds", bool(self.holds))

    def to_dict(self) -> dict[str, Any]:
        """JSON's types only."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Claim":
        """The claim that ``to_dict`` wrote."""
        return cls(**values)


def save_claims(claims: Iterable[Claim], path: Path) -> None:
    """Write claims as JSON."""
    rows = [claim.to_dict() for claim in claims]
    text = json.dumps(rows, ensure_ascii=False, indent=2, allow_nan=False)
    write_file(path, text + "\n")


def load_claims(path: Path) -> list[Claim]:
    """Claims that ``save_claims`` wrote."""
    rows = read_json(path)
    try:
        return [Claim.from_dict(row) for row in rows]
    except TypeError as error:
        raise DataFileError(f"{path} does not hold claims: {error}") from error


def _ten_digits(value: float) -> float | None:
    return finite(float(f"{value:.10g}"))


def all_certified(converged: Any, gaps: Any) -> Claim:
    """Ours: every optimum of the figure has a certificate that says converged.

    Args:
        converged: whether each solution is.
        gaps: their Hamiltonian gaps, in units of the objective.
    """
    states, worst = [bool(c) for c in converged], max(map(float, gaps))
    return Claim(
        "certified",
        "(this work) Every optimum shown has converged, by its certificate",
        {"converged": sum(states), "solved": len(states), "largest Hamiltonian gap": worst},
        "all",
        all(states),
    )
