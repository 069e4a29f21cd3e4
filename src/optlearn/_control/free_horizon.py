"""The best length of training: a horizon that is optimised as a free parameter is.

Training over an unknown time T is training over a known one, T₀, at T/T₀ times the pace: dx/ds =
(T/T₀) f(x, u) for s from 0 to T₀. So T becomes a free parameter of a problem with a fixed horizon
(``stretched``), which every method and the certificate can handle; its solution is then converted back to
training time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from typing_extensions import override

from optlearn._arrays import Array, Settings
from optlearn._control.budgets import Budget
from optlearn._control.evaluate import evaluate
from optlearn._control.objective import Cost, Limit, Objective
from optlearn._control.problem import HORIZON, Problem
from optlearn._control.solution import Solution, Variant
from optlearn._dynamics.layout import JoinedLayout, Layout, NamedLayout
from optlearn._dynamics.system import System
from optlearn._dynamics.wrapped import Wrapped
from optlearn._pytrees import field
from optlearn._schedule import Schedule
from optlearn._trajectory import Trajectory

# A horizon within this share of the range from an end counts as being at that end.
AT_BOUND = 1e-6

# A problem with a fixed horizon, and a schedule to start from → its solution.
Solve = Callable[[Problem, Schedule | None], Solution]


def best_horizon(problem: Problem, solve: Solve, warm_start: Solution | Schedule | None) -> Solution:
    """The solution at the best horizon; its problem has that horizon.

    Args:
        problem: a problem with a free horizon.
        solve: solves a problem with a fixed one.
        warm_start: a schedule of any horizon.
    """
    free = problem.free_horizon
    assert free is not None
    start = warm_start.mixed_schedule if isinstance(warm_start, Solution) else warm_start
    if start is not None:
        start = start.with_parameters(**{HORIZON: float(np.clip(start.horizon, free.lower, free.upper))})
    return _in_training_time(problem, solve(stretched(problem), start))


class Stretched(Wrapped):
    """A system whose pace is a parameter: a time ``horizon`` of its own passes in ``known`` of training.

    Attributes:
        inner: the system.
        known: horizon of the problem that is solved.
        spent: names of the integrals appended to the inner state.
        controls: the controls that these integrate.
        settled: for a member, names of the integrals shared by all members.
    """

    known: Array
    spent: tuple[str, ...] = field(static=True, default=())
    controls: tuple[str, ...] = field(static=True, default=())
    settled: tuple[str, ...] = field(static=True, default=())

    @cached_property
    def layout(self) -> Layout:
        """Layout of the inner state, followed by the integrals."""
        if not self.spent:
            return self.inner.layout
        return JoinedLayout((self.inner.layout, NamedLayout.of("Stretched", self.spent)), ("", ""))

    @property
    @override
    def parameters(self) -> Mapping[str, Array]:
        return {**self.inner.parameters, HORIZON: self.known, **dict.fromkeys(self.spent + self.settled, 0.0)}

    @override
    def inner_state(self, x: Any) -> Any:
        return x[0] if self.spent else x

    @override
    def drift(self, x: Any, u: Settings) -> Any:
        pace, layout = u[HORIZON] / self.known, self.inner.layout
        moved = layout.unflatten(pace * jnp.asarray(layout.flatten(super().drift(x, u))))
        return (moved, self._paid(u, pace)) if self.spent else moved

    @override
    def advance(self, x: Any, u: Settings, length: Array) -> Any:
        length = length * u[HORIZON] / self.known
        moved = super().advance(x, u, length)
        if not self.spent:
            return moved
        paid = self._paid(u, length)
        return moved, {name: x[1][name] + paid[name] for name in self.spent}

    def _paid(self, u: Settings, time: Array) -> dict[str, Array]:
        return {name: time * u[control] for name, control in zip(self.spent, self.controls, strict=True)}

    def each(self, x: Any, u: Settings) -> list[tuple[System, Any, Settings]]:
        """Members of the inner system; horizon and integrals are among their settings."""
        shared = {HORIZON: u[HORIZON], **(x[1] if self.spent else {})}
        return [
            (Stretched(member, self.known, settled=self.spent), state, {**settings, **shared})
            for member, state, settings in self.inner.each(self.inner_state(x), self.inner_settings(u))
        ]

    @override
    def initial_state(self, given: Any) -> Any:
        if not self.spent:
            return self.inner.initial_state(given)
        return self.inner.initial_state(given[0]), dict.fromkeys(self.spent, np.zeros(()))


@dataclass(frozen=True)
class _Lasting:
    """Running costs, one averaged and one integrated over training time."""

    cost: Cost | None  # averaged
    integral: Cost

    def __call__(self, x: Any, u: Settings) -> Array:
        total = u[HORIZON] * self.integral(x, u)
        return total if self.cost is None else total + self.cost(x, u)


@dataclass(frozen=True)
class _Setting:
    """A cost that is one of the settings."""

    name: str

    def __call__(self, x: Any, u: Settings) -> Array:
        del x
        return u[self.name]


def stretched(problem: Problem) -> Problem:
    """The problem with a fixed horizon whose free parameter ``horizon`` is that of ``problem``."""
    free = problem.free_horizon
    assert free is not None
    known = free.start
    totals = [budget for budget in problem.budgets if budget.total is not None]
    spent = tuple(f"spent_of_budget_{number}" for number in range(1, len(totals) + 1))
    model = Stretched(problem.model, np.asarray(known), spent, tuple(budget.control for budget in totals))
    return replace(
        problem,
        model=model,
        start=(problem.start, {}) if spent else problem.start,
        horizon=known,
        free={**problem.free, HORIZON: free},
        budgets=tuple(budget for budget in problem.budgets if budget.total is None),
        objective=_lasting(problem.objective),
        rivals=tuple(map(_lasting, problem.rivals)),
        limits=(*problem.limits, *map(_limit, totals, spent)),
        baselines={},
    )


def _lasting(objective: Objective) -> Objective:
    if objective.integral is None:
        return objective
    return replace(objective, cost=_Lasting(objective.cost, objective.integral), integral=None)


def _limit(budget: Budget, name: str) -> Limit:
    spent = Objective(final=0.0, terminal=_Setting(name))
    if budget.equal:
        return Limit(spent, equals=budget.total)
    return Limit(spent, at_most=budget.total)


def _in_training_time(problem: Problem, solution: Solution) -> Solution:
    """Converts the solution of a stretched problem to one of ``problem`` at the best horizon."""
    free = problem.free_horizon
    assert free is not None
    values = dict(solution.parameters)
    horizon = values.pop(HORIZON)
    plain = problem.at_horizon(horizon)

    def rescaled(schedule: Schedule) -> Schedule:
        length = schedule.parameters.get(HORIZON, horizon)
        grid = schedule.grid * (length / schedule.horizon)
        grid[-1] = length
        parameters = {name: value for name, value in schedule.parameters.items() if name != HORIZON}
        return replace(schedule, grid=grid, parameters=parameters)

    def variant(other: Variant | None) -> Variant | None:
        return None if other is None else replace(other, schedule=rescaled(other.schedule))

    schedule = rescaled(solution.schedule)
    trajectory = evaluate(plain, schedule, values)
    names = plain.model.layout.names
    costates = Trajectory(
        solution.costates.alpha * (horizon / solution.problem.horizon),
        {name: solution.costates[name] for name in names},
        names,
        solution.costates.info,
    )
    note = f"the best training time from {free.lower:g} to {free.upper:g} is α_F = {horizon:.10g}"
    if min(horizon - free.lower, free.upper - horizon) <= AT_BOUND * (free.upper - free.lower):
        note += ", an end of that range: a longer or shorter training may be better"
    return replace(
        solution,
        problem=plain,
        schedule=schedule,
        objective=trajectory.objective,
        parameters=values,
        trajectory=trajectory,
        costates=costates,
        relaxed=variant(solution.relaxed),
        whole_numbers=variant(solution.whole_numbers),
        notes=(*solution.notes, note),
        weights=_own_weights(plain, solution),
        curvature=None,
    )


def _own_weights(plain: Problem, solution: Solution) -> tuple[float, ...]:
    """The multipliers without those of budgets."""
    weighing = plain.weighing
    if weighing is None:
        return ()
    kept = weighing.members + len(plain.limits)
    extra = len(solution.problem.limits) - len(plain.limits)
    return solution.weights[:kept] + solution.weights[kept + extra :]
