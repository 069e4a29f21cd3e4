"""Costs averaged over training, accumulated in the state so that each can be compared and limited."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from typing_extensions import override

from optlearn._arrays import Array, Settings
from optlearn._control.objective import Cost, Objective
from optlearn._control.problem import Baseline, Problem, first_guess
from optlearn._dynamics.layout import JoinedLayout, NamedLayout
from optlearn._dynamics.system import Resolved, System
from optlearn._errors import SpecificationError
from optlearn._pytrees import field
from optlearn._schedule import Schedule


class Accounted(System):
    """A system that also accumulates running costs.

    Its state is a pair: the inner state, and ``account`` (one entry per cost) with the ``elapsed`` time.
    Everything else is delegated to the inner system.

    Attributes:
        inner: the system.
        costs: objectives whose running parts are accumulated; each is averaged or integrated, not both.
    """

    inner: System
    costs: tuple[Objective, ...] = field(static=True)

    @cached_property
    def layout(self) -> JoinedLayout:
        """Layout of the inner state, followed by the accounts."""
        accounts = NamedLayout("Accounted", (("account", len(self.costs)), ("elapsed", None)))
        return JoinedLayout((self.inner.layout, accounts), ("", ""))

    @property
    @override
    def names(self) -> tuple[str, ...]:
        return self.layout.names

    @property
    @override
    def parameters(self) -> Mapping[str, Array]:
        return self.inner.parameters

    def drift(self, x: Any, u: Settings) -> Any:
        """The inner drift and the running costs."""
        spent = jnp.stack([cost.running_value(self.inner, x[0], u, 1.0) for cost in self.costs])
        return self.inner.drift(x[0], u), {"account": spent, "elapsed": jnp.ones(())}

    @override
    def error(self, x: Any, u: Settings) -> Array:
        return self.inner.error(x[0], u)

    @override
    def observables(self, x: Any, u: Settings) -> dict[str, Array]:
        return self.inner.observables(x[0], u)

    @override
    def check_parameter(self, name: str, value: Array) -> None:
        self.inner.check_parameter(name, value)

    @override
    def check(self, x: Any) -> str | None:
        return self.inner.check(x[0])

    @override
    def first_impossible(self, states: np.ndarray, tolerance: float | None = None) -> tuple[int, str] | None:
        return self.inner.first_impossible(states[:, self.layout.slices[0]], tolerance)

    def initial_state(self, given: Any) -> Any:
        """An inner state alone starts the accounts at 0."""
        state, accounts = given if isinstance(given, tuple) else (given, {})
        return self.inner.initial_state(state), self.layout.parts[1].state(**accounts)

    @override
    def named_in(self, given: Any) -> np.ndarray:
        state, accounts = given if isinstance(given, tuple) else (given, {})
        counted = [len(self.costs) * ["account" in accounts], ["elapsed" in accounts]]
        return np.concatenate([self.inner.named_in(state), *counted])

    @override
    def check_specification(self, x: Any, u: Settings) -> None:
        self.inner.check_specification(x[0], u)

    @override
    def current(self) -> "Accounted":
        return replace(self, inner=self.inner.current())

    @override
    def round_off_guard(self) -> Callable[[np.ndarray], np.ndarray] | None:
        guard, (inner, accounts) = self.inner.round_off_guard(), self.layout.slices
        return None if guard is None else lambda flat: np.concatenate([guard(flat[inner]), flat[accounts]])

    def resolved(self, states: np.ndarray, u: Settings, quadrature: Any = None) -> Resolved:
        """The inner system resolved; its errors are measured only at ``states``."""
        inner = self.inner.resolved(states[:, self.layout.slices[0]], u, quadrature)
        return Resolved(replace(self, inner=inner.system), None, inner.rtol, inner.info)

    def probes(self, x: Any) -> np.ndarray:
        """The inner probes, with empty accounts."""
        inner = self.inner.probes(x[0])
        return np.hstack([inner, np.zeros((len(inner), self.layout.parts[1].size))])

    @override
    def refined(self) -> "Accounted | None":
        finer = self.inner.refined()
        return None if finer is None else replace(self, inner=finer)


@dataclass(frozen=True)
class Spent:
    """An objective at the end of an accounted training: ``objective.terminal`` on its state."""

    terminal: Cost | None  # further function of the inner state
    averaged: int | None  # index of the account
    integral: int | None

    def __call__(self, x: Any, u: Settings) -> Array:
        (inner, accounts), total = x, jnp.zeros(())
        if self.averaged is not None:
            # The average is over the elapsed time, which is zero at the start.
            total = accounts["account"][self.averaged] / jnp.maximum(accounts["elapsed"], 1e-300)
        if self.integral is not None:
            total = total + accounts["account"][self.integral]
        return total if self.terminal is None else total + self.terminal(inner, u)


@dataclass(frozen=True)
class _OnInner:
    """A function of the inner state."""

    function: Cost

    def __call__(self, x: Any, u: Settings) -> Array:
        return self.function(x[0], u)


@dataclass(frozen=True, eq=False)
class BaselineOf:
    """A baseline of another problem with the same controls: a member, or the problem without accounts."""

    problem: Problem
    make: Baseline

    def __call__(self, problem: Problem, intervals: int) -> Schedule:
        return self.make(replace(self.problem, horizon=problem.horizon), intervals)

    def roughly(self, problem: Problem, intervals: int) -> Schedule:
        """See ``first_guess``."""
        return first_guess(self.make, replace(self.problem, horizon=problem.horizon), intervals)


def accounted(problem: Problem, objectives: Sequence[Objective]) -> tuple[Problem, list[Objective]]:
    """The problem with accounts, and ``objectives`` as costs of its final state only.

    Nothing changes if none of them is averaged over training.
    """
    running = [o for o in objectives if o.has_running]
    if not running:
        return problem, list(objectives)
    if problem.model.advances:
        raise SpecificationError(
            f"{type(problem.model).__name__} gives its own exact advance: costs averaged over its training "
            "have no worst case or limit; use costs of the final state"
        )
    parts = [part for o in running for part in (_averaged_of(o), _integral_of(o)) if part.has_running]
    model = Accounted(problem.model, tuple(dict.fromkeys(parts)))

    def account(part: Objective) -> int | None:
        return model.costs.index(part) if part.has_running else None

    ends = [
        replace(
            _on_inner(o),
            average=0.0,
            cost=None,
            integral=None,
            terminal=Spent(o.terminal, account(_averaged_of(o)), account(_integral_of(o))),
        )
        if o.has_running
        else _on_inner(o)
        for o in objectives
    ]
    baselines = {name: BaselineOf(problem, make) for name, make in problem.baselines.items()}
    made = replace(
        problem,
        model=model,
        objective=ends[0],
        limits=tuple(replace(limit, objective=_on_inner(limit.objective)) for limit in problem.limits),
        paths=tuple(replace(path, quantity=_path_on_inner(path.quantity)) for path in problem.paths),
        baselines=baselines,
    )
    return made, ends


def _averaged_of(objective: Objective) -> Objective:
    """The averaged part of an objective, if there is one."""
    return Objective(average=objective.average, cost=objective.cost, tests=objective.tests)


def _integral_of(objective: Objective) -> Objective:
    """The integrated part of an objective, if there is one."""
    return Objective(integral=objective.integral)


def _on_inner(objective: Objective) -> Objective:
    """An objective whose further function reads the inner state."""
    return replace(objective, terminal=None if objective.terminal is None else _OnInner(objective.terminal))


def _path_on_inner(quantity: Any) -> Any:
    if isinstance(quantity, str):
        return quantity
    return _on_inner(quantity) if isinstance(quantity, Objective) else _OnInner(quantity)


def counted(problem: Problem) -> Problem:
    """The problem with its own running costs, if any, accumulated in the state."""
    return accounted(problem, [problem.objective])[0]
