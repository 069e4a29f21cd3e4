"""The catalogue: all that is known of each scenario besides what it computes. Loads nothing heavy.

A scenario is a file in this folder whose function stands under ``@scenario(…)``. The files are found, not
listed: the command line, the explorer, ``ol.cite``, the index of the documentation and the tests of all
scenarios read the entries that the decorator makes.
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
    """A small problem of a scenario: what the tests of all scenarios simulate and solve.

    Attributes:
        values: of its controls in the first and in the second half of a run of SGD.
        intervals: of a coarse grid.
        arguments: of the scenario.
        wrong: one argument with a value that the scenario must refuse.
        methods: solvers that have to agree on the optimum.
    """

    values: Mapping[str, Sequence[float]]
    intervals: int
    arguments: Mapping[str, Any] = field(default_factory=dict)
    wrong: Mapping[str, Any] = field(default_factory=lambda: {"alpha_F": 0.0})
    methods: tuple[str, ...] = ("direct", "indirect")


@dataclass(frozen=True)
class Entry:
    """A scenario in the catalogue. See ``scenario`` for what is not described here.

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
    """Enter a function into the catalogue; its problems then know the call that they come from.

    Lowest and highest value and step of an argument's slider stand in its annotation,
    ``eta: Annotated[float, (0.1, 3, 0.1)]``, one for each entry of a sequence; without, the default suggests
    them.

    Args:
        example: a small problem, for the tests of all scenarios.
        citations: the works that set the scenario up: keys of ``references.bib``, or entries of BibTeX.
        main: arguments that are shown first, by default the first few; ``Delta[1]`` for the entry of a pair.
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
    """A sentence for a name that no scenario has, with the one that it resembles."""
    meant = get_close_matches(name, catalogue(), n=1)
    suggestion = f" (did you mean {meant[0]!r}?)" if meant else ""
    return f"no scenario {name!r}{suggestion}; there are {', '.join(catalogue())}"
