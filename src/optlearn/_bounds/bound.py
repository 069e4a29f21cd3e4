"""The best achievable objective: a bound, or an estimate, that does not depend on a solver's start."""

from dataclasses import dataclass, replace
from typing import Literal

import casadi
import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import float64
from optlearn._bounds.hjb import FINER, Near, Policy, Resolution, dimensions_of, solve_hjb
from optlearn._bounds.intervals import lowest
from optlearn._bounds.sos import DEGREE, PIECES, lower_bound
from optlearn._control.compiled import CompiledProblem, Rollout, compile_problem
from optlearn._control.hamiltonian.gap import hamiltonian_gap
from optlearn._control.hamiltonian.interval import IntervalHamiltonian
from optlearn._control.hamiltonian.minimise import Minimum, PointwiseMinimiser
from optlearn._control.problem import Problem
from optlearn._control.solution import Solution
from optlearn._control.solve import solve
from optlearn._control.solvers.starts import enough_steps, neutral
from optlearn._errors import SpecificationError, warn
from optlearn._schedule import Schedule
from optlearn._signatures import checked

Kind = Literal["convex", "sos", "hjb"]
# Nodes along each coordinate of the coarsest grid, in 1, 2, … dimensions.
NODES = (24, 12, 7, 5, 4)
# The error of an interval's Hamiltonian is a share of the gap, so it vanishes at the optimum.
ROUNDS = 3
_OF_GRIDS = "that the error bar is right: values on three grids converge as they would on finer ones"
ACCURACY = 1e-8  # accuracy that determines the steps
INTEGRATED = 1e-7  # relative accuracy of objectives when compared with a proof
STEPS = 200  # steps in an interval: more would only reduce round-off


@dataclass(frozen=True)
class Bound:
    """A value that no schedule beats.

    Attributes:
        value: a proven lower bound (convex, sos), or an estimate of the optimum (hjb).
        error: error bar of an estimate; accuracy of the integration (convex); 0 for a proof (sos).
        kind: "convex", "sos" or "hjb".
        assumes: the assumptions of a proof, "" if none; for an estimate, those of its error bar.
        intervals: it holds for schedules on this many equal intervals, or on any number that divides it; None
            for all schedules.
        values: of an estimate, at all resolutions, from the coarsest on.
        policy: of an estimate, the best control in every state.
    """

    value: float
    error: float
    kind: Kind
    assumes: str = ""
    intervals: int | None = None
    values: tuple[float, ...] = ()
    policy: Policy | None = None

    @property
    def lower(self) -> float:
        """The value minus its error bar."""
        return self.value - self.error

    @property
    def proven(self) -> bool:
        """Is it a theorem about the problem rather than an estimate?"""
        return not self.assumes

    def holds_for(self, schedule: Schedule) -> bool:
        """Does the bound hold on the schedule's grid?"""
        if self.intervals is None:
            return True
        edges = schedule.grid / schedule.horizon * self.intervals
        return bool(np.all(np.abs(edges - np.round(edges)) < 1e-6))

    def beside(self, objective: float) -> "Bound":
        """This bound, given the objective of some schedule: an estimate above it gets a wider error bar.

        The new bar is twice the difference, and reaches as far below the objective as the estimate is above
        it. A warning says so.

        Raises:
            SpecificationError: the objective is below a proven bound, so it belongs to another problem.
        """
        if objective >= self.lower - (INTEGRATED * abs(objective) if self.kind != "hjb" else 0.0):
            return self
        if self.kind != "hjb":
            raise SpecificationError(
                f"bound: an objective must be at least {self.lower:.8g}, which is proven, not "
                f"{objective:.8g}: is it of another problem?"
            )
        warn(
            f"bound: the estimate {self.value:.6g} ± {self.error:.2g} is above a schedule with "
            f"{objective:.6g}, so its error bar is widened; larger times= and nodes= are more accurate"
        )
        return replace(self, error=2 * (self.value - objective))

    def attach(self, solution: Solution) -> Solution:
        """The solution with this bound in its certificate.

        Raises:
            SpecificationError: the bound does not hold on the schedule's grid, or the solution beats a proof.
        """
        if not self.holds_for(solution.schedule):
            own = solution.schedule.intervals
            raise SpecificationError(
                f"attach: a bound for {self.intervals} equal intervals must have a schedule on these, not on "
                f"{own} that may do better; take ol.bound of the problem with intervals={own}"
            )
        lower = self.beside(solution.objective).lower
        certificate = replace(solution.certificate, lower_bound=lower, lower_bound_kind=self.kind)
        return replace(solution, certificate=certificate)


