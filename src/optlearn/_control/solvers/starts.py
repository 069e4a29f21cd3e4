"""Solvers' starts: a neutral guess, baselines, a warm start, random controls; and the number of steps."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from optlearn._control.certificate import LIMITS_MET, ROUND_OFF, limits
from optlearn._control.compiled import CompiledProblem, Rollout
from optlearn._control.evaluate import check_controls, check_schedule, evaluate_compiled
from optlearn._control.problem import Problem, first_guess
from optlearn._control.runs import Run, Start, finer, quickest
from optlearn._control.solvers.feasible import FeasibleSet
from optlearn._errors import RunawayError, SpecificationError, UnphysicalStateError, count_of
from optlearn._schedule import Mixture, Schedule

# Number of first guesses, unless the solution of a similar problem is known.
STARTS = 3
# Without baselines, where chance alone has to find the other basins.
STARTS_ALONE = 6
# Where every pass is a wide quadrature: hops explore around their ends, and more follow if they disagree.
STARTS_COSTLY = 2
# Random schedules, of which those with the most different state trajectories become starts.
POOL = 32
POOL_OPERATIONS = 100_000_000  # of all their forward passes
POOL_COSTLY = 4  # per start, where passes are wide quadratures: a descent takes fifty of them
# How often a diverging guess is halved towards the lower bounds of its controls.
HALVINGS = 12
# Steps in an interval beyond which fewer digits suffice initially.
MANY_STEPS = 8
# Rounds of further starts while at most half of them have reached the best.
MORE_STARTS = 3

Seed = int | tuple[int, ...]


class Candidates(NamedTuple):
    """Candidate starts.

    Attributes:
        first: guesses that are always used.
        baselines: starts that are used only if they are good enough.
        highest: (m,) upper limits of random controls, where training diverges at their upper bounds.
    """

    first: list[Start]
    baselines: list[Start]
    highest: np.ndarray | None = None

    @property
    def every(self) -> list[Start]:
        """All candidates."""
        return self.first + self.baselines

    @classmethod
    def of(
        cls, compiled: CompiledProblem, intervals: int, count: int, warm: Schedule | None, notes: list[str]
    ) -> "Candidates":
        """The warm start, the neutral guess, and baselines if ``count`` is more than these.

        All are moved to the nearest controls that meet bounds and budgets. Baselines that fail are left out
        with a line in ``notes`` that says why.
        """
        first, baselines = [neutral(compiled, intervals)], []
        if warm is not None:
            first.insert(0, _from_schedule(compiled, "warm start", warm, intervals))
        for name, make in compiled.problem.baselines.items() if count > len(first) else ():
            try:
                schedule = first_guess(make, compiled.problem, intervals)
            except (SpecificationError, UnphysicalStateError) as error:
                notes.append(f"the baseline {name!r} cannot be used as a start: {error}")
                continue
            baselines.append(_from_schedule(compiled, name, schedule, intervals))
        return cls(first, baselines)

    def lowered(self, compiled: CompiledProblem, notes: list[str]) -> "Candidates":
        """With the first guess moved towards the lower bounds until training stays finite.

        If it never does, nothing changes. A line in ``notes`` says what was done.
        """
        (low, _), start = compiled.relaxation.bounds, self.first[-1]
        for part in 0.5 ** np.arange(1, HALVINGS + 1):
            moved = _feasible(compiled, start.name, low + part * (start.w - low), start.theta)
            if _fault(compiled, moved) is None:
                notes.append(
                    f"training runs away under the first guess: it was moved to {part:.2g} of its distance "
                    "from the lower bounds of the controls"
                )
                return self._replace(first=[*self.first[:-1], moved], highest=moved.w.max(axis=0))
        return self


def choose_starts(
    rollout: Rollout, count: int, seed: int, candidates: Candidates, notes: list[str]
) -> list[Start]:
    """The first candidates, the best baselines by objective, then random guesses: ``count`` in all.

    Starts without a finite objective are left out, with a line in ``notes``.
    """
    compiled, (first, others, highest) = rollout.compiled, candidates
    ranked = sorted(((rollout.objective(s.w, s.theta), i) for i, s in enumerate(others)), key=_finite_first)
    chosen = _distinct(first + [others[i] for _, i in ranked])[: max(1, count)]
    chosen = [chosen[0], *(replace(start, local=True) for start in chosen[1:])]
    chosen += random_starts(rollout, count - len(chosen), seed, highest)
    usable = [start for start in chosen if is_usable(rollout, start)]
    notes += [
        f"the start {s.name!r} is left out: its objective is not finite" for s in chosen if s not in usable
    ]
    if not usable:
        raise RunawayError(
            f"the objective is not finite for any start ({', '.join(s.name for s in chosen)}; nor for random "
            f"ones), even with {count_of(rollout.steps, 'step')} in an interval: {_reason(compiled, chosen)}"
        )
    return usable


def is_usable(rollout: Rollout, start: Start) -> bool:
    """Does a start have a finite objective and lead through possible states?"""
    objective, states = rollout.forward(start.w, start.theta)
    return bool(np.isfinite(objective)) and rollout.compiled.is_possible(states[:: rollout.steps])


def random_starts(rollout: Rollout, count: int, seed: Seed, highest: np.ndarray | None = None) -> list[Start]:
    """Random guesses with a finite objective: the best of a pool, and those with the most different states.

    Different schedules may have the same effect on the state and then lead to one optimum. From the better
    half of the pool, each next guess is the one whose trajectory is farthest from all previous ones.
    """
    if count < 1:
        return []
    compiled = rollout.compiled
    affordable = POOL_OPERATIONS // max(1, rollout.operations)
    if compiled.engine.costly:
        affordable = POOL_COSTLY * count
    pool = _randoms(compiled, rollout.intervals, max(count, min(POOL, affordable)), seed, highest)
    integrated = [(start, *rollout.forward(start.w, start.theta)) for start in pool]
    possible = compiled.is_possible
    integrated = [t for t in integrated if np.isfinite(t[1]) and possible(t[2][:: rollout.steps])]
    ranked = sorted(integrated, key=lambda t: t[1])
    ranked = ranked[: max(count, len(ranked) // 2)]
    if not ranked:
        return []
    courses = np.array([states[:: rollout.steps] for _, _, states in ranked])
    size = np.ptp(courses, axis=(0, 1))
    courses = (courses / np.where(size > 0, size, 1.0)).reshape(len(ranked), -1)
    distance, chosen = np.linalg.norm(courses - courses[0], axis=1), [0]
    while len(chosen) < min(count, len(ranked)):
        chosen.append(int(np.argmax(distance)))
        distance = np.minimum(distance, np.linalg.norm(courses - courses[chosen[-1]], axis=1))
    return [ranked[i][0] for i in chosen]


def accurate(compiled: CompiledProblem, there: Start | Run) -> float:
    """The objective of a start or a run, integrated accurately; infinite if the dynamics diverge."""
    try:
        return _evaluate(compiled, there)
    except UnphysicalStateError:
        return np.inf


def _evaluate(compiled: CompiledProblem, there: Start | Run) -> float:
    free = dict(zip(compiled.problem.free, map(float, there.theta), strict=True))
    return evaluate_compiled(compiled, free, compiled.relaxation.schedule(there.w, free), 2).objective


def _fault(compiled: CompiledProblem, start: Start) -> str | None:
    """The error of a start according to an accurate integration; None if it is fine."""
    try:
        _evaluate(compiled, start)
    except UnphysicalStateError as error:
        return str(error)
    return None


def _reason(compiled: CompiledProblem, starts: list[Start]) -> str:
    """Why no start is usable, according to an accurate integration."""
    reason: str | None = ""
    for start in starts:
        reason = _fault(compiled, start)
        if reason is None:
            return (
                f"an accurate integration from {start.name!r} is finite, so the dynamics are too fast for "
                "steps of this length; take more intervals"
            )
    advice = "Tighten the bounds of the controls, or give a guess=… or a warm_start that stays physical."
    return f"{reason} {advice}"


def _distinct(starts: list[Start]) -> list[Start]:
    """The starts without duplicates: a baseline is often the neutral guess."""
    kept: list[Start] = []
    for start in starts:
        if not any(np.allclose(start.w, k.w) and np.allclose(start.theta, k.theta) for k in kept):
            kept.append(start)
    return kept


def neutral(compiled: CompiledProblem, intervals: int) -> Start:
    """All controls constant, at the guess or the middle of the bounds, moved to meet the budgets."""
    w = np.tile(compiled.relaxation.neutral, (intervals, 1))
    return _feasible(compiled, "neutral", w, _theta(compiled))


def _randoms(
    compiled: CompiledProblem, intervals: int, count: int, seed: Seed, highest: np.ndarray | None
) -> list[Start]:
    """Guesses with a few random levels in time, moved to meet the budgets."""
    generator = np.random.default_rng(seed)
    low, high = compiled.relaxation.bounds
    high = high if highest is None else highest
    starts = []
    for number in range(count):
        pieces = int(generator.integers(2, 7))
        levels = generator.uniform(low, high, size=(pieces, len(low)))
        w = levels[np.arange(intervals) * pieces // intervals]
        guess = _feasible(compiled, f"random {number + 1}", w, _theta(compiled))
        starts.append(replace(guess, local=True))
    return starts


def _feasible(compiled: CompiledProblem, name: str, w: np.ndarray, theta: np.ndarray) -> Start:
    return Start(name, *FeasibleSet(compiled, len(w)).nearest(w, theta))


def _theta(compiled: CompiledProblem) -> np.ndarray:
    return np.array([free.start for free in compiled.problem.free.values()])


def _from_schedule(compiled: CompiledProblem, name: str, schedule: Schedule, intervals: int) -> Start:
    free = compiled.problem.free
    theta = np.array([schedule.parameters.get(n, f.start) for n, f in free.items()], dtype=float)
    return _feasible(compiled, name, compiled.relaxation.vectors(schedule, intervals), theta)


def _finite_first(item: tuple[float, int]) -> tuple[bool, float]:
    return not np.isfinite(item[0]), item[0]


def fits(problem: Problem, schedule: Schedule) -> bool:
    """Can the schedule start this problem, that is, does it have all its controls?"""
    return set(problem.controls) <= set(schedule.controls)


def warm_schedule(problem: Problem, schedule: Schedule) -> Schedule:
    """A warm start: the schedule stretched to the problem's horizon, with admissible values.

    Values, also in mixtures, are replaced by the nearest admissible ones; free parameters are clipped to
    their bounds, and missing ones keep their guess.

    Args:
        problem: the problem to solve.
        schedule: schedule of a problem with the same controls and any horizon.

    Raises:
        SpecificationError: it lacks a control, or holds values that are not finite.
    """
    check_controls(problem, schedule)
    values: dict[str, np.ndarray] = {}
    mixtures: dict[str, Mixture] = {}
    for name, control in problem.controls.items():
        if not np.all(np.isfinite(schedule[name])):
            raise SpecificationError(f"warm_start: {name!r} holds values that are not finite")
        if name in schedule.mixtures:
            mixture = schedule.mixtures[name]
            mixtures[name] = Mixture(control.nearest(mixture.values), mixture.shares)
        else:
            values[name] = control.nearest(schedule[name])
    parameters = {
        name: float(np.clip(schedule.parameters.get(name, free.start), free.lower, free.upper))
        for name, free in problem.free.items()
    }
    grid = schedule.grid * (problem.horizon / schedule.horizon)
    grid[-1] = problem.horizon
    stretched = Schedule(grid, values, mixtures, parameters)
    check_schedule(problem, stretched)
    return stretched


def enough_steps(compiled: CompiledProblem, intervals: int, guesses: Iterable[Start]) -> int | None:
    """Steps in an interval beyond which the objective changes by less than 1e-8, and 1e-5 of itself.

    The first limit is 1e-6 where expectations are wide quadratures, or where many steps are needed, since
    perhaps only the guess has the fast transient that needs them. Determined for the first guess whose
    dynamics stay finite; the optimum may need more, see ``too_coarse``. None if the dynamics diverge under
    every guess.
    """
    if compiled.engine.exact:
        return compiled.exact_steps(compiled.problem.horizon / intervals)
    enough = (_enough_for(guess, compiled, intervals) for guess in guesses)
    return next((steps for steps in enough if steps is not None), None)


def _enough_for(guess: Start, compiled: CompiledProblem, intervals: int) -> int | None:
    """Enough steps for a guess; None if its dynamics diverge however fine the steps."""
    rollout, known_to_stay = quickest(Rollout(compiled, intervals, 1)), False
    coarse = rollout.objective(guess.w, guess.theta)
    while (twice := finer(rollout)) is not None:
        fine = twice.objective(guess.w, guess.theta)
        allowed = 1e-6 if compiled.engine.costly or rollout.steps >= MANY_STEPS else 1e-8
        if not np.isfinite(fine):
            # Either an unstable step or the dynamics themselves.
            if not known_to_stay and _fault(compiled, guess) is not None:
                return None
            known_to_stay = True
        elif abs(fine - coarse) <= min(allowed * max(1.0, abs(fine)), 1e-5 * abs(fine) + ROUND_OFF):
            # Steps that end right may still overshoot into impossible states on the way.
            overshoots = not is_usable(rollout, guess) and is_usable(twice, guess)
            return (twice if overshoots else rollout).steps
        rollout, coarse = twice, fine
    return rollout.steps


def too_coarse(rollout: Rollout, best: Run, negligible: float) -> bool:
    """Whether twice as many steps would change the objective by more than a certificate allows.

    If there is a coarse drift, it is tried first and usually detects this. After that an accurate integration
    decides, which costs less than twice as many steps with the fine drift.
    """
    quick, weighing = rollout.coarser(), rollout.compiled.problem.weighing
    if quick is not None and too_coarse(quick, best, negligible):
        return True
    twice = finer(rollout)
    if twice is None:
        return False
    allowed = limits(best.objective, negligible)["integration_error"] / 2
    objective, states = rollout.forward(best.w, best.theta)
    if quick is not None and weighing is None:
        return not abs(accurate(rollout.compiled, best) - objective) <= allowed
    finer_one, finer_states = twice.forward(best.w, best.theta)
    # Written so that NaN counts as too coarse as well: the steps hide that the dynamics diverge.
    if not abs(finer_one - objective) <= allowed:
        return True
    if weighing is None or not weighing.limits:
        return False
    # Limits are met with these steps but must hold with any.
    costs, finer_costs = (rollout.compiled.costs(s[-1], best.theta) for s in (states, finer_states))
    changes = np.abs(finer_costs - costs)[weighing.members :]
    prices = np.zeros(len(changes)) if best.weights is None else np.abs(best.weights[weighing.members :])
    met = np.all(changes <= LIMITS_MET / 2 * np.array(weighing.sizes))
    return not (met and prices[: len(changes)] @ changes <= allowed)
