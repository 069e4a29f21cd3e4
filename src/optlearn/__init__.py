"""Optimal learning protocols for networks described exactly by a few order parameters.

Importing this package is cheap: a public name loads its room, and with it JAX or CasADi, when it
is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optlearn import models as models
    from optlearn.simulate import simulate as simulate
    from optlearn.theory.expectation import AutoRule as AutoRule
    from optlearn.theory.expectation import GaussHermite as GaussHermite
    from optlearn.theory.expectation import QuasiMonteCarlo as QuasiMonteCarlo
    from optlearn.theory.fields import Fields as Fields
    from optlearn.theory.integrate import integrate as integrate
    from optlearn.theory.latents import Latents as Latents
    from optlearn.theory.model import LearningModel as LearningModel
    from optlearn.theory.order import OrderParameters as OrderParameters
    from optlearn.theory.order import Overlaps as Overlaps
    from optlearn.theory.schedule import Schedule as Schedule
    from optlearn.theory.trajectory import Trajectory as Trajectory

__version__ = "0.1.0"

# Public name → the module it is in. `optlearn.simulate` is a room that can be called.
_HOME = {
    "AutoRule": "optlearn.theory.expectation",
    "Fields": "optlearn.theory.fields",
    "GaussHermite": "optlearn.theory.expectation",
    "Latents": "optlearn.theory.latents",
    "LearningModel": "optlearn.theory.model",
    "OrderParameters": "optlearn.theory.order",
    "Overlaps": "optlearn.theory.order",
    "QuasiMonteCarlo": "optlearn.theory.expectation",
    "Schedule": "optlearn.theory.schedule",
    "Trajectory": "optlearn.theory.trajectory",
    "integrate": "optlearn.theory.integrate",
    "models": "optlearn.models",
    "simulate": "optlearn.simulate",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(home)
    value = module if home == f"{__name__}.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
