"""Schedules to compare with, for problems without baselines: the usual shapes with optimal parameters.

All lie on the grid of the optimum and within bounds and budgets, so the optimum can reach whatever they
reach.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np

from optlearn._arrays import float64
from optlearn._control.compiled import CompiledProblem, Rollout, compile_problem, possible_objective
from optlearn._control.families import COARSE, FINER, REFINEMENTS, SCAN, best_parameters, spread
from optlearn._control.problem import Baseline, Problem
from optlearn._control.solvers.feasible import FeasibleSet
from optlearn._errors import UnphysicalStateError
from optlearn._schedule import Schedule

# Relative change of an objective under finer steps beyond which coarse steps have led the search astray.
ASTRAY = 1e-3
# Relative accuracy of the search in the objective where a pass through training takes long.
SETTLED = 1e-5
# Moves of a switch, one interval each, after a search that treated its time as continuous.
MOVES = 20

# Midpoints of intervals (I,), in units of the horizon → weight of the first value; the second has the rest.
Weight = Callable[[np.ndarray], np.ndarray]
# Parameters of a continuous control: two values, or a mean and a tilt; and the share of training before a
# switch.
VALUE, OTHER, TIME = range(3)
CONSTANT: Weight = np.ones_like


def baselines_of(problem: Problem) -> Mapping[str, Baseline]:
    """The problem's own baselines; without any, the usual shapes as far as its controls allow them."""
    return problem.baselines or dict(_usual(problem))


def _usual(problem: Problem) -> Iterator[tuple[str, Baseline]]:
    yield "best constant", Usual(CONSTANT)
    if problem.continuous:
        yield "best linear", Usual(lambda times: 1 - times)
        yield "best cosine", Usual(lambda times: (1 + np.cos(np.pi * times)) / 2)
    if problem.continuous or any(_pairs(problem, name) for name in problem.discrete):
        yield "best single switch", Usual(None)


@dataclass(frozen=True)
class Usual:
    """A baseline: the best schedule whose controls all go from one value to another in the same way.

    A control with a few values keeps one of them, or switches when the others do. If its budgets allow
    neither, it is a constant mixture of them.

    Attributes:
        weight: how values change; None: by one switch, at a separate time for each control.
    """

    weight: Weight | None

    @float64
    @np.errstate(over="ignore", invalid="ignore")  # diverging trials are detected and discarded
    def __call__(self, problem: Problem, intervals: int) -> Schedule:
        compiled = compile_problem(problem)
        # With wide quadratures, a coarse one leads close to the optimum.
        quick = compiled.coarser() or compiled
        steps = intervals if compiled.engine.costly else COARSE
        search = self._search(quick, intervals, steps)
        for _ in range(REFINEMENTS):
            if search.is_accurate:
                break
            steps *= FINER
            search = self._search(quick, intervals, steps)
        return (search if quick is compiled else search.refined(compiled)).schedule

    def _search(self, compiled: CompiledProblem, intervals: int, steps: int) -> "_Search":
        search = _Search(compiled, intervals, steps)
        if self.weight is CONSTANT or not search.is_simple:
            search.constants()
        if self.weight is None:
            search.switches()
        elif self.weight is not CONSTANT:
            search.courses(self.weight)
        return search


