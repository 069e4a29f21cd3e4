"""Order parameters and errors over training time, of the theory or with a band over seeds."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from optlearn._errors import SpecificationError
from optlearn._signatures import checked
from optlearn._trajectory import Trajectory
from optlearn.plotting.style import TIME, own_axes, shades, styled

MANY = 7  # so many courses have colours of their own; more are shaded from dark to light
NAMED = 24  # so many have a place in the legend; of more, some have


@checked
@styled
def plot_order_parameters(
    trajectory: Trajectory,
    names: Sequence[str] | None = None,
    axes: Axes | None = None,
    **line: Any,
) -> Axes:
    """Draw order parameters, or anything else that a trajectory has.

    Args:
        trajectory: of the theory, or simulated: then the mean over seeds with a band of 95 %.
        names: what to draw; None for all order parameters.
        axes: where to draw.
        **line: for Matplotlib.
    """
    chosen = tuple(trajectory.order_parameters if names is None else names)
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
        trajectory: one, or name → trajectory for a legend; simulated ones get a band of 95 % over seeds.
        axes: where to draw.
        name: what to draw instead of the error.
        **line: for Matplotlib.
    """
    named = trajectory if isinstance(trajectory, Mapping) else {"": trajectory}
    axes = own_axes(axes)
    for label, one in named.items():
        _draw(axes, one, name, label=label or None, **line)
    axes.set(xlabel=TIME, ylabel=name, xlim=(0, max(float(one.alpha[-1]) for one in named.values())))
    if len(named) > 1:
        axes.legend()
    return axes


def _draw(axes: Axes, trajectory: Trajectory, name: str, **line: Any) -> None:
    (drawn,) = axes.plot(trajectory.alpha, trajectory.mean(name), **line)
    if trajectory.seeds > 1:
        axes.fill_between(
            trajectory.alpha, *trajectory.band(name), color=drawn.get_color(), alpha=0.25, linewidth=0
        )
