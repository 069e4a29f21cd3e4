"""Find the optimal schedule of a problem."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import float64
from optlearn._control.certificate import LIMITS_MET, NEGLIGIBLE, Starts, limits, wrong_derivatives
from optlearn._control.compiled import CompiledProblem, Rollout, compile_problem, weighing_on
from optlearn._control.finish import SearchResult, derivatives_differ, ends, finish
from optlearn._control.free_horizon import best_horizon
from optlearn._control.kept import broken_between
from optlearn._control.problem import Problem
from optlearn._control.rounding.rounded import check_grid
from optlearn._control.runs import (
    MOST_COSTLY_STEPS,
    MOST_STEPS,
    Method,
    Outcome,
    Run,
    Start,
    finer,
    is_as_low,
    lowest,
    quickest,
)
from optlearn._control.shortest import shortest
from optlearn._control.solution import Solution
from optlearn._control.solvers.methods import METHODS, check_options, make_method
from optlearn._control.solvers.scouts import Scouting
from optlearn._control.solvers.starts import (
    MORE_STARTS,
    STARTS,
    STARTS_ALONE,
    STARTS_COSTLY,
    Candidates,
    accurate,
    choose_starts,
    enough_steps,
    is_usable,
    random_starts,
    too_coarse,
    warm_schedule,
)
from optlearn._control.unbounded import within_wide_bounds
from optlearn._dynamics.checks import check_problem
from optlearn._errors import count_of, warn
from optlearn._progress import Progress, Report, shown
from optlearn._schedule import Schedule
from optlearn._signatures import checked

__all__ = ["METHODS", "continuation", "solve"]

# Minimum number of steps in an interval with paths, which are enforced at the ends of steps.
PATH_STEPS = 2
# Factor by which the number of steps grows after steps have led astray.
FAR_FINER = 4
# Rounds of scouts, each from new places, while they find something lower.
SCOUTINGS = 2
# Passes through training per start where expectations are quadratures (measured: 60 to 125).
PASSES = 100


# Trials with too large a rate or too long a step overflow; results that are not finite are discarded.
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
    negligible: float | None = None,
    progress: bool | Report | None = None,
) -> Solution:
    """The optimal schedule of ``problem``, with a certificate.

    Args:
        problem: the problem; a free horizon is optimised too, and with ``reach`` the shortest horizon that
            reaches the target is found.
        intervals: equal control intervals (default: the problem's).
        method: "auto", "direct", "indirect" or "greedy"; see ``METHODS``.
        starts: how many first guesses to optimise: the warm start, a neutral guess, the problem's baselines
            in order of their objectives, then random ones that lead the state along different paths
            (default: 3; without baselines 6, or 2 where every pass is a wide quadrature; with a converged
            solution as warm start only this one, and others only if it fails).
        seed: seed of the random starts.
        warm_start: a solution or schedule of this or a similar problem to start from: it is stretched to the
            horizon, and inadmissible values are replaced by the nearest admissible ones.
        steps: Runge-Kutta steps in each interval (default: as many as the first guess needs for
            1e-8; doubled repeatedly if the optimum needs more).
        max_iterations: maximum iterations of the solver.
        tolerance: tolerance of the solver (default: 1e-10 for direct, 1e-7 for indirect).
        negligible: improvement that does not matter, in units of the objective: gaps up to it count as small
            (default: 1e-7 of the best first guess), as do gaps that are small shares of the objective.
        progress: True for a bar, on stderr or in a notebook; False for none; None for a bar in terminals and
            notebooks after a few seconds; or a function that is called with a ``Progress`` at every stage,
            and as the gap falls. With quadratures it also estimates the time left.

    Returns:
        A solution, converged or not; if not, a ``NotConvergedWarning`` says why.
    """
    options: dict[str, Any] = {
        "intervals": intervals, "method": method, "starts": starts, "seed": seed, "steps": steps,
        "max_iterations": max_iterations, "tolerance": tolerance, "negligible": negligible,
    }  # fmt: skip
    check_options(Arguments("solve"), **options)
    began = time.perf_counter()
    with shown(progress) as tell:

        def plain(given: Problem, start: Solution | Schedule | None) -> Solution:
            return _solve(given, start, options, tell)

        def bounded(given: Problem, start: Solution | Schedule | None) -> Solution:
            if given.free_horizon is not None:
                return best_horizon(given, plain, start)
            if given.reach is not None:
                return shortest(given, lambda fixed, before: plain(fixed, before or start))
            return plain(given, start)

        if problem.unbounded:
            solution = within_wide_bounds(problem, bounded, warm_start)
        else:
            solution = bounded(problem, warm_start)
    return replace(solution, seconds=time.perf_counter() - began)


def _solve(
    problem: Problem, warm_start: Solution | Schedule | None, options: dict[str, Any], tell: Report
) -> Solution:
    """``solve`` for a fixed horizon."""
    count = int(problem.intervals if options["intervals"] is None else options["intervals"])
    chosen = make_method(options["method"], options["max_iterations"], options["tolerance"])
    tell(Progress("tracing the dynamics"))
    # Reject before the search what the final integration would reject.
    guesses = {name: control.start for name, control in problem.controls.items()}
    free = {name: parameter.start for name, parameter in problem.free.items()}
    guess = Schedule.constant(problem.horizon, guesses)
    check_problem(problem.model.current(), problem.start, guess, {**problem.parameters, **free})
    compiled = compile_problem(problem)
    if chosen.optimises:
        compiled.engine.prepare()
    check_grid(compiled, count)
    search = _Search(
        compiled, chosen, count, source=warm_start, tell=tell,
        **{name: options[name] for name in ("starts", "seed", "steps", "negligible")},
    )  # fmt: skip
    search.run_first_starts()
    search.send_scouts()
    search.run_more_starts()
    search.refine_steps()
    search.keep_a_better_start()
    return finish(search.result(options), tell)


@checked
def continuation(problems: Sequence[Problem], **options: Any) -> list[Solution]:
    """Solve problems in sequence, each starting from the previous solution."""
    solutions: list[Solution] = []
    for problem in problems:
        warm = solutions[-1] if solutions else None
        solutions.append(solve(problem, warm_start=warm, **options))
    return solutions


class _Search:
    """Runs from several starts, on a grid that is refined until its steps do not matter.

    Args:
        compiled: the problem.
        method: the solution method.
        intervals: I.
        starts: number of starts, if the user sets it.
        seed: seed of the random starts.
        steps: steps in an interval, if the user sets them.
        negligible: improvement that does not matter, if the user sets it.
        source: a solution or schedule to start from.
        tell: receives progress reports.
    """

    def __init__(
        self,
        compiled: CompiledProblem,
        method: Method,
        intervals: int,
        *,
        starts: int | None,
        seed: int,
        steps: int | None,
        negligible: float | None,
        source: Solution | Schedule | None,
        tell: Report,
    ) -> None:
        self.compiled, self.method, self.intervals = compiled, method, intervals
        self.seed, self.tell = seed, tell
        self.fixed_steps, self.single = steps is not None, starts == 1
        self.runs: list[Run] = []
        self.notes: list[str] = []
        self.near, self.curvature, self.dropped = False, None, 0
        self.scouted, self.unscouted = False, ""
        if isinstance(source, Solution):
            # The optimum of a similar problem: it is the only start, and its curvature is nearly right.
            self.near = starts in (None, 1) and source.outcome.ok
            self.curvature = source.curvature if self.near else None
            source = source.mixed_schedule
        self.warm = None if source is None else warm_schedule(compiled.problem, source)
        alone = STARTS_COSTLY if compiled.engine.costly else STARTS_ALONE
        self.starts = starts or (STARTS if compiled.problem.baselines else alone)
        # A baseline takes one start; so does a solve that begins near its optimum.
        self.wanted = 1 if self.near or not method.optimises else self.starts
        tell(Progress("choosing starts"))
        self.candidates = Candidates.of(compiled, intervals, self.wanted, self.warm, self.notes)
        steps = steps or enough_steps(compiled, intervals, self.candidates.every)
        if steps is None:
            self.candidates = self.candidates.lowered(compiled, self.notes)
            steps = enough_steps(compiled, intervals, self.candidates.every) or 1
        if compiled.problem.paths and not self.fixed_steps:
            steps = max(steps, PATH_STEPS)
        self.rollout = Rollout(compiled, intervals, steps)
        if negligible is None:
            quick = quickest(self.rollout)
            guesses = [quick.objective(start.w, start.theta) for start in self.candidates.every]
            negligible = NEGLIGIBLE * min((abs(v) for v in guesses if np.isfinite(v)), default=0.0)
        self.negligible = negligible

    def run_first_starts(self) -> None:
        """Run the first guesses; if a warm start from nearby fails, the usual ones too."""
        guesses = self._chosen(self.wanted) if self.method.optimises else self.candidates.every[-1:]
        if self.compiled.engine.costly and self.method.optimises:
            self._look_ahead(guesses)
        self._run([replace(guess, near=self.near, curvature=self.curvature) for guess in guesses])
        lost = not any(run.outcome.ok or run.interrupted for run in self.runs)
        if self.near and self.method.optimises and not self.single and lost:
            self.candidates = Candidates.of(self.compiled, self.intervals, self.starts, None, self.notes)
            self._run(self._chosen(self.starts))

    def _look_ahead(self, guesses: list[Start]) -> None:
        """Estimate the solution time and warn of useless derivatives; a pass is cheap beside the search."""
        w, theta, quick = guesses[0].w, guesses[0].theta, quickest(self.rollout)
        rolled = quick.run(w, theta)  # compiles and caches its result, so a copy of the rollout is timed
        apart = Rollout(quick.compiled, quick.edges, quick.steps)
        began = time.perf_counter()
        apart.run(w, theta)
        seconds = time.perf_counter() - began
        self.tell(Progress("compiled", expected=PASSES * len(guesses) * seconds))
        if not np.any(rolled.costates):
            warn(
                "solve: at the first guess the derivative of the objective is 0 in all directions. If the "
                "error jumps, as a sign or a comparison does, say where (breaks=…): otherwise a quadrature "
                "does not see the jump move"
            )
            return
        misled = derivatives_differ(self.rollout, w, theta)
        if misled:
            warn(f"solve: at the first guess {wrong_derivatives(misled)}")
            if self.method.name == "auto":
                # Where derivatives are wrong, second derivatives do not help.
                self.method = make_method("indirect", self.method.max_iterations, self.method.tolerance)

    def send_scouts(self) -> None:
        """Run starts from scouts that end lower than the best run: the starts have then missed a basin."""
        if not self.method.optimises or self.near or self.single or self._interrupted or self._astray:
            return
        if not any(run.outcome.ok for run in self.runs):
            return
        scouting = Scouting(self.rollout, bool(self.compiled.problem.baselines), self.negligible)
        for again in range(SCOUTINGS):
            lower = scouting.starts(_best(self.rollout, self.runs), (self.seed, MORE_STARTS + 1, again))
            self.unscouted = scouting.obstacle
            # Where limits are priced, scouts may have followed schedules that break them.
            weighed = self.compiled.problem.weighing is not None
            self.scouted = not self.unscouted and scouting.on_the_grid and not weighed
            starts = [start for start in lower if is_usable(self.rollout, start)]
            if not starts:
                return
            self._run(starts)
            if any(run.interrupted or run.astray for run in self.runs):
                return

    def run_more_starts(self) -> None:
        """Run further random starts while at most half have reached the best: another may end lower.

        If scouts have covered the whole grid, which is stronger evidence, or if every pass is costly, only
        while a single start has reached the best.
        """
        for again in range(1, MORE_STARTS + 1):
            starts = Starts.of(ends(self.rollout, self.runs), negligible=self.negligible)
            if (self.scouted or self.compiled.engine.costly) and not starts.lone:
                break
            # Where limits are out of reach, all starts end differently, and none at an optimum.
            lost = any(run.outcome is Outcome.INFEASIBLE for run in self.runs) and not any(
                run.outcome.ok for run in self.runs
            )
            if self._interrupted or self._astray or lost or not starts.scattered:
                break
            others = random_starts(
                quickest(self.rollout), self.starts, (self.seed, again), self.candidates.highest
            )
            if others:
                self._run(others)
        self.best = _best(self.rollout, self.runs)

    def refine_steps(self) -> None:
        """Continue from the best with twice as many steps until its objective no longer changes."""
        if self.fixed_steps or not self.method.optimises:
            return
        while not self._interrupted and self.rollout.steps < MOST_STEPS:
            between = broken_between(self.rollout, self.best.w, self.best.theta)
            if not between and finer(self.rollout) is None:
                return
            if not (between or self._astray or too_coarse(self.rollout, self.best, self.negligible)):
                return
            coarse = self.rollout.steps
            if not self._astray:
                self.rollout = self.rollout.with_steps(2 * coarse)
                # A descent costs far more than checking, with a coarse quadrature, whether still more steps
                # are needed.
                costly = self.compiled.engine.costly
                while costly and too_coarse(quickest(self.rollout), self.best, self.negligible):
                    self.rollout = self.rollout.with_steps(2 * self.rollout.steps)
                continued = Start(
                    "the optimum with coarser steps", self.best.w, self.best.theta,
                    near=costly, curvature=self.best.curvature if costly else None, tilt=self.best.tilt,
                )  # fmt: skip
                again = self.method.run_all(self.rollout, [continued], self.tell)
                below = self.rollout.objective(continued.w, continued.theta)
                weighed = self.compiled.problem.weighing is not None
                if not (weighed or again[-1].interrupted or is_as_low(lowest(again).objective, below)):
                    # An interior-point method may leave its start for a higher optimum, as here; passes only
                    # descend.
                    passes = make_method("indirect", None, None)
                    again += passes.run_all(self.rollout, [replace(continued, local=True)], self.tell)
                self.runs += [replace(run, counts=False) for run in again]
            else:
                self.notes.append(
                    f"{count_of(coarse, 'step')} in an interval led astray: all starts ran again with more"
                )
                most = MOST_COSTLY_STEPS if self.compiled.engine.costly else MOST_STEPS
                self.rollout = self.rollout.with_steps(min(FAR_FINER * coarse, most))
                self.runs = self.method.run_all(self.rollout, self._chosen(self.starts), self.tell)
                self.run_more_starts()
                continue
            self.best = _best(self.rollout, again)

    def keep_a_better_start(self) -> None:
        """Replace the result by a first guess or another run that is better when integrated accurately."""
        if not self.method.optimises or self.compiled.engine.exact:
            return
        best, quick = self.best, quickest(self.rollout)
        twice = finer(quick)
        if twice is None:
            reached = accurate(self.compiled, best)
        else:
            once, again = (rollout.objective(best.w, best.theta) for rollout in (quick, twice))
            reached = best.objective + again - once
        # Relative to the smaller one: a diverging objective would allow anything.
        size = min(abs(reached), abs(best.objective))
        allowed = limits(size, self.negligible)["integration_error"]
        if abs(reached - best.objective) <= allowed:
            return  # every descent ended below its start, and these steps are accurate enough to say so
        weighing = weighing_on(self.rollout)
        starts_and_runs: list[Start | Run] = [*self.candidates.every, *self.runs]
        others = [
            other
            for other in starts_and_runs
            if weighing is None or weighing.excess(self.rollout.costs(other.w, other.theta)) <= LIMITS_MET
        ]
        least, other = min(
            ((accurate(self.compiled, o), o) for o in others),
            key=lambda pair: pair[0],
            default=(np.inf, None),
        )
        allowed = limits(least, self.negligible)["integration_error"]
        if other is None or accurate(self.compiled, best) <= least + allowed:
            return
        if isinstance(other, Run):
            self.notes.append(
                f"integrated accurately, the run from {best.record.start!r} ends above the one from "
                f"{other.record.start!r}, which is kept"
            )
            self.best = other
            return
        self.notes.append(
            f"integrated accurately, the solver's result is above its start {other.name!r}, which is kept"
        )
        objective = self.rollout.objective(other.w, other.theta)
        record = replace(best.record, start=other.name, outcome=Outcome.STALLED, objective=objective)
        self.best = Run(record, other.w, other.theta, counts=False)
        self.runs.append(self.best)

    def result(self, options: dict[str, Any]) -> SearchResult:
        """The result of the search, with the options that the user set or the search chose."""
        chosen = {name: value for name, value in options.items() if value is not None}
        chosen |= {"intervals": self.intervals, "starts": self.wanted, "steps": self.rollout.steps}
        return SearchResult(
            self.rollout, self.method, self.best, self.runs, self.notes,
            {**chosen, "warm_start": self.warm is not None}, self.dropped, self.negligible,
            self.unscouted,
        )  # fmt: skip

    def _chosen(self, count: int) -> list[Start]:
        starts = choose_starts(quickest(self.rollout), count, self.seed, self.candidates, self.notes)
        self.dropped = count - len(starts)
        return starts

    def _run(self, starts: list[Start]) -> None:
        rival = _best(self.rollout, self.runs) if self.runs else None
        starts = [replace(start, rival=rival) for start in starts]
        self.runs += self.method.run_all(self.rollout, starts, self.tell)

    @property
    def _astray(self) -> bool:
        """Were the steps too long for the dynamics that some run reached?"""
        return any(run.astray for run in self.runs)

    @property
    def _interrupted(self) -> bool:
        return self.runs[-1].interrupted


def _best(rollout: Rollout, runs: list[Run]) -> Run:
    """The run with the lowest objective, among those that keep all limits if any does.

    A direct run may end slightly higher, since it stays inside bounds, and still be the better schedule:
    passes leave controls ragged where the objective hardly depends on them.
    """
    weighing = weighing_on(rollout)

    def rank(run: Run) -> tuple[bool, float]:
        if weighing is None or not weighing.limits:
            return False, run.objective
        costs = rollout.costs(run.w, run.theta)
        # A slightly broken limit must not make a run look better than one that keeps the limit.
        broken = weighing.broken(costs)
        prices = np.zeros(len(broken)) if run.weights is None else np.abs(run.weights[weighing.members :])
        return weighing.excess(costs) > LIMITS_MET, run.objective + float(prices @ broken)

    breaks, _ = min(map(rank, runs))
    best = lowest([run for run in runs if rank(run)[0] == breaks], lambda run: rank(run)[1])
    value = rank(best)[1]

    def is_close(run: Run) -> bool:
        return rank(run)[0] == breaks and is_as_low(rank(run)[1], value)

    sharp = [run for run in runs if run.sharp and is_close(run)]
    return sharp[-1] if sharp else best
