"""The optimal remainder of a training run, from its present state."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from optlearn._arguments import Arguments, as_numbers
from optlearn._arrays import Array, Settings
from optlearn._control.budgets import Budget, used
from optlearn._control.compiled import compile_problem
from optlearn._control.controls import Control, Discrete
from optlearn._control.evaluate import evaluate, evaluate_anyway
from optlearn._control.objective import Cost, Objective
from optlearn._control.problem import Problem
from optlearn._control.rounding.counts import value_counts
from optlearn._control.solution import Solution
from optlearn._control.solve import solve
from optlearn._dynamics.system import System
from optlearn._errors import BudgetError, SpecificationError
from optlearn._schedule import Schedule

_NEAR = 1e-9  # times that differ by less than this share of training are equal


def replan(
    solution: Solution,
    at: float,
    state: Any = None,
    horizon: float | None = None,
    parameters: Mapping[str, Array] | None = None,
    **options: Any,
) -> Solution:
    """Replan the remainder of a training run; see ``Solution.replan``."""
    check = Arguments("replan")
    at, horizon = check.number("at", at), horizon if horizon is None else check.number("horizon", horizon)
    problem, planned = solution.problem, solution.schedule
    # Times of the solution count from when it was planned.
    began = 0.0 if solution.past is None else solution.past.horizon
    end = planned.horizon if horizon is None else horizon - began
    now = at - began
    near = _NEAR * planned.horizon
    if not -near <= now <= planned.horizon + near:
        raise SpecificationError(
            f"at must be a training time from {began:g} to the horizon {began + planned.horizon:g}, "
            f"got {at:g}"
        )
    if not end > now + near:
        raise SpecificationError(f"horizon must be beyond at = {at:g}, got {began + end:g}")
    now = float(np.clip(now, 0.0, planned.horizon))
    if state is None:
        state = state_at(solution, now)
    else:
        state = problem.model.layout.unflatten(measured("replan", problem.model, state))
    past = planned.between(0.0, now) if now > near else None
    remaining = _remaining(solution, state, past, end, parameters or {})
    usual = max(1, round((end - now) / np.diff(planned.grid).mean()))
    intervals = usual if "intervals" in options else _holding(remaining, usual)
    edge = planned.grid[np.searchsorted(planned.grid, now + near)] if now < planned.horizon - near else now
    if intervals is None and now + near < edge < end - near:
        # No grid from here can hold the rest of the budget; the plan's grid can, from its next edge on.
        part = planned.between(now, edge)
        run = evaluate_anyway(replace(remaining, horizon=part.horizon, budgets=()), part, record=2)
        state = problem.model.layout.unflatten(run.states[-1])
        return replan(solution, began + edge, state, horizon, parameters, **options)
    options = {"intervals": intervals or usual, "starts": 1, **options}
    if now < planned.horizon - near:
        warm = planned.between(now, min(end, planned.horizon)).extended(end - now)
    else:
        warm = planned.between(planned.grid[-2], planned.horizon)
    replanned = solve(remaining, warm_start=warm, **options)
    kept = {name: value for name, value in solution.parameters.items() if name not in remaining.free}
    parts = [part for part in (solution.past, past) if part is not None]
    return replace(
        replanned,
        past=reduce(Schedule.followed_by, parts) if parts else None,
        parameters={**kept, **replanned.parameters},
    )


def measured(owner: str, model: System, state: Any) -> np.ndarray:
    """(n,) the complete measured state, given in the form of ``Problem.start`` or flat."""
    names, numbers = model.layout.names, as_numbers(state)
    if numbers is None:
        missing = [name for name, given in zip(names, model.named_in(state), strict=True) if not given]
        if missing:
            Arguments(owner).fail("state", state, f"must give all of {_few(names)}; it lacks {_few(missing)}")
        return np.asarray(model.layout.flatten(model.initial_state(state)))
    if numbers.shape != (len(names),) or not np.all(np.isfinite(numbers)):
        Arguments(owner).fail("state", state, f"must be {len(names)} finite numbers ({_few(names)})")
    return numbers


def _few(names: Sequence[str]) -> str:
    return ", ".join([*names[:8], *(["…"] if len(names) > 8 else [])])


def _holding(problem: Problem, usual: int) -> int | None:
    """The number of intervals nearest to ``usual``, up to four times as many, that holds shares exactly."""
    for intervals in sorted(range(1, 4 * usual + 1), key=lambda count: abs(count - usual)):
        with suppress(BudgetError):
            for name, control in problem.discrete.items():
                value_counts(name, control, problem.mean_budgets, intervals)
            return intervals
    return None


def state_at(solution: Solution, alpha: float) -> Any:
    """The predicted state at a training time of the solution's own schedule."""
    problem, layout = solution.problem, solution.problem.model.layout
    try:
        point = solution.trajectory.at(alpha)
    except ValueError:
        # From a file, which holds the trajectory on a grid.
        point = evaluate(problem, solution.schedule, dict(solution.parameters), record=2).at(alpha)
    return layout.unflatten(np.array([float(point[name]) for name in layout.names]))


