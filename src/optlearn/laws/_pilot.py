"""Which run to log next."""

from typing import TYPE_CHECKING, Any

import numpy as np

from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule
from optlearn._signatures import checked
from optlearn.practice.shapes import fall

if TYPE_CHECKING:
    from optlearn.laws._fit import LawFit

DRAWS = 48
# Shapes with their own number; peaks and ends as shares of the highest rate.
CANDIDATES = (
    ("wsd", 0.1), ("wsd", 0.2), ("wsd", 0.4), ("wsd", 0.7), ("linear", None), ("cosine", None),
    ("power", 2.0), ("power", 0.5),
)  # fmt: skip
PEAKS, ENDS = (1.0, 0.5, 0.25), (0.0, 0.1, 0.3)
INTERVALS = 100
# Runs that are worse than the best by more than this share of the loss tell of another region, where the law
# may be another.
NEAR = 0.02


@checked
def next_pilot(
    fit: "LawFit", steps: int | None = None, bounds: tuple[float, float] | None = None, seed: int = 0
) -> Schedule:
    """The schedule to run next, so that the best one becomes best known.

    Plausible parameters disagree on how good each schedule is in comparison with the others, and so on which
    is best. Of common shapes with several peaks and ends, the one is chosen whose final loss tells most of
    that: how well it predicts, over the ensemble, the differences between schedules that may be optimal.

    Args:
        fit: the fitted law.
        steps: of the run (default: as many as the longest).
        bounds: lowest and highest rate (default: 0 and the peak).
        seed: of the ensemble.

    Returns:
        A schedule in steps and true rates, from the very first step on.
    """
    scale = fit.data.scale
    total = int(scale.steps) if steps is None else int(steps)
    low, high = (0.0, scale.peak) if bounds is None else bounds
    warmup = fit.warmup
    if not 0 <= low < high:
        raise SpecificationError(f"bounds must be rates with 0 ≤ lowest < highest, got {bounds!r}")
    if total <= warmup:
        raise SpecificationError(f"steps must exceed the warm-up of {warmup}, got {total}")
    choices = [
        (shape, form, max(peak * high, low), max(end * peak * high, low))
        for shape, form in CANDIDATES
        for peak in PEAKS
        for end in ENDS
    ]
    coarse = [_candidate(*choice, warmup, total, min(warmup, 20)) for choice in choices]
    finals = _final_losses(fit, coarse, fit.draws(DRAWS, seed))
    chosen = choices[most_telling(finals, fit.point_noise * float(finals.mean()))]
    return _candidate(*chosen, warmup, total, warmup)


def most_telling(finals: np.ndarray, noise: float) -> int:
    """Which of the columns of final losses (draws, schedules) says most about which is the lowest.

    What has to be known is the loss of every schedule that some draw calls best (and of the second best on
    average), relative to the one that is best on average; a measurement of schedule j, give or take
    ``noise``, explains the share of its variance over draws that is correlated with it.
    """
    best = int(finals.mean(axis=0).argmin())
    rivals = np.unique(np.append(finals.argmin(axis=1), np.argsort(finals.mean(axis=0))[:2]))
    gaps = finals[:, rivals] - finals[:, [best]]
    gaps, centred = gaps - gaps.mean(axis=0), finals - finals.mean(axis=0)
    near = finals.mean(axis=0) <= (1 + NEAR) * finals[:, best].mean()
    explained = (
        near * ((centred.T @ gaps) ** 2).sum(axis=1) / ((centred**2).sum(axis=0) + len(finals) * noise**2)
    )
    return int(explained.argmax())


def _final_losses(fit: "LawFit", schedules: list[Schedule], members: np.ndarray) -> np.ndarray:
    """(draws, schedules)."""
    from optlearn.laws._law import Course, loss_after

    scale = fit.data.scale
    runs: list[Any] = []
    for schedule in schedules:
        rates = schedule["learning_rate"] / scale.peak
        runs.append((np.diff(schedule.grid) / scale.steps, rates, np.ones(len(rates))))
    return loss_after(members, Course.stack(runs))[:, :, -1]


def _candidate(
    shape: str, form: float | None, peak: float, end: float, warmup: int, total: int, pieces: int
) -> Schedule:
    """The warm-up in so many pieces, then the shape."""
    rise = np.round(np.linspace(0, warmup, pieces + 1)) if pieces else np.zeros(1)
    rest = np.unique(np.round(np.linspace(warmup, total, min(INTERVALS, total - warmup) + 1)))
    share = ((rest[1:] + rest[:-1]) / 2 - warmup) / (total - warmup)
    rates = end + (peak - end) * fall(shape, share, form)
    rising = peak * ((rise[1:] + rise[:-1]) / 2) / max(warmup, 1)
    grid = np.append(rise, rest[1:])
    return Schedule.piecewise(grid, {"learning_rate": np.append(rising, rates)})
