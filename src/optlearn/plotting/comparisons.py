"""Schedules side by side."""

from matplotlib.axes import Axes

from optlearn._control.compare import OPTIMUM, Comparison
from optlearn._signatures import checked
from optlearn.plotting.style import BLUE, GREY, VERMILION, own_axes, styled


@checked
@styled
def plot_compare(comparison: Comparison, axes: Axes | None = None) -> Axes:
    """Draw the objective of every schedule of a comparison, the best at the top.

    Args:
        comparison: of ``ol.compare``.
        axes: where to draw.
    """
    rows = [row for row in comparison.rows if row.objective is not None]
    axes = own_axes(axes, (4.8, 1.2 + 0.32 * len(comparison.rows)))
    best = min(row.objective for row in rows if row.objective is not None)
    for i, row in enumerate(rows):
        value = float(row.objective or 0.0)
        colour = BLUE if row.name == OPTIMUM else GREY if row.budgets_met else VERMILION
        axes.plot([best, value], [i, i], color=colour, linewidth=1.5)
        axes.plot(value, i, "o", color=colour)
        more = "" if row.excess is None or row.name == OPTIMUM else f"  +{row.excess:.1e}"
        axes.annotate(
            f"{value:.5g}{more}", (value, i), (7, 0), textcoords="offset points", va="center", fontsize=7.5
        )
    left_out = [row.name for row in comparison.rows if row.objective is None]
    names = [row.name if row.budgets_met else f"{row.name} (breaks limits)" for row in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.set_ylim(len(rows) - 0.5, -0.6)
    span = max(float(row.objective or 0.0) for row in rows) - best or abs(best) or 1.0
    axes.set_xlim(best - 0.08 * span, best + 1.55 * span)  # room for the numbers
    axes.set_xlabel("objective" + (f"; {', '.join(left_out)}: not physical" if left_out else ""))
    return axes
