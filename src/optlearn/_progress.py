"""What long computations tell of themselves. Loads nothing heavy."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """How far a computation is.

    Attributes:
        text: the stage, in words.
        done: parts that are done …
        total: … of so many.
        iteration: of a solver.
        objective: reached by it.
        gap: possible improvement by the minimum principle, in units of the objective.
    """

    text: str
    done: float | None = None
    total: float | None = None
    iteration: int | None = None
    objective: float | None = None
    gap: float | None = None

    def __str__(self) -> str:
        parts = [self.text]
        if self.total is not None:
            parts[0] += f" ({self.done:g}/{self.total:g})"
        if self.iteration is not None:
            parts.append(f"iteration {self.iteration}")
        if self.objective is not None:
            parts.append(f"objective {self.objective:.8g}")
        if self.gap is not None:
            parts.append(f"gap {self.gap:.1e}")
        return ", ".join(parts)


Report = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Tell nobody."""
