"""A proof that no schedule does better: sums of squares.

Any polynomial V(α, x) with V ≤ final cost at the end, and with dV/dα + ∇V·f + running cost ≥ 0 for all
times, states and controls, says that V(0, start) is at most the objective of every schedule. That a
polynomial is not negative on a box is proven by writing it as s₀ + Σ (1 − y²) s_y with sums of squares s;
the largest V(0, start) is then a semidefinite program. Multipliers of budgets are variables of the same
program. What the solver's numbers leave over of the identity is a polynomial with small coefficients; their
sizes are taken off the bound, so it holds whatever the solver's tolerance.

References:
    J. B. Lasserre, D. Henrion, C. Prieur, E. Trélat, *Nonlinear optimal control via occupation measures and
    LMI-relaxations*, SIAM J. Control Optim. 47 (2008).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import casadi
import numpy as np
from scipy import sparse

from optlearn._control.bound import polynomials as poly
from optlearn._control.bound.polynomials import Exponents, Polynomial
from optlearn._control.bound.reachable import random_controls
from optlearn._control.problem import Problem
from optlearn._control.program.build import CompiledProblem, compile_problem
from optlearn._control.program.casadi import CasadiProgram
from optlearn._control.program.rollout import Rollout
from optlearn._errors import SpecificationError, how_to_install

DEGREE = 8
LARGEST = 400  # rows of a semidefinite matrix, at most
# Boxes around the states grow by this factor until no state leaves them, so many times at most.
GROWTH, TRIES = 1.1, 60


class Proof(NamedTuple):
    """A lower bound, and what it takes for granted ("" if nothing)."""

    value: float
    assumes: str


@dataclass(frozen=True)
class _Scaled:
    """A problem in variables y = (time, states, controls), each in [−1, 1].

    Attributes:
        drift: polynomials of dz/dα for each state.
        running: polynomial of the running cost, divided by the horizon.
        final: polynomial of the final cost.
        excess: polynomials a·w − t of the budgets.
        start: (n,) scaled state at α = 0.
        box: (2, n) lowest and highest states.
        invariant: is it proven that no state leaves the box?
    """

    drift: list[Polynomial]
    running: Polynomial
    final: Polynomial
    excess: list[Polynomial]
    start: np.ndarray
    box: np.ndarray
    invariant: bool


def lower_bound(problem: Problem, degree: int = DEGREE) -> Proof:
    """The bound of polynomials V up to a total degree.

    Raises:
        SpecificationError: drift or costs are no polynomials, or there are too many variables.
    """
    compiled = compile_problem(problem)
    if not isinstance(compiled.program, CasadiProgram) or compiled.program.exact:
        raise SpecificationError(f"bound: the drift of {problem.name!r} is no polynomial; use kind='hjb'")
    if problem.free:
        raise SpecificationError(
            f"bound: kind='sos' takes no free parameters, got {', '.join(problem.free)}; use kind='hjb'"
        )
    scaled = _scaled(compiled)
    value = _Program(scaled, problem.horizon, compiled, degree).solve()
    names = problem.model.layout.names
    ranges = ", ".join(
        f"{low:.4g} ≤ {name} ≤ {high:.4g}" for name, low, high in zip(names, *scaled.box, strict=True)
    )
    return Proof(value, "" if scaled.invariant else f"that states keep to {ranges}")


def _scaled(compiled: CompiledProblem) -> _Scaled:
    """The problem on the smallest box, of those tried, that no state leaves."""
    reached = _reached(compiled)
    low, high = reached.min(axis=(0, 1)), reached.max(axis=(0, 1))
    thin = 1e-6 * max(1.0, float(np.abs(reached).max()))
    low, high = np.where(high - low < thin, low - thin, low), np.where(high - low < thin, high + thin, high)
    for _ in range(TRIES):
        leaves = _leaves(compiled, low, high)
        if not np.any(leaves):
            break
        width = (GROWTH - 1) * (high - low)
        low, high = low - width * leaves[0], high + width * leaves[1]
    drift, running, final, excess = _polynomials(compiled, low, high)
    start = (2 * compiled.start - low - high) / (high - low)

    def with_time(polynomial: Polynomial) -> Polynomial:
        return {(0, *exponents): value for exponents, value in polynomial.items()}

    return _Scaled(
        [with_time(f) for f in drift], with_time(running), with_time(final), [with_time(e) for e in excess],
        start, np.array([low, high]), not np.any(_leaves(compiled, low, high)),
    )  # fmt: skip


def _leaves(compiled: CompiledProblem, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """(2, n) whether a state may leave the box through each of its lower and upper sides."""
    drift, variables = _polynomials(compiled, low, high)[0], sum(compiled.sizes)
    lower = [poly.enclosure(poly.at(f, i, -1.0), variables)[0] < 0 for i, f in enumerate(drift)]
    upper = [poly.enclosure(poly.at(f, i, 1.0), variables)[1] > 0 for i, f in enumerate(drift)]
    return np.array([lower, upper])


def _reached(compiled: CompiledProblem) -> np.ndarray:
    """(S, T, n) states under a few random controls."""
    intervals = 24
    rollout = Rollout(compiled, intervals, 4)
    controls = random_controls(compiled.relaxation, intervals)[:100]
    return np.array([rollout.forward(w, np.zeros(0))[1] for w in controls])


def _polynomials(
    compiled: CompiledProblem, low: np.ndarray, high: np.ndarray
) -> tuple[list[Polynomial], Polynomial, Polynomial, list[Polynomial]]:
    """Drift, running cost, final cost and budgets in scaled states and controls."""
    program = compiled.program
    n, m, _ = program.sizes
    z, v = casadi.SX.sym("z", n), casadi.SX.sym("v", m)
    variables = [*casadi.vertsplit(z), *casadi.vertsplit(v)]
    least, most = compiled.relaxation.bounds
    x = casadi.DM((low + high) / 2) + casadi.DM((high - low) / 2) * z
    w = casadi.DM((least + most) / 2) + casadi.DM((most - least) / 2) * v
    none = casadi.SX(0, 1)
    slope, cost = program.rate(casadi.DM(compiled.constants), x, w, none, 1.0)
    drift = [
        poly.from_expression(slope[i] * (2 / (high[i] - low[i])), variables, "the drift") for i in range(n)
    ]
    running = poly.from_expression(cost, variables, "the running cost")
    final_cost = program.final(casadi.DM(compiled.constants), x, none)
    final = poly.from_expression(final_cost, variables, "the final cost")
    rows, targets, _ = compiled.relaxation.budget_rows
    excess = [
        poly.from_expression(casadi.mtimes(casadi.DM(row).T, w) - target, variables, "a budget")
        for row, target in zip(rows, targets, strict=True)
    ]
    return drift, running, final, excess


class _Program:
    """The semidefinite program: V's coefficients, the budgets' multipliers, then all Gram matrices."""

    def __init__(self, scaled: _Scaled, horizon: float, compiled: CompiledProblem, degree: int) -> None:
        self.scaled, self.horizon = scaled, horizon
        n, m, _ = compiled.sizes
        size = 1 + n + m
        still = (0,) * m
        self.powers: list[Exponents] = [(*e, *still) for e in poly.monomials(1 + n, degree)]
        self.equal = compiled.relaxation.budget_rows.equal
        # What each variable adds to the inequality along training, and to the one at the end.
        along = [self._along(e) for e in self.powers]
        along += [{e: v / horizon for e, v in excess.items()} for excess in scaled.excess]
        end = [{k: -v for k, v in poly.at({e: 1.0}, 0, 1.0).items()} for e in self.powers]
        end += [{} for _ in scaled.excess]
        self.inequalities = [
            _Inequality(along, scaled.running, list(range(size)), size),
            _Inequality(end, scaled.final, list(range(1, 1 + n)), size),
        ]
        self.columns = len(along)

    def _along(self, exponents: Exponents) -> Polynomial:
        """dV/dα along the dynamics for a monomial V."""
        found = {e: 2 / self.horizon * v for e, v in poly.derivative(exponents, 0).items()}
        for i, drift in enumerate(self.scaled.drift):
            for e, v in poly.times(poly.derivative(exponents, 1 + i), drift).items():
                found[e] = found.get(e, 0.0) + v
        return found

    def at_start(self, coefficients: np.ndarray) -> float:
        """V(0, start)."""
        return float(coefficients @ self._start_row)

    @property
    def _start_row(self) -> np.ndarray:
        y = np.concatenate([[-1.0], self.scaled.start])
        return np.array([np.prod(y ** np.array(e[: len(y)])) for e in self.powers])

    def solve(self) -> float:
        """The largest V(0, start), less what the solver's numbers leave open."""
        try:
            import clarabel
        except ImportError as error:
            advice = how_to_install("bounds")
            raise ModuleNotFoundError(
                f"bound(kind='sos') needs clarabel, which is not installed: {advice}", name="clarabel"
            ) from error

        blocks = [block for inequality in self.inequalities for block in inequality.blocks]
        total = self.columns + sum(block.entries for block in blocks)
        rows, place = [], self.columns
        for inequality in self.inequalities:
            rows.append(inequality.matrix(place, total))
            place += inequality.entries
        right = np.concatenate([inequality.right for inequality in self.inequalities])
        cones: list[Any] = [clarabel.ZeroConeT(len(right))]
        at_most = np.flatnonzero(~self.equal)
        sign = sparse.csc_matrix(
            (-np.ones(len(at_most)), (np.arange(len(at_most)), len(self.powers) + at_most)),
            shape=(len(at_most), total),
        )
        cones.append(clarabel.NonnegativeConeT(len(at_most)))
        grams = sparse.hstack(
            [sparse.csc_matrix((total - self.columns, self.columns)), -sparse.eye(total - self.columns)]
        )
        cones += [clarabel.PSDTriangleConeT(block.size) for block in blocks]
        matrix = sparse.vstack([*rows, sign, grams]).tocsc()
        right = np.concatenate([right, np.zeros(len(at_most) + total - self.columns)])
        aim = np.zeros(total)
        aim[: len(self.powers)] = -self._start_row
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        nothing = sparse.csc_matrix((total, total))
        found = np.array(clarabel.DefaultSolver(nothing, aim, matrix, right, cones, settings).solve().x)
        if not np.all(np.isfinite(found)):
            raise SpecificationError("bound: the semidefinite program has no solution; raise degree=")
        multipliers = found[len(self.powers) : self.columns]
        multipliers[~self.equal] = np.maximum(multipliers[~self.equal], 0.0)
        along, end = self._left_over(found)
        return self.at_start(found[: len(self.powers)]) - self.horizon * along - end

    def _left_over(self, found: np.ndarray) -> list[float]:
        """By how much each inequality may be broken, at most."""
        place, missing = self.columns, []
        for inequality in self.inequalities:
            grams = found[place : place + inequality.entries]
            missing.append(inequality.left_over(found[: self.columns], grams))
            place += inequality.entries
        return missing


