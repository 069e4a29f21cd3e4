"""Which scenario made a problem, so that a saved solution can make it again. Loads nothing heavy."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

from optlearn._json import plain

# Arguments common to all scenarios: kind and meaning.
COMMON: Mapping[str, tuple[Any, str]] = {
    "reach": (float | None, "an objective: the horizon is then the shortest that reaches it, up to alpha_F."),
    "shift": (Mapping[str, float] | None, "parameters of the test that differ from those of training."),
}

_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True)
class ScenarioCall:
    """A call of a scenario.

    Attributes:
        scenario: its name.
        arguments: all arguments, defaults included, as numbers, strings, lists and dictionaries.
    """

    scenario: str
    arguments: Mapping[str, Any]


def scenario(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """``function`` with problems that record the call which made them, and with the ``COMMON`` arguments.

    A problem that is changed afterwards (``dataclasses.replace``) forgets it.
    """
    signature = inspect.signature(function)

    @cache
    def checked_function() -> Callable[_P, _R]:
        from optlearn._signatures import checked

        return checked(function)

    @wraps(function)
    def made(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        common: dict[str, Any] = {name: kwargs.pop(name) for name in COMMON if name in kwargs}
        _check_common(function.__name__, **common)
        problem: Any = checked_function()(*args, **kwargs)
        call = signature.bind(*args, **kwargs)
        call.apply_defaults()
        values = _by_name(call) | {name: value for name, value in common.items() if value is not None}
        if values.get("reach") is not None:
            problem = replace(problem, reach=values["reach"])
        if values.get("shift") is not None:
            problem = _shifted(function.__name__, problem, values["shift"])
        try:
            arguments = {name: plain(value) for name, value in values.items()}
        except TypeError:
            return problem  # a function cannot be serialised
        object.__setattr__(problem, "made_by", ScenarioCall(function.__name__, arguments))
        return problem

    _show_common(made, signature)
    return made


def _check_common(name: str, reach: Any = None, shift: Any = None) -> None:
    from optlearn._arguments import Arguments

    check = Arguments(name)
    if reach is not None:
        check.number("reach", reach)
    if not isinstance(shift, Mapping | list | tuple | None):
        check.fail("shift", shift, "must be a dictionary of settings, or pairs of a weight and one")


def _shifted(name: str, problem: Any, shift: Any) -> Any:
    """The problem with other tests."""
    from optlearn._errors import SpecificationError

    try:
        return replace(problem, objective=replace(problem.objective, tests=shift))
    except SpecificationError as error:
        raise SpecificationError(f"{name}: shift: {error}") from None


def _show_common(made: Any, signature: inspect.Signature) -> None:
    """Add the common arguments to a signature and to the docstring, whose last section is "Args"."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    more = [
        inspect.Parameter(name, keyword, default=None, annotation=kind) for name, (kind, _) in COMMON.items()
    ]
    # Arguments of one kind stay in order; ``**options`` must stay last.
    parameters = sorted([*signature.parameters.values(), *more], key=lambda parameter: parameter.kind)
    made.__signature__ = signature.replace(parameters=parameters)
    lines = "".join(f"\n    {name}: {meaning}" for name, (_, meaning) in COMMON.items())
    made.__doc__ = f"{inspect.getdoc(made)}{lines}\n"


def _by_name(call: inspect.BoundArguments) -> dict[str, Any]:
    """Arguments by name, including those in ``**options``."""
    named = dict(call.arguments)
    for name, parameter in call.signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            named |= named.pop(name, {})
    return named
