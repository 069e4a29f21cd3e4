"""SGD of least squares: as a committee of one linear node, whose order parameters give the excess."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from optlearn._arrays import Array
from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule
from optlearn._theory.order import OrderParameters
from optlearn._trajectory import Trajectory
from optlearn.models._committee import Committee
from optlearn.models._linear import Linear


class Network(NamedTuple):
    """What is simulated in the place of a ``Linear``, and how its run is read."""

    model: Committee
    start: OrderParameters
    schedule: Schedule
    parameters: dict[str, Array]
    read: Callable[[Trajectory], Trajectory]


def as_network(
    model: Linear | Any, schedule: Schedule, start: Any, parameters: Mapping[str, Array] | None
) -> Network:
    """The committee of a ``Linear``, or of a problem of one, that starts at zero weights."""
    given = {**schedule.parameters, **(parameters or {})}
    if not isinstance(model, Linear):
        from optlearn._control.evaluate import check_values, with_best_free

        problem = model
        check_values(problem, schedule)
        if not set(problem.free) <= set(given):
            _, free = with_best_free(problem, schedule, parameters)
            given = {**given, **free}
        given, start, model = {**problem.parameters, **given}, start or problem.start, problem.model
    teacher = np.asarray(model.teacher)
    if start is not None and not np.allclose(start["excess"], teacher, rtol=1e-9, atol=1e-12):
        raise SpecificationError("start must be model.start(): SGD of least squares begins at zero weights")
    settings = model.settings(given)
    settings["sigma_n"] = np.sqrt(settings.pop("noise"))
    network = model.network
    bare = Schedule(schedule.grid, schedule.values, schedule.mixtures, {})

    def read(run: Trajectory) -> Trajectory:
        names = tuple(model.layout.names)
        values = {
            name: run[f"Q11_{b + 1}"] - 2 * run[f"M11_{b + 1}"] + teacher[b] for b, name in enumerate(names)
        }
        if "error" in run.values:
            values["error"] = run["error"]
        return Trajectory(run.alpha, values, names, run.info)

    return Network(network, network.state(), bare, settings, read)
