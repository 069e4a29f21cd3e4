"""The options of ``solve``, checked alike by a solve and, before its first point, by a sweep."""

from optlearn._arguments import Arguments
from optlearn._control.problem import MOST_INTERVALS
from optlearn._control.solvers.methods import METHODS
from optlearn._errors import SpecificationError


def check_options(
    check: Arguments,
    *,
    intervals: int | None = None,
    method: str = "auto",
    starts: int | None = None,
    seed: int = 0,
    steps: int | None = None,
    max_iterations: int | None = None,
    tolerance: float | None = None,
) -> None:
    """Raise for an option that no problem could be solved with; None stands for a default.

    Args:
        check: names the function that was called in messages.
        intervals: see ``solve``, also for the others.
        method: one of ``METHODS``.
        starts: first guesses.
        seed: of random starts.
        steps: Runge-Kutta steps in an interval.
        max_iterations: of the solver.
        tolerance: of the solver.
    """
    if method not in METHODS:
        raise SpecificationError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    check.count("seed", seed, 0)
    counts = {"starts": starts, "steps": steps, "max_iterations": max_iterations}
    for name, value in counts.items():
        if value is not None:
            check.count(name, value)
    if intervals is not None:
        check.count("intervals", intervals, 1, MOST_INTERVALS)
    if tolerance is not None:
        check.number("tolerance", tolerance, 0.0, 1.0, open_below=True)
