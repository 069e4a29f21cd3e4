"""From a fitted law to the problem of its best schedule, and back to steps and true rates."""

from typing import TYPE_CHECKING, Any

import numpy as np

from optlearn._control.budgets import Budget
from optlearn._control.controls import Continuous, Control
from optlearn._control.problem import Problem
from optlearn._control.solution import Solution
from optlearn._dynamics.ensemble import Ensemble
from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule
from optlearn._signatures import checked
from optlearn._warn import warn
from optlearn.laws._law import Course, state_after
from optlearn.laws._system import LossLaw
from optlearn.practice.shapes import SHAPES, fall

if TYPE_CHECKING:
    from optlearn.laws._fit import LawFit

MEMBERS = 8  # of the ensemble
INTERVALS = 100
# Powers of the rate have no slope at 0, and a rate of exactly 0 trains nothing.
LOWEST = 1e-3


@checked
def law_problem(
    fit: "LawFit",
    steps: int | None = None,
    bounds: tuple[float, float] | None = None,
    robust: bool | int = True,
    *,
    history: Any = None,
    grain: int | None = None,
    falling: bool = False,
    batch: tuple[float, float] | None = None,
    tokens: bool = False,
    mean_batch: float | None = None,
    seed: int = 0,
) -> Problem:
    """The search for the learning rate (and batch size) that ends with the lowest loss.

    Args:
        fit: the fitted law.
        steps: of the whole training, warm-up included (default: the longest run's).
        bounds: lowest and highest rate after the warm-up (default: 0 and the peak). The lowest is at least a
            thousandth of the highest.
        robust: minimise the mean over an ensemble of plausible parameters (a number: of so many members),
            rather than the loss by the best ones, whose errors an optimum would make use of.
        history: (done,) rates of the steps that are already done, or given (default: the fit's linear
            warm-up, to the upper bound). With the rates of a running training, the rest of it is planned
            anew.
        grain: steps for which the rate is constant (default: a hundredth of those that are left).
        falling: the rate must not rise again.
        batch: lowest and highest batch size, to control it too; the curves must have been of several.
        tokens: ``steps`` counts steps of the usual batch, whose tokens are what is given: larger batches then
            leave fewer steps.
        mean_batch: what the batch size must be on average, if it is controlled by steps.
        seed: of the ensemble.
    """
    from optlearn.laws._fit import LawWarning

    scale = fit.data.scale
    total = int(scale.steps) if steps is None else steps
    low, high = (0.0, scale.peak) if bounds is None else bounds
    if not (0 <= low < high and np.isfinite(high)):
        raise SpecificationError(f"bounds must be rates with 0 ≤ lowest < highest, got {bounds!r}")
    done = _history(fit, high) if history is None else np.asarray(history, dtype=float)
    left = total - len(done)
    if left < 1:
        raise SpecificationError(f"steps must exceed the {len(done)} that are given beforehand, got {total}")
    if grain is not None and (grain < 1 or left % grain):
        raise SpecificationError(f"grain must divide the {left} steps that are left, got {grain}")
    tried = max(float(curve.known[1].max()) for curve in fit.data.curves)
    for what, asked, known in (("a rate of", high, tried), ("a training of", total, 2 * scale.steps)):
        if asked > 1.01 * known:
            unit = "" if what == "a rate of" else " steps"
            warn(
                f"{what} {asked:g}{unit} is beyond the curves, which say nothing beyond {known:g}{unit}",
                LawWarning,
            )
    members = fit.draws(MEMBERS if robust is True else max(int(robust), 1), seed)
    course = Course.stack(
        [(np.full(len(done), 1 / scale.steps), done / scale.peak, np.ones(len(done)))]
        if len(done)
        else [(np.zeros(1), np.ones(1), np.ones(1))]
    )
    states = state_after(members, course)
    lowest = {"lowest": high / scale.peak} if falling else {}
    start = tuple({"progress": state[0], "modes": state[1:], **lowest} for state in states)
    top = high / scale.peak
    controls: dict[str, Control] = {"learning_rate": Continuous(max(low / scale.peak, LOWEST * top), top)}
    budgets = []
    if batch is not None:
        if fit.data.curves[0].batch is None:
            raise SpecificationError("batch cannot be controlled: the curves must log a column batch")
        controls["batch"] = Continuous(batch[0] / scale.batch, batch[1] / scale.batch)
        if mean_batch is not None:
            budgets.append(Budget("batch", mean=mean_batch / scale.batch, sense="at most"))
        elif not tokens:
            raise SpecificationError(
                "batch by steps needs mean_batch=…; with tokens=True its cost is counted by itself"
            )
    return Problem(
        model=LossLaw.ensemble(members, by_tokens=tokens, falling=falling),
        start=start,
        horizon=left / scale.steps,
        controls=controls,
        budgets=tuple(budgets),
        intervals=INTERVALS if grain is None else left // grain,
        baselines={name: _baseline(name) for name in SHAPES},
        name="loss law",
    )


def true_schedule(fit: "LawFit", solution: Solution | Schedule, history: Any = None) -> Schedule:
    """A solution of ``law_problem`` in steps and true rates.

    Args:
        fit: the fitted law.
        solution: the solution, or a schedule in units of the fit.
        history: the argument that the problem was made with; it becomes the schedule's beginning.
    """
    scale = fit.data.scale
    schedule = solution.schedule if isinstance(solution, Solution) else solution
    high = float(schedule["learning_rate"].max())
    if isinstance(solution, Solution):
        high = solution.problem.continuous["learning_rate"].upper
    done = _history(fit, high * scale.peak) if history is None else np.asarray(history, dtype=float)
    # Steps are whole.
    edges = np.round(schedule.grid * scale.steps) + len(done)
    kept = np.diff(edges) > 0
    rates = schedule["learning_rate"]
    if isinstance(solution, Solution) and _falls(solution.problem):
        rates = np.minimum.accumulate(rates)
    values = {"learning_rate": np.append(done, rates[kept] * scale.peak)}
    if "batch" in schedule.controls:
        values["batch"] = np.append(np.full(len(done), scale.batch), schedule["batch"][kept] * scale.batch)
    grid = np.concatenate([np.arange(len(done) + 1.0), edges[1:][kept]])
    return Schedule.piecewise(grid, values)


def _falls(problem: Problem) -> bool:
    """Must its rate not rise again?"""
    model = problem.model
    return isinstance(model, Ensemble) and any(getattr(m, "falling", False) for m in model.members)


def _history(fit: "LawFit", high: float) -> np.ndarray:
    """A linear warm-up to the rate ``high``."""
    return high * (np.arange(fit.warmup) + 0.5) / max(fit.warmup, 1)


def _baseline(name: str) -> Any:
    def baseline(problem: Problem, intervals: int) -> Schedule:
        control = problem.continuous["learning_rate"]
        # Midpoints of intervals, as a share of training.
        share = (np.arange(intervals) + 0.5) / intervals
        rates = control.lower + (control.upper - control.lower) * fall(name, share)
        values = {"learning_rate": rates}
        if "batch" in problem.controls:
            middle = next((b.mean for b in problem.budgets if b.mean is not None), 1.0)
            values["batch"] = np.full(
                intervals,
                np.clip(middle, problem.continuous["batch"].lower, problem.continuous["batch"].upper),
            )
        return Schedule.piecewise(np.linspace(0.0, problem.horizon, intervals + 1), values)

    return baseline
