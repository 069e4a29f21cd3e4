"""Ready problems with the paper's parameters as defaults, and the schedules to compare with.

A scenario is a function of its parameters that returns a ``Problem``. ``list_scenarios`` names them;
``help(ol.scenarios.curriculum)``, or ``optlearn list curriculum``, describes one.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from optlearn.scenarios import _catalogue
from optlearn.scenarios._catalogue import list_scenarios as list_scenarios

if TYPE_CHECKING:
    from optlearn._control.problem import Problem

    __all__: list[str]


def __getattr__(name: str) -> "Callable[..., Problem]":
    if name == "__all__":
        return [*_catalogue.catalogue(), "list_scenarios"]  # type: ignore[return-value]  # a list by PEP 562
    # The import system looks up modules of this folder here, also while the catalogue is being built.
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name not in _catalogue.catalogue():
        raise AttributeError(f"{_catalogue.no_scenario(name)} (see list_scenarios)")
    return _catalogue.catalogue()[name].function


def __dir__() -> list[str]:
    return sorted({*globals(), *_catalogue.catalogue()})
