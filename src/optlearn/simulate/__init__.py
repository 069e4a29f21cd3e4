"""SGD at finite input dimension N: on the weights themselves, or on their overlaps alone.

The room is also the function: ``optlearn.simulate(model, schedule, …)`` calls ``simulate.run.simulate``.
"""

import inspect
import sys
from types import ModuleType
from typing import Any

from optlearn.simulate.run import simulate

__all__ = ["simulate"]


class _CallableRoom(ModuleType):
    """A package that can be called, since ``optlearn.simulate`` is both a room and a verb."""

    __signature__ = inspect.signature(simulate)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return simulate(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableRoom
