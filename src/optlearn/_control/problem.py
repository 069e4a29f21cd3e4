"""An optimal-control problem on the order parameters."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Settings
from optlearn._control.budgets import Budget, check_together
from optlearn._control.controls import Control, Free
from optlearn._control.scenario_call import ScenarioCall
from optlearn._dynamics.checks import check_states
from optlearn._dynamics.own_code import Known, digest
from optlearn._dynamics.system import System
from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule
from optlearn._signatures import checked
from optlearn._theory.expectation import AbstractRule, AutoRule


@checked
@dataclass(frozen=True)
class Objective:
    """What is minimised: a function of the final state, plus integrals over training.

    Args:
        final: weight of the generalisation error at the end.
        average: weight of the generalisation error averaged over training.
        terminal: further function of the final state, ``terminal(x, u) → scalar``.
        cost: running cost, ``cost(x, u) → scalar``, averaged over training. ``x`` are the order
            parameters and ``u`` the settings at that time.
    """

    final: float = 1.0
    average: float = 0.0
    terminal: Callable[[Any, Settings], Array] | None = None
    cost: Callable[[Any, Settings], Array] | None = None

    def __post_init__(self) -> None:
        if not (self.final or self.average or self.terminal or self.cost):
            raise SpecificationError(
                "Objective: final, average, terminal or cost must be given, got nothing to minimise"
            )

    def key(self, model: System, u: Settings) -> Hashable:
        """What is minimised, with what own functions compute now: programs are kept by this."""
        own = [(name, f) for name in ("terminal", "cost") if (f := getattr(self, name)) is not None]
        parts = [(name, lambda x, u, f=f: f(x, Known("u", u)), (model.state(), dict(u))) for name, f in own]
        return self, digest("Objective", parts)

    @property
    def has_running(self) -> bool:
        """Is there an integral over training?"""
        return bool(self.average) or self.cost is not None


# More would fill the memory before anything is computed.
MOST_INTERVALS = 100_000

Baseline = Callable[["Problem", int], Schedule]


@checked
@dataclass(frozen=True, kw_only=True)
class Problem:
    """Model, start, horizon, controls, budgets and objective.

    Args:
        model: what is controlled: a learning model, or any other system.
        start: its state at α = 0 (``model.state(…)``, or a dictionary of named values).
        horizon: α_F, final training time (steps divided by N).
        controls: name of a model parameter → ``Continuous`` or ``Discrete``.
        budgets: constraints on means or shares over training.
        free: name of a model parameter → ``Free``: optimised once.
        objective: what is minimised; the final generalisation error by default.
        parameters: values that replace the model's defaults.
        intervals: default number of equal control intervals.
        baselines: name → function of (problem, intervals) that gives a schedule to compare with.
        rule: quadrature for models without closed forms.
        name: shown in tables.

    Attributes:
        made_by: the scenario and arguments that it was made of, if it was; None once it is changed.
    """

    model: System
    start: Any
    horizon: float
    controls: Mapping[str, Control]
    budgets: tuple[Budget, ...] = ()
    free: Mapping[str, Free] = field(default_factory=dict)
    objective: Objective = field(default_factory=Objective)
    parameters: Mapping[str, Array] = field(default_factory=dict)
    intervals: int = 100
    baselines: Mapping[str, Baseline] = field(default_factory=dict)
    rule: AbstractRule | AutoRule | None = None
    name: str = "problem"
    # Not an argument, so that ``dataclasses.replace`` does not carry it over to another problem.
    made_by: ScenarioCall | None = field(default=None, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        check = Arguments("Problem")
        object.__setattr__(self, "horizon", check.number("horizon", self.horizon, 0.0, open_below=True))
        check.count("intervals", self.intervals, 1, MOST_INTERVALS)
        if not self.controls:
            check.fail("controls", {}, "must name at least one parameter to be controlled")
        object.__setattr__(self, "start", self.model.initial_state(self.start))
        check_states(self.model, self.flat_start[None], np.zeros(1), where="at the start")
        settings = self.model.settings(self.parameters)
        for kind, names in (("control", self.controls), ("free parameter", self.free)):
            for name in names:
                if name not in settings:
                    raise SpecificationError(
                        f"unknown {kind} {name!r}: {type(self.model).__name__} has "
                        f"{', '.join(sorted(settings))}"
                    )
                limited = names[name]
                for bound in (limited.lower, limited.upper):
                    self.model.check_parameter(name, bound)
                if np.shape(settings[name]) != ():
                    raise SpecificationError(
                        f"{kind} {name!r} has shape {np.shape(settings[name])}: only single "
                        "numbers can be optimised"
                    )
        both = sorted(set(self.controls) & set(self.free))
        if both:
            raise SpecificationError(f"{both[0]!r} is both a control and a free parameter")
        for budget in self.budgets:
            if budget.control not in self.controls:
                raise SpecificationError(
                    f"budget on unknown control {budget.control!r}; controls are {', '.join(self.controls)}"
                )
            budget.check(self.controls[budget.control])
        for name, control in self.controls.items():
            check_together(name, control, [b for b in self.budgets if b.control == name])

    @property
    def continuous(self) -> dict[str, Control]:
        """Controls with any value between bounds."""
        return {n: c for n, c in self.controls.items() if not c.needs_rounding}

    @property
    def discrete(self) -> dict[str, Control]:
        """Controls with a few values."""
        return {n: c for n, c in self.controls.items() if c.needs_rounding}

    @property
    def settings(self) -> dict[str, Array]:
        """Values of all parameters; those of controls and free parameters are placeholders."""
        guesses = {name: free.start for name, free in self.free.items()}
        return self.model.settings({**self.parameters, **guesses})

    @property
    def flat_start(self) -> np.ndarray:
        """(n,) the start as a vector."""
        return np.asarray(self.model.layout.flatten(self.start))

    def with_parameters(self, **values: Array) -> "Problem":
        """The same problem with other parameter values."""
        return replace(self, parameters={**self.parameters, **values})

    # --- the objective on order parameters -------------------------------------------------------

    def terminal(self, model: System, x: Any, u: Settings) -> Array:
        """Part of the objective that reads the final state."""
        total = jax.numpy.zeros(())
        if self.objective.final:
            total = total + self.objective.final * model.error(x, u)
        if self.objective.terminal is not None:
            total = total + self.objective.terminal(x, u)
        return total

    def running(self, model: System, x: Any, u: Settings) -> Array:
        """Integrand of the rest, before division by the horizon."""
        total = jax.numpy.zeros(())
        if self.objective.average:
            total = total + self.objective.average * model.error(x, u)
        if self.objective.cost is not None:
            total = total + self.objective.cost(x, u)
        return total
