"""Ready problems with the paper's parameters as defaults, and the schedules to compare with.

A scenario is a function of its parameters that returns a ``Problem``. The table below is read
without loading JAX, so that the command line can list scenarios at once; a function's module is
imported when it is first used. A new scenario is one file and one line in this table.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optlearn.scenarios._attention import attention as attention
    from optlearn.scenarios._batch_size import batch_size as batch_size
    from optlearn.scenarios._curriculum import curriculum as curriculum
    from optlearn.scenarios._denoising import denoising as denoising
    from optlearn.scenarios._denoising_batch import denoising_batch as denoising_batch
    from optlearn.scenarios._dropout import dropout as dropout
    from optlearn.scenarios._gating import gating as gating
    from optlearn.scenarios._imbalance import imbalance as imbalance
    from optlearn.scenarios._learning_rate import learning_rate as learning_rate
    from optlearn.scenarios._task_order import task_order as task_order

# Scenario → what is optimised, in one line. Its module has the same name behind an underscore.
_SCENARIOS = {
    "attention": "inverse temperature, context or heads (control=…) of dot-product attention",
    "batch_size": "batch size of a committee under label noise, at a fixed number of samples",
    "curriculum": "order of easy and hard samples (joint=True: and learning rate) of a classifier",
    "denoising": "noise added to the inputs of a denoising autoencoder",
    "denoising_batch": "noisy copies of each sample for a denoising autoencoder, at a fixed total",
    "dropout": "activation probability of the hidden nodes of a committee under label noise",
    "gating": "gain, threshold or switch (control=…) of the gates of a gated network",
    "imbalance": "sampling of a minority, weight of its loss or learning rate (control=…) of a classifier",
    "learning_rate": "learning rate of a committee that has to leave its symmetric plateau",
    "task_order": "task to train on next (joint=True: and learning rate), to learn all and forget none",
}

__all__ = [
    "attention",
    "batch_size",
    "curriculum",
    "denoising",
    "denoising_batch",
    "dropout",
    "gating",
    "imbalance",
    "learning_rate",
    "list_scenarios",
    "task_order",
]


def list_scenarios() -> dict[str, str]:
    """Name of every scenario → what it optimises, in one line."""
    return dict(_SCENARIOS)


def __getattr__(name: str) -> Any:
    if name not in _SCENARIOS:
        raise AttributeError(f"no scenario {name!r}; there are {', '.join(_SCENARIOS)} (see list_scenarios)")
    return getattr(import_module(f"{__name__}._{name}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
