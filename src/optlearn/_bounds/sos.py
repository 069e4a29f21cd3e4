"""A proof that no schedule does better: sums of squares.

Any function V(α, x) with V ≤ final cost at the end, and with dV/dα + ∇V·f + running cost ≥ 0 for all times,
states and controls, says that V(0, start) is at most the objective of every schedule. Here V is a polynomial
of the state, and a piecewise polynomial of time in Bernstein form: the inequality holds at all times of a
piece if it holds for each of a few polynomials of state and controls alone. For SGD in steps, the change of V
in a step replaces the derivatives. A polynomial is proven to be non-negative on a box by writing it as s₀ + Σ
(1 − y²) s_y with sums of squares s; the largest V(0, start) is then a semidefinite program. Multipliers of
budgets are variables of the same program. The solver's numbers satisfy an identity up to a polynomial with
small coefficients, whose absolute values are subtracted from the bound, so it holds whatever the solver's
tolerance.

References:
    J. B. Lasserre, D. Henrion, C. Prieur, E. Trélat, *Nonlinear optimal control via occupation measures and
    LMI-relaxations*, SIAM J. Control Optim. 47 (2008).
"""

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from optlearn._arrays import Float, Int
from optlearn._bounds import polynomials as poly
from optlearn._bounds.polynomial_problem import Box, PolynomialProblem, invariant_box, polynomial_problem
from optlearn._bounds.polynomials import Exponents, Polynomial
from optlearn._control.problem import Problem
from optlearn._errors import SpecificationError, count_of, how_to_install

DEGREE, PIECES = 4, 8
TIME = 3  # degree of V in time
# Pieces are shorter towards the end, where V changes fastest: the time left at their edges is a power.
SHORTER = 1.5
LARGEST = 80  # maximum number of rows of a semidefinite matrix
# Maximum number of entries in all of them: 13,000 took 7 CPU s and 0.5 GB, 84,000 more than 140 s and 6 GB.
MOST_ENTRIES = 60_000


def lower_bound(problem: Problem, degree: int, pieces: int) -> tuple[float, str]:
    """The bound by functions V of some degree in the state, with so many pieces in time.

    Returns:
        The bound, and its assumptions ("" if none).

    Raises:
        SpecificationError: drift or costs are not polynomials, or there are too many variables.
    """
    polynomials = polynomial_problem(problem)
    squares = _squares(polynomials, degree)
    if (entries := pieces * (TIME + 1) * squares.entries) > MOST_ENTRIES:
        raise SpecificationError(
            f"bound: kind='sos' has matrices of at most {MOST_ENTRIES:,} entries in all, and "
            f"{count_of(pieces, 'piece')} of this degree need {entries:,}; lower pieces= or degree="
        )
    box = invariant_box(polynomials)
    value = _Value(polynomials, box, degree, pieces).largest(squares)
    assumed = []
    if not box.proven:
        ranges = ", ".join(
            f"{low:.4g} ≤ {name} ≤ {high:.4g}"
            for name, low, high in zip(polynomials.names, box.low, box.high, strict=True)
        )
        assumed.append(f"that states keep to {ranges}")
    if polynomials.step:
        steps = problem.horizon / problem.intervals / polynomials.step
        if abs(steps - round(steps)) > 1e-6:
            assumed.append("that schedules change between whole steps of SGD")
    return value, ", and ".join(assumed)


def _squares(problem: PolynomialProblem, degree: int) -> "Squares":
    """The degree required by the inequality along training."""
    n, m = problem.sizes
    costs = [problem.running, *problem.excess]
    # V after a step contains the drift in every power of the state; the derivative contains it once.
    often = degree if problem.step else 1

    def highest(polynomials: Sequence[Polynomial], variables: slice) -> int:
        return max(poly.degree(p, variables) for p in polynomials)

    drift = highest(problem.drift, slice(0, n))
    moved = degree * max(1, drift) if problem.step else degree - 1 + drift
    in_controls = []
    for control in (slice(n + i, n + i + 1) for i in range(m)):
        lowest = min((e[control][0] for p in [*problem.drift, *costs] for e in p), default=0)
        # Inverse powers of a control are multiplied out.
        cleared = often * max(0, -lowest)
        in_controls.append(max(often * highest(problem.drift, control), highest(costs, control)) + cleared)
    return Squares(n, max(degree, moved, highest(costs, slice(0, n))), in_controls)


