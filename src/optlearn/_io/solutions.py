"""Solutions on disk: one NetCDF file with a group for each part, and never a pickle.

Groups ``schedule``, ``trajectory``, ``costates`` and, where a solution has them, ``relaxed``,
``whole_numbers`` and ``past`` hold labelled arrays; everything else is in root attributes, nested values as
JSON. ``ncdump -h`` or xarray read such a file without optlearn.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import xarray

from optlearn._control.certificate import Certificate, Starts
from optlearn._control.identity import MissingProblem, check_same, description, differences
from optlearn._control.problem import Problem
from optlearn._control.runs import Outcome, RunRecord
from optlearn._control.solution import Solution, Variant
from optlearn._errors import DataFileError
from optlearn._io.files import as_netcdf, read_checked, write_file
from optlearn._io.provenance import provenance
from optlearn._json import parse, plain
from optlearn._schedule import Mixture, Schedule
from optlearn._signatures import checked
from optlearn._trajectory import Trajectory

KIND = "optlearn solution"
# Increased when older code cannot read new files, or the other way round.
FORMAT = 3
# Attributes that are numbers or text, and those that are JSON.
_PLAIN = ("objective", "method", "outcome", "seconds", "problem")
_NESTED = ("parameters", "certificate", "options", "runs", "made_by", "described", "weights")
_EDGE, _INTERVAL = "alpha_edge", "interval"
_TIME, _SEED = "alpha", "seed"
_VALUE = "_value"  # suffix of the axis of a mixed control's values
# Attribute with the name of a control or state whose variable has a different name.
_NAME = "name"
_PROVENANCE = ("created", "git_revision")  # and everything that ends in _version


def save_solution(solution: Solution, path: str | PathLike[str]) -> Path:
    """Write a solution; see ``Solution.save``."""
    problem = solution.problem
    record: dict[str, Any] = {
        "objective": solution.objective,
        "method": solution.method,
        "outcome": solution.outcome.name,
        "seconds": solution.seconds,
        "problem": problem.name,
        "parameters": dict(solution.parameters),
        "certificate": asdict(solution.certificate),
        "options": dict(solution.options),
        "runs": [run.to_dict() for run in solution.runs],
        "made_by": problem.made_by and vars(problem.made_by),
        "described": description(problem),
        "weights": list(solution.weights),
    }
    parts = {
        "schedule": _from_schedule(solution.schedule),
        "trajectory": _from_trajectory(solution.trajectory),
        "costates": _from_trajectory(solution.costates),
    }
    for name in ("relaxed", "whole_numbers"):
        variant: Variant | None = getattr(solution, name)
        if variant is not None:
            parts[name] = _from_schedule(variant.schedule).assign_attrs(objective=variant.objective)
    if solution.past is not None:
        parts["past"] = _from_schedule(solution.past)
    attributes = {
        name: value if isinstance(value, str | float) else json.dumps(plain(value))
        for name, value in record.items()
    }
    marks = {"kind": KIND, "format": FORMAT, "digest": _digest(attributes, parts)}
    # Provenance of the computation; saving a loaded solution again does not change it.
    origin = {**provenance(), **solution.provenance}
    root = xarray.Dataset(attrs={**marks, **attributes, **origin})
    tree = xarray.DataTree.from_dict({"/": root, **{f"/{name}": part for name, part in parts.items()}})
    return write_file(path, as_netcdf(tree))


@checked
def load(path: str | PathLike[str], problem: Problem | None = None) -> Solution:
    """Load a solution from a file written by ``solution.save``.

    Its problem is rebuilt from the scenario and arguments in the file. Your own problem is not in the file:
    pass it here, otherwise the loaded solution has everything but its problem, and using the problem raises
    an error that says so.

    Args:
        path: the file.
        problem: the solution's problem, if it is not from ``ol.scenarios``.

    Raises:
        FileNotFoundError: there is no such file.
        DataFileError: it is not a solution, damaged, or in another version's format.
        SpecificationError: it solves a problem other than ``problem``; the message lists the differences.
    """
    tree = read_checked(Path(path), _read_tree)
    root = {str(name): value for name, value in tree.attrs.items()}
    _check_kind(path, root)
    try:
        attributes = {name: _python(root[name]) for name in (*_PLAIN, *_NESTED)}
        parts = {name: node.to_dataset() for name, node in tree.children.items()}
        if _digest(attributes, parts) != root["digest"]:
            raise DataFileError("its content does not match its checksum")
        nested = {name: parse(attributes[name]) for name in _NESTED}
        solution = _solution(attributes, nested, parts, root)
    except Exception as error:  # a forged file may contain anything
        what = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise DataFileError(f"{path} is a broken solution file: {what}. Solve the problem again") from error
    if problem is None:
        return solution
    check_same(problem, nested["described"], f"the solution in {path}")
    return replace(solution, problem=problem)


def _read_tree(path: Path) -> xarray.DataTree:
    with xarray.open_datatree(path, engine="h5netcdf") as tree:
        return tree.load()


def _check_kind(path: str | PathLike[str], root: Mapping[str, Any]) -> None:
    if root.get("kind") != KIND:
        raise DataFileError(
            f"{path} is a NetCDF file, but not a solution saved by optlearn (its attribute kind is "
            f"{root.get('kind')!r})"
        )
    version = _python(root.get("format"))
    if not isinstance(version, int) or version < 1:
        raise DataFileError(
            f"{path} is a broken solution file: its format is {version!r}, not a number from 1 on"
        )
    if version != FORMAT:
        advice = "install a newer one" if version > FORMAT else "solve the problem again"
        raise DataFileError(
            f"{path} is of format {version}, written by optlearn {root.get('optlearn_version', '?')}; this "
            f"optlearn reads format {FORMAT}: {advice}"
        )


def _solution(
    attributes: Mapping[str, Any],
    nested: Mapping[str, Any],
    parts: Mapping[str, xarray.Dataset],
    root: Mapping[str, Any],
) -> Solution:
    certificate = nested["certificate"]
    certificate["starts"] = Starts(**certificate["starts"])
    certificate["reasons"] = tuple(certificate["reasons"])
    variants = {
        name: Variant(_to_schedule(parts[name]), float(parts[name].attrs["objective"]))
        for name in ("relaxed", "whole_numbers")
        if name in parts
    }
    origin = {n: str(v) for n, v in root.items() if n in _PROVENANCE or n.endswith("_version")}
    return Solution(
        problem=_made_again(attributes["problem"], nested["made_by"], nested["described"]),
        schedule=_to_schedule(parts["schedule"]),
        objective=float(attributes["objective"]),
        parameters=nested["parameters"],
        trajectory=_to_trajectory(parts["trajectory"]),
        costates=_to_trajectory(parts["costates"]),
        certificate=Certificate(**certificate),
        method=attributes["method"],
        outcome=Outcome[attributes["outcome"]],
        seconds=float(attributes["seconds"]),
        relaxed=variants.get("relaxed"),
        whole_numbers=variants.get("whole_numbers"),
        runs=tuple(map(RunRecord.from_dict, nested["runs"])),
        options=nested["options"],
        provenance=origin,
        weights=tuple(nested["weights"]),
        past=_to_schedule(parts["past"]) if "past" in parts else None,
    )


def _made_again(name: str, made_by: Mapping[str, Any] | None, described: Mapping[str, Any]) -> Problem:
    """The problem of a scenario, or a placeholder for a missing problem."""
    if made_by is None:
        return MissingProblem(name, "since it was not made by a scenario of optlearn", described)
    # This room's only import from above: a file names a scenario, and only the scenario can rebuild the
    # problem.
    from optlearn import scenarios

    scenario, arguments = made_by["scenario"], made_by["arguments"]
    if scenario not in scenarios.list_scenarios():
        return MissingProblem(name, f"and this version of optlearn has no scenario {scenario!r}", described)
    try:
        problem: Problem = getattr(scenarios, scenario)(**arguments)
    except (TypeError, ValueError) as error:
        why = f"and the scenario {scenario!r} now refuses its arguments ({error})"
        return MissingProblem(name, why, described)
    if differences(described, description(problem)):
        why = f"and the scenario {scenario!r} of this version makes another one"
        return MissingProblem(name, why, described)
    return problem


def _digest(attributes: Mapping[str, Any], parts: Mapping[str, xarray.Dataset]) -> str:
    """SHA-256 of a solution's entire content."""
    digest = hashlib.sha256()
    for name in sorted(attributes):
        digest.update(f"{name}={attributes[name]!r}\n".encode())
    for part in sorted(parts):
        for label, variable in sorted(parts[part].variables.items(), key=lambda item: str(item[0])):
            digest.update(f"{part}/{label}{variable.shape}\n".encode())
            digest.update(np.ascontiguousarray(variable.values, dtype=np.float64).tobytes())
    return digest.hexdigest()


