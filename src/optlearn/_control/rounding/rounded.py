"""Schedules of admissible values from relaxed ones: rounding, then a local search."""

from dataclasses import dataclass

import numpy as np

from optlearn._control.certificate import limits
from optlearn._control.compiled import CompiledProblem, Rollout, weighing_on
from optlearn._control.controls import Control
from optlearn._control.rounding.counts import (
    check_limits,
    nearest_counts,
    shortest_phase,
    sum_up,
    switches,
    value_counts,
    whole_numbers,
)
from optlearn._control.rounding.search import exchange, first_schedules, search_phases, shift
from optlearn._control.runs import Start
from optlearn._control.solvers.direct import Direct
from optlearn._control.solvers.starts import neutral
from optlearn._control.weighing import Penalised
from optlearn._errors import SpecificationError

# Factor on the sum of multipliers: those are for shares, and pure values have larger multipliers.
PRICE = 100.0
# Operations that a search may spend on curvature: a few seconds.
CURVATURE_OPERATIONS = 400_000_000


@dataclass(frozen=True)
class Rounded:
    """Controls with shares of 0 and 1 only, free parameters, and the objective on the grid."""

    w: np.ndarray
    theta: np.ndarray
    objective: float


def check_grid(compiled: CompiledProblem, intervals: int) -> None:
    """Raise if the grid cannot hold the discrete budgets exactly within the limits."""
    guess = neutral(compiled, intervals).w
    for name in compiled.problem.discrete:
        levels = _Levels(compiled, intervals, name)
        if levels.dwell > intervals:
            raise SpecificationError(
                f"infeasible: min_dwell = {levels.control.min_dwell:g} of {name!r} is more than the whole of "
                f"training, {compiled.problem.horizon:g}"
            )
        counts = levels.exact_counts
        levels.nearest_counts(guess)  # raises if none exist
        check_limits(name, levels.control, counts, levels.dwell)


def keeping_limits(rollout: Rollout, w: np.ndarray, theta: np.ndarray, weights: np.ndarray | None) -> Rollout:
    """The same passes with a price on violated limits and paths, above their multipliers (K,)."""
    weighing = weighing_on(rollout)
    if weighing is None or not weighing.limits:
        return rollout
    multipliers = np.zeros(1) if weights is None else weights[weighing.members :]
    sizes = abs(rollout.objective(w, theta)) / np.array(weighing.sizes)
    return rollout.weighted(Penalised(weighing, PRICE * (float(np.abs(multipliers).sum()) + sizes)))


def round_controls(rollout: Rollout, w: np.ndarray, theta: np.ndarray, polish: bool = True) -> Rounded:
    """Round every discrete control of w (I, m), re-optimise the rest, and search nearby.

    Controls are rounded one after the other, each with the previous ones already rounded, so that the cost of
    a value is computed at the schedule that it will be part of.
    """
    names = rollout.compiled.problem.discrete
    levels = {name: _Levels(rollout.compiled, rollout.intervals, name) for name in names}
    chosen: dict[str, np.ndarray] = {}
    relaxed = rollout.objective(w, theta)
    enough = relaxed + limits(relaxed)["relaxation_gap"]
    for name, control in levels.items():
        chosen[name] = control.round(rollout, w, theta)
        w = control.write(w, chosen[name])
    w, theta = _reoptimise(rollout, w, theta)
    if polish:
        for name, control in levels.items():
            polished = control.search(rollout, w, theta, [chosen[name]], enough)
            if polished is not None and not np.array_equal(polished, chosen[name]):
                w, theta = _reoptimise(rollout, control.write(w, polished), theta)
    return Rounded(w, theta, rollout.objective(w, theta))


def whole_schedule(rollout: Rollout, w: np.ndarray, theta: np.ndarray) -> Rounded | None:
    """The best whole numbers for controls with ``whole_numbers``, keeping means; None without any."""
    problem, blocks = rollout.compiled.problem, rollout.compiled.relaxation.blocks
    whole = {name: control for name, control in problem.controls.items() if control.whole_numbers}
    if not whole:
        return None
    w, objective = w.copy(), np.inf
    for name, control in whole.items():
        column = blocks[name].start
        bounds = (np.ceil(control.lower), np.floor(control.upper))
        w[:, column] = whole_numbers(w[:, column], bounds)
        budgeted = any(b.control == name for b in problem.budgets)
        w, objective = shift(rollout, w, theta, column, bounds, keep_sum=budgeted)
    return Rounded(w, theta, objective)