class _Value:
    """V in scaled variables, each in [−1, 1], and its constraints.

    Its unknowns are the coefficients of polynomials P_0, P_1, … of the state, d = ``TIME`` for each piece;
    the last one is the final cost. In piece k, V is P_(kd), …, P_(kd + d) in Bernstein's form of degree d.
    """

    def __init__(self, problem: PolynomialProblem, box: Box, degree: int, pieces: int) -> None:
        self.problem, self.count = problem, pieces
        n, m = problem.sizes
        ends = np.concatenate([box.low, problem.controls[0]]), np.concatenate([box.high, problem.controls[1]])
        self.start = (2 * problem.start - box.low - box.high) / (box.high - box.low)
        # Inverse controls in a polynomial are multiplied out; they are above 0.
        every = [*problem.drift, problem.running, *problem.excess]
        lowest = [min((e[n + i] for p in every for e in p), default=0) for i in range(m)]
        self.factor: Polynomial = {(*(0,) * n, *(max(0, -e) for e in lowest)): 1.0}

        def scaled(polynomial: Polynomial) -> Polynomial:
            return poly.scaled(polynomial, *ends)

        half = (box.high - box.low) / 2
        self.drift = [
            poly.combined([(1 / h, scaled(poly.times(self.factor, f)))])
            for h, f in zip(half, problem.drift, strict=True)
        ]
        # As in ``_squares``.
        often = degree if problem.step else 1
        weight = poly.power(self.factor, often, n + m)
        self.running = scaled(poly.times(weight, problem.running))
        self.excess = [scaled(poly.times(weight, e)) for e in problem.excess]
        self.final = scaled(problem.final)
        self.least_weight = float(np.prod(problem.controls[0] ** np.array(next(iter(weight))[n:])))
        self.factor, self.weight = scaled(self.factor), scaled(weight)
        if (least := poly.degree(self.final)) > degree:
            raise SpecificationError(
                f"bound: degree must be at least {least}, that of the final cost, got {degree}"
            )
        self.powers: list[Exponents] = [(*e, *(0,) * m) for e in poly.monomials(n, degree)]

    def largest(self, squares: "Squares") -> float:
        """The largest V(0, start), minus the remainder of the solver's numbers."""
        n, size, places = len(self.drift), len(self.powers), squares.places
        moved = _matrix([self._moved(e) for e in self.powers], places)
        kept = _matrix([poly.times(self.weight, {e: 1.0}) for e in self.powers], places)
        budgets, running = _matrix(self.excess, places), _matrix([self.running], places)
        final = np.array([self.final.get(e, 0.0) for e in self.powers])
        inequalities, lengths = [], []
        pieces = self._pieces()
        for k, piece in enumerate(pieces):
            for stays, slope in zip(piece.stays, piece.slopes, strict=True):
                # Coefficients of all P_i: unknown except the last, which is the final cost.
                of_time = np.zeros((2, TIME * len(pieces) + 1))
                of_time[:, k * TIME : (k + 1) * TIME + 1] = stays, slope
                every = (sparse.kron(of_time[0], moved) + sparse.kron(of_time[1], kept)).tocsc()
                last = every[:, -size:] @ final + running.toarray()[:, 0]
                left = sparse.hstack([every[:, :-size], budgets / self.problem.horizon]).tocsc()
                inequalities.append((left, last))
                lengths.append(piece.length)
        aim = np.zeros(inequalities[0][0].shape[1])
        aim[:size] = [np.prod(self.start ** np.array(e[:n])) for e in self.powers]
        at_most = len(aim) - len(self.problem.equal) + np.flatnonzero(~self.problem.equal)
        unknowns, missing = largest(aim, inequalities, squares, at_most)
        # Bernstein polynomials lie between 0 and 1, so the sum over a piece bounds the remainder.
        return float(aim @ unknowns) - float(np.dot(lengths, missing)) / self.least_weight

    def _moved(self, exponents: Exponents) -> Polynomial:
        """∇V·f for a monomial V; for steps, the change of V in one step divided by its length."""
        if not self.problem.step:
            parts = [poly.times(poly.derivative({exponents: 1.0}, i), f) for i, f in enumerate(self.drift)]
            return poly.combined((1.0, part) for part in parts)
        n, m = self.problem.sizes
        step, degree = self.problem.step, sum(self.powers[-1])
        ends = poly.power(self.factor, degree - sum(exponents), n + m)
        for i, drift in enumerate(self.drift):
            here = poly.times(self.factor, poly.variable(i, n + m))
            end = poly.combined([(1.0, here), (step, drift)])
            ends = poly.times(ends, poly.power(end, exponents[i], n + m))
        return poly.combined([(1 / step, ends), (-1 / step, poly.times(self.weight, {exponents: 1.0}))])

    def _pieces(self) -> "list[_Piece]":
        """The pieces of time; for SGD in steps, each with whole steps."""
        step, horizon = self.problem.step, self.problem.horizon
        parts = 1 - np.linspace(1, 0, self.count + 1) ** SHORTER
        if not step:
            return [_flow(length) for length in horizon * np.diff(parts)]
        edges = np.unique(np.round(horizon / step * parts).astype(int))
        return [_chain(int(count), step) for count in np.diff(edges)]


