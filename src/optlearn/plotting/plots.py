"""Plots of controls and trajectories over training time, solutions, certificates and comparisons."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from optlearn._control.certificate import limits
from optlearn._control.compare import Comparison
from optlearn._control.identity import MissingProblem
from optlearn._control.path import Path
from optlearn._control.solution import Solution
from optlearn._errors import SpecificationError
from optlearn._schedule import Mixture, Schedule
from optlearn._signatures import checked
from optlearn._trajectory import Trajectory
from optlearn.plotting.style import BLUE, FEW, GREY, TIME, VERMILION, ShownFigure, own_axes, shades, styled

if TYPE_CHECKING:
    from optlearn._planning.pareto import Front
    from optlearn._planning.worlds import Regret

MANY = 7  # up to this many curves have distinct colours; more are shaded from dark to light
NAMED = 24  # up to this many curves are in the legend; of more, every second, third, …
WORDS = {
    "hamiltonian_gap": "Hamiltonian gap",
    "relaxation_gap": "relaxation gap",
    "integration_error": "integration error",
    "quadrature_error": "quadrature error",
    "budget_error": "budget error",
    "path_error": "path error",
}


@checked
@styled
def plot_schedule(
    schedule: Schedule | Mapping[str, Schedule],
    control: str | None = None,
    axes: Axes | None = None,
    **line: Any,
) -> Axes:
    """Draw a control of one or several schedules as steps; for a mixed one, the share of each value.

    Args:
        schedule: a schedule, or name → schedule for a legend.
        control: name of the control; None if the schedule has only one.
        axes: axes to draw in.
        **line: line options of Matplotlib, such as ``color``.
    """
    named = schedule if isinstance(schedule, Mapping) else {"": schedule}
    control = _control(named, control)
    axes = own_axes(axes)
    mixed = [s for s in named.values() if control in s.mixtures]
    if mixed and len(named) == 1:
        _draw_shares(axes, mixed[0].grid, mixed[0].mixtures[control], control)
    else:
        look = {"linewidth": 1.5, **line}
        for name, drawn in named.items():
            axes.stairs(drawn[control], drawn.grid, baseline=None, label=name or None, **look)
        axes.set_ylabel(f"mean {control}" if mixed else control)
        values = np.unique(np.concatenate([drawn[control] for drawn in named.values()]))
        if 1 < len(values) <= len(FEW) and len(values) == len(np.unique(np.round(values, 6))):
            axes.set_yticks(values, [f"{value:g}" for value in values])  # of a discrete control
        if len(named) > 1:
            axes.legend()
    axes.set(xlabel=TIME, xlim=(0, max(drawn.horizon for drawn in named.values())))
    return axes


def _control(schedules: Mapping[str, Schedule], control: str | None) -> str:
    names = list(dict.fromkeys(name for schedule in schedules.values() for name in schedule.controls))
    if control is None and len(names) == 1:
        return names[0]
    if control is None or any(control not in schedule.controls for schedule in schedules.values()):
        raise SpecificationError(
            f"control must be one that every schedule has, among {', '.join(names)}, got {control!r}"
        )
    return control


def _draw_shares(axes: Axes, grid: np.ndarray, mixture: Mixture, control: str) -> None:
    """Shares stacked from 0 to 1."""
    below, count = np.zeros(len(grid) - 1), len(mixture.values)
    colours = FEW[:count] if count <= len(FEW) else list(shades(count))
    for value, share, colour in zip(mixture.values, mixture.shares.T, colours, strict=True):
        top = below + share
        axes.stairs(top, grid, baseline=below, fill=True, color=colour, label=f"{value:g}")
        below = top
    axes.set(ylabel=f"share of each {control}", ylim=(0, 1))
    axes.legend(title=control, loc="upper left", bbox_to_anchor=(1.0, 1.0))


@checked
@styled
def plot_order_parameters(
    trajectory: Trajectory, names: Sequence[str] | None = None, axes: Axes | None = None, **line: Any
) -> Axes:
    """Draw order parameters, or any other quantity of a trajectory.

    Args:
        trajectory: a trajectory of the theory, or a simulated one, drawn as the mean over seeds with a 95 %
            band.
        names: quantities to draw; "M" means all entries of M, "hidden" all entries of trained weights with
            this name. None for all order parameters.
        axes: axes to draw in.
        **line: line options of Matplotlib.
    """
    requested = trajectory.order_parameters if names is None else names
    chosen = tuple(name for quantity in requested for name in _entries(trajectory, quantity))
    if not chosen:
        raise SpecificationError(
            f"names must be at least one of {', '.join(trajectory.values)}, got {names!r}"
        )
    axes = own_axes(axes)
    colours = [None] * len(chosen) if len(chosen) <= MANY else list(shades(len(chosen)))
    every = 1 + (len(chosen) - 1) // NAMED
    for place, (name, colour) in enumerate(zip(chosen, colours, strict=True)):
        style = {} if colour is None else {"color": colour}
        _draw(axes, trajectory, name, label=None if place % every else name, **{**style, **line})
    axes.set(xlabel=TIME, ylabel="order parameters", xlim=(0, float(trajectory.alpha[-1])))
    axes.legend(ncols=1 + (len(chosen) // every - 1) // 8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return axes


def _entries(trajectory: Trajectory, name: str) -> list[str]:
    """All entries of an array of order parameters, if ``name`` is one; else the name itself."""
    entry = re.compile(rf"{re.escape(name)}_?\d[\d,]*(_\d+)?")
    entries = [] if name in trajectory.values else list(filter(entry.fullmatch, trajectory.order_parameters))
    return entries or [name]


@checked
@styled
def plot_error(
    trajectory: Trajectory | Mapping[str, Trajectory],
    axes: Axes | None = None,
    name: str = "error",
    **line: Any,
) -> Axes:
    """Draw the generalisation error of one or several runs.

    Args:
        trajectory: one, or name → trajectory for a legend; simulated ones get a 95 % band over seeds.
        axes: axes to draw in.
        name: quantity to draw instead of the error.
        **line: line options of Matplotlib.
    """
    named = trajectory if isinstance(trajectory, Mapping) else {"": trajectory}
    axes = own_axes(axes)
    for label, run in named.items():
        _draw(axes, run, name, label=label or None, **line)
    axes.set(xlabel=TIME, ylabel=name, xlim=(0, max(float(run.alpha[-1]) for run in named.values())))
    if len(named) > 1:
        axes.legend()
    return axes


def _draw(axes: Axes, trajectory: Trajectory, name: str, **line: Any) -> None:
    (drawn,) = axes.plot(trajectory.alpha, trajectory.mean(name), **line)
    if trajectory.seeds > 1:
        band, colour = trajectory.band(name), drawn.get_color()
        axes.fill_between(trajectory.alpha, *band, color=colour, alpha=0.25, linewidth=0)


@styled
def plot_solution(solution: Solution) -> Figure:
    """Draw every control, the error, the order parameters and the certificate."""
    controls, paths = solution.schedule.controls, paths_of(solution)
    count = len(controls) + len(paths) + 3
    rows = -(-count // 2)
    figure = ShownFigure(figsize=(9.5, 2.9 * rows), layout="constrained")
    grid = figure.subplots(rows, 2, squeeze=False).ravel()
    for name, axes in zip(controls, grid, strict=False):
        plot_schedule(solution.schedule, name, axes)
    after = grid[len(controls) :]
    plot_error(solution.trajectory, after[0])
    plot_order_parameters(solution.trajectory, axes=after[1])
    for path, axes in zip(paths, after[2:], strict=False):
        plot_path(solution.trajectory, path, axes)
    after = after[2 + len(paths) :]
    plot_certificate(solution, after[0])
    for unused in after[1:]:
        unused.set_visible(False)
    figure.suptitle(f"{solution.problem.name}: objective {solution.objective:.8g}", fontsize=10)
    return figure


def paths_of(solution: Solution) -> tuple[Path, ...]:
    """Paths of the problem; empty if the problem is missing from the solution's file."""
    return () if isinstance(solution.problem, MissingProblem) else solution.problem.paths


