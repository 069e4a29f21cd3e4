"""Schedules and trajectories as labelled arrays, and back."""

import json
from typing import Any

import numpy as np
import xarray

from optlearn._control.scenario_call import plain
from optlearn._schedule import Mixture, Schedule
from optlearn._trajectory import Trajectory

_EDGE, _INTERVAL = "alpha_edge", "interval"


def from_schedule(schedule: Schedule) -> xarray.Dataset:
    """Controls on intervals; the shares of a mixed one by value. Edges are a coordinate."""
    made = xarray.Dataset(
        {name: (_INTERVAL, np.asarray(values)) for name, values in schedule.values.items()},
        coords={_EDGE: schedule.grid},
        attrs={"parameters": json.dumps(plain(schedule.parameters)), "intervals": schedule.intervals},
    )
    for name, mixture in schedule.mixtures.items():
        made[name] = ((_INTERVAL, f"{name}_value"), mixture.shares, {"role": "share of each value"})
        made = made.assign_coords({f"{name}_value": mixture.values})
    return made


def to_schedule(part: xarray.Dataset) -> Schedule:
    """What ``from_schedule`` was given."""
    values, mixtures = {}, {}
    for name, variable in part.data_vars.items():
        if variable.ndim == 1:
            values[str(name)] = variable.values
        else:
            mixtures[str(name)] = Mixture(part[f"{name}_value"].values, variable.values)
    return Schedule(part[_EDGE].values, values, mixtures, json.loads(part.attrs["parameters"]))


def from_trajectory(trajectory: Trajectory) -> xarray.Dataset:
    """Courses by training time, and how they were made; without the dense output of an integrator."""
    info = {name: value for name, value in trajectory.info.items() if _is_plain(value)}
    return trajectory.to_dataset().assign_attrs(
        order_parameters=json.dumps(trajectory.order_parameters), info=json.dumps(plain(info))
    )


def to_trajectory(part: xarray.Dataset) -> Trajectory:
    """What ``from_trajectory`` was given."""
    return Trajectory(
        part["alpha"].values,
        {str(name): variable.values for name, variable in part.data_vars.items()},
        tuple(json.loads(part.attrs["order_parameters"])),
        json.loads(part.attrs["info"]),
    )


def _is_plain(value: Any) -> bool:
    try:
        plain(value)
    except TypeError:
        return False
    return True