@checked
@float64
def bound(
    problem: Problem,
    kind: Literal["auto", "convex", "sos", "hjb"] = "auto",
    *,
    solution: Solution | None = None,
    degree: int = DEGREE,
    pieces: int = PIECES,
    times: int = 8,
    nodes: int | None = None,
    dimensions: int = 4,
) -> Bound:
    """A lower bound that no schedule of a problem beats, computed independently of the solvers.

    Path limits are ignored: the bound still holds with them, but may be far below the optimum.

    Args:
        problem: the problem.
        kind: "convex": a proof for schedules on the problem's own intervals, if drift and costs are linear in
            the state and do not multiply it with controls. "sos": a proof by sums of squares, if they are
            polynomials; needs the extra ``bounds``. "hjb": an estimate with an error bar from the
            Hamilton-Jacobi-Bellman equation on grids, if states move in a few dimensions. "auto": "convex"
            if it can be proven, else "hjb", else "sos".
        solution: sets the region in which to search for multipliers of budgets and for free parameters; None
            to solve the problem first, if it has any. An estimate above its objective gets a wider error bar.
        degree: "sos": degree of the polynomials in the state. A higher one gives a tighter bound but takes
            longer.
        pieces: "sos": number of pieces in time, in each of which the polynomials are cubic in time; likewise.
        times: "hjb": steps of the coarsest of three grids, each 1.5 times as fine as the previous one.
        nodes: "hjb": nodes along each coordinate of the coarsest grid, at least 4 (default: so many that it
            takes about half a minute).
        dimensions: "hjb": maximum number of dimensions in which states move.

    Raises:
        SpecificationError: the kind does not fit the problem, or a solution beats a proof; the message says
            why.
    """
    check = Arguments("bound")
    check.count("degree", degree)
    check.count("pieces", pieces)
    check.count("times", times, 2)
    if nodes is not None:
        check.count("nodes", nodes, 4)
    check.count("dimensions", dimensions)
    if problem.paths:
        problem = replace(problem, paths=())
    has_fixed_ranges = problem.reach is None and problem.free_horizon is None and not problem.unbounded
    if not has_fixed_ranges or problem.weighing is not None:
        raise SpecificationError(
            f"bound: {problem.name!r} must minimise one mean over a given horizon, between finite bounds, "
            "without reach, risk, limits or rivals"
        )
    if kind in ("auto", "convex") and is_linear(problem):
        try:
            return _compared(Bound(*exact_optimum(problem), "convex", intervals=problem.intervals), solution)
        except SpecificationError:
            if kind == "convex":
                raise
    elif kind == "convex":
        raise SpecificationError(
            f"bound: {problem.name!r} is not linear in the state apart from the controls; use 'sos' or 'hjb'"
        )
    why_no_grid = ""
    if kind != "sos":
        try:
            return _estimate(problem, solution, times, nodes, dimensions)
        except SpecificationError as error:
            if kind == "hjb":
                raise
            why_no_grid = _without_owner(error)
    value, assumes = _proof(problem, degree, pieces, why_no_grid)
    return _compared(Bound(value, 0.0, "sos", assumes), solution)


