"""A problem whose drift and costs are polynomials, in as few variables as determine its objective.

States that never move become numbers. Of the others, only those linear combinations matter that affect the
costs, now or later: a linear student's Q and M, for example, enter only through the excess Q − 2M. These
combinations are found from the polynomials themselves, by adding to what the costs depend on what its drift
depends on, until nothing is added. If the sign of a state does not matter, its square replaces it.

Bounds on the drift at the sides of a box prove that no state leaves it, whatever the controls.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import casadi
import numpy as np

from optlearn._arrays import Array, Bool, Float
from optlearn._bounds import polynomials as poly
from optlearn._bounds.expressions import Reader
from optlearn._bounds.grids import kept, random_controls
from optlearn._bounds.polynomials import Polynomial
from optlearn._control.compiled import CompiledProblem, compile_problem
from optlearn._control.problem import Problem
from optlearn._engine.build import EXPRESSION_LIMIT
from optlearn._engine.functions import pack
from optlearn._engine.tracing.trace import TracedFunction, UnsupportedPrimitive, trace
from optlearn._errors import SpecificationError

# Directions that affect the costs less than this, relative to the strongest ones, are round-off.
SEEN = 1e-12
# Number of random schedules that boxes are built around, and intervals of each.
SCHEDULES, INTERVALS, STEPS = 100, 24, 8
# Factor by which boxes grow until no state leaves them, and the maximum number of times.
GROWTH, TRIES = 1.1, 60
# Number of pieces of each control's range, which makes bounds on the drift tight.
PARTS = 4
# Speeds through a side below this, relative to those inside, are round-off.
ROUND_OFF = 1e-12


@dataclass(frozen=True)
class PolynomialProblem:
    """A problem in r states and m controls, which are changed where that gives polynomials.

    Attributes:
        names: of the states, in words.
        drift: dx/dα; for SGD in steps, the change in one of them divided by its length.
        running: running cost, divided by the horizon.
        final: final cost.
        excess: a·w − t of the budgets.
        equal: (b,) whether each must be met exactly.
        start: (r,) state at α = 0.
        controls: (2, m) bounds.
        horizon: α_F.
        step: length of one SGD step; 0 for continuous time.
        reached: (S, r) states reached under random schedules.
    """

    names: list[str]
    drift: list[Polynomial]
    running: Polynomial
    final: Polynomial
    excess: list[Polynomial]
    equal: Bool[np.ndarray, " b"]
    start: Float[np.ndarray, " r"]
    controls: Float[np.ndarray, "2 m"]
    horizon: float
    step: float
    reached: Float[np.ndarray, "S r"]

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of states and controls."""
        return len(self.drift), self.controls.shape[1]


def polynomial_problem(problem: Problem) -> PolynomialProblem:
    """A problem in terms of polynomials.

    Raises:
        SpecificationError: it is not polynomial; the message says why.
    """
    if problem.free:
        raise SpecificationError(f"bound: kind='sos' takes no free parameters, got {', '.join(problem.free)}")
    compiled = compile_problem(problem)
    system, relaxation, step = compiled.functions.system.system, compiled.relaxation, 0.0
    if system.advances:
        length = getattr(system, "step_length", None)
        if length is None:
            raise SpecificationError(
                f"bound: {problem.name!r} must have a drift for kind='sos', and gives its own advance; use "
                "kind='hjb'"
            )
        step = float(length)
    x, w = casadi.SX.sym("x", compiled.sizes[0]), casadi.SX.sym("w", compiled.sizes[1])
    slope, running, final = _expressions(compiled, x, w, step)
    rows, targets, equal = relaxation.budget_rows
    reader = Reader(problem.name, x, w)
    excess = casadi.mtimes(casadi.DM(rows), w) - casadi.DM(targets) if len(targets) else casadi.SX(0, 1)
    polynomials = reader.read(drift=slope, running_cost=running, final_cost=final, budgets=excess)
    controls = np.array(relaxation.bounds)
    for i, change in reader.changes.items():
        controls[:, i] = change.bounds(*controls[:, i])
    whole = PolynomialProblem(
        names=list(problem.model.layout.names),
        drift=polynomials["drift"],
        running=polynomials["running_cost"][0],
        final=polynomials["final_cost"][0],
        excess=polynomials["budgets"],
        equal=np.asarray(equal),
        start=problem.flat_start,
        controls=controls,
        horizon=problem.horizon,
        step=step,
        reached=_reached(compiled, casadi.Function("slope", [x, w], [slope]), step),
    )
    still = {i: float(whole.start[i]) for i, drift in enumerate(whole.drift) if not drift}
    return _squared(_seen(_without(whole, still)))