def plot_path(trajectory: Trajectory, path: Path, axes: Axes) -> Axes:
    """Draw the quantity of a path, with a line at each limit."""
    plot_error(trajectory, axes, path.label)
    for bound in path.bounds:
        axes.axhline(
            bound.sign * bound.limit, color=VERMILION, linestyle="--", linewidth=1, label=bound.words
        )
    axes.legend()
    return axes


@checked
@styled
def plot_certificate(solution: Solution, axes: Axes | None = None) -> Axes:
    """Draw the gaps of the certificate, each with the limit below which it counts as small.

    Args:
        solution: the solution.
        axes: axes to draw in.
    """
    axes = own_axes(axes)
    certificate = solution.certificate
    small = limits(solution.objective, certificate.negligible)
    gaps = {name: getattr(certificate, name) for name in WORDS if getattr(certificate, name) is not None}
    sizes = {name: abs(float(value)) for name, value in gaps.items()}
    positive = [value for value in (*sizes.values(), *small.values()) if value > 0]
    floor = min(positive) / 30
    for row, (name, size) in enumerate(sizes.items()):
        fine = size <= small[name]
        bar = [floor / 3, small[name]]
        axes.plot(bar, [row, row], color=GREY, alpha=0.35, linewidth=7, solid_capstyle="butt")
        place = max(size, floor), row
        axes.plot(*place, "o", color=BLUE if fine else VERMILION, clip_on=False, zorder=3)
        shown = "0" if size == 0 else f"{size:.1e}"
        axes.annotate(shown, place, (0, 7), textcoords="offset points", ha="center", fontsize=7.5)
    axes.set_yticks(range(len(sizes)), [WORDS[name] for name in sizes])
    axes.set(xscale="log", xlim=(floor / 3, max(positive) * 10), ylim=(len(sizes) - 0.4, -0.7))
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
        comparison: result of ``ol.compare``.
        axes: axes to draw in.
    """
    rows = [row for row in comparison.rows if row.objective is not None]
    axes = own_axes(axes, (4.8, 1.2 + 0.32 * len(comparison.rows)))
    best = min(row.objective for row in rows if row.objective is not None)
    for i, row in enumerate(rows):
        value = float(row.objective or 0.0)
        colour = BLUE if row.solved else GREY if row.budgets_met else VERMILION
        axes.plot([best, value], [i, i], color=colour, linewidth=1.5)
        axes.plot(value, i, "o", color=colour)
        more = "" if row.excess is None or row.solved else f"  {row.excess:+.1e}"
        text = f"{value:.5g}{more}"
        axes.annotate(text, (value, i), (7, 0), textcoords="offset points", va="center", fontsize=7.5)
    left_out = [row.name for row in comparison.rows if row.objective is None]
    names = [row.name if row.budgets_met else f"{row.name} (breaks limits)" for row in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.set_ylim(len(rows) - 0.5, -0.6)
    span = max(float(row.objective or 0.0) for row in rows) - best or abs(best) or 1.0
    axes.set_xlim(best - 0.08 * span, best + 1.55 * span)  # space for the numbers
    axes.set_xlabel("objective" + (f"; {', '.join(left_out)}: not physical" if left_out else ""))
    return axes


@styled
def plot_regret(regret: "Regret", axes: Axes | None = None) -> Axes:
    """Draw the excess of a schedule made for one world (row) over the best in another (column).

    Args:
        regret: result of ``ol.regret``.
        axes: axes to draw in.
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
    """Draw the front between two objectives; points that are not converged are open.

    Args:
        front: result of ``ol.pareto``.
        axes: axes to draw in.
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
