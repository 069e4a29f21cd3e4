"""What a simulation would cost, said before it begins."""

import os

from optlearn._errors import SpecificationError, warn

# Measured on one core of a laptop, with students of one or two nodes: steps of the overlaps in a second, and
# numbers that pass through steps on weights.
STEPS_A_SECOND = 1e6
NUMBERS_A_SECOND = 1e8
HOUR = 3600.0
LONGEST = 30 * 24 * HOUR


class CostWarning(UserWarning):
    """A simulation will take hours. Fewer steps (a smaller N) or fewer seeds make it shorter."""


def check_cost(
    owner: str, *, N: int, steps: int, seeds: int, numbers_a_step: float = 0.0, numbers_held: float = 0.0
) -> None:
    """Warn of a run that takes hours; refuse one that takes months, or more memory than there is.

    Args:
        owner: the function that is called.
        N: input dimension, which the message is about.
        steps: of one run.
        seeds: runs.
        numbers_a_step: of weights and inputs that a step of one run goes through.
        numbers_held: that all runs keep in memory, of 8 bytes.
    """
    seconds = steps * seeds * (1 / STEPS_A_SECOND + numbers_a_step / NUMBERS_A_SECOND)
    memory, available = 8.0 * numbers_held, physical_memory()
    cost = f"{float(steps):.3g} steps of {seeds} seeds take about {in_words(seconds)} on one core"
    if memory > available:
        raise SpecificationError(
            f"{owner}: N must be smaller for {seeds} seeds to fit into memory, got {N}: they need "
            f"{memory / 2**30:,.0f} GiB of {available / 2**30:,.0f}"
        )
    if seconds > LONGEST:
        raise SpecificationError(f"{owner}: N must be smaller, got {N}: {cost}")
    if seconds > HOUR:
        warn(f"{owner}: with N = {N}, {cost}", CostWarning)


def physical_memory() -> float:
    """Bytes of memory of this machine; infinite, if it does not tell."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return float("inf")


def in_words(seconds: float) -> str:
    """A length of time as people say it."""
    for unit, length in (("years", 365 * 24 * HOUR), ("days", 24 * HOUR), ("hours", HOUR), ("minutes", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.0f} seconds"