class _Piece(NamedTuple):
    """Weights (·, ``TIME`` + 1) of a piece's P_i in each inequality: in ∇V·f (stays), in dV/dα (slopes)."""

    length: float
    stays: Float[np.ndarray, "inequalities coefficients"]
    slopes: Float[np.ndarray, "inequalities coefficients"]


def _flow(length: float) -> _Piece:
    """Bernstein form of degree ``TIME`` of V itself, and of its derivative."""
    lower = np.diff(np.eye(TIME + 1), axis=0) * TIME
    share = np.arange(TIME + 1)[:, None] / TIME
    raised = share * np.vstack([lower[:1], lower]) + (1 - share) * np.vstack([lower, lower[-1:]])
    return _Piece(length, np.eye(TIME + 1), raised / length)


def _chain(steps: int, step: float) -> _Piece:
    """Bernstein form of V at the ends of steps, and of its change in a step, for all starts in the piece."""
    starts, ends = _restricted(0.0, 1 - 1 / steps), _restricted(1 / steps, 1.0)
    if steps == 1:
        starts, ends = starts[:1], ends[:1]
    return _Piece(steps * step, ends, (ends - starts) / step)


def _restricted(low: float, high: float) -> np.ndarray:
    """Bernstein coefficients on a part of [0, 1], from those on the whole."""
    rows = []
    for j in range(TIME + 1):
        # De Casteljau's algorithm with several arguments: the blossom.
        row = np.eye(TIME + 1)
        for argument in [low] * (TIME - j) + [high] * j:
            row = (1 - argument) * row[:-1] + argument * row[1:]
        rows.append(row[0])
    return np.array(rows)


def _matrix(polynomials: Sequence[Polynomial], places: dict[Exponents, int]) -> Any:
    """One column for each, one row for each monomial."""
    entries = [(places[e], column, v) for column, p in enumerate(polynomials) for e, v in p.items()]
    rows, columns, values = zip(*entries, strict=True) if entries else ((), (), ())
    return sparse.csc_matrix((values, (rows, columns)), shape=(len(places), len(polynomials)))


# --- polynomials that are not negative on a box: a semidefinite program, by Clarabel --------------


class _Block(NamedTuple):
    """A sum of squares of monomials, times a weight: 1, or 1 − y² of a variable."""

    basis: list[Exponents]
    weight: Polynomial

    @property
    def entries(self) -> int:
        return len(self.basis) * (len(self.basis) + 1) // 2


