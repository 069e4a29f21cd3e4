"""From the best run to a solution: rounding, re-integration, certificate."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from optlearn._arrays import Float
from optlearn._control.certificate import LIMITS_MET, STEPS, Certificate, Starts, judged, unmet_limits
from optlearn._control.compiled import CompiledProblem, Rollout, compile_problem, weighing_on
from optlearn._control.evaluate import evaluate_compiled
from optlearn._control.hamiltonian.gap import free_gap, hamiltonian_gap
from optlearn._control.kept import excesses, worst
from optlearn._control.path import KEPT, Excess
from optlearn._control.rounding.rounded import Rounded, keeping_limits, round_controls, whole_schedule
from optlearn._control.runs import Method, Outcome, Run, finer, with_fewer_steps
from optlearn._control.solution import Solution, Variant, warn_not_converged
from optlearn._control.weighing import Fixed
from optlearn._engine.functions import Controls, FreeValues
from optlearn._engine.rollout import RolloutResult
from optlearn._errors import RunawayError, UnphysicalStateError, count_of
from optlearn._progress import Progress, Report
from optlearn._trajectory import Trajectory

# Lengths of finite differences, as shares of the controls' ranges. Each is a quarter of the one before, so
# that one of its three passes is known already. And shares of first and second derivatives up to which two
# differences agree well or roughly, and beyond which a derivative is wrong.
DIFFERENCES = (1e-2, 2.5e-3, 6.25e-4)
AGREE_WELL, AGREE, WRONG = 0.01, 0.1, 0.02


@dataclass(frozen=True)
class SearchResult:
    """The outcome of a search.

    Attributes:
        rollout: the grid that it ended on.
        method: the solution method.
        best: the run that became the solution.
        runs: all runs.
        notes: notes for the user on what was left out.
        options: options of ``solve``, for the record.
        dropped: number of starts without a finite objective.
        negligible: improvement that does not matter.
        unscouted: why no scouts looked, if none did.
    """

    rollout: Rollout
    method: Method
    best: Run
    runs: list[Run]
    notes: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    dropped: int = 0
    negligible: float = 0.0
    unscouted: str = ""

    @property
    def starts(self) -> Starts:
        """Summary of the starts, before any continuation from their ends."""
        return Starts.of(ends(self.rollout, self.runs), self.dropped, self.negligible, self.unscouted)


def ends(rollout: Rollout, runs: list[Run]) -> list[float]:
    """Final objectives of the starts that keep all limits, if any does; others can reach any objective."""
    counted, weighing = [run for run in runs if run.counts], weighing_on(rollout)
    if weighing is not None and weighing.limits:
        kept = [run for run in counted if weighing.excess(rollout.costs(run.w, run.theta)) <= LIMITS_MET]
        counted = kept or counted
    return [run.objective for run in counted]


def finish(search: SearchResult, tell: Report) -> Solution:
    """Round the best run, re-integrate it and certify it; the caller sets ``seconds``."""
    rollout, best, notes = search.rollout, search.best, search.notes
    compiled, problem = rollout.compiled, rollout.compiled.problem
    final = Rounded(best.w, best.theta, best.objective)
    relaxed = whole = None
    if problem.discrete:
        relaxed = _variant(compiled, "mixed", best.w, best.theta, notes)
        if search.method.optimises or not _is_pure(compiled, best.w):
            tell(Progress("rounding"))
            priced = keeping_limits(rollout, best.w, best.theta, best.weights)
            final = round_controls(priced, best.w, best.theta)
            final = replace(final, objective=rollout.objective(final.w, final.theta))
    priced = keeping_limits(rollout, final.w, final.theta, best.weights)
    whole_numbers = whole_schedule(priced, final.w, final.theta)
    if whole_numbers is not None:
        whole = _variant(compiled, "whole-number", whole_numbers.w, whole_numbers.theta, notes)
    notes += [
        f"{name}: {', '.join(f'{number} is {label}' for number, label in enumerate(control.labels))}"
        for name, control in problem.discrete.items()
        if control.labels
    ]
    tell(Progress("re-integrating and certifying"))
    schedule = compiled.relaxation.schedule(final.w, _named(compiled, final.theta), rounded=True)
    try:
        trajectory = evaluate_compiled(compiled, _named(compiled, final.theta), schedule)
    except UnphysicalStateError as error:
        raise RunawayError(
            f"the optimum found with {count_of(rollout.steps, 'step')} in an interval runs away when "
            "integrated accurately; take more intervals or steps, or tighten the bounds of the controls "
            f"({error})"
        ) from error
    if relaxed is not None and trajectory.objective < relaxed.objective:
        # An interior point stops short of a bound by its tolerance; pure values reach it.
        relaxed = Variant(schedule, trajectory.objective)
    certificate, rolled = certify(
        rollout,
        final.w,
        final.theta,
        objective=trajectory.objective,
        solver_objective=final.objective,
        relaxed_objective=None if relaxed is None else relaxed.objective,
        outcome=best.outcome,
        starts=search.starts,
        relaxed_controls=(best.w, best.theta) if problem.discrete else None,
        quadrature_error=_quadrature_error(rollout, final.w, final.theta),
        weights=best.weights,
        multipliers=best.multipliers(problem.horizon),
        negligible=search.negligible,
        path=worst(excesses(compiled, schedule, final.theta, trajectory, rollout.steps)),
    )
    if search.method.optimises:
        warn_not_converged(problem.name, certificate)
    return Solution(
        problem=problem,
        schedule=schedule,
        objective=trajectory.objective,
        parameters=_named(compiled, final.theta),
        trajectory=trajectory,
        costates=_costates(compiled, rolled),
        certificate=certificate,
        method=search.method.name,
        outcome=best.outcome,
        seconds=0.0,
        relaxed=relaxed,
        whole_numbers=whole,
        runs=tuple(run.record for run in search.runs),
        notes=tuple(notes),
        options=search.options,
        weights=_weights(rollout, rolled, final.theta, best.weights),
        curvature=best.curvature,
    )


def certify(
    rollout: Rollout,
    w: Controls,
    theta: FreeValues,
    *,
    objective: float,
    solver_objective: float,
    relaxed_objective: float | None,
    outcome: Outcome,
    starts: Starts,
    relaxed_controls: tuple[Controls, FreeValues] | None = None,
    quadrature_error: float | None = None,
    weights: Float[np.ndarray, " K"] | None = None,
    multipliers: Float[np.ndarray, " b"] | None = None,
    negligible: float = 0.0,
    path: Excess | None = None,
) -> tuple[Certificate, RolloutResult]:
    """Certificate of relaxed controls, and the fine rollout behind it.

    Args:
        rollout: the problem, with as many steps in each interval as the solver needed.
        w: controls as returned (shares of 0 or 1 where rounded).
        theta: free parameters.
        objective: re-integrated objective.
        solver_objective: objective on the solver's grid.
        relaxed_objective: re-integrated objective of the relaxed optimum, with discrete controls.
        outcome: how the solver ended.
        starts: summary of the starts.
        relaxed_controls: w and θ of the relaxed optimum. If given, *its* Hamiltonian gap counts if it is
            smaller: the cost of rounding is known exactly, as the relaxation gap, while the Hamiltonian gap
            of a rounded schedule also counts improvements that no schedule on this grid can achieve.
        quadrature_error: change of the objective under a finer quadrature, if there is one.
        weights: of several costs, if there are several. The gap is then that of their weighted sum, plus
            the difference between the objective and the sum.
        multipliers: multipliers of the budgets, in units of the Hamiltonian, to start the search from.
        negligible: improvement that does not matter.
        path: the worst point of the worst path along an accurately integrated trajectory.
    """
    compiled, on_grid = rollout.compiled, False
    weighted = rollout
    broken: list[str] = []
    weighing, own = weighing_on(rollout), compiled.problem.weighing
    if weighing is not None and own is not None:
        costs = finely(rollout, w, theta)
        # Paths are judged separately, along a finer trajectory.
        excess = own.excess(costs[: own.size])
        broken = unmet_limits(compiled.problem, costs[: own.size])
        on_grid = weighing.excess(costs) <= max(excess, KEPT)
        weights = weighing.weights(costs) if weights is None else weights
        weighted = rollout.weighted(Fixed(weights))

    def left_out(w: Controls, theta: FreeValues) -> float:
        """Difference between the cost of controls and the weighted sum."""
        if weighing is None or weights is None:
            return 0.0
        return max(0.0, weighing.slack(finely(rollout, w, theta), weights))

    # Paths have their multipliers at the ends of the solver's own steps.
    if not (compiled.engine.exact or compiled.problem.paths or rollout.steps >= STEPS):
        weighted = weighted.with_steps(STEPS)
    gap, rolled = _gap(weighted, w, theta, multipliers)
    gap += left_out(w, theta)
    mixed = None
    if relaxed_controls is not None:
        mixed = _gap(weighted, *relaxed_controls, multipliers)[0] + left_out(*relaxed_controls)
    certificate = judged(
        compiled.problem,
        objective=objective,
        hamiltonian_gap=gap,
        mixed_gap=mixed,
        relaxed_objective=relaxed_objective,
        integration_error=solver_objective - objective,
        budget_error=compiled.relaxation.budget_rows.error(w),
        outcome=outcome,
        starts=starts,
        largest=float(np.abs(rolled.states).max()),
        quadrature_error=quadrature_error,
        broken=broken,
        negligible=negligible,
        blind=_is_blind(rollout, rolled, theta),
        misled=derivatives_differ(rollout, w, theta) if outcome.ok else 0.0,
        path=path,
        path_kept_on_grid=on_grid,
    )
    return certificate, rolled


def finely(rollout: Rollout, w: Controls, theta: FreeValues) -> np.ndarray:
    """(K,) several costs; those of the final state are computed with more steps than the solver used."""
    costs, fine, own = rollout.costs(w, theta), finer(rollout), rollout.compiled.functions.weights
    if fine is not None:
        costs[:own] = fine.compiled.costs(fine.forward(w, theta)[1][-1], theta)
    return costs


def _is_blind(rollout: Rollout, rolled: RolloutResult, theta: FreeValues) -> bool:
    """Is the objective's derivative zero here and elsewhere? At an exact minimum it is zero only here."""
    if np.any(rolled.costates) or rollout.compiled.problem.objective.has_running:
        return False
    relaxation = rollout.compiled.relaxation
    others = (relaxation.neutral, relaxation.bounds[0])
    passes = (rollout.run(np.tile(w, (rollout.intervals, 1)), theta) for w in others)
    return not any(np.any(np.isfinite(p.costates) & (p.costates != 0)) for p in passes)


