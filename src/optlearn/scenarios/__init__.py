"""Ready problems with the paper's parameters as defaults, and the schedules to compare with.

A scenario is a function of its parameters that returns a ``Problem``. The table below is read
without loading JAX, so that the command line can list scenarios at once; a function's module is
imported when it is first used. A new scenario is one file and one line in this table.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optlearn.scenarios.curriculum import curriculum as curriculum
    from optlearn.scenarios.denoising import denoising as denoising
    from optlearn.scenarios.denoising_batch import denoising_batch as denoising_batch
    from optlearn.scenarios.dropout import dropout as dropout

# Scenario → what is optimised, in one line. Function and module have the name of the scenario.
_SCENARIOS = {
    "curriculum": "order of easy and hard samples (joint=True: and learning rate) of a classifier",
    "denoising": "noise added to the inputs of a denoising autoencoder",
    "denoising_batch": "noisy copies of each sample for a denoising autoencoder, at a fixed total",
    "dropout": "activation probability of the hidden nodes of a committee under label noise",
}

__all__ = ["curriculum", "denoising", "denoising_batch", "dropout", "list_scenarios"]


def list_scenarios() -> dict[str, str]:
    """Name of every scenario → what it optimises, in one line."""
    return dict(_SCENARIOS)


def __getattr__(name: str) -> Any:
    if name not in _SCENARIOS:
        raise AttributeError(f"no scenario {name!r}; there are {', '.join(_SCENARIOS)} (see list_scenarios)")
    return getattr(import_module(f"{__name__}.{name}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Scenarios(ModuleType):
    """A package whose scenarios are functions, although their modules have the same names."""

    def __setattr__(self, name: str, value: Any) -> None:
        # Importing a scenario's module, here or anywhere, sets it as an attribute of the package.
        if name in _SCENARIOS and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Scenarios
