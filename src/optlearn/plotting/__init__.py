"""Plots of schedules, trajectories, certificates and comparisons.

Every function draws into the caller's axes and returns them; without axes it makes a figure of its
own, ``axes.figure``. None of them touches pyplot or global settings.
"""

from optlearn.plotting.courses import plot_error, plot_order_parameters
from optlearn.plotting.evidence import plot_certificate, plot_compare
from optlearn.plotting.schedules import plot_schedule
from optlearn.plotting.whole import plot_solution

__all__ = [
    "plot_certificate",
    "plot_compare",
    "plot_error",
    "plot_order_parameters",
    "plot_schedule",
    "plot_solution",
]