def derivatives_differ(rollout: Rollout, w: Controls, theta: FreeValues) -> float:
    """Relative difference between the objective's derivative and finite differences; 0 if they agree.

    A quadrature does not see the places move at which a loss jumps or bends, unless it is split there
    (``breaks``): its values are right, but its derivatives are not. All controls move away from their nearer
    bounds at once, by steps so short that differences over twice the length agree.
    """
    if not rollout.compiled.engine.costly or rollout.compiled.problem.weighing is not None:
        return 0.0  # cheap rules have too few points to see a jump; the worst of several costs may have kinks
    # The derivative must match its own objective, however rough.
    rollout = with_fewer_steps(rollout, w, theta)
    low, high = rollout.compiled.relaxation.bounds
    inwards = np.where(w > (low + high) / 2, low - high, high - low)
    inwards = inwards * np.random.default_rng(0).uniform(0.2, 1.0, w.shape)
    here = rollout.run(w, theta)
    slope, size = np.sum(here.gradient * inwards), np.sum(np.abs(here.gradient * inwards))
    for length in DIFFERENCES:
        first, second, fourth = (
            rollout.objective(w + times * length * inwards, theta) - here.objective for times in (1, 2, 4)
        )
        difference, rough = (4 * first - second) / (2 * length), (4 * second - fourth) / (4 * length)
        scale = size + abs(second - 2 * first) / length**2
        spread, missing = abs(difference - rough), abs(difference - slope)
        if spread <= AGREE * scale and missing > 2 * spread + WRONG * scale:
            return float(missing / max(abs(difference), size))
        if spread <= AGREE_WELL * scale:
            break
    return 0.0


