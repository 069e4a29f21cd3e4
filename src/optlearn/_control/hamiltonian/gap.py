"""Pontryagin's minimum principle: the improvement that the Hamiltonian still promises.

Budgets add ν·a·w to the Hamiltonian, with one constant ν each. The multipliers have the unit of H, so those
of the direct method, which belong to the *mean* of a·w over training, are the horizon times ν.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from optlearn._arrays import Array
from optlearn._control.budgets import BudgetRows
from optlearn._control.hamiltonian.interval import Hamiltonian, IntervalHamiltonian
from optlearn._control.hamiltonian.loops import dot, pick, repeat
from optlearn._control.hamiltonian.minimise import PointwiseMinimiser
from optlearn._control.hamiltonian.multipliers import blend, bracket_multiplier

if TYPE_CHECKING:  # batches, which share this file, need no CasADi
    from optlearn._control.compiled import CompiledProblem
    from optlearn._engine.rollout import RolloutResult

# Budgets that are met so well, relative to what they can be, give the gap to the square of it: a multiplier
# is where the gap is least. What is left is blended away.
_MET = 1e-8
_ROUND_OFF = 1e-12  # of an objective
_NARROW = 1e-12  # width of a multiplier's bracket, relative
_EVALUATIONS = 200  # of the minimum at trial multipliers
_EVALUATIONS_LANES = 60  # where the slowest of many decides
_COLUMN_ROUNDS = 40
_COLUMN_ACCURACY = 0.01  # of the gap
_ROUNDS_LANES = 4  # over several budgets, one after the other


def minimise_hamiltonian(
    hamiltonian: Hamiltonian,
    w: Array,
    start: Array | None = None,
    *,
    quick: bool = False,
    search: bool = True,
) -> tuple[Any, Array, Array]:
    """Minimise H̄ over all controls that meet the budgets.

    The gap is that of the Lagrange dual, Σ_i h [L_i(w_i) − min L_i] + horizon·ν·(t − mean a·w) with
    L = H̄ + ν a·w. It is never negative for controls w that meet the budgets, and where H̄ is linear in
    w, as in shares, it is the Frank-Wolfe gap of the discretised problem. Any ν gives an upper bound of it.

    Args:
        hamiltonian: H̄ on I intervals, under NumPy or under XLA.
        w: (I, m) present controls.
        start: (b,) multipliers to look near.
        quick: look for valleys of H in the middle of an interval only.
        search: look for multipliers at all, or take those to start from as they are.

    Returns:
        gap: horizon · mean over intervals of what H̄ could fall by; infinite, which is to say not known, where
            H̄ has finer structure than the grid on which its valleys are looked for. A quick look under NumPy,
            after which another follows, takes it as it is.
        w_star: (I, m) minimisers that meet the budgets; intervals at which the multiplier makes
            several controls equally good may have a mixture. Without a search, budgets may be missed.
        nu: (b,) multipliers ν, in units of H.
    """
    minimiser, xp = PointwiseMinimiser(hamiltonian, w, quick), hamiltonian.domain.xp
    budgets = hamiltonian.domain.budgets
    rows, targets, _ = budgets
    nu, w_star = np.zeros(len(targets)) if start is None else start, None
    if search and len(targets) == 1:
        one, w_star = _one_budget(minimiser, budgets, 0, nu)
        nu = xp.stack([one])
    elif search and len(targets) > 1:
        several = _many_budgets if xp is np else _each_budget
        nu, w_star = several(minimiser, budgets, nu)
    slope = dot(rows.T, nu)
    best, lowest = minimiser(slope)
    won = minimiser.present(slope) - lowest
    slack = dot(nu, targets - dot(rows, w.mean(axis=0)))
    gap = hamiltonian.domain.horizon * (won.mean() + slack)
    if xp is not np or not quick:
        # What H̄ does within round-off is no structure: no objective is known so well.
        at_stake = hamiltonian.domain.horizon * minimiser.span.max(axis=0).mean()
        gap = xp.where(minimiser.resolved | (at_stake <= _ROUND_OFF), gap, np.inf)
    return gap, best if w_star is None else w_star, nu


def hamiltonian_gap(
    compiled: "CompiledProblem",
    rolled: "RolloutResult",
    w: np.ndarray,
    theta: np.ndarray,
    steps: int,
    start: np.ndarray | None = None,
) -> tuple[float, np.ndarray, np.ndarray]:
    """The possible improvement by the minimum principle, to first order.

    Args:
        compiled: the problem.
        rolled: rollout under w and θ with ``steps`` Runge-Kutta steps in each interval.
        w: (I, m) relaxed controls that meet the budgets.
        theta: (k,) free parameters.
        steps: of the rollout.
        start: (b,) multipliers to look near.

    Returns:
        Gap in units of the objective, minimisers (I, m) of the Hamiltonian that meet the budgets, and
        multipliers (b,) in units of the Hamiltonian: the direct method's, divided by the horizon.
    """
    hamiltonian = IntervalHamiltonian.along(compiled, rolled, w, theta, steps)
    gap, w_star, nu = minimise_hamiltonian(hamiltonian, w, start)
    return float(gap), w_star, nu


def free_gap(
    compiled: "CompiledProblem", rolled: "RolloutResult", w: np.ndarray, theta: np.ndarray, steps: int
) -> tuple[float, np.ndarray]:
    """The same for free parameters: φ(x_F, θ) + ∫H(x, λ, w, θ) dα, minimised over θ within bounds.

    States and costates are held fixed, and as with controls the slope at the present θ is made exact.

    Args:
        compiled: the problem.
        rolled: rollout under w and θ with ``steps`` Runge-Kutta steps in each interval.
        w: (I, m) relaxed controls.
        theta: (k,) free parameters.
        steps: of the rollout.

    Returns:
        Gap in units of the objective, and the minimiser (k,).
    """
    if len(theta) == 0:
        return 0.0, theta
    from scipy.optimize import minimize

    program = compiled.engine
    along = IntervalHamiltonian.along(compiled, rolled, w, theta, steps)
    # Parameters that only the final cost reads need no integral.
    integral = program.free_in_rate

    def total(trial: np.ndarray) -> tuple[float, np.ndarray]:
        value, _, gradient = compiled.final_gradient(rolled.states[-1], trial, rolled.along)
        if integral:
            H, H_gradient = along.free(w, trial)
            value = value + compiled.problem.horizon * H
            gradient = gradient + compiled.problem.horizon * H_gradient
        return value, gradient

    present, slope = total(theta)
    tilt = rolled.free_gradient - slope

    def tilted(trial: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = total(trial)
        return value - present + float(tilt @ (trial - theta)), gradient + tilt

    bounds = [(free.lower, free.upper) for free in compiled.problem.free.values()]
    options = {"ftol": 0.0, "gtol": 1e-12}
    lowest = minimize(tilted, theta, jac=True, bounds=bounds, method="L-BFGS-B", options=options)
    return (-float(lowest.fun), lowest.x) if lowest.fun < 0 else (0.0, theta)


def _one_budget(minimiser: PointwiseMinimiser, budgets: BudgetRows, b: Any, nu: Array) -> tuple[Any, Array]:
    """The multiplier of budget b, the others being ν (b,), and the controls (I, m) that meet it with it."""
    xp, single = minimiser.xp, len(nu) == 1
    row, target, start = budgets.rows[b], budgets.targets[b], nu[b]
    equal = budgets.equal[b] if single else xp.asarray(budgets.equal)[b]
    others = 0.0 if single else dot(budgets.rows.T, nu) - start * row

    def attempt(multiplier: Any) -> tuple[Any, Array, Any]:
        minimum = minimiser.lowest(multiplier * row + others)
        return dot(minimum.w, row).mean() - target, minimum.w, minimiser.fall(row, minimum)

    usual = minimiser.scale(row) / 8
    # A multiplier that is known from before is not far off.
    step = xp.where(start == 0, usual, xp.minimum(usual, abs(start) / 32))[()]
    low, high = bracket_multiplier(
        attempt,
        start=start,
        step=step,
        tolerance=_MET * xp.ptp(dot(minimiser.corners, row)),
        narrow=_NARROW,
        at_most=pick(equal, False, True),
        evaluations=_EVALUATIONS if xp is np else _EVALUATIONS_LANES,
        nothing=minimiser.w,
        xp=xp,
    )
    w_star, multiplier = blend(low, high)
    return multiplier, w_star


def _each_budget(minimiser: PointwiseMinimiser, budgets: BudgetRows, start: Array) -> tuple[Array, Array]:
    """One budget after the other, a few times: each multiplier makes the gap smaller.

    Lanes have no linear programs. Budgets of different controls that hardly know of each other converge fast;
    where they do not, the gap is a larger bound.
    """
    count, xp = len(start), minimiser.xp

    def once(state: tuple[Array, Array, Any]) -> tuple[tuple[Array, Array, Any], Any]:
        nu, _, turn = state
        one, w = _one_budget(minimiser, budgets, turn % count, nu)
        return (xp.where(np.arange(count) == turn % count, one, nu), w, turn + 1), False

    return repeat(xp, once, (start, minimiser.w, 0), _ROUNDS_LANES * count)[:2]


def _many_budgets(
    minimiser: PointwiseMinimiser, budgets: BudgetRows, start: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Column generation: a linear program mixes the minimisers found so far, its duals find new ones.

    Every interval mixes its own columns, budgets tie the intervals together. Corners are columns from
    the start: with them every feasible budget can be met.
    """
    rows, targets, equal = budgets
    I = minimiser.hamiltonian.intervals  # noqa: E741
    every = np.arange(I)
    columns = [np.tile(corner, (I, 1)) for corner in minimiser.corners]
    columns += [minimiser.w, minimiser(start @ rows)[0]]
    values = [minimiser.hamiltonian.value(column, every) for column in columns]
    present = float(minimiser.present(np.zeros(rows.shape[1])).sum())
    best, nu, w_star = -np.inf, start, minimiser.w
    for _ in range(_COLUMN_ROUNDS):
        mixture = _mixture(columns, values, rows, targets, equal)
        if mixture is None:
            break
        master, trial, w_star = mixture
        column, minima = minimiser(trial @ rows)
        bound = float(minima.sum() - I * trial @ targets)
        if bound > best:
            best, nu = bound, trial
        if master - best <= max(_COLUMN_ACCURACY * (present - best), 1e-11 * abs(present)):
            break
        columns.append(column)
        values.append(minimiser.hamiltonian.value(column, every))
    return nu, w_star