@dataclass(frozen=True)
class _Block:
    """A sum of squares of monomials, times a weight: 1, or 1 − y² of a variable."""

    basis: list[Exponents]
    weight: Polynomial

    @property
    def size(self) -> int:
        return len(self.basis)

    @property
    def entries(self) -> int:
        return self.size * (self.size + 1) // 2


class _Inequality:
    """constant + Σ columns·coefficients ≥ 0 on the box, as an identity with sums of squares."""

    def __init__(
        self, columns: Sequence[Polynomial], constant: Polynomial, active: list[int], size: int
    ) -> None:
        self.columns, self.constant = columns, constant
        highest = max(poly.degree(p) for p in [*columns, constant])
        half = -(-highest // 2)

        def basis(degree: int) -> list[Exponents]:
            found = []
            for exponents in poly.monomials(len(active), degree):
                full = [0] * size
                for variable, e in zip(active, exponents, strict=True):
                    full[variable] = e
                found.append(tuple(full))
            return found

        zero = (0,) * size
        self.blocks = [_Block(basis(half), {zero: 1.0})]
        for variable in active:
            square = tuple(2 * (i == variable) for i in range(size))
            self.blocks.append(_Block(basis(half - 1), {zero: 1.0, square: -1.0}))
        if self.blocks[0].size > LARGEST:
            raise SpecificationError(
                f"bound: a matrix of {self.blocks[0].size} rows would be needed, {LARGEST} at most; lower "
                "degree=, or use kind='hjb'"
            )
        self.places = {e: i for i, e in enumerate(basis(2 * half))}

    @property
    def entries(self) -> int:
        """Of all its Gram matrices."""
        return sum(block.entries for block in self.blocks)

    @property
    def right(self) -> np.ndarray:
        """The constant, one number for each monomial."""
        found = np.zeros(len(self.places))
        for exponents, value in self.constant.items():
            found[self.places[exponents]] += value
        return found

    def matrix(self, place: int, total: int) -> Any:
        """Sums of squares − columns·coefficients = constant, one row for each monomial.

        A Gram matrix is its upper triangle, column by column, off the diagonal times √2, from ``place`` on.
        """
        rows, columns, values = [], [], []
        for column, polynomial in enumerate(self.columns):
            for exponents, value in polynomial.items():
                rows.append(self.places[exponents])
                columns.append(column)
                values.append(-value)
        for block in self.blocks:
            for j, b in enumerate(block.basis):
                for a in block.basis[: j + 1]:
                    factor = 1.0 if a == b else 2**0.5
                    for shift, weight in block.weight.items():
                        key = tuple(p + q + s for p, q, s in zip(a, b, shift, strict=True))
                        rows.append(self.places[key])
                        columns.append(place)
                        values.append(factor * weight)
                    place += 1
        return sparse.csc_matrix((values, (rows, columns)), shape=(len(self.places), total))

    def left_over(self, coefficients: np.ndarray, grams: np.ndarray) -> float:
        """By how much constant + columns·coefficients may be below 0 on the box, at most.

        The matrices are made positive first. Every monomial lies between −1 and 1 on the box.
        """
        positive, first = [], 0
        for block in self.blocks:
            values, vectors = np.linalg.eigh(_full(grams[first : first + block.entries], block.size))
            positive.append(_triangle(vectors * np.maximum(values, 0.0) @ vectors.T))
            first += block.entries
        identity = self.matrix(len(coefficients), len(coefficients) + len(grams))
        over = self.right - identity @ np.concatenate([coefficients, *positive])
        return float(np.abs(over).sum())


def _full(triangle: np.ndarray, size: int) -> np.ndarray:
    """The symmetric matrix of an upper triangle, column by column, off the diagonal times √2."""
    found = np.zeros((size, size))
    found[np.tril_indices(size)] = triangle / 2**0.5
    return found + found.T + np.diag((2**0.5 - 2) * np.diag(found))


def _triangle(matrix: np.ndarray) -> np.ndarray:
    """What ``_full`` was made from."""
    scaled = matrix * 2**0.5
    np.fill_diagonal(scaled, np.diag(matrix))
    return np.asarray(scaled[np.tril_indices(len(matrix))])