def _gap(
    rollout: Rollout, w: np.ndarray, theta: np.ndarray, multipliers: np.ndarray | None
) -> tuple[float, RolloutResult]:
    """Possible improvement in controls and free parameters by the minimum principle; and the rollout."""
    compiled, steps, rolled = rollout.compiled, rollout.steps, rollout.run(w, theta)
    gap, _, _ = hamiltonian_gap(compiled, rolled, w, theta, steps, multipliers)
    return max(float(gap), 0.0) + free_gap(compiled, rolled, w, theta, steps)[0], rolled


def _weights(
    rollout: Rollout, rolled: RolloutResult, theta: np.ndarray, of_run: np.ndarray | None
) -> tuple[float, ...]:
    """Weights of several costs, then sums over paths; the worst-case weights for a baseline without any."""
    compiled, weighing = rollout.compiled, rollout.compiled.problem.weighing
    if weighing is None:
        return ()
    paths = compiled.engine.paths
    totals = np.zeros(0 if paths is None else len(paths.read_controls))
    if of_run is None:
        of_run = weighing.weights(compiled.costs(rolled.states[-1], theta))
    elif paths is not None:
        each = of_run[weighing.size :].reshape(rollout.intervals, -1).sum(axis=0)
        np.add.at(totals, np.nonzero(paths.points(rollout.steps))[1], each)
    return tuple(map(float, [*of_run[: weighing.size], *totals]))