def _python(value: Any) -> Any:
    """An attribute as returned by h5netcdf, in Python types."""
    return value.item() if hasattr(value, "item") else value


# --- schedules and trajectories as labelled arrays, and back --------------------------------------


def _from_schedule(schedule: Schedule) -> xarray.Dataset:
    """Controls on intervals, with the shares of mixed ones by value; edges are a coordinate."""
    dataset = xarray.Dataset(
        coords={_EDGE: schedule.grid},
        attrs={"parameters": json.dumps(plain(schedule.parameters)), "intervals": schedule.intervals},
    )
    for name, values in schedule.values.items():
        dataset[_variable(name)] = (_INTERVAL, values, {_NAME: name})
    for name, mixture in schedule.mixtures.items():
        variable = _variable(name)
        axis = f"{variable}{_VALUE if variable == name else ':value'}"
        attributes = {_NAME: name, "role": "share of each value"}
        dataset[variable] = ((_INTERVAL, axis), mixture.shares, attributes)
        dataset = dataset.assign_coords({axis: mixture.values})
    return dataset


def _to_schedule(part: xarray.Dataset) -> Schedule:
    """The inverse of ``_from_schedule``."""
    values, mixtures = {}, {}
    for name, variable in _named(part):
        if variable.ndim == 1:
            values[name] = variable.values
        else:
            mixtures[name] = Mixture(part[variable.dims[1]].values, variable.values)
    return Schedule(part[_EDGE].values, values, mixtures, parse(part.attrs["parameters"]))


def _from_trajectory(trajectory: Trajectory) -> xarray.Dataset:
    """Time courses and info of a trajectory, without the integrator's dense output."""
    info = {name: value for name, value in trajectory.info.items() if _is_plain(value)}
    dims = (_TIME,) if trajectory.seeds == 0 else (_SEED, _TIME)
    return xarray.Dataset(
        {_variable(name): (dims, course, {_NAME: name}) for name, course in trajectory.values.items()},
        coords={_TIME: trajectory.alpha},
        attrs={"order_parameters": json.dumps(trajectory.order_parameters), "info": json.dumps(plain(info))},
    )


def _to_trajectory(part: xarray.Dataset) -> Trajectory:
    """The inverse of ``_from_trajectory``."""
    values = {name: variable.values for name, variable in _named(part)}
    names, info = (parse(part.attrs[key]) for key in ("order_parameters", "info"))
    return Trajectory(part[_TIME].values, values, tuple(names), info)


def _variable(name: str) -> str:
    """Variable name of a control or state: its own name, unless it is taken or invalid in NetCDF."""
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