def _remaining(
    solution: Solution, state: Any, past: Schedule | None, end: float, parameters: Mapping[str, Array]
) -> Problem:
    """The problem of the remainder from ``state`` on, after ``past``, with other ``parameters``."""
    problem = solution.problem
    left = end if past is None else end - past.horizon
    # A free parameter that training reads has been used already; one that only the end reads is still free.
    fixed = problem.free if compile_problem(problem).engine.free_in_rate else {}
    return replace(
        problem,
        start=state,
        horizon=left,
        controls={name: _less_switches(name, control, past) for name, control in problem.controls.items()},
        budgets=tuple(_left_over(budget, problem, past, end) for budget in problem.budgets),
        free={name: free for name, free in problem.free.items() if name not in fixed},
        objective=_share(problem.objective, left / end),
        parameters={**problem.parameters, **{n: solution.parameters[n] for n in fixed}, **parameters},
        baselines={},
        name=problem.name if past is None else f"rest of {problem.name}",
    )


def _less_switches(name: str, control: Control, past: Schedule | None) -> Control:
    """The control with its remaining switches."""
    if past is None or not isinstance(control, Discrete) or control.max_switches is None:
        return control
    made = int(np.count_nonzero(np.diff(past[name])))
    return Discrete(control.given, control.min_dwell, max(0, control.max_switches - made))


def _left_over(budget: Budget, problem: Problem, past: Schedule | None, end: float) -> Budget:
    """The part of a budget on the whole of training that the past leaves."""
    if past is None:
        return budget
    done, left = past.horizon, end - past.horizon

    def remaining(target: float, spent: float, low: float, high: float) -> float:
        value = (target * end - spent * done) / left
        # Round-off must not make an exact budget infeasible.
        slack = _NEAR * max(1.0, abs(high - low))
        return float(np.clip(value, low, high)) if low - slack <= value <= high + slack else value

    spent = used(budget, past)
    if budget.total is not None:
        return replace(budget, total=budget.total - spent[0])
    if budget.mean is not None:
        control = problem.controls[budget.control]
        return replace(budget, mean=remaining(budget.mean, spent[0], control.lower, control.upper))
    shares = {
        value: remaining(share, used_share, 0.0, 1.0)
        for (value, share), used_share in zip(budget.share.items(), spent, strict=True)
    }
    return replace(budget, share=shares)


@dataclass(frozen=True)
class _Scaled:
    """A running cost times a factor."""

    cost: Cost
    factor: float

    def __call__(self, x: Any, u: Settings) -> Array:
        return self.factor * self.cost(x, u)


def _share(objective: Objective, share: float) -> Objective:
    """The objective of a share of training: averages over the whole of training are scaled by that share."""
    if not objective.has_running or share == 1.0:
        return objective
    cost = None if objective.cost is None else _Scaled(objective.cost, share)
    return replace(objective, average=objective.average * share, cost=cost)
