"""Schedules and trajectories as labelled arrays, and back."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import xarray

from optlearn._json import parse, plain
from optlearn._schedule import Mixture, Schedule
from optlearn._trajectory import Trajectory

_EDGE, _INTERVAL = "alpha_edge", "interval"
_TIME, _SEED = "alpha", "seed"
_VALUE = "_value"  # ends the name of the axis of a mixed control's values
# The attribute that holds the name of a control or state whose variable is called something else.
_NAME = "name"


def from_schedule(schedule: Schedule) -> xarray.Dataset:
    """Controls on intervals; the shares of a mixed one by value. Edges are a coordinate."""
    made = xarray.Dataset(
        coords={_EDGE: schedule.grid},
        attrs={"parameters": json.dumps(plain(schedule.parameters)), "intervals": schedule.intervals},
    )
    for name, values in schedule.values.items():
        made[_variable(name)] = (_INTERVAL, values, {_NAME: name})
    for name, mixture in schedule.mixtures.items():
        variable = _variable(name)
        axis = f"{variable}{_VALUE if variable == name else ':value'}"
        attributes = {_NAME: name, "role": "share of each value"}
        made[variable] = ((_INTERVAL, axis), mixture.shares, attributes)
        made = made.assign_coords({axis: mixture.values})
    return made


def to_schedule(part: xarray.Dataset) -> Schedule:
    """What ``from_schedule`` was given."""
    values, mixtures = {}, {}
    for name, variable in _named(part):
        if variable.ndim == 1:
            values[name] = variable.values
        else:
            mixtures[name] = Mixture(part[variable.dims[1]].values, variable.values)
    return Schedule(part[_EDGE].values, values, mixtures, parse(part.attrs["parameters"]))


def from_trajectory(trajectory: Trajectory) -> xarray.Dataset:
    """Courses by training time, and how they were made; without the dense output of an integrator."""
    info = {name: value for name, value in trajectory.info.items() if _is_plain(value)}
    dims = (_TIME,) if trajectory.seeds == 0 else (_SEED, _TIME)
    return xarray.Dataset(
        {_variable(name): (dims, course, {_NAME: name}) for name, course in trajectory.values.items()},
        coords={_TIME: trajectory.alpha},
        attrs={
            "order_parameters": json.dumps(trajectory.order_parameters),
            "info": json.dumps(plain(info)),
        },
    )


def to_trajectory(part: xarray.Dataset) -> Trajectory:
    """What ``from_trajectory`` was given."""
    return Trajectory(
        part[_TIME].values,
        {name: variable.values for name, variable in _named(part)},
        tuple(parse(part.attrs["order_parameters"])),
        parse(part.attrs["info"]),
    )


def _variable(name: str) -> str:
    """The variable of a control or state: its name, unless that is taken or NetCDF cannot have it."""
    taken = name in (_EDGE, _INTERVAL, _TIME, _SEED) or name.endswith(_VALUE)
    return name if name.isidentifier() and not taken else f"name:{quote(name, safe='')}"


def _named(part: xarray.Dataset) -> Iterator[tuple[str, xarray.DataArray]]:
    """Names of controls or states, and their variables."""
    for variable, array in part.data_vars.items():
        yield str(array.attrs.get(_NAME, variable)), array


def _is_plain(value: Any) -> bool:
    try:
        plain(value)
    except TypeError:
        return False
    return True
