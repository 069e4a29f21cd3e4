"""Find the optimal schedule of a problem."""

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from optlearn._control.certificate import STEPS, certify
from optlearn._control.evaluate import check_schedule, evaluate
from optlearn._control.problem import Problem
from optlearn._control.program.build import CompiledProblem, compile_problem
from optlearn._control.program.rollout import Rollout, RolloutResult
from optlearn._control.rounding.rounded import Rounded, check_grid, round_controls, whole_schedule
from optlearn._control.solution import NotConvergedWarning, Solution, Variant
from optlearn._control.solvers.outcome import Outcome
from optlearn._control.solvers.starts import Start, choose_starts
from optlearn._control.solvers.strategy import Progress, Run, enough_steps, greedy_run, optimise, too_coarse
from optlearn._errors import SpecificationError, explained
from optlearn._precision import float64
from optlearn._schedule import Schedule, uniform_grid
from optlearn._trajectory import Trajectory

Method = Literal["auto", "direct", "indirect", "greedy"]
METHODS: Mapping[str, str] = {
    "auto": "sweeps from several starts, which are quick, then direct from the best of them",
    "direct": "multiple shooting, IPOPT; discrete controls relaxed, then rounded",
    "indirect": "Pontryagin forward-backward sweeps with exact adjoints",
    "greedy": "locally optimal: the steepest descent of the error at every moment",
}


@float64
def solve(
    problem: Problem,
    intervals: int | None = None,
    method: Method = "auto",
    *,
    starts: int = 3,
    seed: int = 0,
    warm_start: Solution | Schedule | None = None,
    steps: int | None = None,
    max_iterations: int | None = None,
    tolerance: float | None = None,
    progress: Progress | None = None,
) -> Solution:
    """The optimal schedule of ``problem``, with a certificate.

    Args:
        problem: what to solve.
        intervals: equal control intervals (default: the problem's).
        method: "auto", "direct", "indirect" or "greedy"; see ``METHODS``.
        starts: how many first guesses to optimise: the warm start, a neutral guess, the problem's
            baselines from the best on, then random ones.
        seed: of the random starts.
        warm_start: a solution or schedule to start from.
        steps: Runge-Kutta steps in each interval (default: as many as the first guess needs for
            1e-8; twice as many, again and again, if the optimum needs more).
        max_iterations: of the solver.
        tolerance: of the solver (default: 1e-10 for IPOPT, 1e-7 for sweeps).
        progress: called with a line of text at every stage.

    Returns:
        A solution, converged or not; if not, a ``NotConvergedWarning`` says why.
    """
    began = time.perf_counter()
    tell = progress or (lambda text: None)
    if method not in METHODS:
        raise SpecificationError(f"method={method!r}: one of {', '.join(METHODS)}")
    if starts < 1:
        raise SpecificationError(f"starts={starts!r}: at least 1")
    tell("tracing the dynamics")
    compiled = compile_problem(problem)
    if method != "greedy":
        compiled.program.prepare()
    count = problem.intervals if intervals is None else intervals
    uniform_grid(problem.horizon, count)
    count = int(count)
    check_grid(compiled, count)
    warm = _warm_schedule(warm_start)
    if warm is not None:
        check_schedule(problem, warm)
    rollout = Rollout(compiled, count, steps or enough_steps(compiled, count))
    options = {
        name: value
        for name, value in (("max_iterations", max_iterations), ("tolerance", tolerance))
        if value is not None
    }
    notes: list[str] = []
    if method == "greedy":
        runs = [greedy_run(compiled, rollout)]
    else:
        tell("choosing starts")
        chosen = choose_starts(compiled, rollout, starts, seed, warm)
        runs = optimise(compiled, rollout, method, chosen, options, notes, tell)
    best = min(runs, key=lambda run: run.objective)
    adapt = steps is None and method != "greedy"
    while adapt and runs[-1].outcome is not Outcome.INTERRUPTED and too_coarse(compiled, rollout, best):
        rollout = Rollout(compiled, count, 2 * rollout.steps)
        notes.append(f"once more from there: the schedule needs {rollout.steps} steps an interval")
        there = [Start("there", best.w, best.theta)]
        finer = optimise(compiled, rollout, method, there, options, notes, tell)
        runs += [replace(run, polish=True) for run in finer]
        best = min(finer, key=lambda run: run.objective)
    found = _finish(compiled, rollout, method, best, runs, notes, began, tell)
    used = {"intervals": count, "method": method, "starts": starts, "seed": seed, "steps": rollout.steps}
    return replace(found, options={**used, **options, "warm_start": warm is not None})


