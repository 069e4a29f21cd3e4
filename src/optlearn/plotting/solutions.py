"""A solution in one figure."""

from matplotlib.figure import Figure

from optlearn._control.solution import Solution
from optlearn.plotting.certificates import plot_certificate
from optlearn.plotting.schedules import plot_schedule
from optlearn.plotting.style import ShownFigure, styled
from optlearn.plotting.trajectories import plot_error, plot_order_parameters


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
