"""Controls over training time."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from optlearn._errors import SpecificationError
from optlearn._schedule import Mixture, Schedule
from optlearn._signatures import checked
from optlearn.plotting.style import BLUE, GREEN, ORANGE, TIME, VERMILION, own_axes, shades, styled

FEW = 4  # so many different values, all of them whole steps apart, are ticks of their own


@checked
@styled
def plot_schedule(
    schedule: Schedule | Mapping[str, Schedule],
    control: str | None = None,
    axes: Axes | None = None,
    **line: Any,
) -> Axes:
    """Draw a control of one or several schedules as steps; of a mixed one, the share of each value.

    Args:
        schedule: a schedule, or name → schedule for a legend.
        control: name of the control; None if the schedule has only one.
        axes: where to draw.
        **line: for Matplotlib, such as ``color``.
    """
    named = schedule if isinstance(schedule, Mapping) else {"": schedule}
    control = _control(named, control)
    axes = own_axes(axes)
    mixed = [s for s in named.values() if control in s.mixtures]
    if mixed and len(named) == 1:
        _draw_shares(axes, mixed[0].grid, mixed[0].mixtures[control], control)
    else:
        for name, one in named.items():
            axes.stairs(
                one[control], one.grid, baseline=None, label=name or None, **{"linewidth": 1.5, **line}
            )
        axes.set_ylabel(f"mean {control}" if mixed else control)
        _few_ticks(axes, np.unique(np.concatenate([one[control] for one in named.values()])))
        if len(named) > 1:
            axes.legend()
    axes.set(xlabel=TIME, xlim=(0, max(one.horizon for one in named.values())))
    return axes


def _control(schedules: Mapping[str, Schedule], control: str | None) -> str:
    known = list(dict.fromkeys(name for schedule in schedules.values() for name in schedule.controls))
    if control is None and len(known) == 1:
        return known[0]
    if control is None or any(control not in schedule.controls for schedule in schedules.values()):
        raise SpecificationError(
            f"control must be one that every schedule has, among {', '.join(known)}, got {control!r}"
        )
    return control


def _draw_shares(axes: Axes, grid: np.ndarray, mixture: Mixture, control: str) -> None:
    """Shares stacked from 0 to 1."""
    below, count = np.zeros(len(grid) - 1), len(mixture.values)
    colours = [BLUE, ORANGE, GREEN, VERMILION][:count] if count <= FEW else list(shades(count))
    for value, share, colour in zip(mixture.values, mixture.shares.T, colours, strict=True):
        top = below + share
        axes.stairs(top, grid, baseline=below, fill=True, color=colour, label=f"{value:g}")
        below = top
    axes.set(ylabel=f"share of each {control}", ylim=(0, 1))
    axes.legend(title=control, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _few_ticks(axes: Axes, values: np.ndarray) -> None:
    """A discrete control has its values as ticks."""
    if 1 < len(values) <= FEW and len(values) == len(np.unique(np.round(values, 6))):
        axes.set_yticks(values, [f"{value:g}" for value in values])