def _expressions(compiled: CompiledProblem, x: Any, w: Any, step: float) -> tuple[Any, Any, Any]:
    """Drift, running and final cost."""
    problem, engine = compiled.problem, compiled.engine
    # A continuous system with its own advance: the engine holds only the advance.
    drift = _drift(compiled) if compiled.functions.system.system.advances and not step else None
    size = engine.operations if drift is None else drift.size
    must = f"bound: the drift of {problem.name!r} must be a polynomial of the state and the controls"
    if size > EXPRESSION_LIMIT:
        raise SpecificationError(f"{must} for kind='sos', and is a quadrature of {size} operations")
    numbers, none = casadi.DM(compiled.constants), casadi.SX(0, 1)
    try:
        if engine.expressions is None:
            engine = compile_problem(problem, "casadi").engine
        slope, running = engine.rate(numbers, x, w, none, step)
        if drift is not None:
            slope = drift.function("drift")(casadi.DM(pack(_constants(compiled))), x, w)
    except UnsupportedPrimitive as error:
        raise SpecificationError(f"{must} for kind='sos': {error}") from error
    return slope, running, engine.final(numbers, x, none)


def _constants(compiled: CompiledProblem) -> tuple[Any, ...]:
    """The numbers in a drift."""
    return compiled.functions.system.system, compiled.problem.settings, compiled.relaxation.values


def _drift(compiled: CompiledProblem) -> TracedFunction:
    """(numbers, x, w) → dx/dα."""

    def drift(constants: Any, flat: Array, w: Array) -> Array:
        system, settings, values = constants
        u, shares = compiled.relaxation.table(w, values)
        return compiled.functions.system.mixed_drift(system, settings, flat, u, shares)

    n, m, _ = compiled.sizes
    return trace(drift, _constants(compiled), np.zeros(n), np.zeros(m))


