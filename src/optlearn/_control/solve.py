"""Find the optimal schedule of a problem."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from optlearn._arguments import Arguments
from optlearn._control.certificate import LIMITS_MET, Starts
from optlearn._control.certify import certify
from optlearn._control.evaluate import evaluate
from optlearn._control.planning.shortest import shortest
from optlearn._control.problem import MOST_INTERVALS, Problem
from optlearn._control.program.build import CompiledProblem, compile_problem
from optlearn._control.program.rollout import Rollout, RolloutResult
from optlearn._control.rounding.rounded import Rounded, check_grid, round_controls, whole_schedule
from optlearn._control.solution import NotConvergedWarning, Solution, Variant
from optlearn._control.solvers.base import Method, Run, Start
from optlearn._control.solvers.methods import METHODS, make_method
from optlearn._control.solvers.rules import MORE_STARTS, STARTS
from optlearn._control.solvers.starts import (
    MOST_STEPS,
    Candidates,
    choose_starts,
    enough_steps,
    random_starts,
    too_coarse,
    warm_schedule,
)
from optlearn._errors import RunawayError, UnphysicalStateError, explained
from optlearn._precision import float64
from optlearn._progress import Progress, Report, silent
from optlearn._schedule import Schedule
from optlearn._signatures import checked
from optlearn._trajectory import Trajectory
from optlearn._warn import warn

__all__ = ["METHODS", "continuation", "solve"]

# Share of the objective by which a run that went on from another may end above it and still be better.
CLOSE = 1e-8
# How many times more steps follow, where too coarse ones have hidden that the dynamics run away.
FAR_FINER = 8


# Trials with too large a rate or too long a step overflow; what is not finite is looked for and left.
@checked
@float64
@np.errstate(over="ignore", invalid="ignore")
def solve(
    problem: Problem,
    intervals: int | None = None,
    method: str = "auto",
    *,
    starts: int | None = None,
    seed: int = 0,
    warm_start: Solution | Schedule | None = None,
    steps: int | None = None,
    max_iterations: int | None = None,
    tolerance: float | None = None,
    progress: Report | None = None,
) -> Solution:
    """The optimal schedule of ``problem``, with a certificate.

    Args:
        problem: what to solve; with ``reach``, the shortest horizon that reaches it is found as well.
        intervals: equal control intervals (default: the problem's).
        method: "auto", "direct", "indirect" or "greedy"; see ``METHODS``.
        starts: how many first guesses to optimise: the warm start, a neutral guess, the problem's
            baselines from the best on, then random ones (default: 3; from a solution whose solver converged,
            that alone, and the others only if it leads nowhere).
        seed: of the random starts.
        warm_start: a solution or schedule to start from, of this problem or of one like it: it is stretched
            to the horizon, and values that are not admissible take the nearest that are.
        steps: Runge-Kutta steps in each interval (default: as many as the first guess needs for
            1e-8; twice as many, again and again, if the optimum needs more).
        max_iterations: of the solver.
        tolerance: of the solver (default: 1e-10 for direct, 1e-7 for indirect).
        progress: called with a ``Progress`` at every stage, and as the gap falls.

    Returns:
        A solution, converged or not; if not, a ``NotConvergedWarning`` says why.
    """
    began = time.perf_counter()
    if problem.reach is not None:
        given = {
            "intervals": intervals, "method": method, "starts": starts, "seed": seed, "steps": steps,
            "max_iterations": max_iterations, "tolerance": tolerance, "progress": progress,
        }  # fmt: skip

        def plain(fixed: Problem, before: Solution | None) -> Solution:
            return solve(fixed, warm_start=warm_start if before is None else before, **given)  # type: ignore[arg-type]

        return replace(shortest(problem, plain), seconds=time.perf_counter() - began)
    tell = progress or silent
    check = Arguments("solve")
    check.count("seed", seed, 0)
    for name, value in (("starts", starts), ("steps", steps), ("max_iterations", max_iterations)):
        if value is not None:
            check.count(name, value)
    if tolerance is not None:
        check.number("tolerance", tolerance, 0.0, 1.0, open_below=True)
    count = check.count("intervals", problem.intervals if intervals is None else intervals, 1, MOST_INTERVALS)
    chosen = make_method(method, max_iterations, tolerance)
    tell(Progress("tracing the dynamics"))
    compiled = compile_problem(problem)
    if chosen.optimises:
        compiled.program.prepare()
    check_grid(compiled, count)
    warm = None if warm_start is None else warm_schedule(problem, warm_start)
    near = starts in (None, 1) and isinstance(warm_start, Solution) and warm_start.outcome.ok
    alone, starts = starts == 1, starts or STARTS
    notes: list[str] = []
    tell(Progress("choosing starts"))
    wanted = 1 if near or not chosen.optimises else starts
    candidates = Candidates.of(compiled, count, wanted, warm, notes)
    guesses = candidates.first + candidates.baselines
    rollout = Rollout(compiled, count, steps or enough_steps(compiled, count, guesses))
    guesses = choose_starts(rollout, wanted, seed, candidates, notes) if chosen.optimises else guesses[-1:]
    curvature = warm_start.curvature if near and isinstance(warm_start, Solution) else None
    guesses = [replace(guess, near=near, curvature=curvature) for guess in guesses]
    runs = chosen.run_all(rollout, guesses, tell)
    if near and chosen.optimises and not alone and not any(run.outcome.ok or run.interrupted for run in runs):
        candidates = Candidates.of(compiled, count, starts, None, notes)
        runs += chosen.run_all(rollout, choose_starts(rollout, starts, seed, candidates, notes), tell)
    for again in range(1, MORE_STARTS + 1):
        if runs[-1].interrupted or not Starts.of(_ends(runs)).lone:
            break
        # One start alone has reached the best so far: another may reach a better one.
        others = random_starts(rollout, starts, (seed, again))
        runs += chosen.run_all(rollout, others, tell) if others else []
    best = _best(rollout, runs)
    while steps is None and chosen.optimises and not runs[-1].interrupted and too_coarse(rollout, best):
        coarser, rollout = rollout, Rollout(compiled, count, 2 * rollout.steps)
        if np.isfinite(rollout.objective(best.w, best.theta)):
            there = Start("the optimum with coarser steps", best.w, best.theta)
            finer = chosen.run_all(rollout, [there], tell)
            runs += [replace(run, continues=True) for run in finer]
        else:
            notes.append(
                f"with more than {coarser.steps} steps in an interval, what was best runs away: left out"
            )
            # Steps that hide this are far too coarse, and the solver went where they do.
            rollout = Rollout(compiled, count, min(FAR_FINER * coarser.steps, MOST_STEPS))
            guesses = choose_starts(rollout, starts, seed, candidates, notes)
            runs = finer = chosen.run_all(rollout, guesses, tell)
        best = _best(rollout, finer)
    options = {"intervals": count, "method": method, "starts": wanted, "seed": seed, "steps": rollout.steps}
    given = {"max_iterations": max_iterations, "tolerance": tolerance}
    options |= {name: value for name, value in given.items() if value is not None}
    options["warm_start"] = warm is not None
    return _finish(rollout, chosen, best, runs, notes, options, began, tell)


@checked
def continuation(problems: Sequence[Problem], **options: Any) -> list[Solution]:
    """Solve problems one after the other, each from the solution of the one before."""
    solutions: list[Solution] = []
    for problem in problems:
        warm = solutions[-1] if solutions else None
        solutions.append(solve(problem, warm_start=warm, **options))
    return solutions


def _best(rollout: Rollout, runs: list[Run]) -> Run:
    """The lowest objective, among the runs that keep all limits if any does.

    A direct run that went on from it may end a little above, since it stays inside bounds, and is the better
    schedule: passes leave ragged what the objective hardly depends on.
    """
    weighing = rollout.compiled.problem.weighing

    def rank(run: Run) -> tuple[bool, float]:
        if weighing is None or not weighing.limits:
            return False, run.objective
        costs = rollout.costs(run.w, run.theta)
        # A limit that is broken a little must not make a run look better than one that keeps it.
        over = np.maximum(costs[weighing.members :] - np.array(weighing.limits), 0.0)
        prices = np.zeros(len(over)) if run.weights is None else run.weights[weighing.members :]
        return weighing.excess(costs) > LIMITS_MET, run.objective + float(prices @ over)

    lowest = min(runs, key=rank)
    breaks, value = rank(lowest)

    def is_close(run: Run) -> bool:
        return rank(run)[0] == breaks and rank(run)[1] <= value + CLOSE * abs(value)

    polished = [run for run in runs if run.continues and run.outcome.ok and is_close(run)]
    return polished[-1] if polished else lowest


def _ends(runs: list[Run]) -> list[float]:
    """Where each start ended, before anything went on from there."""
    return [run.objective for run in runs if not run.continues]


def _finish(
    rollout: Rollout,
    method: Method,
    best: Run,
    runs: list[Run],
    notes: list[str],
    options: dict[str, Any],
    began: float,
    tell: Report,
) -> Solution:
    """Round the best run, re-integrate it, certify it."""
    compiled, problem = rollout.compiled, rollout.compiled.problem
    final = Rounded(best.w, best.theta, best.objective)
    relaxed = whole = None
    if problem.discrete:
        relaxed = _variant(compiled, "mixed", best.w, best.theta, notes)
        if method.optimises or not _is_pure(compiled, best.w):
            tell(Progress("rounding"))
            final = round_controls(rollout, best.w, best.theta)
    found = whole_schedule(rollout, final.w, final.theta)
    if found is not None:
        whole = _variant(compiled, "whole-number", found.w, found.theta, notes)
    tell(Progress("re-integrating and certifying"))
    schedule = compiled.relaxation.schedule(final.w, _named(compiled, final.theta), rounded=True)
    try:
        trajectory = evaluate(problem, schedule)
    except UnphysicalStateError as error:
        raise RunawayError(
            f"the optimum with {rollout.steps} steps in an interval runs away when it is integrated "
            f"accurately; take more intervals or steps, or tighten the bounds of the controls ({error})"
        ) from error
    if relaxed is not None and trajectory.objective < relaxed.objective:
        # An interior point stops short of a bound by its tolerance; pure values reach it.
        relaxed = Variant(schedule, trajectory.objective)
    certificate, rolled = certify(
        compiled,
        final.w,
        final.theta,
        objective=trajectory.objective,
        solver_objective=final.objective,
        relaxed_objective=None if relaxed is None else relaxed.objective,
        outcome=best.outcome,
        objectives=_ends(runs),
        relaxed_controls=(best.w, best.theta) if problem.discrete else None,
        steps=rollout.steps,
        quadrature_error=_quadrature_error(compiled, schedule, trajectory.objective),
        weights=best.weights,
        multipliers=best.multipliers(problem.horizon),
    )
    if not certificate.converged and method.optimises:
        warn(
            f"{problem.name}: not converged: {'; '.join(certificate.reasons)}. {explained('not-converged')}",
            NotConvergedWarning,
        )
    return Solution(
        problem=problem,
        schedule=schedule,
        objective=trajectory.objective,
        parameters=_named(compiled, final.theta),
        trajectory=trajectory,
        costates=_costates(compiled, rolled),
        certificate=certificate,
        method=method.name,
        outcome=best.outcome,
        seconds=time.perf_counter() - began,
        relaxed=relaxed,
        whole_numbers=whole,
        runs=tuple(run.record for run in runs),
        notes=tuple(notes),
        options=options,
        weights=_weights(compiled, rolled, final.theta, best.weights),
        curvature=best.curvature,
    )


def _weights(
    compiled: CompiledProblem, rolled: RolloutResult, theta: np.ndarray, found: np.ndarray | None
) -> tuple[float, ...]:
    """Of the costs, if there are several; by a baseline, which has none, the worst ones."""
    if compiled.problem.weighing is None:
        return ()
    if found is None:
        found = compiled.problem.weighing.weights(compiled.costs(rolled.states[-1], theta))
    return tuple(map(float, found))


def _variant(
    compiled: CompiledProblem, kind: str, w: np.ndarray, theta: np.ndarray, notes: list[str]
) -> Variant | None:
    schedule = compiled.relaxation.schedule(w, _named(compiled, theta))
    try:
        return Variant(schedule, evaluate(compiled.problem, schedule, record=2).objective)
    except UnphysicalStateError as error:
        notes.append(f"the {kind} schedule is left out: {error}")
        return None


def _quadrature_error(compiled: CompiledProblem, schedule: Schedule, objective: float) -> float | None:
    """What a finer, independent quadrature changes of a schedule's objective; None: closed forms."""
    refined = compiled.system.system.refined()
    if refined is None:
        return None
    problem = replace(compiled.problem, model=refined, quadrature=None)
    # Where the error shrinks slowly, the difference of two rules is only a part of it.
    return 2 * abs(evaluate(problem, schedule, record=2).objective - objective)


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
