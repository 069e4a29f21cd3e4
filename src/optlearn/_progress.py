"""How far something is: one record, and one kind of function that hears of it."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """What is being done, and what is known so far.

    Attributes:
        text: one line for the user.
        done: of ``total``, in any unit.
        total: how much there is to do.
        objective: best value found so far.
        gap: first-order estimate of what is left to win, in units of the objective.
    """

    text: str
    done: float | None = None
    total: float | None = None
    objective: float | None = None
    gap: float | None = None


Report = Callable[[Progress], None]