def _estimate(
    problem: Problem, solution: Solution | None, times: int, nodes: int | None, dimensions: int
) -> Bound:
    """The estimate by the Hamilton-Jacobi-Bellman equation on grids."""
    moves = dimensions_of(problem, dimensions)  # rejected before a problem with budgets is solved for it
    coarse = nodes or NODES[min(moves, len(NODES)) - 1]
    resolutions = [Resolution(round(times * FINER**i), round(coarse * FINER**i)) for i in range(3)]
    near = _near(problem, solution)
    value, error, values, policy = solve_hjb(problem, resolutions, dimensions, near)
    estimate = Bound(value, error, "hjb", _OF_GRIDS, values=values, policy=policy)
    # A policy meets a budget only roughly; without budgets, its own schedule is admissible too.
    achieved = near.objective if problem.budgets else min(near.objective, policy.objective(finer=4))
    return estimate.beside(achieved)


def _compared(proof: Bound, solution: Solution | None) -> Bound:
    """The proof, checked against the solution if it holds for its grid."""
    if solution is None or not proof.holds_for(solution.schedule):
        return proof
    return proof.beside(solution.objective)


def _proof(problem: Problem, degree: int, pieces: int, why_no_grid: str) -> tuple[float, str]:
    """The bound by sums of squares; if that does not fit either, the error also says why a grid does not."""
    try:
        return lower_bound(problem, degree, pieces)
    except (SpecificationError, ModuleNotFoundError) as error:
        if not why_no_grid:
            raise
        raise SpecificationError(
            f"bound: no kind fits {problem.name!r}. 'convex': it must be linear in the state apart from the "
            f"controls. 'hjb': {why_no_grid}. 'sos': {_without_owner(error)}"
        ) from error


def _without_owner(error: Exception) -> str:
    return str(error).removeprefix("bound: ")


def _near(problem: Problem, solution: Solution | None) -> Near:
    """Multipliers, free parameters and objective of a solution; None if nothing needs them."""
    if solution is None:
        if not (problem.budgets or problem.free):
            return Near(np.zeros(0), np.zeros(0), np.inf)
        solution = solve(problem, starts=1)
    schedule = solution.schedule if solution.relaxed is None else solution.relaxed.schedule
    compiled = compile_problem(problem)
    w, steps = compiled.relaxation.own_vectors(schedule), int(solution.options.get("steps", 1))
    theta = np.array([solution.parameters[name] for name in problem.free])
    rolled = Rollout(compiled, len(w), steps).run(w, theta)
    _, _, nu = hamiltonian_gap(compiled, rolled, w, theta, steps)
    return Near(nu * problem.horizon, theta, rolled.objective)


# --- problems linear in the state -----------------------------------------------------------------


def is_linear(problem: Problem) -> bool:
    """Are drift and costs together linear in the state, without products of state and control?"""
    expressions = compile_problem(problem).engine.expressions
    if expressions is None or problem.free:
        return False
    (_, x, w, *_), slope, cost, final = expressions
    by_state = casadi.jacobian(casadi.vertcat(slope, cost), x)
    mixed = casadi.jacobian(casadi.vec(by_state), casadi.vertcat(x, w))
    bent = casadi.jacobian(casadi.gradient(final, x), x)
    return bool(mixed.nnz() == 0 and bent.nnz() == 0)


