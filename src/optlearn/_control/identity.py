"""Comparison of problems by names and numbers; and a placeholder for a missing problem."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from optlearn._control.problem import Problem
from optlearn._dynamics.ensemble import Ensemble
from optlearn._errors import SpecificationError
from optlearn._json import plain

# Numbers that differ by less than this share count as equal: another machine may have computed a start.
TOLERANCE = 1e-9
SHOWN = 3  # number of differences in a message


def description(problem: Problem) -> dict[str, Any]:
    """Horizon, start, parameters, controls, free parameters, budgets and weights, in JSON types.

    For a problem that is missing from its solution's file: the description stored in the file.
    """
    if isinstance(problem, MissingProblem):
        return dict(problem.described)
    objective = problem.objective
    described: dict[str, Any] = {
        "horizon": float(problem.horizon),
        "state": dict(zip(problem.model.layout.names, problem.flat_start, strict=True)),
        "parameters": {name: np.asarray(value) for name, value in sorted(problem.settings.items())},
        "controls": {name: _fields(control) for name, control in problem.controls.items()},
        "free": {name: _fields(free) for name, free in problem.free.items()},
        "budgets": [_fields(budget) for budget in problem.budgets],
        "objective": {
            "final": objective.final,
            "average": objective.average,
            "terminal": objective.terminal is not None,
            "cost": objective.cost is not None,
            **({"tests": objective.tests} if objective.tests else {}),
            **({"integral": True} if objective.integral is not None else {}),
        },
    }
    if isinstance(problem.model, Ensemble):
        described["weights"] = np.asarray(problem.model.weights)
        described["members"] = [dict(sorted(parameters.items())) for parameters in problem.model.own]
        described["risk"] = None if problem.risk is None else problem.risk.level
    if problem.free_horizon is not None:
        described["shortest horizon"] = problem.free_horizon.lower
    if problem.rivals:
        described["rivals"] = [rival.tests for rival in problem.rivals]
    if problem.limits:
        described["limits"] = [limit.value for limit in problem.limits]
    if problem.paths:
        described["paths"] = [path.words for path in problem.paths]
    return plain(described)


def differences(described: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Where two descriptions differ, in words."""
    return list(_differences("", described, wanted))


def check_same(problem: Problem, described: Mapping[str, Any], what: str) -> None:
    """Raise unless a solution's problem, described by ``description``, is the given one.

    Args:
        problem: the expected problem.
        described: description of the solved problem.
        what: name of the solution in the message.

    Raises:
        SpecificationError: they differ; the message lists the differences.
    """
    different = differences(described, description(problem))
    if different:
        more = f"; and {len(different) - SHOWN} more" if len(different) > SHOWN else ""
        raise SpecificationError(
            f"{what} is not of the problem {problem.name!r}: {'; '.join(different[:SHOWN])}{more}"
        )


def _fields(part: Any) -> dict[str, Any]:
    """Fields of a control, budget or free parameter without the guess, which is not part of the problem."""
    demands = {field.name: getattr(part, field.name) for field in fields(part) if field.name != "guess"}
    # Rarely used fields are left out when empty: older files do not have them.
    demands = {name: value for name, value in demands.items() if value or name not in ("modes", "total")}
    return {"kind": type(part).__name__, **demands}


def _differences(path: str, described: Any, wanted: Any) -> Iterator[str]:
    if isinstance(described, Mapping) and isinstance(wanted, Mapping):
        for name in [*described, *(name for name in wanted if name not in described)]:
            inside = f"{path} {name}".strip()
            if name not in wanted or name not in described:
                yield f"only {'its' if name in described else 'the given'} problem has {inside}"
            else:
                yield from _differences(inside, described[name], wanted[name])
    elif isinstance(described, list) and isinstance(wanted, list) and len(described) == len(wanted):
        for place, pair in enumerate(zip(described, wanted, strict=True)):
            yield from _differences(f"{path}[{place}]", *pair)
    elif not _equal(described, wanted):
        yield f"{path} is {described!r} there and {wanted!r} here"


def _equal(described: Any, wanted: Any) -> bool:
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in (described, wanted)):
        return bool(np.isclose(described, wanted, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True))
    return type(described) is type(wanted) and bool(described == wanted)


class ProblemNotInFileError(RuntimeError):
    """A saved solution is used in a way that needs its problem, and the file does not hold it.

    A file holds numbers, not Python functions. Problems of ``ol.scenarios`` are rebuilt from the
    scenario's name and arguments; make any other problem yourself and give it to
    ``ol.load(path, problem=…)``.
    """


class MissingProblem(Problem):
    """Placeholder for a problem of which only the name is known; any other use raises an error.

    Args:
        name: name of the problem.
        why: reason why it is missing.
        described: its description in the file; see ``optlearn._control.identity.description``.
    """

    described: Mapping[str, Any]

    def __init__(self, name: str, why: str, described: Mapping[str, Any]) -> None:
        vars(self).update(name=name, _why=why, described=described)  # past what is frozen

    def __getattribute__(self, attribute: str) -> Any:
        if attribute in _UNKNOWN:
            name, why = (object.__getattribute__(self, key) for key in ("name", "_why"))
            raise ProblemNotInFileError(
                f"problem.{attribute}: the problem {name!r} is not in the file, {why}. Give it to "
                "ol.load(path, problem=…)"
            )
        return super().__getattribute__(attribute)

    def __repr__(self) -> str:
        return f"<MissingProblem {self.name}: not in the file, {object.__getattribute__(self, '_why')}>"

    __eq__ = object.__eq__
    __hash__ = object.__hash__


_UNKNOWN = {field.name for field in fields(Problem)} - {"name", "made_by"}
