"""Plots of schedules, trajectories, certificates and comparisons.

Every function draws into the caller's axes and returns them; without axes it creates a new figure,
``axes.figure``. None of them touches pyplot or global settings.
"""

from optlearn.plotting.plots import (
    plot_certificate,
    plot_compare,
    plot_error,
    plot_front,
    plot_order_parameters,
    plot_regret,
    plot_schedule,
    plot_solution,
)

__all__ = [
    "plot_certificate",
    "plot_compare",
    "plot_error",
    "plot_front",
    "plot_order_parameters",
    "plot_regret",
    "plot_schedule",
    "plot_solution",
]