def _reached(compiled: CompiledProblem, slope: Any, step: float) -> Float[np.ndarray, "S n"]:
    """(S, n) states under a few random schedules."""
    problem = compiled.problem
    controls = random_controls(compiled.relaxation, INTERVALS)[:SCHEDULES]
    rate = slope.map(len(controls))
    count = round(problem.horizon / step) if step else INTERVALS * STEPS
    length = problem.horizon / count
    x = np.repeat(problem.flat_start[:, None], len(controls), axis=1)
    courses = [x]
    for k in range(count):
        w = controls[:, k * INTERVALS // count].T
        first = np.array(rate(x, w))
        if step:
            x = x + length * first
        else:
            second = np.array(rate(x + length / 2 * first, w))
            third = np.array(rate(x + length / 2 * second, w))
            fourth = np.array(rate(x + length * third, w))
            x = x + length / 6 * (first + 2 * second + 2 * third + fourth)
        courses.append(x)
    states = np.array(courses)
    return np.concatenate(states[:, :, kept(states)], axis=1).T


def _without(problem: PolynomialProblem, values: Mapping[int, float]) -> PolynomialProblem:
    """The problem without some states, which are fixed at ``values``."""
    n = len(problem.drift)
    kept = [i for i in range(n) if i not in values]

    def short(polynomial: Polynomial) -> Polynomial:
        for i, value in values.items():
            polynomial = poly.at(polynomial, i, value)
        return {(*(e[i] for i in kept), *e[n:]): value for e, value in polynomial.items()}

    return replace(
        problem,
        names=[problem.names[i] for i in kept],
        drift=[short(problem.drift[i]) for i in kept],
        running=short(problem.running),
        final=short(problem.final),
        excess=[short(e) for e in problem.excess],
        start=problem.start[kept],
        reached=problem.reached[:, kept],
    )


def _seen(problem: PolynomialProblem) -> PolynomialProblem:
    """The problem in the linear combinations of states that affect the costs, now or later."""
    n = len(problem.drift)
    space = _row_space(_gradients([problem.running, problem.final], n))
    while True:
        speeds = [poly.combined(zip(row, problem.drift, strict=True)) for row in space]
        more = _row_space(np.vstack([space, _gradients(speeds, n)]))
        if len(more) == len(space):
            break
        space = more
    if len(space) == n:
        return problem
    names, drift = list(problem.names), list(problem.drift)
    start, reached = problem.start.copy(), problem.reached.copy()
    rows, pivots = _echelon(space)
    for pivot, row in zip(pivots, rows, strict=True):
        names[pivot] = _in_words(row, problem.names)
        drift[pivot] = poly.combined(zip(row, problem.drift, strict=True))
        start[pivot], reached[:, pivot] = row @ problem.start, problem.reached @ row
    combined = replace(problem, names=names, drift=drift, start=start, reached=reached)
    # Given the combinations, nothing depends on the other states, so they may be set to 0.
    return _without(combined, {i: 0.0 for i in range(n) if i not in pivots})


def _squared(problem: PolynomialProblem) -> PolynomialProblem:
    """The problem with squares of states whose sign does not matter, which halves degrees."""
    for i in range(len(problem.drift)):
        drift = problem.drift[i]
        others = [*problem.drift[:i], *problem.drift[i + 1 :], problem.running, problem.final]
        if any(e[i] % 2 for p in others for e in p) or not all(e[i] % 2 for e in drift):
            continue
        x = poly.variable(i, sum(problem.sizes))
        square = poly.combined([(2.0, poly.times(x, drift)), (problem.step, poly.times(drift, drift))])

        def halved(polynomial: Polynomial, i: int = i) -> Polynomial:
            return {(*e[:i], e[i] // 2, *e[i + 1 :]): value for e, value in polynomial.items()}

        squares = np.arange(len(problem.drift)) == i
        problem = replace(
            problem,
            names=[f"{name}²" if j == i else name for j, name in enumerate(problem.names)],
            drift=[halved(square if j == i else f) for j, f in enumerate(problem.drift)],
            running=halved(problem.running),
            final=halved(problem.final),
            start=np.where(squares, problem.start**2, problem.start),
            reached=np.where(squares, problem.reached**2, problem.reached),
        )
    return problem


def _gradients(polynomials: Sequence[Polynomial], n: int) -> Float[np.ndarray, "G {n}"]:
    """(G, n) vectors that span their gradients with respect to the state at all points."""
    rows: list[np.ndarray] = [np.zeros(n)]
    for polynomial in polynomials:
        by_monomial: dict[Any, np.ndarray] = {}
        for i in range(n):
            for exponents, value in poly.derivative(polynomial, i).items():
                by_monomial.setdefault(exponents, np.zeros(n))[i] = value
        size = max((np.abs(row).max() for row in by_monomial.values()), default=1.0)
        rows += [row / size for row in by_monomial.values()]
    return np.array(rows)


def _row_space(rows: Float[np.ndarray, "G n"]) -> Float[np.ndarray, "rank n"]:
    """An orthonormal basis of the row space."""
    _, sizes, directions = np.linalg.svd(rows, full_matrices=False)
    return np.asarray(directions[sizes > SEEN * max(1.0, sizes.max(initial=0.0))])


def _echelon(rows: Float[np.ndarray, "rank n"]) -> tuple[Float[np.ndarray, "rank n"], list[int]]:
    """The same space in reduced row echelon form, and its pivots."""
    reduced = rows.copy()
    pivots: list[int] = []
    for column in range(rows.shape[1]):
        rank = len(pivots)
        if rank == len(rows):
            break
        best = rank + int(np.argmax(np.abs(reduced[rank:, column])))
        if abs(reduced[best, column]) < SEEN:
            continue
        reduced[[rank, best]] = reduced[[best, rank]]
        reduced[rank] /= reduced[rank, column]
        for i in range(len(rows)):
            if i != rank:
                reduced[i] -= reduced[i, column] * reduced[rank]
        pivots.append(column)
    reduced[np.abs(reduced) < SEEN] = 0.0
    return reduced, pivots


def _in_words(row: np.ndarray, names: Sequence[str]) -> str:
    """A combination such as Q11 − 2 M11."""
    words = ""
    for value, name in zip(row, names, strict=True):
        if value:
            sign = " − " if value < 0 else " + " if words else ""
            words += sign + ("" if abs(value) == 1 else f"{abs(value):.4g} ") + name
    return words


# --- boxes ----------------------------------------------------------------------------------------


class Box(NamedTuple):
    """Lower and upper limits of states (r,), and whether it is proven that none leaves."""

    low: Float[np.ndarray, " r"]
    high: Float[np.ndarray, " r"]
    proven: bool


def invariant_box(problem: PolynomialProblem) -> Box:
    """The smallest tried box that no state leaves; without one, a box around the reached states."""
    low, high = problem.reached.min(axis=0), problem.reached.max(axis=0)
    thin = 1e-6 * np.maximum(1.0, np.abs(problem.reached).max(axis=0))
    widened = np.where(high - low < thin, thin, 0.0)
    low, high = low - widened, high + widened
    first = Box(low, high, False)
    for _ in range(TRIES):
        leaves = _leaves(problem, low, high)
        if not np.any(leaves):
            return Box(low, high, True)
        width = (GROWTH - 1) * (high - low)
        low, high = _wider(low, -width * leaves[0]), _wider(high, width * leaves[1])
    return first


def _wider(sides: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Sides moved outwards, but first only to 0 if they would cross it, where squares and norms end."""
    return np.where(sides * (sides + by) < 0, 0.0, sides + by)


def _leaves(
    problem: PolynomialProblem, low: Float[np.ndarray, " r"], high: Float[np.ndarray, " r"]
) -> Bool[np.ndarray, "2 r"]:
    """(2, r) whether a state may leave the box through each of its lower and upper sides.

    In continuous time, this depends on the speed at a side; for steps, on where any of them ends.
    """
    n, m = problem.sizes
    leaves = np.zeros((2, n), dtype=bool)
    cuts = np.linspace(problem.controls[0], problem.controls[1], PARTS + 1)
    for part in product(range(PARTS), repeat=m):
        controls = cuts[list(part), range(m)], cuts[[p + 1 for p in part], range(m)]
        ends = np.concatenate([low, controls[0]]), np.concatenate([high, controls[1]])
        for i, drift in enumerate(problem.drift):
            speed = poly.combined([(2 / (high[i] - low[i]), poly.scaled(drift, *ends))])
            small = ROUND_OFF * sum(map(abs, speed.values()))
            if problem.step:
                place = poly.combined([(problem.step, speed), (1.0, poly.variable(i, n + m))])
                least, most = poly.enclosure(place, n + m)
                least, most = least + 1, most - 1
            else:
                least = poly.enclosure(poly.at(speed, i, -1.0), n + m)[0]
                most = poly.enclosure(poly.at(speed, i, 1.0), n + m)[1]
            leaves[:, i] |= least < -small, most > small
    return leaves
