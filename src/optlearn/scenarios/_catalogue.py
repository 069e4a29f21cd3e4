"""The catalogue: metadata of every scenario. Loads nothing heavy.

A scenario is a file in this folder whose function is decorated with ``@scenario(…)``. Files are discovered,
not
listed: the command line, the explorer, ``ol.cite``, the index of the documentation and the tests of all
    scenarios
read the entries that the decorator makes.
"""

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache, cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from optlearn._control import scenario_call
from optlearn.scenarios._arguments import Argument, Range, arguments_of, take_ranges

if TYPE_CHECKING:
    from optlearn._control.problem import Problem

_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True)
class Example:
    """A small problem of a scenario, which the tests of all scenarios simulate and solve.

    Attributes:
        values: values of its controls in the first and second half of an SGD run.
        intervals: number of intervals of a coarse grid.
        arguments: arguments of the scenario.
        wrong: one argument with a value that the scenario must reject.
        methods: solvers that must agree on the optimum.
    """

    values: Mapping[str, Sequence[float]]
    intervals: int
    arguments: Mapping[str, Any] = field(default_factory=dict)
    wrong: Mapping[str, Any] = field(default_factory=lambda: {"alpha_F": 0.0})
    methods: tuple[str, ...] = ("direct", "indirect")


@dataclass(frozen=True)
class Entry:
    """A scenario in the catalogue. See ``scenario`` for the other fields.

    Attributes:
        function: makes its problem.
    """

    function: Callable[..., "Problem"]
    example: Example
    citations: tuple[str, ...]
    ranges: Mapping[str, Range]
    main: tuple[str, ...]
    code_only: Mapping[str, str]
    variants: tuple[Mapping[str, Any], ...]

    @property
    def name(self) -> str:
        """The name of its function."""
        return self.function.__name__

    @property
    def description(self) -> str:
        """What it optimises: the first line of the docstring."""
        return (self.function.__doc__ or "").partition("\n")[0].rstrip(".")

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        """All arguments, with their meaning, defaults and ranges; the main ones first."""
        return arguments_of(self.function, self.ranges, self.main, self.code_only)


_ENTRIES: dict[str, Entry] = {}


def scenario(
    *,
    example: Example,
    citations: Sequence[str],
    main: Sequence[str] = (),
    code_only: Mapping[str, str] | None = None,
    variants: Sequence[Mapping[str, Any]] = (),
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Enter a function into the catalogue; its problems then record the call that made them.

    An annotation sets lowest and highest value and step of an argument's slider,
    ``eta: Annotated[float, (0.1, 3, 0.1)]``, one for each entry of a sequence; by default they are derived
    from the default value.

    Args:
        example: a small problem, for the tests of all scenarios.
        citations: the works that introduced the scenario: keys of ``references.bib``, or BibTeX entries.
        main: arguments shown first, by default the first few; ``Delta[1]`` for an entry of a pair.
        code_only: argument → why no slider, switch or choice can set it.
        variants: arguments that change what is controlled.
    """

    def enter(function: Callable[_P, _R]) -> Callable[_P, _R]:
        ranges = take_ranges(function)
        made: Any = scenario_call.scenario(function)
        _ENTRIES[function.__name__] = Entry(
            made, example, tuple(citations), ranges, tuple(main), code_only or {}, tuple(variants)
        )
        return made

    return enter


@cache
def catalogue() -> Mapping[str, Entry]:
    """Name of every scenario → its entry, in alphabetical order."""
    home = import_module("optlearn.scenarios")
    for module in pkgutil.iter_modules(home.__path__, prefix=f"{home.__name__}."):
        import_module(module.name)
    return dict(sorted(_ENTRIES.items()))


def list_scenarios() -> dict[str, str]:
    """Name of every scenario → what it optimises, in one line."""
    return {name: entry.description for name, entry in catalogue().items()}


def no_scenario(name: str) -> str:
    """A message about an unknown scenario, with the most similar name."""
    meant = get_close_matches(name, catalogue(), n=1)
    suggestion = f" (did you mean {meant[0]!r}?)" if meant else ""
    return f"no scenario {name!r}{suggestion}; there are {', '.join(catalogue())}"
