"""From theory to practice: schedules in one's own training, the model fitted to data, real training.

Frameworks are imported only by the names that need them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optlearn.practice.attribute import AttributeScheduler as AttributeScheduler
    from optlearn.practice.to_torch import CurriculumSampler as CurriculumSampler
    from optlearn.practice.to_torch import ScheduledDropout as ScheduledDropout

_HOME = {
    "AttributeScheduler": "attribute",
    "CurriculumSampler": "to_torch",
    "ScheduledDropout": "to_torch",
}

__all__ = ["AttributeScheduler", "CurriculumSampler", "ScheduledDropout"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
