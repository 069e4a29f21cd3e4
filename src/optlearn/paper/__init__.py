"""The figures of the paper: data, drawing, and its claims checked.

Each figure is a module with ``TITLE``, ``compute(quick, progress, …) → xarray.Dataset``,
``plot(data) → Figure`` and ``claims(data) → list[Claim]``; the latter two need only the data. A figure that
reads a data set also takes ``data_dir``. ``runner.reproduce`` runs them. The table below can be read without
loading anything else. A new figure is one file and one line.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optlearn.paper import fig1 as fig1
    from optlearn.paper import fig2 as fig2
    from optlearn.paper import fig3 as fig3
    from optlearn.paper import fig4 as fig4
    from optlearn.paper import figS_cifar as figS_cifar
    from optlearn.paper import figS_curriculum as figS_curriculum
    from optlearn.paper import figS_sims as figS_sims
    from optlearn.paper.runner import reproduce as reproduce
    from optlearn.paper.shared import Claim as Claim

# Figure → what it shows, in one line. Its module has the name of the figure.
_FIGURES = {
    "fig1": "curriculum: optimal order of easy and hard samples, alone and with the learning rate",
    "fig2": "dropout: optimal activation probability under label noise",
    "fig3": "denoising autoencoder: optimal noise and optimal augmentation",
    "fig4": "denoising MNIST 0/1: theory's schedules in real training (needs MNIST)",
    "figS_cifar": "Cluttered CIFAR-10: easy-hard-easy training of a CNN",
    "figS_curriculum": "supplement: dynamics under the joint schedule",
    "figS_sims": "supplement: theory against simulation, three models",
}

__all__ = ["Claim", "list_figures", "reproduce", *_FIGURES]


def list_figures() -> dict[str, str]:
    """Name of every figure → what it shows, in one line."""
    return dict(_FIGURES)


def __getattr__(name: str) -> Any:
    if name in _FIGURES:
        return import_module(f"{__name__}.{name}")
    if name == "Claim":
        return import_module(f"{__name__}.shared").Claim
    if name == "reproduce":
        return import_module(f"{__name__}.runner").reproduce
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