class _Search:
    """The best controls w (I, m) so far, and the parameters of the continuous ones.

    Args:
        compiled: the problem.
        intervals: I.
        steps: steps over the whole of training, for a first look.
    """

    def __init__(self, compiled: CompiledProblem, intervals: int, steps: int) -> None:
        self.compiled, self.problem = compiled, compiled.problem
        self.intervals, self.steps = intervals, steps
        self.costly = compiled.engine.costly
        self.weight: Weight | None = None
        self.theta = np.array([free.start for free in self.problem.free.values()])
        self.blocks = compiled.relaxation.blocks
        neutral, _ = FeasibleSet(compiled, 1).nearest(compiled.relaxation.neutral[None], self.theta)
        self.w = np.repeat(neutral, intervals, axis=0)
        self.ranges = {name: _ranges(self.problem, name) for name in self.problem.continuous}
        self.budgeted = {budget.control for budget in self.problem.budgets}
        self.numbers = {name: self._constant(name, neutral[0, self.blocks[name]][0]) for name in self.ranges}
        self.near = False
        self.rounds = 2 if self.problem.continuous and self.problem.discrete else 1

    @property
    def is_simple(self) -> bool:
        """Is the search so small that it need not begin with the best constant?"""
        return len(self.ranges) == 1 and not (self.problem.discrete or self.costly)

    # --- shapes ------------------------------------------------------------------------------------

    def constants(self) -> None:
        """Every control keeps its value."""
        self.weight = CONSTANT
        for _ in range(self.rounds):
            for name, control in self.problem.discrete.items():
                pure = [control.vertices[i] for i in _feasible_values(self.problem, name)]
                self._choose(name, [np.tile(vertex, (self.intervals, 1)) for vertex in pure])
            self._descend((VALUE,), everywhere=True)
        self.numbers = {name: self._constant(name, found[VALUE]) for name, found in self.numbers.items()}

    def courses(self, weight: Weight) -> None:
        """Continuous controls go from one value to another, starting from the best constant."""
        self.weight = weight
        self._descend((VALUE, OTHER))

    def switches(self) -> None:
        """Every control that may switch does so once."""
        self.weight = None
        for _ in range(self.rounds):
            for name in self.problem.discrete:
                self._choose_switch(name)
            self._descend((VALUE, OTHER, TIME))
            self._move_switches()
            self._descend((VALUE, OTHER))

    def refined(self, compiled: CompiledProblem) -> "_Search":
        """Descend from here under another quadrature; switches stay where they are."""
        search = _Search(compiled, self.intervals, self.steps)
        search.weight, search.w, search.numbers, search.near = self.weight, self.w, self.numbers, True
        search._descend((VALUE,) if self.weight is CONSTANT else (VALUE, OTHER))
        return search

    # --- the search --------------------------------------------------------------------------------

    def cost(self, w: np.ndarray, finer: int = 1) -> float:
        """The objective under controls w (I, m), with ``finer`` times as many steps; infinite if invalid."""
        steps = -(-finer * self._accurate_steps // self.intervals)
        if self.compiled.engine.exact:
            steps = self.compiled.exact_steps(self.problem.horizon / self.intervals)
        return possible_objective(Rollout(self.compiled, self.intervals, steps), w, self.theta)

    @property
    def _accurate_steps(self) -> int:
        return self.steps if self.costly else FINER * self.steps

    @property
    def is_accurate(self) -> bool:
        """Do finer steps give the same objective?"""
        value, fine = self.cost(self.w), self.cost(self.w, FINER)
        return self.compiled.engine.exact or abs(value - fine) <= ASTRAY * abs(fine)

    @property
    def schedule(self) -> Schedule:
        """The best schedule so far; pure controls have plain values."""
        mixed = self.compiled.relaxation.schedule(self.w, {})
        pure = {
            name: np.asarray(self.problem.controls[name].decode(self.w[:, self.blocks[name]], rounded=True))
            for name, mixture in mixed.mixtures.items()
            if np.all(mixture.shares.max(axis=1) > 1 - 1e-9)
        }
        others = {name: mixture for name, mixture in mixed.mixtures.items() if name not in pure}
        return replace(mixed, values={**mixed.values, **pure}, mixtures=others).merged()

    def _choose(self, name: str, columns: Sequence[np.ndarray]) -> None:
        """Take the best of several columns (I, s) of a control; without any, it stays as it is."""
        if not columns:
            return
        every = [self._with({name: each}) for each in columns]
        values = [self.cost(w) for w in every]
        if not np.isfinite(min(values)):
            raise UnphysicalStateError(
                f"the dynamics run away under all {len(every)} schedules of {name} that were tried"
            )
        self.w = every[int(np.argmin(values))]

    def _choose_switch(self, name: str) -> None:
        """Choose the best two values of a discrete control, and the best grid edge to switch at."""
        vertices = self.problem.controls[name].vertices
        places: dict[tuple[int, int, float], np.ndarray] = {}
        gap = 1
        for i, j, low, high in _pairs(self.problem, name):
            edges = np.arange(
                np.ceil(low * self.intervals - 1e-9), np.floor(high * self.intervals + 1e-9) + 1
            )
            if high - low < 1e-12 or not len(edges):
                edges = np.array([(low + high) / 2 * self.intervals])
            gap = max(1, -(-len(edges) // SCAN[1]))
            for edge in edges[::gap]:
                places[i, j, edge] = self._blend(edge / self.intervals, vertices[i], vertices[j])
        self._choose(name, list(places.values()))
        if gap > 1 and not self.costly:
            i, j, edge = next(k for k, v in places.items() if np.array_equal(v, self.w[:, self.blocks[name]]))
            near = np.clip(np.arange(edge - gap, edge + gap + 1), 1, self.intervals - 1)
            self._choose(name, [self._blend(e / self.intervals, vertices[i], vertices[j]) for e in near])

    def _blend(self, time: float, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """(I, s) columns that go from one vector (s,) to another at a share of training."""
        weight = self._before(time)[:, None]
        return weight * before + (1 - weight) * after

    def _before(self, time: float) -> np.ndarray:
        """(I,) the part of each interval that lies before a share of training."""
        return np.clip(np.round(time * self.intervals, 9) - np.arange(self.intervals), 0.0, 1.0)

    def _descend(self, searched: tuple[int, ...], everywhere: bool = False) -> None:
        """Improve the parameters of continuous controls, of the given kinds.

        Where a pass takes long, this is a descent from the present ones, unless ``everywhere``.
        """
        slots = [(n, k) for n, r in self.ranges.items() for k in searched if r[k][0] < r[k][1]]
        if not slots:
            self.w = self._with(self._columns(self.numbers))
            return

        def numbers(*values: float) -> dict[str, np.ndarray]:
            chosen = {name: found.copy() for name, found in self.numbers.items()}
            for (name, kind), value in zip(slots, values, strict=True):
                chosen[name][kind] = value
            return chosen

        def family(*values: float) -> Schedule:
            w = self._with(self._columns(numbers(*values)))
            return self.compiled.relaxation.schedule(w, {})

        bounds = [self.ranges[name][kind] for name, kind in slots]
        first = np.array([[self.numbers[name][kind] for name, kind in slots]])
        if not self.near and (everywhere or len(slots) == 1 or not self.costly):
            first = np.vstack([first, spread(*np.array(bounds).T)[0]])
        best = best_parameters(
            self.compiled,
            family,
            bounds,
            first=first,
            tolerance=SETTLED if self.costly else None,
            steps=self.steps,
        )
        self.numbers = numbers(*map(float, best))
        self.w = self._with(self._columns(self.numbers))

    def _move_switches(self) -> None:
        """Put each switch on an edge of the grid, and move it from edge to edge while that helps."""
        for name, numbers in self.numbers.items():
            edge = int(np.clip(np.round(numbers[TIME] * self.intervals), 1, max(1, self.intervals - 1)))

            def at(edge: int, name: str = name, numbers: np.ndarray = numbers) -> np.ndarray:
                return np.array([*numbers[:TIME], edge / self.intervals])

            def cost(edge: int, name: str = name) -> float:
                if not 0 < edge < self.intervals:
                    return np.inf
                return self.cost(self._with(self._columns({**self.numbers, name: at(edge)})))

            value = cost(edge)
            for _ in range(MOVES):
                beside = min((edge - 1, edge + 1), key=cost)
                if not cost(beside) < value:
                    break
                edge, value = beside, cost(beside)
            self.numbers[name] = at(edge)

    # --- from numbers to controls --------------------------------------------------------------------

    def _constant(self, name: str, value: float) -> np.ndarray:
        """The parameters of a constant control."""
        return np.array([value, 0.0 if name in self.budgeted else value, 0.5])

    def _columns(self, numbers: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Columns (I, 1) of continuous controls."""
        return {name: self._course(name, *values)[:, None] for name, values in numbers.items()}

    def _course(self, name: str, value: float, other: float, time: float) -> np.ndarray:
        """(I,) a control that goes from one value to another; with a budget, a mean plus a tilt.

        A tilt of 1 (−1) is the largest fall (rise) that the bounds allow.
        """
        middles = (np.arange(self.intervals) + 0.5) / self.intervals
        weight = self._before(time) if self.weight is None else self.weight(middles)
        share = float(weight.mean())
        if name not in self.budgeted:
            return weight * value + (1 - weight) * other
        if share in (0.0, 1.0):
            return np.full(self.intervals, value)
        control = self.problem.controls[name]
        above, below = control.upper - value, value - control.lower
        if other < 0:
            above, below = below, above
        return value + other * min(above / (1 - share), below / share) * (weight - share)

    def _with(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """The controls w (I, m) with other columns (I, s) of some controls."""
        w = self.w.copy()
        for name, each in columns.items():
            w[:, self.blocks[name]] = each
        return w


def _ranges(problem: Problem, name: str) -> tuple[tuple[float, float], ...]:
    """Ranges of the three parameters of a continuous control."""
    control = problem.continuous[name]
    low, high = control.lower, control.upper
    means = [(b.mean, b.equal) for b in problem.mean_budgets if b.control == name and b.mean is not None]
    for mean, equal in means:
        low, high = (mean if equal else low), min(mean, high)
    return (low, high), (-1.0, 1.0) if means else (low, high), (0.0, 1.0)


def _feasible_values(problem: Problem, name: str) -> list[int]:
    """Indices of the values that a discrete control may keep throughout under its budgets."""
    rows = _budget_rows(problem, name)
    count = len(problem.controls[name].values)
    return [i for i in range(count) if all(_met(equal, row[i] - target) for row, target, equal in rows)]


def _pairs(problem: Problem, name: str) -> list[tuple[int, int, float, float]]:
    """Index pairs of values that a control may take in succession, and the limits of the first's share."""
    control, horizon = problem.controls[name], problem.horizon
    if control.max_switches == 0:
        return []
    pairs = []
    for i, j in permutations(range(len(control.values)), 2):
        low, high = control.min_dwell / horizon, 1 - control.min_dwell / horizon
        for row, target, equal in _budget_rows(problem, name):
            rise = row[i] - row[j]
            if rise == 0:
                high = high if _met(equal, row[j] - target) else -np.inf
                continue
            place = (target - row[j]) / rise
            if equal or rise < 0:
                low = max(low, place)
            if equal or rise > 0:
                high = min(high, place)
        if 0 <= low <= high + 1e-12 and high <= 1 and low < 1 and high > 0:
            pairs.append((i, j, low, high))
    return pairs


def _budget_rows(problem: Problem, name: str) -> list[tuple[np.ndarray, float, bool]]:
    budgets = [budget for budget in problem.mean_budgets if budget.control == name]
    return [(*row, budget.equal) for budget in budgets for row in budget.rows(problem.controls[name])]


def _met(equal: bool, excess: float) -> bool:
    return abs(excess) <= 1e-9 if equal else excess <= 1e-9
