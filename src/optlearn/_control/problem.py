"""An optimal-control problem on the order parameters."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import jax
import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Settings, float64
from optlearn._control.budgets import Budget, check_together
from optlearn._control.controls import Control, Free
from optlearn._control.objective import Limit, Objective
from optlearn._control.path import KEPT, Path, PathBound
from optlearn._control.scenario_call import ScenarioCall
from optlearn._control.weighing import CVaR, Weighing
from optlearn._dynamics.checks import check_states
from optlearn._dynamics.own_code import declares_all, names_read
from optlearn._dynamics.system import System
from optlearn._dynamics.wrapped import Switched
from optlearn._errors import SpecificationError, warn
from optlearn._schedule import Schedule
from optlearn._signatures import checked
from optlearn._theory.expectation import AbstractQuadrature, AutoQuadrature

# More would fill the memory before anything is computed.
MOST_INTERVALS = 100_000

# User-written models with parameter names and objectives that have been checked for unread parameters.
_LOOKED_AT: set[Hashable] = set()

Baseline = Callable[["Problem", int], Schedule]

# Name of a free horizon among the free parameters.
HORIZON = "horizon"


class FreeHorizon(float):
    """The upper end of a range of horizons, whose best one is to be found.

    Code that needs a number, such as a baseline, uses it as the horizon. A plain number in its place is a
    fixed horizon.
    """

    range: Free

    def __new__(cls, allowed: Free) -> "FreeHorizon":
        """The upper end of a range, with the range attached."""
        made = super().__new__(cls, allowed.upper)
        made.range = allowed
        return made

    def __getnewargs__(self) -> tuple[Free]:  # type: ignore[override]
        return (self.range,)

    def __repr__(self) -> str:
        return repr(self.range)


def first_guess(baseline: Baseline, problem: "Problem", intervals: int) -> Schedule:
    """The schedule of a baseline as a solver's start, for which a few digits suffice.

    A baseline that searches for its parameters may have a faster method ``roughly`` with the baseline's own
    arguments.
    """
    make: Baseline = getattr(baseline, "roughly", baseline)
    return make(problem, intervals)


def _with_modes(model: System, controls: Mapping[str, Control]) -> System:
    """The model extended by the controls whose values are modes."""
    inner = model.inner if isinstance(model, Switched) else model
    tables: dict[str, dict[str, np.ndarray]] = {}
    for control_name, control in controls.items():
        if not control.modes:
            continue
        names = [name for name, _ in control.modes[0][1]]
        if control_name in inner.parameters and not set(names) & set(inner.parameters):
            continue  # an ensemble whose members have it already
        if control_name in inner.parameters:
            raise SpecificationError(
                f"controls: {control_name!r} has modes, and is a parameter of {type(inner).__name__} itself: "
                "call it something else"
            )
        for mode, parameters in control.modes:
            try:
                inner.settings(dict(parameters))
            except SpecificationError as error:
                raise SpecificationError(f"controls[{control_name!r}], mode {mode!r}: {error}") from None
        twice = [n for n in names if n in controls or any(n in table for table in tables.values())]
        if twice:
            raise SpecificationError(
                f"{twice[0]!r} is set by the modes of {control_name!r} and by another control"
            )
        tables[control_name] = {
            name: np.array([dict(parameters)[name] for _, parameters in control.modes]) for name in names
        }
    return Switched(inner, tables, tuple(tables)) if tables else inner


@checked
@dataclass(frozen=True, kw_only=True)
class Problem:
    """Model, start, horizon, controls, budgets and objective.

    Args:
        model: what is controlled: a learning model, or any other system.
        start: its state at α = 0 (``model.state(…)``, or a dictionary of named values).
        horizon: α_F, final training time (steps divided by N); ``Free(shortest, longest)`` to optimise it
            too: the solution's problem then has the horizon that ``solve`` found. With ``reach``, the longest
            horizon allowed, or such a range.
        controls: name of a model parameter → ``Continuous`` or ``Discrete``; or a new name → a ``Discrete``
            whose modes set several parameters at once.
        budgets: constraints on means or shares over training.
        free: name of a model parameter → ``Free``: optimised, but constant over training.
        objective: what is minimised; the final generalisation error by default.
        parameters: values that replace the model's defaults.
        intervals: default number of equal control intervals.
        baselines: name → function (problem, intervals) → schedule to compare with.
        quadrature: for models without closed forms.
        name: shown in tables.
        risk: for an ensemble, the risk measure minimised instead of its mean; see ``ol.robust``.
        limits: further costs that must not exceed a value at the end of training.
        paths: quantities that must stay within limits throughout training.
        rivals: further objectives; the largest of all objectives is minimised; see ``ol.worst_of``.
        reach: the target objective: ``solve`` finds the shortest training that reaches it, and the solution's
            problem has that horizon.
        shortest: with ``reach``, the shortest horizon to consider; by default a thousandth of the longest.

    Attributes:
        made_by: the scenario and arguments that made it; None if no scenario did, or once it is changed.
    """

    model: System
    start: Any
    horizon: Any  # a float, once it is made
    controls: Mapping[str, Control]
    budgets: tuple[Budget, ...] = ()
    free: Mapping[str, Free] = field(default_factory=dict)
    objective: Objective = field(default_factory=Objective)
    parameters: Mapping[str, Array] = field(default_factory=dict)
    intervals: int = 100
    baselines: Mapping[str, Baseline] = field(default_factory=dict)
    quadrature: AbstractQuadrature | AutoQuadrature | None = None
    name: str = "problem"
    risk: CVaR | None = None
    limits: tuple[Limit, ...] = ()
    paths: tuple[Path, ...] = ()
    rivals: tuple[Objective, ...] = ()
    reach: float | None = None
    shortest: float = 0.0
    # Not an argument, so ``dataclasses.replace`` does not copy it to another problem.
    made_by: ScenarioCall | None = field(default=None, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        check = Arguments("Problem")
        if isinstance(self.horizon, Free):
            check.number("horizon", self.horizon.lower, 0.0, open_below=True)
            if self.reach is not None:
                object.__setattr__(self, "shortest", self.horizon.lower)
                object.__setattr__(self, "horizon", self.horizon.upper)
            else:
                object.__setattr__(self, "horizon", FreeHorizon(self.horizon))
        horizon = check.number("horizon", self.horizon, 0.0, open_below=True)
        if self.free_horizon is None:
            object.__setattr__(self, "horizon", horizon)
        self._check_reach()
        check.count("intervals", self.intervals, 1, MOST_INTERVALS)
        if not self.controls:
            check.fail("controls", {}, "must name at least one parameter to be controlled")
        object.__setattr__(self, "model", _with_modes(self.model, self.controls))
        object.__setattr__(self, "start", self.model.initial_state(self.start))
        check_states(self.model, self.flat_start[None], np.zeros(1), where="at the start")
        settings = self.model.settings(self.parameters)
        for kind, names in (("control", self.controls), ("free parameter", self.free)):
            for name, limited in names.items():
                if name not in settings:
                    raise SpecificationError(
                        f"unknown {kind} {name!r}: {type(self.model).__name__} has "
                        f"{', '.join(sorted(settings)) or 'no parameters'}"
                    )
                for bound in (limited.lower, limited.upper):
                    if np.isfinite(bound):
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
        budgets = tuple(budget.numbered(self.controls[budget.control]) for budget in self.budgets)
        object.__setattr__(self, "budgets", budgets)
        for budget in self.budgets:
            budget.check(self.controls[budget.control], self.horizons)
        for objective in self.objectives:
            objective.check_tests(self.model, self.start, settings)
        if self.rivals and self.risk is not None and self.risk.level < 1:
            raise SpecificationError("several objectives of an ensemble allow a worst case, but no CVaR")
        several = self.risk is not None or self.rivals
        if several and any(o.has_running for o in self.objectives):
            raise SpecificationError(
                "a cost averaged over training has no worst case of its own: give it to ol.robust or "
                "ol.pareto, which count it in the state"
            )
        for name, control in self.controls.items():
            if self.free_horizon is None:
                check_together(name, control, [b for b in self.mean_budgets if b.control == name])
        self._check_free_horizon(settings)
        self._check_paths(settings)
        self._warn_of_unread()

    def _check_reach(self) -> None:
        if self.shortest < 0:
            raise SpecificationError(f"shortest must be at least 0, got {self.shortest!r}")
        if self.reach is None:
            object.__setattr__(self, "shortest", 0.0)
            return
        shortest = self.shortest or self.horizon / 1000
        if not 0 < shortest < self.horizon:
            raise SpecificationError(
                f"shortest must be above 0 and below the longest horizon, {self.horizon:g}, got {shortest:g}"
            )
        object.__setattr__(self, "shortest", float(shortest))

    def _check_free_horizon(self, settings: Settings) -> None:
        if self.free_horizon is None:
            return
        if HORIZON in settings:
            raise SpecificationError(
                f"horizon is free, and {type(self.model).__name__} has a parameter {HORIZON!r}: give the "
                "parameter another name"
            )
        for name, control in self.controls.items():
            if control.min_dwell > 0:
                raise SpecificationError(
                    f"{name!r} has min_dwell = {control.min_dwell:g}, which needs a fixed horizon, but this "
                    "one is free: use max_switches instead"
                )

    @float64
    def _check_paths(self, settings: Settings) -> None:
        taken: dict[str, Any] = {name: name for name in (*self.model.layout.names, "error")}
        for path in self.paths:
            path.check(self.model, self.start, settings)
            if taken.setdefault(path.label, path.quantity) != path.quantity:
                raise SpecificationError(
                    f"paths: the name {path.label!r} is taken: give this path another one (name=…)"
                )
        for bound in self.path_bounds:
            value, path = float(self.path_value(bound, self.model, self.start, settings)), bound.path
            if value > bound.limit + KEPT * bound.size and not self.read_by(path)[1]:
                raise SpecificationError(
                    f"paths: {path.words} is required, but it is {bound.sign * value:.6g} at the start, "
                    "which no schedule changes"
                )

    @float64
    def _warn_of_unread(self) -> None:
        """Warn of parameters of a user's model that nothing reads: usually a misspelt name."""
        model, settings = self.model, self.settings
        case = type(model), frozenset(settings), self.objectives
        if case in _LOOKED_AT or not declares_all(type(model)):
            return
        _LOOKED_AT.add(case)  # warn once, not for every copy
        parts = [*model.parts(), *(part for o in self.objectives for part in o.parts(model, settings))]
        traced = names_read(parts, settings)
        read = sorted(name for name in settings if name in traced or model.reads(name))
        for name in sorted(settings.keys() - set(read)):
            kind = "control" if name in self.controls else "parameter"
            warn(
                f"Problem: nothing reads the {kind} {name!r} of {type(model).__name__}; what it reads is "
                f"{', '.join(read) or 'nothing'}"
            )

    @property
    def continuous(self) -> dict[str, Control]:
        """Controls that may take any value between bounds."""
        return {n: c for n, c in self.controls.items() if not c.needs_rounding}

    @property
    def discrete(self) -> dict[str, Control]:
        """Controls that take one of a few values."""
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

    @property
    def free_horizon(self) -> Free | None:
        """The range of the horizon, if it is to be optimised."""
        return self.horizon.range if isinstance(self.horizon, FreeHorizon) else None

    @property
    def horizons(self) -> tuple[float, float]:
        """The shortest and the longest horizon."""
        free = self.free_horizon
        return (self.horizon, self.horizon) if free is None else (free.lower, free.upper)

    @property
    def mean_budgets(self) -> tuple[Budget, ...]:
        """The budgets, with totals as means over the horizon."""
        return tuple(budget.over(self.horizon) for budget in self.budgets)

    def at_horizon(self, horizon: float) -> "Problem":
        """The same problem with a fixed horizon; it keeps ``made_by``."""
        plain = replace(self, horizon=horizon, reach=None)
        made_by = self.made_by
        if made_by is not None and made_by.arguments.get("alpha_F") == self.horizon:
            arguments = {n: v for n, v in made_by.arguments.items() if n != "reach"} | {"alpha_F": horizon}
            object.__setattr__(plain, "made_by", ScenarioCall(made_by.scenario, arguments))
        return plain

    @property
    def unbounded(self) -> dict[str, Control]:
        """Controls without a bound on one side or both."""
        return {n: c for n, c in self.controls.items() if not np.isfinite([c.lower, c.upper]).all()}

    def with_parameters(self, **values: Array) -> "Problem":
        """The same problem with other parameter values."""
        return replace(self, parameters={**self.parameters, **values})

    # --- what is minimised -------------------------------------------------------------------------

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The objective, its rivals, and the limited quantities."""
        along = [path.objective for path in self.paths]
        limited = [*(limit.objective for limit in self.limits), *(o for o in along if o is not None)]
        return (self.objective, *self.rivals, *limited)

    @property
    def path_bounds(self) -> tuple[PathBound, ...]:
        """The bounds of all paths, in the order in which engines compute them."""
        return tuple(bound for path in self.paths for bound in path.bounds)

    def read_by(self, path: Path) -> tuple[bool, bool]:
        """Whether the quantity of a path depends on the state, and on controls."""
        return path.reads(self.controls, self.model, self.start, self.settings)

    def path_value(self, bound: PathBound, model: System, x: Any, u: Settings) -> Array:
        """The quantity that must not exceed ``bound.limit``, in state x under settings u."""
        return bound.sign * self._mean(bound.path.value, model, x, u)

    @cached_property
    def weighing(self) -> Weighing | None:
        """How members, rivals and limits are combined; None if a single mean is minimised."""
        if self.risk is None and not (self.rivals or self.limits or self.paths):
            return None
        caps = np.ones(1) if self.risk is None else self.risk.caps(np.asarray(self.model.mean_weights))
        every = tuple(map(float, caps)) * (1 + len(self.rivals))
        values = np.array([limit.value for limit in self.limits])
        sizes = np.abs(values)
        if np.any(sizes == 0):
            # Relative to a limit of 0 everything is large: there, the value at the start sets the scale.
            settings = self.settings
            first = [
                self._mean(o.objective.terminal_value, self.model, self.start, settings) for o in self.limits
            ]
            sizes = np.where(sizes > 0, sizes, np.abs(np.asarray(first, dtype=float)))
        return Weighing(
            every,
            tuple(values.tolist()),
            tuple(limit.equals is not None for limit in self.limits),
            tuple(np.where(sizes > 0, sizes, 1.0).tolist()),
        )

    def costs(self, model: System, x: Any, u: Settings) -> list[Array]:
        """Costs at the final state, in the order of ``weighing``; a single cost without it."""
        costs: list[Array] = []
        for objective in (self.objective, *self.rivals):
            if self.risk is None:
                costs.append(self._mean(objective.terminal_value, model, x, u))
            else:
                costs += [objective.terminal_value(*member) for member in model.each(x, u)]
        return costs + [self._mean(o.objective.terminal_value, model, x, u) for o in self.limits]

    def running(self, model: System, x: Any, u: Settings, horizon: Array) -> Array:
        """Integrand of the average over training, before division by the horizon."""
        return self._mean(partial(self.objective.running_value, horizon=horizon), model, x, u)

    def _mean(self, cost: Callable[..., Array], model: System, x: Any, u: Settings) -> Array:
        """A cost averaged over the members of the model."""
        costs = [cost(*member) for member in model.each(x, u)]
        if len(costs) == 1:
            return costs[0]
        return jax.numpy.stack([jax.numpy.asarray(value) for value in costs]) @ model.mean_weights
