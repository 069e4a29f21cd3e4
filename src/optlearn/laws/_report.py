"""A fit of a law in words and in a picture."""

from typing import TYPE_CHECKING

import numpy as np

from optlearn._schedule import Schedule
from optlearn.laws._law import ONE_BATCH, ONE_SIZE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from optlearn.laws._fitted_law import LawFit

NOISY = 0.005  # noise of a point, as a share of the loss, above which it seems to be the loss of a batch


def summary(fit: "LawFit") -> str:
    """Parameters with their standard errors, and how well the curves are described."""
    scale, errors = fit.data.scale, fit.standard_errors
    lines = [
        f"{fit.law} law of {len(fit.data.curves)} curves, up to {scale.steps:g} steps, "
        f"peak rate {scale.peak:g}" + (f", usual batch {scale.batch:g}" if fit.several_batches else ""),
        f"  noise of a point {100 * fit.point_noise:.2g} %, misfit beyond it at most "
        f"{100 * max(fit.misfit.values()):.2g} %",
    ]
    if fit.point_noise > NOISY:
        lines.append(
            "  losses are noisy, as those of single batches are: a loss on held-out data, or a mean over "
            "more steps, would tell more"
        )
    z = fit.fitter.encode(fit.optimum.parameters)
    little = dict(zip(fit.fitter.free, fit.fitter.uninformed(z, fit.covariance), strict=True))
    idle = {**({} if fit.data.sizes is not None else ONE_SIZE), **({} if fit.several_batches else ONE_BATCH)}
    for name, value in fit.parameters.items():
        if name in idle:
            continue
        note = " (fixed)" if name in fit.fitter.fixed else f" ± {errors[name]:.2g}"
        if little.get(name):
            note += " (known beforehand; the curves add little)"
        lines.append(f"  {name:<17}{value:10.4g}{note}")
    return "\n".join([*lines, *(f"  ! {doubt}" for doubt in fit.doubts)])


def figure(fit: "LawFit", schedule: Schedule | None) -> "Figure":
    """Curves, fit and residuals; and, for a schedule in steps, its rates and predicted loss."""
    import matplotlib.pyplot as plt

    drawn, axes = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    losses, residuals, rates = axes
    for i, curve in enumerate(fit.data.curves):
        colour, kept = f"C{i % 10}", curve.from_step(fit.data.first)
        size = fit.size_of.get(curve.name)
        step, loss, predicted = curve.step[kept], curve.loss[kept], fit.predict(curve, size)[kept]
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
    return drawn
