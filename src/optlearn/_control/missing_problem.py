"""The problem of a saved solution that cannot be made again."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from optlearn._control.problem import Problem


class ProblemNotInFileError(RuntimeError):
    """A saved solution is used in a way that needs its problem, and the file does not hold it.

    A file holds numbers, not Python functions. Problems of ``ol.scenarios`` are made again from the
    scenario's name and arguments; with any other one, make it yourself and give it to
    ``ol.load(path, problem=…)``.
    """


class MissingProblem(Problem):
    """Stands for a problem of which only the name is known; every other use says so.

    Args:
        name: of the problem.
        why: it is not here.
        described: what the file says of it; see ``optlearn._control.identity.description``.
    """

    described: Mapping[str, Any]

    def __init__(self, name: str, why: str, described: Mapping[str, Any]) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "_why", why)
        object.__setattr__(self, "described", described)

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

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


_UNKNOWN = {field.name for field in fields(Problem)} - {"name", "made_by"}
