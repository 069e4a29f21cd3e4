"""Solution methods by name, and the default: quick from many starts, then accurate from the best."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from optlearn._arguments import Arguments
from optlearn._control.compiled import Rollout
from optlearn._control.problem import MOST_INTERVALS
from optlearn._control.runs import Curvature, Method, Outcome, Run, Start, is_as_low, is_long, lowest
from optlearn._control.solvers.direct import Direct
from optlearn._control.solvers.greedy import Greedy
from optlearn._control.solvers.indirect import Indirect
from optlearn._progress import Report, silent

# If a direct run follows, which needs a dozen iterations where passes of the indirect method creep.
MOST_PASSES = 400
# Of a direct run from the first start: most need a third of these, or hundreds.
FIRST_ITERATIONS = 60
# Passes per iteration of the direct run after which a direct run takes over.
PASSES_AN_ITERATION = 6
# Passes only have to identify the best start: a fifth of the agreement tolerance, since an end may lie a few
# times its gap above the optimum.
PASSES_TOLERANCE = 2e-7
# Passes worth trying from the optimum of a similar problem, before a direct run that costs three times as
# much. The curvature is known, so a tighter tolerance takes only one or two more.
NEAR_PASSES, NEAR_TOLERANCE = 24, 3e-8
# Number of moves that a similar problem starts with, if a descent had at least twice as many: the last moves
# of a long descent are short and follow bounds as they become active and inactive.
NEAR_MOVES = 10
# Where second derivatives do not pay off, a start may take so many operations in all (a minute), but always a
# few passes; most starts end early, behind the best.
START_OPERATIONS, FEWEST_PASSES = 3_600_000_000, 20


class Auto(Method):
    """Direct from the first start, indirect from the others, then direct from the best if it is another one.

    The two solvers take different paths through the landscape, so agreement between them is evidence. Direct
    from all starts if nothing has converged.
    """

    name = "auto"
    description = "direct from the first start, indirect from others, then direct from the best of them"

    def run_all(self, rollout: Rollout, starts: Sequence[Start], tell: Report = silent) -> list[Run]:
        """Runs of both solvers."""
        # A direct run needs second derivatives of every step and would take several times as long.
        costly = rollout.compiled.engine.costly
        long = is_long(rollout)
        near = len(starts) == 1 and starts[0].near
        weighed = rollout.compiled.problem.weighing is not None
        # Exact steps have a single stage, so second derivatives cost less than a dozen passes; and several
        # continuous controls of these trade off (η²/B), along which passes creep by the hundred.
        valley = rollout.compiled.engine.exact and rollout.compiled.relaxation.curved > 1
        runs: list[Run] = []
        if near and not (costly or long or weighed or valley):
            runs = self._from_nearby(rollout, starts[0], tell)
        elif ((near or weighed) and not (costly or long)) or (valley and not long):
            # Nearby, Newton's method converges at once. Limits and worst cases take a dozen iterations as
            # constraints, but hundreds of passes as weights.
            runs = Direct(self.max_iterations, self.tolerance, near=near).run_all(rollout, starts, tell)
        if any(run.outcome.ok or run.interrupted or run.astray for run in runs):
            return runs
        most = self.max_iterations or _passes(rollout)
        if runs and all(run.outcome is Outcome.INFEASIBLE for run in runs):
            # Then nothing keeps all limits; passes from all starts would only confirm it slowly.
            return runs + Indirect(most).run_all(rollout, starts[:1], tell)
        polished = not (costly or long)
        passes = Indirect(most, PASSES_TOLERANCE if polished else None)
        runs = (
            self._both_ways(rollout, starts, passes, tell)
            if polished
            else passes.run_all(rollout, starts, tell)
        )
        if runs[-1].interrupted or runs[-1].astray:
            return runs
        # Runs behind a rival have ended too: a direct run from there would only follow them.
        ended = any(run.outcome.ok or run.outcome is Outcome.BEHIND for run in runs)
        if (costly and ended) or (long and not costly):
            return runs
        # Where the objective hardly depends on a control, as on singular arcs, the indirect method leaves
        # the control ragged.
        best = lowest(runs)
        if any(run.sharp and is_as_low(run.objective, best.objective) for run in runs):
            return runs
        direct = Direct(self.max_iterations, self.tolerance, near=best.outcome.ok)
        start = Start("the best of them", best.w, best.theta)
        runs.append(replace(direct.run(rollout, start, tell), counts=False, curvature=best.curvature))
        last = runs[-1]
        failed = best.outcome.ok and not last.outcome.ok
        if polished and not last.interrupted and (failed or not is_as_low(last.objective, best.objective)):
            # The direct run that should have finished the work failed or led to a higher optimum.
            runs.append(replace(Indirect(None).run(rollout, start, tell), counts=False))
        if not any(run.outcome.ok for run in runs):
            runs += Direct(self.max_iterations, self.tolerance).run_all(rollout, starts, tell)
        return runs

    def _both_ways(
        self, rollout: Rollout, starts: Sequence[Start], passes: Indirect, tell: Report
    ) -> list[Run]:
        """Direct from the first start, passes from the second, and the quicker of the two from the others.

        If passes creep, a direct run takes over from their end. If the first direct run fails, passes from
        all starts.
        """
        direct = Direct(self.max_iterations or FIRST_ITERATIONS, self.tolerance)
        runs = [direct.run(rollout, starts[0], tell)]
        if not runs[0].outcome.ok:
            stop = runs[0].interrupted or runs[0].astray
            runs[0] = replace(runs[0], counts=stop)
            return runs if stop else runs + passes.run_all(rollout, starts, tell)
        if len(starts) > 1:
            few = min(passes.max_iterations or MOST_PASSES, PASSES_AN_ITERATION * runs[0].iterations)
            runs += replace(passes, max_iterations=few).run_all(rollout, starts[1:2], tell)
            second = runs[1]
            # The next problem may begin with it.
            learned = second.curvature
            if learned is not None and len(learned.moves) >= 2 * NEAR_MOVES:
                learned = Curvature(learned.moves[:NEAR_MOVES], learned.changes[:NEAR_MOVES])
            runs[0] = replace(runs[0], curvature=learned)
            if second.interrupted or second.astray:
                return runs
            if not second.outcome.ok:
                runs[1] = replace(second, counts=False)
                continued = replace(starts[1], w=second.w, theta=second.theta)
                runs.append(direct.run(rollout, continued, tell))
                if runs[-1].interrupted or runs[-1].astray:
                    return runs
            runs += (passes if second.outcome.ok else direct).run_all(rollout, starts[2:], tell)
        return runs

    def _from_nearby(self, rollout: Rollout, start: Start, tell: Report) -> list[Run]:
        """A few passes from the optimum of a similar problem; a direct run if they do not suffice."""
        most = min(NEAR_PASSES, self.max_iterations or NEAR_PASSES)
        first = Indirect(most, self.tolerance or NEAR_TOLERANCE, brief=True).run(rollout, start, tell)
        if first.outcome.ok or first.interrupted:
            return [first]
        continued = replace(start, w=first.w, theta=first.theta)
        second = Direct(self.max_iterations, self.tolerance, near=True).run(rollout, continued, tell)
        return [replace(second, curvature=first.curvature)]


def _passes(rollout: Rollout) -> int | None:
    """Maximum number of forward-backward passes from one start; None: unlimited."""
    if rollout.compiled.engine.costly:
        return None
    if is_long(rollout):
        return max(FEWEST_PASSES, START_OPERATIONS // rollout.operations)
    return MOST_PASSES


_ALL: tuple[type[Method], ...] = (Auto, Direct, Indirect, Greedy)

METHODS: Mapping[str, str] = {method.name: method.description for method in _ALL}


def make_method(name: str, max_iterations: int | None, tolerance: float | None) -> Method:
    """The method with this name and these options."""
    (chosen,) = (method for method in _ALL if method.name == name)
    return chosen(max_iterations, tolerance)


def check_options(
    check: Arguments,
    *,
    intervals: int | None = None,
    method: str = "auto",
    starts: int | None = None,
    seed: int = 0,
    steps: int | None = None,
    max_iterations: int | None = None,
    tolerance: float | None = None,
    negligible: float | None = None,
) -> None:
    """Raise for an invalid option of ``solve``; None stands for a default.

    A sweep calls this too, before its first point.

    Args:
        check: names the called function in messages.
        intervals: this and the following as in ``solve``.
        method: one of ``METHODS``.
        starts: number of first guesses.
        seed: seed of random starts.
        steps: Runge-Kutta steps in an interval.
        max_iterations: maximum iterations of the solver.
        tolerance: tolerance of the solver.
        negligible: improvement that does not matter.
    """
    check.one_of("method", method, METHODS)
    check.count("seed", seed, 0)
    counts = {"starts": starts, "steps": steps, "max_iterations": max_iterations}
    for name, value in counts.items():
        if value is not None:
            check.count(name, value)
    if intervals is not None:
        check.count("intervals", intervals, 1, MOST_INTERVALS)
    if tolerance is not None:
        check.number("tolerance", tolerance, 0.0, 1.0, open_below=True)
    if negligible is not None:
        check.number("negligible", negligible, 0.0)
