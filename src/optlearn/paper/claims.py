"""Claims of the paper, each with the number found and whether it holds."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from optlearn._io import atomic


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
        object.__setattr__(self, "found", plain(self.found))
        object.__setattr__(self, "expected", plain(self.expected))
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
    with atomic(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def load_claims(path: Path) -> list[Claim]:
    """Claims that ``save_claims`` wrote."""
    return [Claim.from_dict(row) for row in json.loads(path.read_text(encoding="utf-8"))]


def plain(value: Any) -> Any:
    """The same with JSON's types; numbers to ten digits, those that are not finite as None."""
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else f"{key:g}": plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # NumPy's arrays and numbers
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.10g}") if math.isfinite(value) else None
    return value


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
