"""Optimal learning protocols for networks described exactly by a few order parameters.

Importing this package is cheap: a public name loads its room, and with it JAX or CasADi, when it
is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optlearn import models as models
    from optlearn import paper as paper
    from optlearn import plotting as plotting
    from optlearn import practice as practice
    from optlearn import scenarios as scenarios
    from optlearn.citations import cite as cite
    from optlearn.control.compare import baselines as baselines
    from optlearn.control.compare import compare as compare
    from optlearn.control.controls import Budget as Budget
    from optlearn.control.controls import Continuous as Continuous
    from optlearn.control.controls import Discrete as Discrete
    from optlearn.control.controls import Free as Free
    from optlearn.control.evaluate import evaluate as evaluate
    from optlearn.control.problem import Objective as Objective
    from optlearn.control.problem import Problem as Problem
    from optlearn.control.solution import NotConvergedWarning as NotConvergedWarning
    from optlearn.control.solution import Solution as Solution
    from optlearn.control.solve import continuation as continuation
    from optlearn.control.solve import solve as solve
    from optlearn.io.solutions import load as load
    from optlearn.plotting import plot_certificate as plot_certificate
    from optlearn.plotting import plot_compare as plot_compare
    from optlearn.plotting import plot_error as plot_error
    from optlearn.plotting import plot_order_parameters as plot_order_parameters
    from optlearn.plotting import plot_schedule as plot_schedule
    from optlearn.practice import fit as fit
    from optlearn.simulate import simulate as simulate
    from optlearn.sweep import sweep as sweep
    from optlearn.theory.expectation import AutoRule as AutoRule
    from optlearn.theory.expectation import GaussHermite as GaussHermite
    from optlearn.theory.expectation import QuasiMonteCarlo as QuasiMonteCarlo
    from optlearn.theory.fields import Fields as Fields
    from optlearn.theory.integrate import integrate as integrate
    from optlearn.theory.latents import Latents as Latents
    from optlearn.theory.model import Break as Break
    from optlearn.theory.model import LearningModel as LearningModel
    from optlearn.theory.order import OrderParameters as OrderParameters
    from optlearn.theory.order import Overlaps as Overlaps
    from optlearn.theory.schedule import Schedule as Schedule
    from optlearn.theory.trajectory import Trajectory as Trajectory

__version__ = "0.1.0"

# Public name → the module it is in. `optlearn.simulate` and `optlearn.sweep` are rooms that can be called.
_HOME = {
    "AutoRule": "optlearn.theory.expectation",
    "Break": "optlearn.theory.model",
    "Budget": "optlearn.control.controls",
    "Continuous": "optlearn.control.controls",
    "Discrete": "optlearn.control.controls",
    "Fields": "optlearn.theory.fields",
    "Free": "optlearn.control.controls",
    "GaussHermite": "optlearn.theory.expectation",
    "Latents": "optlearn.theory.latents",
    "LearningModel": "optlearn.theory.model",
    "NotConvergedWarning": "optlearn.control.solution",
    "Objective": "optlearn.control.problem",
    "OrderParameters": "optlearn.theory.order",
    "Overlaps": "optlearn.theory.order",
    "Problem": "optlearn.control.problem",
    "QuasiMonteCarlo": "optlearn.theory.expectation",
    "Schedule": "optlearn.theory.schedule",
    "Solution": "optlearn.control.solution",
    "Trajectory": "optlearn.theory.trajectory",
    "baselines": "optlearn.control.compare",
    "cite": "optlearn.citations",
    "compare": "optlearn.control.compare",
    "continuation": "optlearn.control.solve",
    "evaluate": "optlearn.control.evaluate",
    "fit": "optlearn.practice.fit",
    "integrate": "optlearn.theory.integrate",
    "load": "optlearn.io.solutions",
    "models": "optlearn.models",
    "paper": "optlearn.paper",
    "plot_certificate": "optlearn.plotting",
    "plot_compare": "optlearn.plotting",
    "plot_error": "optlearn.plotting",
    "plot_order_parameters": "optlearn.plotting",
    "plot_schedule": "optlearn.plotting",
    "plotting": "optlearn.plotting",
    "practice": "optlearn.practice",
    "scenarios": "optlearn.scenarios",
    "simulate": "optlearn.simulate",
    "solve": "optlearn.control.solve",
    "sweep": "optlearn.sweep",
}

_MODULES = {"fit", "models", "paper", "plotting", "practice", "scenarios", "simulate", "sweep"}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(home)
    value = module if name in _MODULES else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
