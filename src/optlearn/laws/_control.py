"""The law under control: as a system, its best schedule, and the most informative run to log next."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from typing_extensions import override

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Settings
from optlearn._control.budgets import Budget
from optlearn._control.controls import Continuous, Control, Discrete
from optlearn._control.problem import Problem
from optlearn._control.solution import Solution
from optlearn._dynamics.ensemble import Ensemble
from optlearn._dynamics.system import System
from optlearn._errors import SpecificationError
from optlearn._pytrees import field
from optlearn._schedule import Schedule
from optlearn._signatures import checked
from optlearn.laws import _law
from optlearn.laws._curves import as_rates
from optlearn.laws._law import NAMES, NODES, Course, loss_after, relaxation_rates, state_after
from optlearn.laws._least_squares import Run
from optlearn.practice.shapes import SHAPES, fall

if TYPE_CHECKING:
    from optlearn.laws._fitted_law import LawFit

MEMBERS = 8  # of the ensemble
INTERVALS = 100
PILOT_DRAWS = 48
# Shapes with their own number; peaks and ends as shares of the highest rate.
CANDIDATES = (
    ("wsd", 0.1), ("wsd", 0.2), ("wsd", 0.4), ("wsd", 0.7), ("linear", None), ("cosine", None),
    ("power", 2.0), ("power", 0.5),
)  # fmt: skip
PEAKS, ENDS = (1.0, 0.5, 0.25), (0.0, 0.1, 0.3)
# Runs that are worse than the best by more than this share of the loss explore another region, where the law
# may differ.
NEAR = 0.02
# Powers of the rate have no slope at 0, and a rate of exactly 0 trains nothing.
LOWEST = 1e-3


# Batch sizes and the training time of a step at each, in units of the usual batch and of its step.
Price = tuple[np.ndarray, np.ndarray]
BY_STEPS: Price = (np.array([1.0, 2.0]), np.array([1.0, 1.0]))
BY_TOKENS: Price = (np.array([1.0, 2.0]), np.array([1.0, 2.0]))


def price_of(batch: Array, batches: Array, prices: Array, xp: Any) -> Array:
    """Training time of a step: linear between the known batches, and extrapolated from the outer pairs."""
    slopes = (prices[1:] - prices[:-1]) / (batches[1:] - batches[:-1])
    bends = slopes[1:] - slopes[:-1]
    beyond = xp.maximum(xp.asarray(batch)[..., None] - batches[1:-1], 0.0)
    return prices[0] + slopes[0] * (batch - batches[0]) + (beyond * bends).sum(axis=-1)


class LossLaw(System):
    """Loss of a network under its learning rate.

    Controls and time are in units of the fit: ``learning_rate`` in that of the peak, ``batch`` in that of the
    usual batch, training time in that of the longest run. ``LawFit.problem`` makes problems of it and
    ``LawFit.schedule`` translates their solutions.

    Attributes:
        numbers: (15,) parameters of the law.
        rates, shares: (NODES,) of the modes.
        batches, prices: (n,) batches and the training time of a step at each, linear in between; by default 1
            at any batch.
        falling: the rate never rises: the lowest so far is used.
    """

    numbers: Array
    rates: Array
    shares: Array
    batches: Array = field(default_factory=lambda: BY_STEPS[0])
    prices: Array = field(default_factory=lambda: BY_STEPS[1])
    falling: bool = field(static=True, default=False)

    @classmethod
    def of(cls, numbers: np.ndarray, price: Price = BY_STEPS, falling: bool = False) -> "LossLaw":
        """The system of parameters (15,)."""
        (rates,), (shares,) = relaxation_rates(np.asarray(numbers)[None])
        return cls(np.asarray(numbers), rates, shares, *price, falling)

    @classmethod
    def ensemble(cls, members: np.ndarray, price: Price = BY_STEPS, falling: bool = False) -> Ensemble:
        """Members (M, 15) that see the same schedule; their mean loss is minimised."""
        return Ensemble.of([cls.of(numbers, price, falling) for numbers in members])

    @property
    @override
    def names(self) -> Mapping[str, int | None]:
        """Progress, path and the modes of the law, and the lowest rate so far where rates may only fall."""
        lowest = {"lowest": None} if self.falling else {}
        return {"progress": None, "path": None, "modes": NODES, **lowest}

    @property
    @override
    def parameters(self) -> Mapping[str, Array]:
        """The learning rate and the batch, in units of the peak and of the usual batch."""
        return {"learning_rate": 1.0, "batch": 1.0}

    @override
    def advance(self, x: Any, u: Settings, length: Array) -> Any:
        eta, batch = u["learning_rate"], u["batch"]
        after = {}
        if self.falling:
            eta = after["lowest"] = jnp.minimum(eta, x["lowest"])
        steps = length / price_of(batch, self.batches, self.prices, jnp)
        effect = _law.effect_of(self._values, eta, batch)
        progress, level, time = _law.over_interval(self._values, effect, batch, steps, x["path"], jnp)
        after["progress"] = x["progress"] + progress
        after["path"] = x["path"] + effect * steps
        after["modes"] = _law.relax(x["modes"], level, self.rates * time, jnp)
        return after

    @override
    def error(self, x: Any, u: Settings) -> Array:
        del u
        return _law.loss_of(self._values, x["progress"], x["path"], (x["modes"] * self.shares).sum())

    @property
    def _values(self) -> Mapping[str, Array]:
        return {name: self.numbers[i] for i, name in enumerate(NAMES)}


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
    switches: int | None = None,
    tokens: bool = False,
    seconds: Mapping[float, float] | None = None,
    mean_batch: float | None = None,
    seed: int = 0,
) -> Problem:
    """The search for the learning rate (and batch size) that ends with the lowest loss.

    Args:
        fit: the fitted law.
        steps: of the whole training, warm-up included (default: the longest run's). Where tokens or seconds
            are given instead, they are those of this many steps of the usual batch, ``fit.batch``.
        bounds: lowest and highest rate after the warm-up (default: 0 and the peak). The lowest is at least a
            thousandth of the highest.
        robust: minimise the mean over an ensemble of plausible parameters (a number: of this many members),
            rather than the loss at the best ones, whose errors an optimum would exploit.
        history: (done,) rates of the steps that are already done, or a schedule of them, in steps (default:
            the fit's linear warm-up, to the upper bound, with the lowest batch). The rates of a run in
            progress make this a new plan for the rest of it.
        grain: steps for which the rate is constant (default: a hundredth of those that are left), about as
            many of the usual batch where tokens or seconds are given.
        falling: the rate must not rise again.
        batch: lowest and highest batch size, to control it too; the curves must have been of several.
        switches: how often the batch may change; it is then the lowest times a power of two.
        tokens: the number of tokens is given: larger batches then leave fewer steps.
        seconds: the training time is given: seconds per step, by batch size.
        mean_batch: the mean batch size, at most, if the batch is controlled and steps are given.
        seed: of the ensemble.
    """
    check = Arguments("problem")
    check.count("seed", seed, 0)
    for name, value in (("switches", switches), ("mean_batch", mean_batch)):
        if batch is None and value is not None:
            check.fail(
                name, value, "must be left out unless the batch is controlled, batch=(lowest, highest)"
            )
    scale = fit.data.scale
    total, low, high = _steps_and_bounds(fit, steps, bounds)
    control = None if batch is None else _batch_control(fit, batch, switches)
    price = _price(fit, batch, tokens, seconds)
    past = _past(fit, high, history, None if control is None else control.lower)
    done = len(past[0])
    left = total - float(price_of(past[2], *price, np).sum())
    if left < 1:
        raise SpecificationError(f"steps must exceed the {done} that are given beforehand, got {total}")
    if grain is not None and (grain < 1 or (price is BY_STEPS and left % grain)):
        raise SpecificationError(f"grain must divide the {left:g} steps that are left, got {grain}")
    fit.warn_beyond((np.array([total / scale.steps]), np.array([high / scale.peak]), np.ones(1)))
    if not isinstance(robust, bool):
        check.count("robust", robust)
    members = fit.draws(MEMBERS if robust is True else int(robust) or 1, seed)
    # A run must have an interval; one of length 0 leaves the untrained state.
    before = past if done else (np.zeros(1), np.ones(1), np.ones(1))
    states = state_after(members, Course.stack([before]))
    lowest = {"lowest": high / scale.peak} if falling else {}
    start = tuple({"progress": state[0], "path": state[1], "modes": state[2:], **lowest} for state in states)
    top = high / scale.peak
    controls: dict[str, Control] = {"learning_rate": Continuous(max(low / scale.peak, LOWEST * top), top)}
    budgets = []
    if control is not None:
        controls["batch"] = control
        if mean_batch is not None:
            budgets.append(Budget("batch", mean=mean_batch / scale.batch, sense="at most"))
        elif price is BY_STEPS:
            raise SpecificationError(
                "batch by steps needs mean_batch=…; with tokens=True or seconds=… its cost is counted by "
                "itself"
            )
    return Problem(
        model=LossLaw.ensemble(members, price, falling),
        start=start,
        horizon=left / scale.steps,
        controls=controls,
        budgets=tuple(budgets),
        intervals=INTERVALS if grain is None else max(round(left / grain), 1),
        baselines={name: _baseline(name) for name in SHAPES},
        name="loss law",
    )


def _batch_control(fit: "LawFit", batch: tuple[float, float], switches: int | None) -> Control:
    """The batch as a control, in units of the usual one."""
    check = Arguments("problem")
    if fit.data.curves[0].batch is None:
        raise SpecificationError("batch cannot be controlled: the curves must log a column batch")
    if "critical_batch" in fit.fitter.fixed and not fit.several_batches:
        check.fail("batch", batch, f"must be left out: all curves have one batch, {fit.batch:g}")
    if not 0 < batch[0] < batch[1] < np.inf:
        check.fail("batch", batch, "must be the lowest and the highest batch size, above 0")
    low, high = (size / fit.batch for size in batch)
    if switches is None:
        return Continuous(low, high)
    check.count("switches", switches, 0)
    doublings = np.log2(high / low)
    if abs(doublings - round(doublings)) > 1e-9:
        check.fail("batch", batch, "must be a power of two apart, where switches are limited")
    return Discrete((low * 2.0 ** np.arange(round(doublings) + 1)).tolist(), max_switches=switches)


def _price(
    fit: "LawFit", batch: tuple[float, float] | None, tokens: bool, seconds: Mapping[float, float] | None
) -> Price:
    """The price of a step: by steps, tokens or seconds."""
    check = Arguments("problem")
    if tokens and seconds is not None:
        check.fail("seconds", seconds, "must be left out where tokens are what is given")
    if seconds is None:
        return BY_TOKENS if tokens else BY_STEPS
    sizes = check.numbers("seconds", sorted(seconds))
    times = check.numbers("seconds", [seconds[size] for size in sorted(seconds)])
    covered = (fit.batch, *(batch or ()))
    if len(sizes) < 2 or sizes[0] <= 0 or np.any(times <= 0):
        check.fail("seconds", dict(seconds), "must be seconds of a step, above 0, for at least two batches")
    if not sizes[0] <= min(covered) <= max(covered) <= sizes[-1]:
        wanted = f"must cover batches from {min(covered):g} to {max(covered):g}, the usual one included"
        check.fail("seconds", dict(seconds), wanted)
    return sizes / fit.batch, times / float(np.interp(fit.batch, sizes, times))


def true_schedule(fit: "LawFit", solution: Solution | Schedule, history: Any = None) -> Schedule:
    """A solution of ``law_problem`` in steps and true rates.

    Args:
        fit: the fitted law.
        solution: the solution, or a schedule in units of the fit, by steps.
        history: the argument that the problem was made with; the schedule begins with it.
    """
    scale = fit.data.scale
    schedule = solution.schedule if isinstance(solution, Solution) else solution
    if "learning_rate" not in schedule.controls:
        Arguments("schedule").fail("solution", solution, "must be one of a problem of this fit")
    high, first_batch, price = float(schedule["learning_rate"].max()), None, BY_STEPS
    if isinstance(solution, Solution):
        high = solution.problem.continuous["learning_rate"].upper
        law = _member(solution.problem)
        price = (np.asarray(law.batches), np.asarray(law.prices))
        if "batch" in schedule.controls:
            first_batch = solution.problem.controls["batch"].lower
    past = _past(fit, high * scale.peak, history, first_batch)
    done = len(past[0])
    lengths = np.diff(schedule.grid) * scale.steps
    if "batch" in schedule.controls:
        lengths = lengths / price_of(schedule["batch"], *price, np)
    # Steps are whole.
    edges = np.round(np.append(0.0, np.cumsum(lengths))) + done
    kept = np.diff(edges) > 0
    rates = schedule["learning_rate"]
    if isinstance(solution, Solution) and _member(solution.problem).falling:
        rates = np.minimum.accumulate(rates)
    values = {"learning_rate": np.append(past[1], rates[kept]) * scale.peak}
    if "batch" in schedule.controls:
        values["batch"] = np.append(past[2], schedule["batch"][kept]) * scale.batch
    grid = np.concatenate([np.arange(done + 1.0), edges[1:][kept]])
    return Schedule.piecewise(grid, values)


def _steps_and_bounds(
    fit: "LawFit", steps: int | None, bounds: tuple[float, float] | None
) -> tuple[int, float, float]:
    """Steps, lowest and highest rate of a training run; by default those of the curves."""
    total = int(fit.data.scale.steps) if steps is None else int(steps)
    if total < 1:
        raise SpecificationError(f"steps must be at least 1, got {total}")
    ends = (0.0, fit.data.scale.peak) if bounds is None else tuple(bounds)
    if len(ends) != 2 or not (0 <= ends[0] < ends[1] < np.inf):
        raise SpecificationError(f"bounds must be rates with 0 ≤ lowest < highest, got {bounds!r}")
    return total, *ends


def _member(problem: Problem) -> LossLaw:
    """One of the laws of a problem."""
    model = problem.model
    law = model.members[0] if isinstance(model, Ensemble) else model
    if not isinstance(law, LossLaw):
        Arguments("schedule").fail("solution", law, "must be one of a problem of this fit")
    return law


def _past(fit: "LawFit", high: float, history: Any, first_batch: float | None) -> Run:
    """The steps that are done, one by one, in units of the fit.

    Args:
        fit: the fitted law.
        high: rate at the end of the default, a linear warm-up.
        history: rates, or a schedule in steps.
        first_batch: batch of these steps, in units of the usual one, unless the history sets it; None: 1.
    """
    if isinstance(history, Schedule):
        lengths, rates, batches = fit.data.planned(history)
        counts = np.rint(lengths * fit.data.scale.steps).astype(int)
        rates, batches = np.repeat(rates, counts), np.repeat(batches, counts)
        return np.full(len(rates), 1 / fit.data.scale.steps), rates, batches
    rates = high * (np.arange(fit.warmup) + 0.5) / max(fit.warmup, 1)
    if history is not None:
        past_rates = as_rates(history)
        if past_rates is None:
            allowed = "must be a rate of at least 0 for each step done, or a schedule in steps"
            Arguments("problem").fail("history", history, allowed)
        rates = past_rates
    lengths, rates, batches = fit.data.stepwise(rates)
    return lengths, rates, batches * (first_batch or 1.0)


def _baseline(name: str) -> Any:
    def baseline(problem: Problem, intervals: int) -> Schedule:
        control = problem.continuous["learning_rate"]
        # Midpoints of intervals, as a share of training.
        share = (np.arange(intervals) + 0.5) / intervals
        rates = control.lower + (control.upper - control.lower) * fall(name, share)
        values = {"learning_rate": rates}
        if "batch" in problem.controls:
            middle = next((b.mean for b in problem.budgets if b.mean is not None), 1.0)
            values["batch"] = problem.controls["batch"].nearest(np.full(intervals, middle))
        return Schedule.piecewise(np.linspace(0.0, problem.horizon, intervals + 1), values)

    return baseline


# --- which run to log next ---------------------------------------------------------------------


@checked
def next_pilot(
    fit: "LawFit",
    steps: int | None = None,
    bounds: tuple[float, float] | None = None,
    seed: int = 0,
    **options: Any,
) -> Schedule:
    """The most informative schedule to run next, in the search for the best one.

    Plausible parameters disagree on how schedules compare, and so on which is best. The candidates are common
    shapes with several peaks and ends. The chosen one has the most informative final loss: the one that, over
    the ensemble, best predicts the differences between schedules that may be optimal.

    Args:
        fit: the fitted law.
        steps: of the run (default: as many as the longest).
        bounds: lowest and highest rate (default: 0 and the peak).
        seed: of the ensemble.
        options: of a fit of mixtures, ``domain=`` and ``budget=``: the scarce domain and its share.

    Returns:
        A schedule in steps and true rates, from the very first step on.
    """
    from optlearn.laws._fitted_law import LawFit
    from optlearn.laws._mixture_fit import MixtureFit

    check = Arguments("next_pilot")
    if isinstance(fit, MixtureFit):
        from optlearn.laws._mixture_families import next_mixture_pilot

        return next_mixture_pilot(fit, steps, bounds, seed, **options)
    if not isinstance(fit, LawFit):
        check.fail("fit", fit, "must be a fit of laws.fit")
    if options:
        check.fail("options", sorted(options), "must be none: they are for fits of mixtures")
    check.count("seed", seed, 0)
    (total, low, high), warmup = _steps_and_bounds(fit, steps, bounds), fit.warmup
    if total <= warmup:
        raise SpecificationError(f"steps must exceed the warm-up of {warmup}, got {total}")
    choices = [
        (shape, form, max(peak * high, low), max(end * peak * high, low))
        for shape, form in CANDIDATES
        for peak in PEAKS
        for end in ENDS
    ]
    coarse = [_candidate(*choice, warmup, total, min(warmup, 20)) for choice in choices]
    course = Course.stack([fit.data.planned(schedule) for schedule in coarse])
    finals = loss_after(fit.draws(PILOT_DRAWS, seed), course)[:, :, -1]
    chosen = choices[most_telling(finals, fit.point_noise * float(finals.mean()))]
    return _candidate(*chosen, warmup, total, warmup)


def most_telling(finals: np.ndarray, noise: float) -> int:
    """Which column of final losses (draws, schedules) is most informative about which is the lowest.

    The unknowns are the losses of all schedules that are best for some draw (and of the second best on
    average), relative to the one that is best on average. A measurement of schedule j, give or take
    ``noise``, explains the share of their variance over draws that is correlated with it.
    """
    best = int(finals.mean(axis=0).argmin())
    rivals = np.unique(np.append(finals.argmin(axis=1), np.argsort(finals.mean(axis=0))[:2]))
    gaps = finals[:, rivals] - finals[:, [best]]
    gaps, centred = gaps - gaps.mean(axis=0), finals - finals.mean(axis=0)
    near = finals.mean(axis=0) <= (1 + NEAR) * finals[:, best].mean()
    spread = (centred**2).sum(axis=0) + len(finals) * noise**2
    return int((near * ((centred.T @ gaps) ** 2).sum(axis=1) / spread).argmax())


def _candidate(
    shape: str, form: float | None, peak: float, end: float, warmup: int, total: int, pieces: int
) -> Schedule:
    """The warm-up in ``pieces`` intervals, then the shape."""
    rise = np.round(np.linspace(0, warmup, pieces + 1)) if pieces else np.zeros(1)
    after = np.unique(np.round(np.linspace(warmup, total, min(INTERVALS, total - warmup) + 1)))
    share = ((after[1:] + after[:-1]) / 2 - warmup) / (total - warmup)
    rates = end + (peak - end) * fall(shape, share, form)
    rising = peak * ((rise[1:] + rise[:-1]) / 2) / max(warmup, 1)
    grid = np.append(rise, after[1:])
    return Schedule.piecewise(grid, {"learning_rate": np.append(rising, rates)})
