"""Solutions described in words."""

from typing import TYPE_CHECKING

import numpy as np

from optlearn._errors import count_of
from optlearn._schedule import Schedule

if TYPE_CHECKING:
    from optlearn._control.certificate import Starts
    from optlearn._control.solution import Solution

BLOCKS = "▁▂▃▄▅▆▇█"
WIDTH = 60  # blocks of a sparkline


def summary(solution: "Solution") -> str:
    """Objective, certificate and the shape of the schedule, in a few lines of text."""
    c = solution.certificate
    lines = [
        f"{solution.problem.name}: objective {solution.objective:.10g} ({solution.method}, "
        f"{count_of(solution.schedule.intervals, 'interval')}, {solution.seconds:.1f} s)",
        f"  {'converged' if c.converged else 'NOT CONVERGED: ' + '; '.join(c.reasons)}",
        f"  possible improvement (first-order estimate): {possible_improvement(solution)}",
        f"  integration error {c.integration_error:.1e}, budget error {c.budget_error:.1e}",
        f"  starts: {c.starts.agreeing} of {c.starts.tried} within 1e-6 of the best"
        f"{_dropped(c.starts)}{_unscouted(c.starts)}",
    ]
    if c.path_error is not None:
        lines.append(f"  {path_words(solution)}")
    if solution.relaxed is not None:
        lines.append(f"  best mixed schedule {solution.relaxed.objective:.10g}")
    if solution.whole_numbers is not None:
        lines.append(f"  best whole-number schedule {solution.whole_numbers.objective:.10g}")
    if solution.parameters:
        lines.append("  " + ", ".join(f"{n} = {v:.6g}" for n, v in solution.parameters.items()))
    return "\n".join(lines + course_lines(solution.schedule))


def possible_improvement(solution: "Solution") -> str:
    """The certificate's main number, in the wording shared by everything that shows a solution."""
    improvement = solution.certificate.may_still_be_won
    share = improvement / max(abs(solution.objective), 1e-300)
    included = "" if solution.relaxed is None else ", including mixed schedules"
    return f"{improvement:.1e}, {share:.1e} of the objective{included}"


def path_words(solution: "Solution") -> str:
    """How well paths are kept, and where it is tightest."""
    c = solution.certificate
    if not c.path_error:
        return f"path limits hold throughout; the tightest point is α = {c.path_at:.4g}"
    return f"a path limit is exceeded by at most {c.path_error:.1e} of its size, at α = {c.path_at:.4g}"


def course_lines(schedule: Schedule) -> list[str]:
    """Two lines for each control: its range, and its time course as a line of blocks."""
    lines = []
    for name in schedule.controls:
        values = schedule[name]
        lines += [
            f"  {name}, from {values.min():.4g} to {values.max():.4g}; starts at {values[0]:.4g}, "
            f"ends at {values[-1]:.4g}",
            f"    {sparkline(values)}",
        ]
    return lines


def sparkline(values: np.ndarray, width: int = WIDTH) -> str:
    """Values as a line of block characters."""
    parts = [part.mean() for part in np.array_split(values, min(width, len(values)))]
    low, high = min(values), max(values)
    span = high - low
    if span <= 1e-12 * max(1.0, abs(high)):
        return BLOCKS[len(BLOCKS) // 2] * len(parts)
    return "".join(BLOCKS[round((part - low) / span * (len(BLOCKS) - 1))] for part in parts)


def certificate_words(solution: "Solution") -> list[tuple[str, str]]:
    """The certificate as questions and answers, with numbers."""
    c = solution.certificate
    verdict = (
        "Yes: the solver converged, and any remaining improvement is negligible."
        if c.converged
        else f"Not to the tolerance: {'; '.join(c.reasons)}."
    )
    words = {
        "Is it solved?": verdict,
        "How much better could it be?": (
            f"{possible_improvement(solution)} (first-order estimate). {_what_it_is(solution)}"
        ),
    }
    if solution.relaxed is not None:
        words["Pure or mixed?"] = (
            "The schedule is pure: all samples of an interval have one value. A mixed schedule draws the "
            "value of each sample at random, with shares that may change over training; the best one, "
            f"{solution.relaxed.objective:.8g}, is a lower bound for all pure schedules."
        )
    expectations = "in closed form"
    if c.quadrature_error is not None:
        expectations = f"quadratures, off by about {c.quadrature_error:.1e}"
    words["Are the numbers right?"] = (
        "The objective is re-integrated adaptively to full accuracy; the solver's own value differs by "
        f"{abs(c.integration_error):.1e}. Expectations are {expectations}."
    )
    words["Are budgets met?"] = "Exactly." if c.budget_error == 0 else f"Up to {c.budget_error:.1e}."
    if c.path_error is not None:
        words["Do path limits hold?"] = (
            f"Along the accurate trajectory, {path_words(solution)}; up to 1e-5 counts as small."
        )
    words["Is it the best of many optima?"] = _starts(c.starts)
    if c.lower_bound is not None:
        words["How good can any schedule be?"] = f"{c.lower_bound:.6g} at best ({c.lower_bound_kind})."
    return list(words.items())


def _what_it_is(solution: "Solution") -> str:
    """The origin of the number, in a sentence."""
    c = solution.certificate
    if c.relaxation_gap is None:
        return "This is how far the control is from minimising the Hamiltonian, summed over training."
    best = "is no better" if c.relaxation_gap <= 0 else f"is {c.relaxation_gap:.1e} better"
    return f"The best mixed schedule {best}; its own Hamiltonian gap is {c.mixed_gap:.1e}."


def _starts(starts: "Starts") -> str:
    if starts.tried == 1:
        return "Unknown: only one start was tried, and another might end lower."
    return (
        f"{starts.agreeing} of {starts.tried} starts ended within 1e-6 of the best, the worst "
        f"{starts.spread:.1e} above it{_dropped(starts)}. "
        f"This is {'evidence, not proof' if starts.agreeing > 1 else 'no evidence: try more starts'}"
        f"{_unscouted(starts)}."
    )


def _dropped(starts: "Starts") -> str:
    return f"; {starts.dropped} more were dropped because their dynamics diverge" if starts.dropped else ""


def _unscouted(starts: "Starts") -> str:
    return f"; no scouts looked for other optima, because of {starts.unscouted}" if starts.unscouted else ""