class Squares:
    """s₀ + Σ (1 − y²) s_y for polynomials of some degree in n states, and in each of m controls."""

    def __init__(self, n: int, in_states: int, in_controls: Sequence[int]) -> None:
        m, states, controls = len(in_controls), -(-in_states // 2), [-(-d // 2) for d in in_controls]
        zero = (0,) * (n + m)

        def basis(state_degree: int, control_degrees: Sequence[int]) -> list[Exponents]:
            ranges = [range(c + 1) for c in control_degrees]
            return [(*e, *c) for e in poly.monomials(n, state_degree) for c in product(*ranges)]

        self.blocks = [_Block(basis(states, controls), {zero: 1.0})]
        for i in range(n + m):
            square = tuple(2 * (j == i) for j in range(n + m))
            less = [c - (n + j == i) for j, c in enumerate(controls)]
            if (i < n and states == 0) or min(less, default=0) < 0:
                continue
            self.blocks.append(_Block(basis(states - (i < n), less), {zero: 1.0, square: -1.0}))
        if len(self.blocks[0].basis) > LARGEST:
            raise SpecificationError(
                f"bound: kind='sos' has matrices of at most {LARGEST} rows, and {n} states of this degree "
                f"need {len(self.blocks[0].basis)}; lower degree="
            )
        self.places: dict[Exponents, int] = {}
        self.matrix = self._matrix()

    @property
    def entries(self) -> int:
        """Number of entries of all Gram matrices."""
        return sum(block.entries for block in self.blocks)

    def _matrix(self) -> Any:
        """Matrix from Gram matrices, each as its upper triangle as in ``_full``, to coefficients."""
        rows, columns, values, place = [], [], [], 0
        for block in self.blocks:
            for j, b in enumerate(block.basis):
                for a in block.basis[: j + 1]:
                    factor = 1.0 if a == b else 2**0.5
                    for shift, weight in block.weight.items():
                        key = tuple(p + q + s for p, q, s in zip(a, b, shift, strict=True))
                        rows.append(self.places.setdefault(key, len(self.places)))
                        columns.append(place)
                        values.append(factor * weight)
                    place += 1
        return sparse.csc_matrix((values, (rows, columns)), shape=(len(self.places), place))

    def positive(self, grams: Float[np.ndarray, " entries"]) -> Float[np.ndarray, " monomials"]:
        """The coefficients of sums of squares after projecting Gram matrices to positive ones."""
        triangles, first = [], 0
        for block in self.blocks:
            values, vectors = np.linalg.eigh(_full(grams[first : first + block.entries], len(block.basis)))
            triangles.append(_triangle(vectors * np.maximum(values, 0.0) @ vectors.T))
            first += block.entries
        return np.asarray(self.matrix @ np.concatenate(triangles))


def largest(
    aim: Float[np.ndarray, " q"],
    inequalities: Sequence[tuple[Any, Float[np.ndarray, " e"]]],
    squares: Squares,
    at_least_zero: Int[np.ndarray, " z"],
) -> tuple[Float[np.ndarray, " q"], list[float]]:
    """The unknowns that maximise aim·unknowns under polynomial inequalities on the box.

    Args:
        aim: coefficients of the linear objective.
        inequalities: matrices (e, q) and constants (e,): coefficients of polynomials that must be
            non-negative.
        squares: the sums of squares that represent the polynomials.
        at_least_zero: positions of unknowns that must be non-negative.

    Returns:
        The unknowns, and the largest possible violation of each inequality, since every monomial lies between
        −1 and 1 on the box.
    """
    try:
        import clarabel
    except ImportError as error:
        advice = how_to_install("bounds")
        raise ModuleNotFoundError(
            f"bound(kind='sos') needs clarabel, which is not installed: {advice}", name="clarabel"
        ) from error
    count, size, entries = len(inequalities), len(aim), squares.entries
    lefts, constants = zip(*inequalities, strict=True)
    rows = len(squares.places)
    total = size + count * entries
    identities = sparse.hstack([-sparse.vstack(lefts), sparse.block_diag([squares.matrix] * count)])
    sign = sparse.csc_matrix(
        (-np.ones(len(at_least_zero)), (np.arange(len(at_least_zero)), at_least_zero)),
        shape=(len(at_least_zero), total),
    )
    grams = sparse.hstack([sparse.csc_matrix((count * entries, size)), -sparse.eye(count * entries)])
    cones: list[Any] = [clarabel.ZeroConeT(count * rows), clarabel.NonnegativeConeT(len(at_least_zero))]
    cones += [clarabel.PSDTriangleConeT(len(block.basis)) for block in squares.blocks] * count
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    solution = clarabel.DefaultSolver(
        sparse.csc_matrix((total, total)),
        np.concatenate([-aim, np.zeros(count * entries)]),
        sparse.vstack([identities, sign, grams]).tocsc(),
        np.concatenate([*constants, np.zeros(len(at_least_zero) + count * entries)]),
        cones,
        settings,
    ).solve()
    x = np.array(solution.x)
    if not np.all(np.isfinite(x)):
        raise SpecificationError("bound: the semidefinite program has no solution; raise degree=")
    unknowns = x[:size]
    unknowns[at_least_zero] = np.maximum(unknowns[at_least_zero], 0.0)
    missing = [
        float(np.abs(left @ unknowns + constant - squares.positive(gram)).sum())
        for left, constant, gram in zip(lefts, constants, x[size:].reshape(count, entries), strict=True)
    ]
    return unknowns, missing


def _full(triangle: Float[np.ndarray, " entries"], size: int) -> Float[np.ndarray, "{size} {size}"]:
    """The symmetric matrix of an upper triangle, column by column, off the diagonal times √2."""
    half = np.zeros((size, size))
    half[np.tril_indices(size)] = triangle / 2**0.5
    return half + half.T + np.diag((2**0.5 - 2) * np.diag(half))


def _triangle(matrix: Float[np.ndarray, "size size"]) -> Float[np.ndarray, " entries"]:
    """The inverse of ``_full``."""
    scaled = matrix * 2**0.5
    np.fill_diagonal(scaled, np.diag(matrix))
    return np.asarray(scaled[np.tril_indices(len(matrix))])
