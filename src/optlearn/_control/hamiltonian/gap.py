"""Pontryagin's minimum principle: what the Hamiltonian says is still to be won.

Budgets add ν·a·w to the Hamiltonian, with one constant ν each. The multipliers have the unit of H, so those
of the direct method, which belong to the *mean* of a·w over training, are the horizon times ν.
"""

import numpy as np

from optlearn._control.compiled import CompiledProblem
from optlearn._control.hamiltonian.interval import IntervalHamiltonian
from optlearn._control.hamiltonian.minimise import PointwiseMinimiser
from optlearn._control.hamiltonian.multipliers import blend, bracket_multiplier
from optlearn._engine.rollout import RolloutResult

# Budgets that are met so well, relative to what they can be, give the gap to the square of it: a multiplier
# is where the gap is least. What is left is blended away.
_MET = 1e-8
_COLUMN_ROUNDS = 40
_COLUMN_ACCURACY = 0.01  # of the gap


def minimise_hamiltonian(
    hamiltonian: IntervalHamiltonian, w: np.ndarray, start: np.ndarray | None = None, *, quick: bool = False
) -> tuple[float, np.ndarray, np.ndarray]:
    """Minimise H̄ over all controls that meet the budgets.

    The gap is that of the Lagrange dual, Σ_i h [L_i(w_i) − min L_i] + horizon·ν·(t − mean a·w) with
    L = H̄ + ν a·w. It is never negative for controls w that meet the budgets, and where H̄ is linear in
    w, as in shares, it is the Frank-Wolfe gap of the discretised problem.

    Args:
        hamiltonian: H̄ on I intervals.
        w: (I, m) present controls.
        start: (b,) multipliers to look near.
        quick: look for valleys of H in the middle of an interval only.

    Returns:
        gap: horizon · mean over intervals of what H̄ could fall by.
        w_star: (I, m) minimisers that meet the budgets; intervals at which the multiplier makes
            several controls equally good may have a mixture.
        nu: (b,) multipliers ν, in units of H.
    """
    minimiser = PointwiseMinimiser(hamiltonian, w, quick)
    rows, targets, equal = hamiltonian.compiled.relaxation.budget_rows
    start = np.zeros(len(targets)) if start is None else start
    if len(targets) == 0:
        w_star, lowest = minimiser(np.zeros(w.shape[1]))
        won = minimiser.present(np.zeros(w.shape[1])) - lowest
        return float(hamiltonian.compiled.problem.horizon * won.mean()), w_star, np.zeros(0)
    if len(targets) == 1:
        nu, w_star = _one_budget(minimiser, rows[0], targets[0], bool(equal[0]), float(start[0]))
    else:
        nu, w_star = _many_budgets(minimiser, rows, targets, equal, start)
    slope = nu @ rows
    won = minimiser.present(slope) - minimiser(slope)[1]
    slack = nu @ (targets - rows @ w.mean(axis=0))
    return float(hamiltonian.compiled.problem.horizon * (won.mean() + slack)), w_star, nu


def hamiltonian_gap(
    compiled: CompiledProblem,
    rolled: RolloutResult,
    w: np.ndarray,
    theta: np.ndarray,
    steps: int,
    start: np.ndarray | None = None,
) -> tuple[float, np.ndarray, np.ndarray]:
    """What the minimum principle says is still to be won, to first order.

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
    return minimise_hamiltonian(hamiltonian, w, start)


def free_gap(
    compiled: CompiledProblem, rolled: RolloutResult, w: np.ndarray, theta: np.ndarray, steps: int
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

    along = IntervalHamiltonian.along(compiled, rolled, w, theta, steps)
    # Parameters that only the final cost reads need no integral.
    integral = compiled.engine.free_in_rate

    def total(trial: np.ndarray) -> tuple[float, np.ndarray]:
        value, _, gradient = compiled.final_gradient(rolled.states[-1], trial)
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
    found = minimize(tilted, theta, jac=True, bounds=bounds, method="L-BFGS-B", options=options)
    return (-float(found.fun), found.x) if found.fun < 0 else (0.0, theta)


def _one_budget(
    minimiser: PointwiseMinimiser, row: np.ndarray, target: float, equal: bool, start: float
) -> tuple[np.ndarray, np.ndarray]:
    def attempt(nu: float) -> tuple[float, np.ndarray]:
        w, _ = minimiser(nu * row)
        return float((w @ row).mean() - target), w

    def step(excess: float) -> float:
        # A little further than Newton's step, so as to end on the other side.
        if (fall := minimiser.fall(row)) > 0:
            return 1.1 * abs(excess) / fall
        # A multiplier that is known from before is not far off.
        usual = minimiser.scale(row) / 8
        return min(usual, abs(start) / 32) if start else usual

    reach = np.ptp(minimiser.corners @ row)
    low, high = bracket_multiplier(
        attempt,
        start=start,
        step=step,
        tolerance=_MET * reach,
        narrow=1e-12,
        at_most=not equal,
    )
    w_star, nu = blend(low, high)
    return np.array([nu]), w_star


def _many_budgets(
    minimiser: PointwiseMinimiser,
    rows: np.ndarray,
    targets: np.ndarray,
    equal: np.ndarray,
    start: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Column generation: a linear program mixes the minimisers found so far, its duals find new ones.

    Every interval mixes its own columns, budgets tie the intervals together. Corners are columns from
    the start: with them every feasible budget can be met.
    """
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
