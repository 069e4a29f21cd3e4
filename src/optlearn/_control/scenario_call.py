"""Which scenario made a problem, so that a saved solution can make it again. Loads nothing heavy."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

from optlearn._json import plain

_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True)
class ScenarioCall:
    """A call of a scenario.

    Attributes:
        scenario: its name.
        arguments: all of them, defaults included, as numbers, strings, lists and dictionaries.
    """

    scenario: str
    arguments: Mapping[str, Any]


def scenario(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """``function``, whose problems know the call that they come from.

    A problem that is changed afterwards (``dataclasses.replace``) forgets it.
    """
    signature = inspect.signature(function)

    @cache
    def checked_function() -> Callable[_P, _R]:
        from optlearn._signatures import checked

        return checked(function)

    @wraps(function)
    def made(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        problem = checked_function()(*args, **kwargs)
        call = signature.bind(*args, **kwargs)
        call.apply_defaults()
        try:
            arguments = {name: plain(value) for name, value in _by_name(call).items()}
        except TypeError:
            return problem  # a function or an object among the arguments cannot be written down
        object.__setattr__(problem, "made_by", ScenarioCall(function.__name__, arguments))
        return problem

    return made


def _by_name(call: inspect.BoundArguments) -> dict[str, Any]:
    """Arguments by name, those of ``**options`` among them."""
    kinds = {p.name: p.kind for p in call.signature.parameters.values()}
    options = [name for name, kind in kinds.items() if kind is inspect.Parameter.VAR_KEYWORD]
    named = {name: value for name, value in call.arguments.items() if name not in options}
    for name in options:
        named |= call.arguments.get(name, {})
    return named