def _mixture(
    columns: list[np.ndarray],
    values: list[np.ndarray],
    rows: np.ndarray,
    targets: np.ndarray,
    equal: np.ndarray,
) -> tuple[float, np.ndarray, np.ndarray] | None:
    """Best mixture of columns: its value, multipliers (b,) of the budgets, and controls (I, m).

    None if the linear solver gives up, as it may when columns are nearly the same.
    """
    from scipy import sparse
    from scipy.optimize import linprog

    I, count = len(columns[0]), len(columns)  # noqa: E741
    stacked = np.array(columns)  # (count, I, m)
    used = (stacked @ rows.T).reshape(count * I, -1).T
    one_each = sparse.hstack([sparse.eye_array(I)] * count)
    # Costs of order one, so that the solver's absolute tolerances mean something.
    costs = np.concatenate(values)
    size = max(float(np.ptp(costs)), 1e-300)
    solution = linprog(
        costs / size,
        A_eq=sparse.vstack([one_each, sparse.csr_array(used[equal])], format="csr"),
        b_eq=np.concatenate([np.ones(I), I * targets[equal]]),
        A_ub=used[~equal] if np.any(~equal) else None,
        b_ub=I * targets[~equal] if np.any(~equal) else None,
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if not solution.success:
        return None
    nu = np.zeros(len(targets))
    nu[equal] = -size * solution.eqlin.marginals[I:]
    if np.any(~equal):
        nu[~equal] = np.maximum(-size * solution.ineqlin.marginals, 0.0)
    shares = np.clip(solution.x.reshape(count, I), 0.0, None)
    shares = shares / shares.sum(axis=0)
    return float(size * solution.fun), nu, np.einsum("ci,cim->im", shares, stacked)
