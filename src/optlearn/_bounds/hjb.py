"""The Hamilton-Jacobi-Bellman equation on a grid: the optimal value from every state, backwards in time.

V(x, α) = min over w of cost + V(x after a step under w, α + h): semi-Lagrangian, with the solvers' own
Runge-Kutta steps, on boxes around what training can reach (``reachable``). It needs no first guess and has no
local optima. A budget adds a state, the mean y of a·w − t so far, and ν y + c y²/2 to the final cost. This is
0 for schedules that meet the budget, so for any ν and c the value is at most the optimum; it equals the
optimum for the optimal ν and a large enough c. (With c = 0, the Lagrange dual, it is smaller wherever the
optimum is not convex in the budget.) Free parameters are minimised over outside.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from time import perf_counter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize_scalar

from optlearn._arrays import Array, Float, float64
from optlearn._bounds.grids import charts, interpolate, kept, nodes, random_controls
from optlearn._control.compiled import Rollout, compile_problem
from optlearn._control.problem import Problem
from optlearn._control.solvers.starts import enough_steps, neutral
from optlearn._errors import SpecificationError, warn
from optlearn._schedule import Schedule

# Controls tried at every node: points along each, first over the whole range (by the number of controls),
# then in rounds that close in on the best. The thorough version, on the coarsest grid, measures what these
# overlook.
TRIED = 5
FIRST = {1: 9}
FIRST_CHECK = {1: 257, 2: 17}
FIRST_CHECK_MANY = 7
CLOSER = 0.3  # reach of a round relative to the one before, in units of a range; see ``_moves``
ROUNDS = 3
GENERATIONS, PARENTS = 4, 30  # number of random schedules whose states a box must contain
BLOCK = 512  # nodes at a time, so that memory stays small

# Factor between successive resolutions.
FINER = 1.5
LONG = 180.0  # seconds of computation above which the user is warned
SCANNED = 7  # scanned values of each free parameter, before a search near the best


class Near(NamedTuple):
    """Where to search: multipliers (b,) of budgets on means, free parameters (k,), an objective."""

    multipliers: Float[np.ndarray, " b"]
    free: Float[np.ndarray, " k"]
    objective: float


@dataclass(frozen=True)
class Resolution:
    """Resolution of a grid: ``times`` steps, ``count`` nodes along each coordinate."""

    times: int
    count: int


class Sweep:
    """The equation of one problem at one resolution; its states (n + b,) end with the budgets' means so far.

    They may move in at most ``dimensions`` dimensions; the objective of ``near`` must not be far above the
    optimum. ``thorough``: search controls more finely than usual.
    """

    def __init__(
        self,
        problem: Problem,
        resolution: Resolution,
        dimensions: int,
        near: Near,
        thorough: bool = False,
    ) -> None:
        self.problem, self.resolution, self.nu = problem, resolution, near.multipliers
        self.thorough = thorough
        compiled = compile_problem(problem)
        # A grid has thousands of states at each time: compiled functions of one state are mapped over all.
        self.compiled, self.functions = compiled, compiled.functions.on_vectors
        self.length = problem.horizon / resolution.times
        # A quarter of the steps that a solver takes for 1e-8 is accurate to about 1e-5, better than a grid.
        guess = neutral(compiled, resolution.times)
        self.substeps = -(-(enough_steps(compiled, resolution.times, [guess]) or 1) // 4)
        self.rows, self.targets, self.equal = compiled.relaxation.budget_rows
        self.start = np.concatenate([compiled.start, np.zeros(len(self.targets))])
        states, theta = self._reached()
        self.curvature = self._enough_curvature(states[-1], theta, near.objective)
        self.charts = charts(states)
        if self.charts.dimension > dimensions:
            raise SpecificationError(
                f"bound: {problem.name!r} must move in at most {dimensions} dimensions for kind='hjb', "
                f"budgets included, and moves in {self.charts.dimension}; raise dimensions="
            )

    def step(
        self, x: Float[Array, " n"], w: Float[Array, " m"], theta: Float[Array, " k"]
    ) -> tuple[Float[Array, " n"], Float[Array, ""]]:
        """State and cost after one step of the grid."""
        constants, n = jnp.asarray(self.compiled.constants), len(self.compiled.start)

        def short(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
            end, cost = self.functions.step(constants, carry[0], w, theta, self.length / self.substeps)
            return (end, carry[1] + cost), None

        (end, cost), _ = jax.lax.scan(short, (x[:n], jnp.zeros(())), None, length=self.substeps)
        excess = (jnp.asarray(self.rows) @ w - jnp.asarray(self.targets)) / self.resolution.times
        return jnp.concatenate([end, x[n:] + excess]), cost

    def final(self, x: Float[Array, " n"], theta: Float[Array, " k"]) -> Float[Array, ""]:
        """Final cost plus the terms of budgets, which are 0 or less where budgets are met."""
        n = len(self.compiled.start)
        cost = self.functions.final(jnp.asarray(self.compiled.constants), x[:n], theta)
        pull = self.nu + self.curvature * x[n:]
        pull = jnp.where(self.equal, pull, jnp.maximum(pull, 0.0))
        return cost + jnp.sum(pull**2 - self.nu**2) / (2 * self.curvature)

    def _reached(self) -> tuple[np.ndarray, np.ndarray]:
        """(N + 1, S, n + b) states under random controls, and their random free parameters (S, k).

        Random schedules rarely come near an optimum, which a box must contain. So good schedules are evolved:
        a few times, a random piece of one of the best is replaced at random.
        """
        free, generator = list(self.problem.free.values()), np.random.default_rng(1)
        constants, n = jnp.asarray(self.compiled.constants), len(self.compiled.start)
        times = np.arange(self.resolution.times)

        def course(w: Array, theta: Array) -> tuple[Array, Array]:
            def next_state(x: Array, control: Array) -> tuple[Array, tuple[Array, Array]]:
                end, cost = self.step(x, control, theta)
                return end, (end, cost)

            end, (states, costs) = jax.lax.scan(next_state, jnp.asarray(self.start), w)
            final = self.functions.final(constants, end[:n], theta)
            return states, final + costs.sum() + jnp.dot(end[n:], self.nu)

        follow = jax.jit(jax.vmap(course))
        born: list[tuple[np.ndarray, ...]] = []
        for generation in range(GENERATIONS):
            w = random_controls(self.compiled.relaxation, len(times), seed=generation)
            theta = generator.uniform([f.lower for f in free], [f.upper for f in free], (len(w), len(free)))
            if born:
                elders, settings, _, objectives = map(np.concatenate, zip(*born, strict=True))
                parents = np.resize(np.argsort(np.nan_to_num(objectives, nan=np.inf))[:PARENTS], len(w))
                first, last = np.sort(generator.integers(0, len(times) + 1, (2, len(w), 1)), axis=0)
                replaced = (first <= times) & (times < last)
                w, theta = np.where(replaced[:, :, None], w, elders[parents]), settings[parents]
            born.append((w, theta, *map(np.asarray, follow(w, theta))))
        _, theta, courses, _ = map(np.concatenate, zip(*born, strict=True))
        finite = kept(courses.transpose(1, 2, 0))
        start = np.broadcast_to(self.start, (1, int(finite.sum()), len(self.start)))
        return np.concatenate([start, courses[finite].transpose(1, 0, 2)]), theta[finite]

    def _enough_curvature(self, last: np.ndarray, theta: np.ndarray, objective: float) -> float:
        """Twice the c for which no reached end, with the budget met or not, costs less than the objective.

        Running costs are ignored here: too small a c makes the bound lower, never wrong.
        """
        constants, n = jnp.asarray(self.compiled.constants), len(self.compiled.start)
        y = last[:, n:]
        distance = np.sum(y**2, axis=1)
        far = distance > 1e-4
        if not np.any(far):
            return 1.0
        costs = np.asarray(jax.vmap(lambda x, t: self.functions.final(constants, x[:n], t))(last, theta))
        missing = objective - costs - y @ self.nu
        return max(4 * float(np.max(missing[far] / distance[far])), 1e-6)

    @float64
    def check_nodes(self) -> None:
        """Reject a grid with states where the drift is undefined, before it takes minutes.

        A box around overlaps of vectors has corners that are not overlaps of any vectors.
        """
        grid = jnp.asarray(nodes(self.resolution.count, self.charts.dimension))
        neutral = jnp.asarray(self.compiled.relaxation.neutral)
        theta = jnp.array([(free.lower + free.upper) / 2 for free in self.problem.free.values()])
        is_defined = jax.jit(lambda x: jnp.all(jnp.isfinite(self.step(x, neutral, theta)[0])))
        for centre, axes in zip(self.charts.centres, self.charts.axes, strict=True):
            states = jnp.asarray(centre)[None] + grid @ jnp.asarray(axes).T
            if not bool(jnp.all(jax.lax.map(is_defined, states, batch_size=BLOCK))):
                raise SpecificationError(
                    "bound: kind='hjb' needs a drift that is finite in boxes around what training reaches, "
                    f"but that of {self.problem.name!r} is not finite in some of their corners"
                )

    @cached_property
    def _moves(self) -> tuple[np.ndarray, np.ndarray]:
        """(L, C, m) controls to try, in units of half their ranges, around the best of the previous round.

        A round is one block of C controls, the first round several; (L,) flags mark the last block of each.
        """
        m = self.compiled.relaxation.size

        def pattern(count: int) -> np.ndarray:
            return np.array(list(product(np.linspace(-1.0, 1.0, count), repeat=m)))

        first = FIRST_CHECK.get(m, FIRST_CHECK_MANY) if self.thorough else FIRST.get(m, TRIED)
        closer = pattern(TRIED)
        blocks = -(-(first**m) // len(closer))
        all_over = np.resize(pattern(first), (blocks, *closer.shape))
        reaches = 4 / (first - 1) * CLOSER ** np.arange(1, ROUNDS + 1)
        last = np.arange(blocks + ROUNDS) >= blocks - 1
        return np.concatenate([all_over, reaches[:, None, None] * closer[None]]), last

    def best(self, x: Array, theta: Array, later: Callable[[Array], Array]) -> tuple[Array, Array]:
        """The smallest cost from x, and its control (m,), where ``later`` is the value after the step."""
        low, high = map(jnp.asarray, self.compiled.relaxation.bounds)
        sums = jnp.asarray(self.compiled.relaxation.share_sums)

        def price(w: Array) -> Array:
            end, cost = self.step(x, w, theta)
            return jnp.where(jnp.all(sums @ w <= 1 + 1e-9), cost + later(end), jnp.inf)

        def look(carry: tuple[Array, Array, Array], block: tuple[Array, Array]) -> tuple[Any, None]:
            centre, w, least = carry
            moves, last = block
            trials = jnp.clip(centre[None] + moves * ((high - low) / 2)[None], low[None], high[None])
            prices = jax.vmap(price)(trials)
            chosen = jnp.argmin(prices)
            better = prices[chosen] < least
            w, least = jnp.where(better, trials[chosen], w), jnp.where(better, prices[chosen], least)
            return (jnp.where(last, w, centre), w, least), None

        middle = (low + high) / 2
        (_, w, least), _ = jax.lax.scan(look, (middle, middle, jnp.asarray(np.inf)), self._moves)
        return least, w

    @cached_property
    def _solve(self) -> Callable[[Array], tuple[Array, Array]]:
        charts, count = self.charts, self.resolution.count
        shape, grid = (count,) * charts.dimension, jnp.asarray(nodes(count, charts.dimension))
        centres, axes, inverse = map(jnp.asarray, (charts.centres, charts.axes, charts.inverse))

        def solve(theta: Array) -> tuple[Array, Array]:
            def back(table: Array, chart: tuple[Array, ...]) -> tuple[Array, Array]:
                centre, axis, next_centre, next_inverse = chart

                def later(x: Array) -> Array:
                    return interpolate(table, next_inverse @ (x - next_centre))

                def value(z: Array) -> Array:
                    return self.best(centre + axis @ z, theta, later)[0]

                return jax.lax.map(value, grid, batch_size=BLOCK).reshape(shape), table

            last = jax.vmap(lambda z: self.final(centres[-1] + axes[-1] @ z, theta))(grid).reshape(shape)
            links = (centres[:-1], axes[:-1], centres[1:], inverse[1:])
            # At α = 0 all nodes are the start.
            first, tables = jax.lax.scan(back, last, links, reverse=True)
            return first.ravel()[0], tables

        return jax.jit(solve)

    @float64
    def value(self, theta: Float[np.ndarray, " k"]) -> float:
        """The optimal value from the start, for free parameters (k,)."""
        return float(self._solve(jnp.asarray(theta))[0])

    @float64
    def policy(self, theta: Float[np.ndarray, " k"]) -> "Policy":
        """The best control in every state, for free parameters (k,)."""
        return Policy(self, np.asarray(self._solve(jnp.asarray(theta))[1]), theta)


@dataclass(frozen=True, eq=False)
class Policy:
    """The best control as a function of time and state: feedback, not a schedule.

    Attributes:
        sweep: the equation.
        tables: (N, count, …) values on the grids of all times but the first.
        theta: (k,) free parameters.
    """

    sweep: Sweep
    tables: Float[np.ndarray, "N ..."]
    theta: Float[np.ndarray, " k"]

    @cached_property
    def _best(self) -> Callable[[Array, Array], Array]:
        tables, charts = jnp.asarray(self.tables), self.sweep.charts
        centres, inverse = jnp.asarray(charts.centres[1:]), jnp.asarray(charts.inverse[1:])

        def best(x: Array, i: Array) -> Array:
            def later(end: Array) -> Array:
                return interpolate(tables[i], inverse[i] @ (end - centres[i]))

            return self.sweep.best(x, jnp.asarray(self.theta), later)[1]

        return jax.jit(best)

    @float64
    def __call__(
        self, alpha: float, state: Mapping[str, float], spent: Sequence[float] = ()
    ) -> dict[str, float]:
        """The controls to take.

        Args:
            alpha: training time.
            state: name → value.
            spent: for each budget, ∫(a·w − t) so far, divided by the horizon; 0 if left out.

        Returns:
            Control → value; for a discrete one, the mean of its mixture.
        """
        layout = self.sweep.problem.model.layout
        x = np.asarray(layout.flatten(self.sweep.problem.model.state(**state)))
        x = np.concatenate([x, spent if len(spent) else np.zeros(len(self.sweep.targets))])
        i = int(np.clip(alpha / self.sweep.length, 0, self.sweep.resolution.times - 1))
        w = np.asarray(self._best(jnp.asarray(x), jnp.asarray(i)))
        schedule = self.sweep.compiled.relaxation.schedule(w[None], {})
        return {name: float(schedule[name][0]) for name in self.sweep.problem.controls}

    def schedule(self) -> Schedule:
        """The schedule that it takes from the problem's start; budgets are met to the grid's accuracy."""
        return self._schedule

    @cached_property
    @float64
    def _schedule(self) -> Schedule:
        best = self._best  # created here, not while tracing, which would leak its tables

        def follow(x: Array, i: Array) -> tuple[Array, Array]:
            w = best(x, i)
            return self.sweep.step(x, w, jnp.asarray(self.theta))[0], w

        times = jnp.arange(self.sweep.resolution.times)
        w = np.asarray(jax.lax.scan(follow, jnp.asarray(self.sweep.start), times)[1])
        free = dict(zip(self.sweep.problem.free, map(float, self.theta), strict=True))
        return self.sweep.compiled.relaxation.schedule(w, free)

    def objective(self, finer: int = 1) -> float:
        """Objective of its schedule, by the Runge-Kutta steps of its grid or a multiple of these."""
        compiled, exact = self.sweep.compiled, self.sweep.compiled.engine.exact
        w = compiled.relaxation.own_vectors(self._schedule)
        steps = compiled.exact_steps(self.sweep.length) if exact else finer * self.sweep.substeps
        return float(Rollout(compiled, len(w), steps).objective(w, self.theta))


def dimensions_of(problem: Problem, most: int) -> int:
    """Number of dimensions in which states move, budgets included; more than ``most`` are rejected."""
    nothing = Near(np.zeros(len(compile_problem(problem).relaxation.budget_rows.targets)), np.zeros(0), 0.0)
    return Sweep(problem, Resolution(8, 4), most, nothing).charts.dimension


def solve_hjb(
    problem: Problem,
    resolutions: Sequence[Resolution],
    dimensions: int,
    near: Near,
) -> tuple[float, float, tuple[float, ...], Policy]:
    """The optimal value and its error bar, the values at all three resolutions, the policy at the finest.

    Free parameters are searched on the coarsest grid over their whole range; those of ``near`` are used
    instead if they are better on the next grid. Errors of three kinds may cancel and are separated for the
    error bar: steps in time, nodes, and the discrete choice of controls. The last is the same on all grids,
    so extrapolation does not see it; a finer search of controls on the coarsest grid measures it, and it is
    subtracted. Runge-Kutta steps are not refined from grid to grid and have a separate part of the error bar.
    """

    def sweep(resolution: Resolution, thorough: bool = False) -> Sweep:
        return Sweep(problem, resolution, dimensions, near, thorough)

    sweeps = [sweep(resolution) for resolution in resolutions]
    sweeps[0].check_nodes()
    theta = _best_free(sweeps[0], near.free)
    sweeps[0].value(theta)  # compiles, unless the search of free parameters has already done so
    begun = perf_counter()
    coarse = sweeps[0].value(theta)
    _announce(problem, perf_counter() - begun, sweeps)
    middle = sweeps[1].value(theta)
    if len(theta) and (value_near := sweeps[1].value(near.free)) < middle:
        theta, coarse, middle = near.free, sweeps[0].value(near.free), value_near
    values = [coarse, middle, sweeps[2].value(theta)]
    if not np.all(np.isfinite(values)):
        raise SpecificationError(f"bound: the grid of {problem.name!r} must hold finite values, got {values}")
    of_nodes = sweep(Resolution(resolutions[0].times, resolutions[1].count)).value(theta)
    of_controls = sweep(resolutions[0], thorough=True).value(theta)
    apart = abs(of_nodes - coarse) + abs(middle - of_nodes)
    estimate, error = extrapolate(values, apart)
    overlooked, policy = max(coarse - of_controls, 0.0), sweeps[2].policy(theta)
    error += overlooked + abs(policy.objective() - policy.objective(finer=4))
    return estimate - overlooked, error, tuple(values), policy


def _announce(problem: Problem, seconds: float, sweeps: Sequence[Sweep]) -> None:
    """Warn if the finer grids will take long, judging by the seconds of the coarsest."""
    sizes = [s.resolution.times * s.resolution.count**s.charts.dimension for s in sweeps]
    remaining = seconds * sum(sizes[1:]) / sizes[0]
    if remaining > LONG:
        warn(
            f"bound: the grids of {problem.name!r} will take about {remaining / 60:.0f} minutes; smaller "
            "nodes= or times= take less"
        )


def _best_free(sweep: Sweep, theta: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
    """Free parameters with the smallest value: the best of a scan along each, refined nearby."""
    best_theta = theta.copy()
    for i, free in enumerate(sweep.problem.free.values()):

        def value(trial: float, i: int = i) -> float:
            return sweep.value(np.where(np.arange(len(best_theta)) == i, trial, best_theta))

        scan = [*np.linspace(free.lower, free.upper, SCANNED), float(best_theta[i])]
        best = scan[int(np.argmin([value(trial) for trial in scan]))]
        reach = (free.upper - free.lower) / (SCANNED - 1)
        limits = max(free.lower, best - reach), min(free.upper, best + reach)
        options = {"maxiter": SCANNED}
        best_theta[i] = minimize_scalar(value, bounds=limits, method="bounded", options=options).x
    return best_theta


def extrapolate(values: Sequence[float], apart: float = 0.0) -> tuple[float, float]:
    """The limit of values at three resolutions, each ``FINER`` times the one before, and its error bar.

    ``apart``: the first change if its parts did not cancel.

    Richardson extrapolation with the observed order, between 1 and 4; without monotone convergence, the
    finest value. The error bar is the largest of the last change, the extrapolated correction, and the last
    change as expected from the first one at first order.
    """
    coarse, middle, fine = values
    before, last = middle - coarse, fine - middle
    estimate = fine
    if before * last > 0 and abs(last) < abs(before):
        order = np.clip(np.log(before / last) / np.log(FINER), 1.0, 4.0)
        estimate = fine + last / (FINER**order - 1)
    return float(estimate), float(max(abs(last), abs(estimate - fine), max(abs(before), apart) / FINER))