def _variant(
    compiled: CompiledProblem, kind: str, w: np.ndarray, theta: np.ndarray, notes: list[str]
) -> Variant | None:
    schedule = compiled.relaxation.schedule(w, _named(compiled, theta))
    try:
        return Variant(schedule, evaluate_compiled(compiled, schedule.parameters, schedule, 2).objective)
    except UnphysicalStateError as error:
        notes.append(f"the {kind} schedule is left out: {error}")
        return None


def _quadrature_error(rollout: Rollout, w: Controls, theta: FreeValues) -> float | None:
    """Twice the change of an objective under a finer, independent quadrature; None with closed forms.

    Where the error shrinks slowly, the difference of two rules is only part of it, hence the factor 2.
    """
    compiled = rollout.compiled
    refined = compiled.functions.system.system.refined()
    if refined is None:
        return None
    other = compile_problem(replace(compiled.problem, model=refined, quadrature=None))
    # The difference of the rules hardly depends on the steps.
    steps = with_fewer_steps(rollout, w, theta).steps
    once, again = (Rollout(each, rollout.edges, steps).objective(w, theta) for each in (compiled, other))
    return 2 * abs(again - once)


def _named(compiled: CompiledProblem, theta: np.ndarray) -> dict[str, float]:
    return dict(zip(compiled.problem.free, map(float, theta), strict=True))


def _is_pure(compiled: CompiledProblem, w: np.ndarray) -> bool:
    columns = [compiled.relaxation.blocks[name] for name in compiled.problem.discrete]
    return all(bool(np.all((w[:, c] == 0) | (w[:, c] == 1))) for c in columns)


def _costates(compiled: CompiledProblem, rolled: RolloutResult) -> Trajectory:
    names = compiled.problem.model.layout.names
    alpha = np.linspace(0.0, compiled.problem.horizon, len(rolled.costates))
    values = {name: rolled.costates[:, i] for i, name in enumerate(names)}
    return Trajectory(alpha, values, names, {"objective": float("nan")})
