"""Several possible worlds: one schedule for all, and the cost of one world's schedule in another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from optlearn._arguments import Arguments, as_numbers
from optlearn._arrays import Array, Float
from optlearn._control.evaluate import evaluate
from optlearn._control.identity import description
from optlearn._control.problem import Problem
from optlearn._control.solution import Solution
from optlearn._control.solve import continuation
from optlearn._control.weighing import CVaR
from optlearn._dynamics.ensemble import Ensemble
from optlearn._errors import SpecificationError, UnphysicalStateError
from optlearn._planning.accounts import BaselineOf, counted
from optlearn._signatures import checked

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Parameter → its values, in all combinations; or one dictionary of parameters per member.
Over = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]

RISKS: Mapping[str, CVaR | None] = {"mean": None, "worst": CVaR(1.0)}
# What the problems of an ensemble must have in common, by name in their descriptions.
COMMON = ("horizon", "controls", "free", "budgets", "objective")


@checked
def robust(
    problem: Problem | Sequence[Problem],
    over: Over | None = None,
    weights: Sequence[float] | None = None,
    risk: str | CVaR = "mean",
) -> Problem:
    """The problem of finding one schedule for several possible worlds.

    Args:
        problem: the problem; or several with the same controls, each of which is a world.
        over: parameter → its possible values (``{"sigma_n": [0.1, 0.3, 0.5]}``; all combinations of
            several parameters), with ``"start"`` for initial states; or one dictionary of parameters for each
            world, such as ``ol.draws`` makes from a fit and its covariance.
        weights: weights of the worlds, adding up to 1; equal by default.
        risk: "mean", "worst", or ``ol.CVaR(level)``: the mean over the worst share 1 − level.
    """
    worlds = members(problem, over)
    chosen = RISKS.get(risk) if isinstance(risk, str) else risk
    if isinstance(risk, str) and risk not in RISKS:
        raise SpecificationError(f"risk must be 'mean', 'worst' or a CVaR, got {risk!r}")
    if chosen is not None and chosen.level == 0:
        chosen = None
    if chosen is not None:
        worlds = [counted(world) for world in worlds]
    first = worlds[0]
    solved = {*first.controls, *first.free}
    settings = [
        {n: value for n, value in world.model.settings(world.parameters).items() if n not in solved}
        for world in worlds
    ]
    apart = {name for values in settings for name in values if _differs(name, settings)}
    differing = [{name: values[name] for name in values if name in apart} for values in settings]
    return replace(
        first,
        model=Ensemble.of([world.model for world in worlds], differing, weights),
        start=tuple(world.start for world in worlds),
        # Values common to all worlds stay parameters of the ensemble.
        parameters={n: v for values in settings for n, v in values.items() if n not in apart},
        baselines={name: BaselineOf(first, make) for name, make in first.baselines.items()},
        risk=chosen,
        name=f"{first.name}, {len(worlds)} members",
    )


def members(problem: Problem | Sequence[Problem], over: Over | None) -> list[Problem]:
    """The problem of every world.

    Raises:
        SpecificationError: there are none, or they differ in more than parameters, starts and models.
    """
    problems = [problem] if isinstance(problem, Problem) else list(problem)
    if not problems:
        raise SpecificationError("an ensemble must have at least one member, got none")
    worlds = [_changed(base, change) for base in problems for change in changes(over)]
    if not worlds:
        raise SpecificationError(f"over must give at least one member, got {over!r}")
    first = description(worlds[0])
    for number, world in enumerate(worlds[1:], 2):
        other = description(world)
        for name in COMMON:
            if other[name] != first[name]:
                raise SpecificationError(
                    f"all members must have the same {name}: those of member {number} are {other[name]}, "
                    f"of the first {first[name]}"
                )
    return worlds


@checked
def draws(
    mean: Mapping[str, float], covariance: Array, count: int = 8, seed: int = 0
) -> list[dict[str, float]]:
    """Members for ``ol.robust(over=…)`` from fitted parameters and their covariance.

    Args:
        mean: the fitted parameters.
        covariance: (P, P) their covariance, in the same order.
        count: number of members; they are drawn in pairs around the mean, so that their mean is that of the
            fit.
        seed: seed of the random numbers.
    """
    check = Arguments("draws")
    if not mean:
        check.fail("mean", mean, "must name at least one parameter")
    matrix, center = as_numbers(covariance), np.array(list(mean.values()), dtype=float)
    if matrix is None or not np.all(np.isfinite(matrix)):
        check.fail("covariance", covariance, "must be a matrix of finite numbers")
    if matrix.shape != (len(center), len(center)) or not np.allclose(matrix, matrix.T):
        raise SpecificationError(
            f"covariance must be a symmetric {len(center)} by {len(center)} matrix, got shape {matrix.shape}"
        )
    values, vectors = np.linalg.eigh(matrix)
    if values.min() < -1e-9 * max(values.max(), 0.0) - 1e-300:
        raise SpecificationError(f"covariance must be positive, got the eigenvalue {values.min():g}")
    check.count("count", count)
    check.count("seed", seed, 0)
    half = np.random.default_rng(seed).standard_normal((count // 2, len(center)))
    normals = np.concatenate([half, -half, np.zeros((count % 2, len(center)))])
    rows = center + normals @ (vectors * np.sqrt(np.clip(values, 0.0, None))).T
    return [dict(zip(mean, map(float, row), strict=True)) for row in rows]


def changes(over: Over | None) -> list[Mapping[str, Any]]:
    """The changes of a problem in every world."""
    if over is None:
        return [{}]
    if not over:
        raise SpecificationError(f"over must give at least one member, got {over!r}")
    if not isinstance(over, Mapping):
        return list(over)
    for name, values in over.items():
        if isinstance(values, str) or not np.iterable(values):
            raise SpecificationError(f"over[{name!r}] must be a list of values, got {values!r}")
    return [dict(zip(over, values, strict=True)) for values in product(*over.values())]


def _changed(problem: Problem, change: Mapping[str, Any]) -> Problem:
    values = dict(change)
    start = values.pop("start", problem.start)
    for name in values:
        if name in problem.controls or name in problem.free:
            raise SpecificationError(f"over must name parameters that are not optimised, got {name!r}")
    problem.model.settings(values)  # the error for an unknown name lists the known ones
    return replace(problem, start=start, parameters={**problem.parameters, **values})


def _differs(name: str, settings: Sequence[Mapping[str, Array]]) -> bool:
    first = settings[0].get(name)
    return any(
        name in other and (first is None or not np.array_equal(first, other[name])) for other in settings[1:]
    )


# --- regret ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Regret:
    """Schedules by the world that they were made for, and their objectives in every world.

    Attributes:
        labels: (W,) the worlds in words.
        objectives: (W, W) objective of the schedule made for world i (row) in world j (column); infinite
            if it leaves the physical region.
        solutions: (W,) the optimum of every world.
    """

    labels: tuple[str, ...]
    objectives: Float[np.ndarray, "W W"]
    solutions: tuple[Solution, ...]

    @property
    def matrix(self) -> Float[np.ndarray, "W W"]:
        """(W, W) the regret: objective minus that of the schedule made for the world."""
        return np.asarray(self.objectives - np.diag(self.objectives))

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """The matrix as colours and numbers, in the caller's axes or new ones."""
        from optlearn.plotting import plot_regret

        return plot_regret(self, axes)


@checked
def regret(problem: Problem | Sequence[Problem], over: Over | None = None, **solve_options: Any) -> Regret:
    """Solve for every possible world, and evaluate each schedule in all others.

    Free parameters belong to the schedule and keep their optimised values.

    Args:
        problem: the problem, or one for each world.
        over: parameter → its possible values, as in ``ol.robust``.
        solve_options: options of ``ol.solve``; each world is solved from the solution of the previous one.
    """
    worlds = members(problem, over)
    solutions = continuation(worlds, **solve_options)
    objectives = np.array([[_objective(world, made) for world in worlds] for made in solutions])
    if isinstance(problem, Problem):
        labels = [_label(change) for change in changes(over)]
    else:
        labels = [f"problem {number}" for number in range(1, len(worlds) + 1)]
    return Regret(tuple(labels), objectives, tuple(solutions))


def _objective(world: Problem, made: Solution) -> float:
    try:
        return evaluate(world, made.schedule, dict(made.parameters), record=2).objective
    except UnphysicalStateError:
        return float("inf")


def _label(change: Any) -> str:
    return ", ".join(
        f"{name} = {value:g}" if np.ndim(value) == 0 and name != "start" else name
        for name, value in change.items()
    )
