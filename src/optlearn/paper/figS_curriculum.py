"""Supplementary figure: dynamics of curriculum learning with the joint schedule."""

import xarray
from matplotlib.figure import Figure

from optlearn._control.evaluate import evaluate
from optlearn._progress import Report
from optlearn.paper.fig1 import add_zoom, draw_courses, joint_solution, order_at_zero
from optlearn.paper.shared import Claim, Stages, all_certified, at_end, panels
from optlearn.plotting.style import styled

TITLE = "Dynamics of curriculum learning with jointly optimised difficulty and learning rate"

SHOWN = ("curriculum", "anti-curriculum", "optimal", "joint")
QUANTITIES = ("error", "Q22", "cosine")


def compute(
    quick: bool = False,
    progress: Report | None = None,
    *,
    intervals: int | None = None,
    joint_intervals: int | None = None,
) -> xarray.Dataset:
    """Trajectories under the three schedules at η = 3 and under the joint one, λ = 0.

    Args:
        quick: one start for the optimal order.
        progress: called at every stage.
        intervals: of the order of samples.
        joint_intervals: of the joint problem.
    """
    tell = Stages(progress, 2)
    tell("optimal order at η = 3")
    fixed = order_at_zero(intervals, 1 if quick else 3)
    tell("order and learning rate")
    solution = joint_solution(0.0, joint_intervals, 3)
    run = evaluate(solution.problem, solution.schedule, record=fixed.sizes["alpha"])
    joint = xarray.Dataset(
        {name: (("schedule", "alpha"), run[name][None]) for name in QUANTITIES},
        coords={"schedule": ["joint"], "alpha": fixed.alpha.values},
    )
    both = xarray.concat([fixed[list(QUANTITIES)], joint], dim="schedule")
    return both.assign(
        converged=("solved", [bool(fixed.zero_converged), solution.certificate.converged]),
        gap=("solved", [float(fixed.zero_gap), solution.certificate.hamiltonian_gap]),
    )


@styled
def plot(data: xarray.Dataset) -> Figure:
    """Panels a-c."""
    figure, axes = panels([["a", "b", "c"]], height=3.1)
    draw_courses(axes["a"], data, "error", "generalisation error", SHOWN)
    axes["a"].legend()
    draw_courses(axes["b"], data, "cosine", r"cosine $M_{11}/\sqrt{TQ_{11}}$", SHOWN)
    add_zoom(axes["b"], data, "cosine", SHOWN)
    draw_courses(axes["c"], data, "Q22", "irrelevant squared norm $Q_{22}$", SHOWN)
    return figure


def claims(data: xarray.Dataset) -> list[Claim]:
    """The claims of the figure."""
    error, cosine, norm = (at_end(data[quantity], SHOWN) for quantity in ("error", "cosine", "Q22"))
    return [
        Claim(
            "joint-lowest-error",
            "The joint schedule ends with the lowest generalisation error of the four",
            error,
            "joint below all others",
            all(error["joint"] < error[name] for name in SHOWN[:-1]),
        ),
        Claim(
            "joint-both-goals",
            "(this work) The joint schedule serves both goals at once: it ends with the highest cosine "
            "similarity and the smallest irrelevant norm",
            {"cosine": cosine, "Q22": norm},
            "joint: highest cosine and lowest Q22",
            max(cosine, key=cosine.__getitem__) == "joint" and min(norm, key=norm.__getitem__) == "joint",
        ),
        all_certified(data.converged, data.gap),
    ]
