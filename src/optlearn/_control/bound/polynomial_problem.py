"""A problem whose drift and costs are polynomials, in as few variables as tell its objective.

States that never move are numbers. Of the others, only linear combinations count which the costs see, now or
later: a linear student's Q and M, say, enter by the excess Q − 2M alone. These are found from the polynomials
themselves, by adding to what the costs see what its own drift sees, until nothing is added. Where the sign of
a state does not matter, its square takes its place.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import casadi
import numpy as np

from optlearn._arrays import Array
from optlearn._control.bound import polynomials as poly
from optlearn._control.bound.expressions import Reader
from optlearn._control.bound.polynomials import Polynomial
from optlearn._control.bound.reachable import kept, random_controls
from optlearn._control.problem import Problem
from optlearn._control.program.build import EXPRESSION_LIMIT
from optlearn._control.program.functions import Functions
from optlearn._dynamics.flat import pack
from optlearn._engine.tracing.trace import UnsupportedPrimitive, trace
from optlearn._errors import SpecificationError

# Directions that the costs see less than this, beside those that they see most, are round-off.
SEEN = 1e-12
# Random schedules that boxes are made around, so many intervals each.
SCHEDULES, INTERVALS, STEPS = 100, 24, 8


@dataclass(frozen=True)
class PolynomialProblem:
    """Variables are r states and m controls, these changed where that makes polynomials.

    Attributes:
        names: of the states, in words.
        drift: dx/dα; for SGD in steps, the change in one of them divided by its length.
        running: cost, divided by the horizon.
        final: cost.
        excess: a·w − t of the budgets.
        equal: (b,) whether each must be met exactly.
        start: (r,) state at α = 0.
        controls: (2, m) bounds.
        horizon: α_F.
        step: length of one step of SGD; 0 where the state flows.
        reached: (S, r) states that random schedules lead through.
    """

    names: list[str]
    drift: list[Polynomial]
    running: Polynomial
    final: Polynomial
    excess: list[Polynomial]
    equal: np.ndarray
    start: np.ndarray
    controls: np.ndarray
    horizon: float
    step: float
    reached: np.ndarray

    @property
    def sizes(self) -> tuple[int, int]:
        """How many states and controls."""
        return len(self.drift), self.controls.shape[1]


def polynomial_problem(problem: Problem) -> PolynomialProblem:
    """A problem in polynomials.

    Raises:
        SpecificationError: it is none; it says why.
    """
    if problem.free:
        raise SpecificationError(f"bound: kind='sos' takes no free parameters, got {', '.join(problem.free)}")
    functions = Functions.of(problem)
    system, step = functions.system.system, 0.0
    if system.advances:
        length = getattr(system, "step_length", None)
        if length is None:
            raise SpecificationError(
                f"bound: {problem.name!r} must have a drift for kind='sos', and gives its own advance; use "
                "kind='hjb'"
            )
        step = float(length)
    x, w = casadi.SX.sym("x", functions.sizes[0]), casadi.SX.sym("w", functions.sizes[1])
    slope, running, final = _expressions(functions, x, w, step)
    rows, targets, equal = functions.relaxation.budget_rows
    reader = Reader(problem.name, x, w)
    excess = casadi.mtimes(casadi.DM(rows), w) - casadi.DM(targets) if len(targets) else casadi.SX(0, 1)
    found = reader.read(drift=slope, running_cost=running, final_cost=final, budgets=excess)
    controls = np.array(functions.relaxation.bounds)
    for i, change in reader.changes.items():
        controls[:, i] = change.bounds(*controls[:, i])
    reached = _reached(functions, casadi.Function("slope", [x, w], [slope]), step)
    whole = PolynomialProblem(
        list(problem.model.layout.names), found["drift"], found["running_cost"][0], found["final_cost"][0],
        found["budgets"], np.asarray(equal), problem.flat_start, controls, problem.horizon, step, reached,
    )  # fmt: skip
    return _squared(_seen(_moving(whole)))


def _expressions(functions: Functions, x: Any, w: Any, step: float) -> tuple[Any, Any, Any]:
    """Drift, running and final cost."""
    n, m, _ = functions.sizes
    constants, theta = functions.constants, np.zeros(0)
    given = constants, np.zeros(n), np.zeros(m), theta, np.ones(())
    traced = trace(functions.rate, *given)
    traced_final = trace(functions.final, constants, np.zeros(n), theta)
    flows = functions.system.system.advances and not step
    traced_drift = trace(partial(_drift, functions), constants, np.zeros(n), np.zeros(m)) if flows else traced
    if traced_drift.size > EXPRESSION_LIMIT:
        raise SpecificationError(
            f"bound: the drift of {functions.problem.name!r} must be a polynomial of the state and the "
            f"controls for kind='sos', and is a quadrature of {traced_drift.size} operations"
        )
    numbers, none = casadi.DM(pack(constants)), casadi.SX(0, 1)
    try:
        rate, final = traced.function("rate"), traced_final.function("final")
        slope, running = rate(numbers, x, w, none, step)
        if flows:
            slope = traced_drift.function("drift")(numbers, x, w)
    except UnsupportedPrimitive as error:
        raise SpecificationError(
            f"bound: the drift of {functions.problem.name!r} must be a polynomial of the state and the "
            f"controls for kind='sos': {error}"
        ) from error
    return slope, running, final(numbers, x, none)


def _drift(functions: Functions, constants: Any, flat: Array, w: Array) -> Array:
    """Of a system that flows and also gives its own advance."""
    model, settings, values = constants[:3]
    u, shares = functions.relaxation.table(w, values)
    return functions.system.mixed_drift(model, settings, flat, u, shares)


def _reached(functions: Functions, slope: Any, step: float) -> np.ndarray:
    """(S, n) states under a few random schedules."""
    problem = functions.problem
    controls = random_controls(functions.relaxation, INTERVALS)[:SCHEDULES]
    rate = slope.map(len(controls))
    count = round(problem.horizon / step) if step else INTERVALS * STEPS
    length = problem.horizon / count
    x = np.repeat(problem.flat_start[:, None], len(controls), axis=1)
    found = [x]
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
        found.append(x)
    states = np.array(found)
    return np.concatenate(states[:, :, kept(states)], axis=1).T


def _moving(problem: PolynomialProblem) -> PolynomialProblem:
    """Without the states that never move."""
    still = [i for i, drift in enumerate(problem.drift) if not drift]

    def held(polynomial: Polynomial) -> Polynomial:
        for i in still:
            polynomial = poly.at(polynomial, i, float(problem.start[i]))
        return polynomial

    return _restricted(problem, held, [i for i in range(len(problem.drift)) if i not in still])


def _seen(problem: PolynomialProblem) -> PolynomialProblem:
    """In the linear combinations of states that costs see, now or later."""
    n = len(problem.drift)
    seen = _row_space(_gradients([problem.running, problem.final], n))
    while True:
        drift = [poly.combined(zip(row, problem.drift, strict=True)) for row in seen]
        more = _row_space(np.vstack([seen, _gradients(drift, n)]))
        if len(more) == len(seen):
            break
        seen = more
    if len(seen) == n:
        return problem
    rows, pivots = _echelon(seen)
    # Nothing depends on the other states once the combinations are given: they may be taken to be 0.
    others = [i for i in range(n) if i not in pivots]

    def without(polynomial: Polynomial) -> Polynomial:
        return {e: value for e, value in polynomial.items() if not any(e[i] for i in others)}

    drift = [poly.combined(zip(row, problem.drift, strict=True)) for row in rows]
    full = list(problem.drift)
    for pivot, combination in zip(pivots, drift, strict=True):
        full[pivot] = combination
    names = list(problem.names)
    start, reached = problem.start.copy(), problem.reached.copy()
    for pivot, row in zip(pivots, rows, strict=True):
        names[pivot] = _in_words(row, problem.names)
        start[pivot], reached[:, pivot] = row @ problem.start, problem.reached @ row
    changed = replace(problem, names=names, drift=full, start=start, reached=reached)
    return _restricted(changed, without, pivots)


def _squared(problem: PolynomialProblem) -> PolynomialProblem:
    """With the square of each state whose sign is told by nothing: degrees are halved."""
    for i in range(len(problem.drift)):
        own = problem.drift[i]
        others = [*problem.drift[:i], *problem.drift[i + 1 :], problem.running, problem.final]
        if any(e[i] % 2 for p in others for e in p) or not all(e[i] % 2 for e in own):
            continue
        x = poly.variable(i, sum(problem.sizes))
        square = poly.combined([(2.0, poly.times(x, own)), (problem.step, poly.times(own, own))])

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


def _restricted(problem: PolynomialProblem, held: Any, kept: Sequence[int]) -> PolynomialProblem:
    """With a few of the states, where ``held`` takes the others out of a polynomial."""
    n = len(problem.drift)

    def short(polynomial: Polynomial) -> Polynomial:
        return {(*(e[i] for i in kept), *e[n:]): value for e, value in held(polynomial).items()}

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


def _gradients(polynomials: Sequence[Polynomial], n: int) -> np.ndarray:
    """(G, n) vectors that span their gradients with respect to the state, wherever."""
    rows: list[np.ndarray] = [np.zeros(n)]
    for polynomial in polynomials:
        by_monomial: dict[Any, np.ndarray] = {}
        for i in range(n):
            for exponents, value in poly.derivative(polynomial, i).items():
                by_monomial.setdefault(exponents, np.zeros(n))[i] = value
        size = max((np.abs(row).max() for row in by_monomial.values()), default=1.0)
        rows += [row / size for row in by_monomial.values()]
    return np.array(rows)


def _row_space(rows: np.ndarray) -> np.ndarray:
    """An orthonormal basis of what rows span."""
    _, sizes, directions = np.linalg.svd(rows, full_matrices=False)
    return np.asarray(directions[sizes > SEEN * max(1.0, sizes.max(initial=0.0))])


def _echelon(rows: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """The same space in reduced echelon form, and its pivots."""
    found = rows.copy()
    pivots: list[int] = []
    for column in range(rows.shape[1]):
        rank = len(pivots)
        if rank == len(rows):
            break
        best = rank + int(np.argmax(np.abs(found[rank:, column])))
        if abs(found[best, column]) < SEEN:
            continue
        found[[rank, best]] = found[[best, rank]]
        found[rank] /= found[rank, column]
        for i in range(len(rows)):
            if i != rank:
                found[i] -= found[i, column] * found[rank]
        pivots.append(column)
    found[np.abs(found) < SEEN] = 0.0
    return found, pivots


def _in_words(row: np.ndarray, names: Sequence[str]) -> str:
    """A combination such as Q11 − 2 M11."""
    words = ""
    for value, name in zip(row, names, strict=True):
        if value:
            sign = " − " if value < 0 else " + " if words else ""
            words += sign + ("" if abs(value) == 1 else f"{abs(value):.4g} ") + name
    return words
