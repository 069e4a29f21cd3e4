"""The best of all controls on a coarse grid of levels, refined at random: slow, plain, and in NumPy alone."""

from itertools import product

import numpy as np
from tests.fuzz.systems import Fuzzed

import optlearn as ol

# Runge-Kutta steps in an interval; a third of them tells which of thousands are worth refining.
STEPS, ROUGH = 12, 4
KEPT, TRIALS, ROUNDS = 6, 40, 12  # of the refinement


def objective(problem: ol.Problem, controls: np.ndarray, steps: int = STEPS) -> np.ndarray:
    """(T,) objectives of controls (T, I, m), infinite where a budget or a limit is broken."""
    model, settings, names = problem.model, problem.settings, list(problem.controls)
    length = problem.horizon / controls.shape[1] / steps
    assert isinstance(model, Fuzzed)
    running = getattr(model, "running", None)

    def slope(x: dict[str, np.ndarray], u: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        slopes = model.rate(np, x, u)
        if running is not None:
            slopes["spent"] = running(np, x, u) / problem.horizon
        return slopes

    x = {name: np.full(len(controls), float(problem.start[name])) for name in model.names}
    if running is not None:
        x["spent"] = np.zeros(len(controls))
    with np.errstate(over="ignore", invalid="ignore"):
        for values in controls.transpose(1, 2, 0):
            u = {**settings, **dict(zip(names, values, strict=True))}
            for _ in range(steps):
                first = slope(x, u)
                second = slope({n: x[n] + length / 2 * first[n] for n in x}, u)
                third = slope({n: x[n] + length / 2 * second[n] for n in x}, u)
                last = slope({n: x[n] + length * third[n] for n in x}, u)
                x = {n: x[n] + length / 6 * (first[n] + 2 * second[n] + 2 * third[n] + last[n]) for n in x}
        total = np.asarray(model.cost(np, x, settings)) + (x["spent"] if running is not None else 0.0)
    allowed = np.isfinite(total)
    for budget in problem.budgets:
        own = controls[:, :, names.index(budget.control)]
        excess = own.mean(axis=1) - budget.mean if budget.mean is not None else _share(own, budget)
        allowed &= (np.abs(excess) if budget.equal else excess) < 1e-9
    for limit in problem.limits:
        allowed &= model.limited(np, x, settings) <= limit.at_most
    return np.where(allowed, total, np.inf)


def _share(own: np.ndarray, budget: ol.Budget) -> np.ndarray:
    ((value, share),) = budget.share.items()
    return (own == value).mean(axis=1) - share


def least(problem: ol.Problem, levels: int, seed: int = 0) -> tuple[float, np.ndarray]:
    """The lowest objective that was found, and its controls (I, m)."""
    intervals, bounds = problem.intervals, list(problem.controls.values())
    low, high = np.array([c.lower for c in bounds]), np.array([c.upper for c in bounds])
    discrete = bool(problem.discrete)
    choices = [c.values if discrete else np.linspace(c.lower, c.upper, levels) for c in bounds]
    moves = np.array(list(product(*choices)))
    equal = [
        list(problem.controls).index(b.control) for b in problem.budgets if b.mean is not None and b.equal
    ]

    def met(controls: np.ndarray) -> np.ndarray:
        """The last interval takes what is left of a mean; controls that leave their bounds are dropped."""
        for budget, column in zip((b for b in problem.budgets if b.equal), equal, strict=False):
            own = controls[:, :, column]
            own[:, -1] = intervals * budget.mean - own[:, :-1].sum(axis=1)
        return controls[np.all((controls >= low) & (controls <= high), axis=(1, 2))]

    order = np.stack(np.meshgrid(*[np.arange(len(moves))] * intervals, indexing="ij"), axis=-1)
    controls = moves[order.reshape(-1, intervals)]
    if equal:  # the last level of such a control is settled: once is enough
        controls[:, -1, equal] = low[equal]
        controls = np.unique(met(controls), axis=0)
    values = objective(problem, controls, STEPS if discrete else ROUGH)
    if discrete:
        best = int(np.argmin(values))
        return float(values[best]), controls[best]
    generator, reach = np.random.default_rng(seed), (high - low) / (levels - 1)
    kept = controls[np.argsort(values)[:KEPT]]
    for _ in range(ROUNDS):
        noise = generator.normal(size=(TRIALS, *kept.shape))
        trials = np.clip(kept[None] + reach * noise, low, high).reshape(-1, *kept.shape[1:])
        pool = np.concatenate([kept, met(trials)])
        values = objective(problem, pool)
        kept = pool[np.argsort(values)[:KEPT]]
        reach = reach * 0.5
    values = objective(problem, kept[:1])
    return float(values[0]), kept[0]