def exact_optimum(problem: Problem) -> tuple[float, float]:
    """A lower bound for schedules on the problem's equal intervals, and its accuracy.

    Costates do not depend on the schedule: if dx/dα = A x + g(w) and the objective is linear in the state,
    the objective of any other schedule is exactly that of this one plus the change of the Hamiltonian,
    interval by interval. So if the minimum of the Hamiltonian is proven, the Hamiltonian gap is exact: no
    schedule improves by more, and the best one improves by that much, except under budgets with a non-convex
    Hamiltonian. One case is noise divided by the batch size, whatever the spectrum: B ∝ √κ, where κ is the
    final cost of the noise.
    """
    compiled, intervals = compile_problem(problem), problem.intervals
    guess = neutral(compiled, intervals)
    steps, w, value = enough_steps(compiled, intervals, [guess]) or 1, guess.w, np.inf
    nu = np.zeros(len(compiled.relaxation.budget_rows.targets))
    while True:
        rollout = Rollout(compiled, intervals, steps)
        for _ in range(ROUNDS):
            rolled = rollout.run(w, guess.theta)
            _, w, nu = hamiltonian_gap(compiled, rolled, w, guess.theta, steps, nu)
        coarser, value = value, _proven(compiled, rollout, w, nu)
        # Doubling the steps divides the error by 16, so the difference measures it.
        if abs(value - coarser) <= ACCURACY * abs(value) or steps > STEPS:
            return value, max(abs(value - coarser), ACCURACY * abs(value))
        steps *= 2


def _proven(compiled: CompiledProblem, rollout: Rollout, w: np.ndarray, nu: np.ndarray) -> float:
    """The objective of controls w (I, m) minus its largest improvement, by the Lagrange dual at ν (b,)."""
    rolled, horizon, none = rollout.run(w, np.zeros(0)), compiled.problem.horizon, np.zeros(0)
    hamiltonian = IntervalHamiltonian.along(compiled, rolled, w, none, rollout.steps)
    rows, targets, equal = compiled.relaxation.budget_rows
    nu = np.where(equal, nu, np.maximum(nu, 0.0))
    slope = nu @ rows
    minimiser = PointwiseMinimiser(hamiltonian, w)
    present, minimum = minimiser.present(slope), minimiser.lowest(slope)
    tolerance = ACCURACY / 10 * max(abs(rolled.objective), 1e-3 * float(np.ptp(present))) / horizon
    least = minimum.values - _overlooked(hamiltonian, minimum, slope, tolerance)
    slack = float(nu @ (targets - rows @ w.mean(axis=0)))
    return rolled.objective - horizon * (float((present - least).mean()) + slack)


def _overlooked(
    hamiltonian: IntervalHamiltonian, minimum: Minimum, slope: np.ndarray, tolerance: float
) -> np.ndarray:
    """(I,) upper bounds of how far the true minimum of H̄(w) + slope·w lies below the one found."""
    compiled, vertices = hamiltonian.compiled, hamiltonian.domain.vertices
    c, V = compiled.relaxation.curved, len(vertices)
    if c == 0:  # all combinations were tried
        return np.zeros(hamiltonian.intervals)
    expressions = compiled.engine.expressions
    assert expressions is not None  # ``is_linear``
    (constants, x, w, _, h, costate), rate, cost, _ = expressions
    added = casadi.SX.sym("added", w.numel())
    H = casadi.dot(costate, rate) + cost + casadi.dot(added, w)
    # No control is multiplied with the state or the length, so any values will do.
    fixed = casadi.vertcat(constants, x, h)
    H = casadi.substitute(
        H, fixed, np.concatenate([compiled.constants, compiled.start, [hamiltonian.length]])
    )
    costates = np.einsum("q,iqn->in", hamiltonian.weights, hamiltonian.costates)
    numbers = np.concatenate([costates, hamiltonian.tilt + slope], axis=1)
    numbers = np.concatenate([np.repeat(vertices, len(costates), axis=0), np.tile(numbers, (V, 1))], axis=1)
    least = lowest(
        H,
        w[:c],
        casadi.vertcat(w[c:], costate, added),
        numbers,
        (hamiltonian.domain.lower, hamiltonian.domain.upper),
        minimum.refined[:, :c],
        tolerance,
    )
    at_controls = casadi.Function("H", [w, costate, added], [H]).map(len(costates))
    values = np.array(at_controls(minimum.w.T, costates.T, (hamiltonian.tilt + slope).T)).ravel()
    return values - least.reshape(V, -1).min(axis=0)
