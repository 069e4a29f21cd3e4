"""Many problems: a scenario solved, or simulated, on a grid of its arguments.

The room is also the function: ``optlearn.sweep(scenario, over={…})`` calls ``sweep.run.sweep``.
``sweep.load`` reads what is finished, ``sweep.plot`` draws it, ``sweep.simulate`` runs simulations in
batches, and ``sweep.finite_size`` measures how they approach the theory.
"""

import inspect
import sys
from types import ModuleType
from typing import Any

from optlearn.sweep import finite_size
from optlearn.sweep.collect import load
from optlearn.sweep.plot import plot
from optlearn.sweep.point import PointDone
from optlearn.sweep.run import sweep
from optlearn.sweep.simulations import schedule_at, simulate
from optlearn.sweep.store import DamagedPointWarning, SweepChangedWarning, SweepFolderError

__all__ = [
    "DamagedPointWarning",
    "PointDone",
    "SweepChangedWarning",
    "SweepFolderError",
    "finite_size",
    "load",
    "plot",
    "schedule_at",
    "simulate",
    "sweep",
]


class _CallableRoom(ModuleType):
    """A package that can be called, since ``optlearn.sweep`` is both a room and a verb."""

    __signature__ = inspect.signature(sweep)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return sweep(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableRoom
