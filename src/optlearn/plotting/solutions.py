"""A solution in one figure, its certificate, and schedules side by side."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from optlearn._control.certificate import limits
from optlearn._control.compare import OPTIMUM, Comparison
from optlearn._control.solution import Solution
from optlearn._signatures import checked
from optlearn.plotting.schedules import plot_schedule
from optlearn.plotting.style import BLUE, GREY, VERMILION, ShownFigure, own_axes, styled
from optlearn.plotting.trajectories import plot_error, plot_order_parameters

WORDS = {
    "hamiltonian_gap": "Hamiltonian gap",
    "relaxation_gap": "relaxation gap",
    "integration_error": "integration error",
    "quadrature_error": "quadrature error",
    "budget_error": "budget error",
}


@styled
def plot_solution(solution: Solution) -> Figure:
    """Every control, the error, the order parameters and the certificate."""
    controls = solution.schedule.controls
    count = len(controls) + 3
    rows = -(-count // 2)
    figure = ShownFigure(figsize=(9.5, 2.9 * rows), layout="constrained")
    grid = figure.subplots(rows, 2, squeeze=False).ravel()
    for name, axes in zip(controls, grid, strict=False):
        plot_schedule(solution.schedule, name, axes)
    after = grid[len(controls) :]
    plot_error(solution.trajectory, after[0])
    plot_order_parameters(solution.trajectory, axes=after[1])
    plot_certificate(solution, after[2])
    for unused in after[3:]:
        unused.set_visible(False)
    figure.suptitle(f"{solution.problem.name}: objective {solution.objective:.8g}", fontsize=10)
    return figure


@checked
@styled
def plot_certificate(solution: Solution, axes: Axes | None = None) -> Axes:
    """Draw the gaps of the certificate, each beside the limit up to which it counts as small.

    Args:
        solution: whose certificate it is.
        axes: where to draw.
    """
    axes = own_axes(axes)
    certificate, small = solution.certificate, limits(solution.objective)
    gaps = {name: getattr(certificate, name) for name in WORDS if getattr(certificate, name) is not None}
    sizes = {name: abs(float(value)) for name, value in gaps.items()}
    seen = [value for value in (*sizes.values(), *small.values()) if value > 0]
    floor = min(seen) / 30
    for row, (name, size) in enumerate(sizes.items()):
        fine = size <= small[name]
        axes.plot(
            [floor / 3, small[name]], [row, row], color=GREY, alpha=0.35, linewidth=7, solid_capstyle="butt"
        )
        axes.plot(max(size, floor), row, "o", color=BLUE if fine else VERMILION, clip_on=False, zorder=3)
        shown = "0" if size == 0 else f"{size:.1e}"
        axes.annotate(
            shown, (max(size, floor), row), (0, 7), textcoords="offset points", ha="center", fontsize=7.5
        )
    axes.set_yticks(range(len(sizes)), [WORDS[name] for name in sizes])
    axes.set(xscale="log", xlim=(floor / 3, max(seen) * 10), ylim=(len(sizes) - 0.4, -0.7))
    axes.set_xlabel("units of the objective; the bar is what counts as small")
    starts = certificate.starts
    verdict = "converged" if certificate.converged else "NOT CONVERGED"
    axes.set_title(f"{verdict}; {starts.agreeing} of {starts.tried} starts agree", loc="left")
    return axes


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
