"""Curves, fit, residuals, and the best schedule, in one figure."""

from typing import TYPE_CHECKING

import numpy as np

from optlearn._schedule import Schedule

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from optlearn.laws._fit import LawFit


def picture(fit: "LawFit", schedule: Schedule | None = None) -> "Figure":
    """See ``LawFit.plot``."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    losses, residuals, rates = axes
    for i, curve in enumerate(fit.data.curves):
        colour, kept = f"C{i % 10}", curve.from_step(fit.data.first)
        step, loss, predicted = curve.step[kept], curve.loss[kept], fit.predict(curve)[kept]
        losses.plot(step, loss, color=colour, alpha=0.35, linewidth=2.5)
        losses.plot(step, predicted, color=colour, linewidth=1, label=curve.name)
        residuals.plot(step, 100 * (loss / predicted - 1), color=colour, linewidth=0.8)
        rates.plot(*curve.known, color=colour, linewidth=1)
    if schedule is not None:
        ends = schedule.grid[1:]
        kept = ends >= fit.data.first
        low, high = (values[kept] for values in fit.interval(schedule))
        losses.fill_between(ends[kept], low, high, color="k", alpha=0.2, linewidth=0)
        losses.plot(ends[kept], fit.predict(schedule)[kept], "k", label="schedule, predicted")
        rates.stairs(schedule["learning_rate"], schedule.grid, color="k", baseline=None)
    residuals.axhline(0, color="k", linewidth=0.5)
    lowest, highest = losses.get_ylim()
    ends_at = max(float(np.median(c.loss[c.from_step(fit.data.first)])) for c in fit.data.curves)
    losses.set(xlabel="step", ylabel="loss", ylim=(lowest, min(highest, 1.15 * ends_at)))
    residuals.set(xlabel="step", ylabel="measured over fitted loss − 1, %")
    rates.set(xlabel="step", ylabel="learning rate")
    losses.legend(fontsize="small")
    return figure
