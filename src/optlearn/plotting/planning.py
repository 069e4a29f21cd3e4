"""What a schedule made for one world costs in another, and fronts between two objectives."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from optlearn.plotting.style import BLUE, VERMILION, own_axes, styled

if TYPE_CHECKING:
    from optlearn._planning.pareto import Front
    from optlearn._planning.worlds import Regret


@styled
def plot_regret(regret: "Regret", axes: Axes | None = None) -> Axes:
    """Draw what a schedule made for one world (row) costs more than the best in another (column).

    Args:
        regret: of ``ol.regret``.
        axes: where to draw.
    """
    count = len(regret.labels)
    axes = own_axes(axes, (1.9 + 0.85 * count, 1.5 + 0.6 * count))
    matrix = np.where(np.isfinite(regret.matrix), regret.matrix, np.nan)
    axes.imshow(matrix, cmap="Blues", vmin=0.0, aspect="auto")
    dark = np.nanmax(matrix) / 2
    for i, j in np.ndindex(count, count):
        value = matrix[i, j]
        text = "diverges" if np.isnan(value) else f"{max(value, 0.0):.2g}" if i != j else "0"
        colour = "white" if value > dark else "black"
        axes.text(j, i, text, ha="center", va="center", fontsize=8, color=colour)
    axes.set_xticks(range(count), regret.labels, rotation=20)
    axes.set_yticks(range(count), regret.labels)
    axes.set(xlabel="applied at", ylabel="made for", title="excess over the best schedule")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    return axes


@styled
def plot_front(front: "Front", axes: Axes | None = None) -> Axes:
    """Draw the front between two objectives; a point whose certificate is in doubt is open.

    Args:
        front: of ``ol.pareto``.
        axes: where to draw.
    """
    axes = own_axes(axes)
    across, up = front.names[1], front.names[0]
    x, y = front.values[across], front.values[up]
    axes.plot(x, y, color=BLUE, linewidth=1.0)
    sure = np.array([point.certificate.converged for point in front.solutions])
    axes.plot(x[sure], y[sure], "o", color=BLUE, markersize=4)
    axes.plot(x[~sure], y[~sure], "o", color=VERMILION, markersize=4, fillstyle="none")
    axes.set(xlabel=across, ylabel=up)
    return axes