class _Levels:
    """One discrete control as levels (I,): the index of its value in each of I intervals."""

    def __init__(self, compiled: CompiledProblem, intervals: int, name: str) -> None:
        self.name, self.intervals = name, intervals
        self.control: Control = compiled.problem.controls[name]
        self.budgets = tuple(b for b in compiled.problem.mean_budgets if b.control == name)
        self.block = compiled.relaxation.blocks[name]
        step = compiled.problem.horizon / intervals
        self.dwell = max(1, int(np.ceil(self.control.min_dwell / step - 1e-9)))  # in intervals

    @property
    def exact_counts(self) -> np.ndarray:
        """(n,) intervals that each value must get; −1 where no budget fixes this."""
        return value_counts(self.name, self.control, self.budgets, self.intervals)

    def nearest_counts(self, w: np.ndarray) -> np.ndarray:
        """(n,) intervals of each value, nearest to the shares in w (I, m), that meet all budgets."""
        totals = self.control.shares(w[:, self.block]).sum(axis=0)
        return nearest_counts(self.name, self.control, self.budgets, totals)

    def write(self, w: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """W (I, m) with the values of these levels."""
        written = w.copy()
        written[:, self.block] = self.control.vertices[chosen]
        return written

    def slopes(self, rollout: Rollout, w: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """(I, n) first-order cost of each value in each interval, at w (I, m)."""
        return np.asarray(rollout.run(w, theta).gradient[:, self.block] @ self.control.vertices.T)

    def admissible(self, chosen: np.ndarray) -> bool:
        """Do levels keep the control's budgets and limits?"""
        most = self.control.max_switches
        if (most is not None and switches(chosen) > most) or shortest_phase(chosen) < self.dwell:
            return False
        shares = np.bincount(chosen, minlength=len(self.control.values)) / len(chosen)
        return all(
            budget.violation(row @ shares, target) <= 1e-9
            for budget in self.budgets
            for row, target in budget.rows(self.control)
        )

    def round(self, rollout: Rollout, w: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """Levels near the shares in w (I, m) that meet budgets and limits."""
        shares, counts = self.control.shares(w[:, self.block]), self.nearest_counts(w)
        if not self.control.limited:
            return sum_up(shares, counts)
        cost = self.slopes(rollout, w, theta)
        starts = first_schedules(shares, counts, cost, self.dwell, self.control.max_switches)
        levels = self.search(rollout, w, theta, starts)
        if levels is None:
            raise SpecificationError(
                f"no schedule of {self.name!r} was found that meets its budget, max_switches and min_dwell "
                f"on {self.intervals} intervals: loosen one of them"
            )
        return levels

    def search(
        self,
        rollout: Rollout,
        w: np.ndarray,
        theta: np.ndarray,
        starts: list[np.ndarray],
        enough: float = -np.inf,
    ) -> np.ndarray | None:
        """The best levels near the starts by the exact objective; None if limits allow no start.

        Objectives below ``enough`` are searched less thoroughly.
        """

        def evaluate(levels: np.ndarray) -> float:
            return rollout.objective(self.write(w, levels), theta)

        def slopes(levels: np.ndarray) -> np.ndarray:
            return self.slopes(rollout, self.write(w, levels), theta)

        if self.control.limited:
            return search_phases(starts, evaluate, slopes, self.admissible)
        settled = bool(np.all(self.exact_counts >= 0))
        # A gradient takes as long as four forward passes.
        ranking = 5 * rollout.operations * self.intervals * (len(self.control.values) - 1)
        return exchange(
            starts[0],
            evaluate,
            slopes,
            keep_counts=settled,
            admissible=self.admissible,
            curved=CURVATURE_OPERATIONS // ranking,
            enough=enough,
        )[0]


def _reoptimise(rollout: Rollout, w: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Continuous controls and free parameters for fixed discrete values."""
    problem, relaxation = rollout.compiled.problem, rollout.compiled.relaxation
    if not problem.continuous and not problem.free:
        return w, theta
    fixed = np.arange(relaxation.size) >= relaxation.curved
    result = Direct(fixed=fixed).shoot(rollout, Start("rounded", w, theta))
    better = rollout.objective(result.w, result.theta) < rollout.objective(w, theta)
    return (result.w, result.theta) if better else (w, theta)