def continuation(problems: Sequence[Problem], **options: Any) -> list[Solution]:
    """Solve problems one after the other, each from the solution of the one before."""
    solutions: list[Solution] = []
    for problem in problems:
        warm = solutions[-1] if solutions else None
        solutions.append(solve(problem, warm_start=warm, **options))
    return solutions


def _warm_schedule(warm_start: Solution | Schedule | None) -> Schedule | None:
    """What to start from; of a solution the relaxed schedule, since solvers work on relaxed controls."""
    if not isinstance(warm_start, Solution):
        return warm_start
    return warm_start.schedule if warm_start.relaxed is None else warm_start.relaxed.schedule


def _finish(
    compiled: CompiledProblem,
    rollout: Rollout,
    method: str,
    best: Run,
    runs: list[Run],
    notes: list[str],
    began: float,
    tell: Progress,
) -> Solution:
    problem = compiled.problem
    final = Rounded(best.w, best.theta, best.objective)
    relaxed = whole = None
    if problem.discrete:
        relaxed = _variant(compiled, best.w, best.theta)
        if method != "greedy" or not _is_pure(compiled, best.w):
            tell("rounding")
            final = round_controls(compiled, rollout, best.w, best.theta)
            notes.append(f"rounded to {final.objective:.10g} on the grid")
    found = whole_schedule(compiled, rollout, final.w, final.theta)
    if found is not None:
        whole = _variant(compiled, found.w, found.theta)
    tell("re-integrating and certifying")
    schedule = compiled.relaxation.schedule(final.w, _named(compiled, final.theta), rounded=True)
    trajectory = evaluate(problem, schedule)
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
        objectives=[run.objective for run in runs if not run.polish],
        relaxed_controls=(best.w, best.theta) if problem.discrete else None,
    )
    solution = Solution(
        problem=problem,
        schedule=schedule,
        objective=trajectory.objective,
        parameters=_named(compiled, final.theta),
        trajectory=trajectory,
        costates=_costates(compiled, rolled, len(final.w)),
        certificate=certificate,
        method=method,
        outcome=best.outcome,
        seconds=time.perf_counter() - began,
        relaxed=relaxed,
        whole_numbers=whole,
        notes=tuple(notes),
    )
    if not certificate.converged and method != "greedy":
        warnings.warn(
            f"{problem.name}: not converged: {'; '.join(certificate.reasons)}. {explained('not-converged')}",
            NotConvergedWarning,
            stacklevel=4,
        )
    return solution


def _variant(compiled: CompiledProblem, w: np.ndarray, theta: np.ndarray) -> Variant:
    schedule = compiled.relaxation.schedule(w, _named(compiled, theta))
    return Variant(schedule, evaluate(compiled.problem, schedule, record=2).objective)


def _named(compiled: CompiledProblem, theta: np.ndarray) -> dict[str, float]:
    return dict(zip(compiled.problem.free, map(float, theta), strict=True))


def _is_pure(compiled: CompiledProblem, w: np.ndarray) -> bool:
    columns = [compiled.relaxation.blocks[name] for name in compiled.problem.discrete]
    return all(bool(np.all((w[:, c] == 0) | (w[:, c] == 1))) for c in columns)


def _costates(compiled: CompiledProblem, rolled: RolloutResult, intervals: int) -> Trajectory:
    names = compiled.problem.model.layout.names
    alpha = np.linspace(0.0, compiled.problem.horizon, intervals * STEPS + 1)
    values = {name: rolled.costates[:, i] for i, name in enumerate(names)}
    return Trajectory(alpha, values, names, {"objective": float("nan")})
