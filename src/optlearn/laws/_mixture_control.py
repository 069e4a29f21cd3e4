"""Control of the law of mixtures: rate and shares as controls, budgets, limits, a start in mid-run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize
from typing_extensions import override

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Settings
from optlearn._control.budgets import Budget
from optlearn._control.controls import Continuous, Control
from optlearn._control.objective import Limit, Objective
from optlearn._control.problem import Baseline, Problem
from optlearn._control.solution import Solution
from optlearn._dynamics.ensemble import Ensemble
from optlearn._dynamics.system import System
from optlearn._errors import SpecificationError
from optlearn._pytrees import field
from optlearn._schedule import Schedule
from optlearn._signatures import checked
from optlearn.laws._control import LOWEST, _steps_and_bounds
from optlearn.laws._curves import as_rates
from optlearn.laws._law import NODES, relax
from optlearn.laws._mixture_curves import MixtureCurve
from optlearn.laws._mixture_families import DECAYS, trial_edges
from optlearn.laws._mixture_law import (
    Layout,
    MixtureCourse,
    loss_of,
    losses_after,
    memory_rates,
    nodes_of,
    noise_level,
    run_domain,
    seen,
    shown_of,
)
from optlearn.laws._mixture_shares import EQUAL, ShareOrder
from optlearn.practice.mixtures import whole_steps
from optlearn.practice.shapes import fall

if TYPE_CHECKING:
    from optlearn.laws._mixture_fit import MixtureFit

MEMBERS = 6  # of the ensemble
INTERVALS = 60
MODES = ("noise", "memory")  # in the order of ``rates`` and ``weights``
KNOTS = 16  # of the rate that is optimised for one domain alone
# A limit is out of reach below this multiple of the loss that the domain reaches alone, at the best rate.
REACHED = 0.998


class MixtureLaw(System):
    """Losses of a network under its learning rate and the shares of its data.

    Controls and time are in units of the fit; ``order`` turns controls into shares.
    ``MixtureFit.problem`` makes problems of it and ``MixtureFit.schedule`` translates their solutions.

    Attributes:
        numbers: (n,) parameters of the law.
        rates, weights: (2, NODES) of the modes of noise and of memory.
        given: (settings, knots) slopes and knots of settings that are given as functions of time: a row of
            knots, then a row of changes of slope for each.
        mixture: domains and names of parameters.
        order: how domains take their shares.
        fixed: the given settings, in the order of ``given``: the rate, or all shares.
    """

    numbers: Array
    rates: Array
    weights: Array
    given: Array
    mixture: Layout = field(static=True)
    order: ShareOrder = field(static=True)
    fixed: tuple[str, ...] = field(static=True, default=())

    @classmethod
    def of(
        cls,
        layout: Layout,
        numbers: np.ndarray,
        order: ShareOrder,
        given: Mapping[str, np.ndarray],
        knots: np.ndarray,
    ) -> "MixtureLaw":
        """The system of parameters (n,), with settings (knots,) given at ``knots``."""
        nodes = [nodes_of(np.asarray(numbers)[None], layout.names, kind) for kind in ("", "memory_")]
        table = np.stack([knots, *(_hinges(knots, values) for values in given.values())])
        rates, weights = (np.stack([pair[i][0] for pair in nodes]) for i in (0, 1))
        return cls(np.asarray(numbers), rates, weights, table, layout, order, tuple(given))

    @property
    @override
    def names(self) -> Mapping[str, int | None]:
        """Progress and modes of noise and memory of every domain, the amount shown of each, and time."""
        losses = len(self.mixture.losses)
        return {
            "progress": losses,
            "noise": losses * NODES,
            "memory": losses * NODES,
            "shown": len(self.mixture.domains),
            "time": None,
        }

    @property
    @override
    def parameters(self) -> Mapping[str, Array]:
        """The learning rate in units of the peak, shares, and the weights of losses in the error."""
        equal = dict.fromkeys(self.mixture.domains, 1 / len(self.mixture.domains))
        free = {"learning_rate": 1.0} | ({} if self._given_shares else self.order.near(equal))
        weights = {f"weight_{name}": 1 / len(self.mixture.losses) for name in self.mixture.losses}
        return {name: value for name, value in free.items() if name not in self.fixed} | weights

    @property
    def _given_shares(self) -> bool:
        """Whether shares are given, rather than controlled."""
        return any(name.startswith("share_") for name in self.fixed)

    def _settings(self, u: Settings, time: Array) -> dict[str, Array]:
        """All settings: the controlled ones, and the values of the given ones at a time."""
        rise = jnp.maximum(time - self.given[0], 0.0)
        return {**u, **{name: (self.given[i + 1] * rise).sum() for i, name in enumerate(self.fixed)}}

    def shares(self, u: Settings, time: Array) -> list[Array]:
        """Shares of the domains."""
        known = self._settings(u, time)
        if self._given_shares:
            return [known[f"share_{name}"] for name in self.mixture.domains]
        shares = self.order.shares(known, jnp)
        return [jnp.asarray(shares[name]) for name in self.mixture.domains]

    @override
    def advance(self, x: Any, u: Settings, length: Array) -> Any:
        middle = x["time"] + length / 2
        eta, shares = self._settings(u, middle)["learning_rate"], self.shares(u, middle)
        value, modes = self.mixture.all_values(self.numbers, jnp), (len(self.mixture.losses), NODES)
        gain = eta ** value["progress_power"] * seen(value["transfer"], shares) * length
        shown = shown_of(value, shares, jnp)
        level, pace = memory_rates(value, eta, shown, x["progress"] + gain / 2, self.rates[1:])
        memory = relax(x["memory"].reshape(modes), level, pace * length, jnp)
        time = self.rates[:1] * eta ** value["relaxation_power"] * length
        noise = relax(x["noise"].reshape(modes), noise_level(value, eta, shown)[:, None], time, jnp)
        return {
            "progress": x["progress"] + gain,
            "noise": noise.ravel(),
            "memory": memory.ravel(),
            "shown": x["shown"] + jnp.stack(shares) * length,
            "time": x["time"] + length,
        }

    def losses(self, x: Any) -> Array:
        """(losses,) of all domains and targets in a state."""
        value = self.mixture.all_values(self.numbers, jnp)
        noise, forgotten = (x[kind].reshape(-1, NODES) @ self.weights[k] for k, kind in enumerate(MODES))
        return loss_of(value, x["progress"], noise, forgotten)

    @override
    def error(self, x: Any, u: Settings) -> Array:
        weights = [jnp.asarray(u[f"weight_{name}"]) for name in self.mixture.losses]
        return jnp.stack(weights) @ self.losses(x)

    @override
    def observables(self, x: Any, u: Settings) -> dict[str, Array]:
        del u
        losses = self.losses(x)
        return {f"loss_{name}": losses[i] for i, name in enumerate(self.mixture.losses)}


def _hinges(knots: np.ndarray, values: np.ndarray) -> np.ndarray:
    """(knots,) h with Σ h max(t − knots, 0) the line through values; the first knot lies one unit early."""
    slopes = np.diff(values) / np.diff(knots)
    changes = np.append(slopes, 0.0)
    changes[1:] -= slopes
    return changes


def state_of(layout: Layout, members: np.ndarray, run: Any) -> tuple[dict[str, np.ndarray], ...]:
    """The state of every member after a run."""
    course = MixtureCourse.stack([run])
    states = [run_domain(layout, members, course, name)[2][:, 0] for name in layout.losses]
    shown = run[0] @ run[3]
    return tuple(
        {
            "progress": np.array([state[k, 0] for state in states]),
            "noise": np.concatenate([state[k, 1 : 1 + NODES] for state in states]),
            "memory": np.concatenate([state[k, 1 + NODES :] for state in states]),
            "shown": shown,
            "time": np.asarray(0.0),
        }
        for k in range(len(members))
    )


@checked
def mixture_problem(
    fit: "MixtureFit",
    steps: int | None = None,
    bounds: tuple[float, float] | None = None,
    robust: bool | int = True,
    *,
    weights: Mapping[str, float] | None = None,
    budgets: Mapping[str, float] | None = None,
    limits: Mapping[str, float] | None = None,
    rates: Any = None,
    shares: Mapping[str, Any] | None = None,
    share_bounds: Mapping[str, tuple[float, float]] | None = None,
    history: Any = None,
    intervals: int = INTERVALS,
    seed: int = 0,
) -> Problem:
    """The search for the rate and the shares that end with the lowest weighted loss.

    Args:
        fit: the fitted law.
        steps: of the whole training, warm-up and ``history`` included (default: the longest run's).
        bounds: lowest and highest rate after the warm-up (default: 0 and the peak).
        robust: minimise the mean over an ensemble of plausible parameters (a number: of this many members),
            rather than the loss at the best ones, whose errors an optimum would exploit.
        weights: domain or target → weight of its final loss (default: the same for all domains).
        budgets: domain → its largest share of all samples of the whole training. A domain of n samples that
            may be seen e times has the budget e n / (steps × batch).
        limits: domain or target → upper limit of its final loss.
        rates: (steps,) given rates, so that only shares are controlled. Given values are read at the middle
            of each interval.
        shares: domain → (steps,) given shares, so that only the rate is controlled; one may be left out.
        share_bounds: domain → lowest and highest share at any time.
        history: the steps done: a mapping of ``lr`` and ``share_NAME`` to (done,) numbers, a curve, or
            a schedule in steps (default: a linear warm-up to the upper bound, as long as the curves', on the
            domain that these begin with most).
        intervals: number of intervals of constant rate and shares.
        seed: of the ensemble.
    """
    check = Arguments("problem")
    check.count("seed", seed, 0)
    layout, scale = fit.layout, fit.data.scale
    total, low, high = _steps_and_bounds(fit, steps, bounds)
    budgets, limits = dict(budgets or {}), dict(limits or {})
    for what, names, allowed in (
        ("budgets", budgets, layout.domains),
        ("share_bounds", share_bounds or {}, layout.domains),
        ("weights", weights or {}, layout.losses),
        ("limits", limits, layout.losses),
    ):
        if unknown := [name for name in names if name not in allowed]:
            check.fail(what, unknown[0], f"must be of {', '.join(allowed)}")
    for name, share in budgets.items():
        check.number(f"budgets[{name!r}]", share, 0.0, 1.0)
    for name, weight in (weights or {}).items():
        check.number(f"weights[{name!r}]", weight, 0.0)
    if weights and not any(weights.values()):
        check.fail("weights", dict(weights), "must not all be 0: nothing would be minimised")
    for name, limit in limits.items():
        check.number(f"limits[{name!r}]", limit, 0.0, open_below=True)
    if len(budgets) == len(layout.domains) and sum(budgets.values()) < 1 - EQUAL:
        raise SpecificationError(
            f"budgets must add up to at least 1 where every domain has one, got {sum(budgets.values()):g}: "
            "there is not enough data for so many steps"
        )
    if rates is not None and shares is not None:
        raise SpecificationError("rates and shares must not both be given: nothing would be left to choose")
    before = history_of(fit, history, high)
    done = len(before[0])
    left = total - done
    if left < 1:
        raise SpecificationError(f"steps must exceed the {done} that are done, got {total}")
    lowest = low if rates is None else high
    ends = np.array([high, lowest]) / scale.peak
    fit.warn_beyond((np.array([0.0, total / scale.steps]), ends, np.ones(2)))
    if not isinstance(robust, bool):
        check.count("robust", robust)
    members = fit.draws(MEMBERS if robust is True else int(robust) or 1, seed)
    for name, limit in limits.items():
        if name in layout.domains and limit < REACHED * (
            least := _alone(fit, name, members, total, low, high)
        ):
            raise SpecificationError(
                f"limits[{name!r}] = {limit:g} is out of reach: with no other data at all the law predicts "
                f"{least:.4g} after {total} steps, under the best rate"
            )
    run = (
        fit.data.stepwise(*before)
        if done
        else (np.zeros(1), np.ones(1), np.ones(1), np.eye(len(layout.domains))[:1])
    )
    horizon = left / scale.steps
    given, knots = _given(fit, rates, shares, done, total)
    controls: dict[str, Control] = {}
    if rates is None:
        top = high / scale.peak
        controls["learning_rate"] = Continuous(max(low / scale.peak, LOWEST * top), top, 0.7 * top)
    kept: list[Limit] = [
        Limit(objective_of(layout, name), at_most=float(value), name=f"loss_{name}")
        for name, value in limits.items()
    ]
    used = dict(zip(layout.domains, before[1].sum(axis=0), strict=True))
    order, to_come = _order(layout.domains, share_bounds or {}, budgets, used, done, total)
    mean_budgets: list[Budget] = []
    if shares is not None and (budgets or share_bounds):
        name = next(iter({**budgets, **(share_bounds or {})}))
        raise SpecificationError(
            f"budgets and share_bounds must be left out where shares are given, got one of {name!r}: they "
            "would change nothing"
        )
    if shares is None:
        first = order.near(_first_shares(layout.domains, to_come))
        controls |= {name: Continuous(*ends, first[name]) for name, ends in order.controls.items()}
        for name, mean in to_come.items():
            if f"share_{name}" in controls:
                most = min(mean, order.controls[f"share_{name}"][1])
                mean_budgets.append(Budget(f"share_{name}", mean=most, sense="at most"))
            elif name == order.last or f"part_{name}" in controls:
                counted = Objective(final=0.0, terminal=_Shown(layout.domains.index(name)))
                unit = f"samples of {name}, in units of {scale.steps:g} steps,"
                kept.append(Limit(counted, at_most=budgets[name] * total / scale.steps, name=unit))
    if not controls:
        raise SpecificationError(
            "rates are given, and budgets or share_bounds leave nothing to choose of any share"
        )
    chosen = weights or {name: 1 / len(layout.domains) for name in layout.domains}
    systems = [MixtureLaw.of(layout, numbers, order, given, knots) for numbers in members]
    return Problem(
        model=Ensemble.of(systems),
        start=state_of(layout, members, run),
        horizon=horizon,
        controls=controls,
        budgets=tuple(mean_budgets),
        limits=tuple(kept),
        parameters={f"weight_{name}": float(chosen.get(name, 0.0)) for name in layout.losses},
        intervals=intervals,
        baselines={
            shape: _baseline(order, dict(zip(layout.domains, levels.T, strict=True)))
            for shape, levels in _shapes(layout.domains, to_come).items()
        },
        name="law of mixtures",
    )


def _alone(fit: "MixtureFit", name: str, members: np.ndarray, total: int, low: float, high: float) -> float:
    """The lowest final loss of a domain if nothing else is ever shown, over rates that join a few knots.

    Under the law, no smaller share makes more progress, learns faster or forgets less.
    """
    edges = trial_edges(fit.warmup, total)
    lengths, middles = np.diff(edges) / fit.data.scale.steps, (edges[1:] + edges[:-1]) / 2
    shares = np.tile(np.array(fit.domains) == name, (len(lengths), 1)).astype(float)
    rise = np.minimum(middles / fit.warmup, 1.0) if fit.warmup else np.ones_like(middles)
    knots = np.linspace(fit.warmup, total, KNOTS)
    peak = fit.data.scale.peak

    def finals(rates: np.ndarray) -> np.ndarray:
        """(trials,) final losses of rates (trials, knots)."""
        runs = [
            (lengths, rise * np.interp(middles, knots, each) / peak, np.ones_like(lengths), shares)
            for each in rates
        ]
        return losses_after(fit.layout, members, MixtureCourse.stack(runs), name)[:, :, -1].mean(axis=0)

    lowest = max(low, LOWEST * high)
    step = 1e-6 * (high - lowest)

    def with_slopes(unit: np.ndarray) -> tuple[float, np.ndarray]:
        rates = lowest + (high - lowest) * unit
        values = finals(np.concatenate([rates[None], rates - step * np.eye(KNOTS)]))
        return float(values[0]), (values[0] - values[1:]) * (high - lowest) / step

    decays = np.stack([np.minimum(1.0, (1 - np.linspace(0, 1, KNOTS)) / decay) for decay in DECAYS])
    best = decays[finals(lowest + (high - lowest) * decays).argmin()]
    optimum = minimize(with_slopes, best, jac=True, bounds=[(1e-5, 1.0)] * KNOTS, method="L-BFGS-B")
    return float(optimum.fun)


def _order(
    domains: Sequence[str],
    bounds: Mapping[str, tuple[float, float]],
    budgets: Mapping[str, float],
    used: Mapping[str, float],
    done: int,
    total: int,
) -> tuple[ShareOrder, dict[str, float]]:
    """How domains take their shares, and the mean shares that budgets leave for the steps to come.

    ``used``: domain → its part of the ``done`` steps.
    """
    to_come = {name: float(budget * total - used[name]) / (total - done) for name, budget in budgets.items()}
    check, known = Arguments("problem"), dict(bounds)
    for name, ends in bounds.items():
        low, high = check.numbers(f"share_bounds[{name!r}]", ends, (2,), 0.0, 1.0)
        if low > high:
            check.fail(f"share_bounds[{name!r}]", ends, "must be the lowest and the highest share")
    for name, mean in to_come.items():
        if mean < -EQUAL:
            raise SpecificationError(
                f"budgets[{name!r}] = {budgets[name]:g} is used up: {used[name] / total:.3g} of all samples "
                f"were of it in the {done} steps that are done (history, or the warm-up)"
            )
        lower = known.get(name, (0.0, 1.0))[0]
        if mean < lower - EQUAL:
            raise SpecificationError(
                f"budgets[{name!r}] = {budgets[name]:g} leaves a mean share of {mean:.4g} for the steps to "
                f"come, but at least {lower:g} must be shown"
            )
        if mean <= lower + EQUAL:  # nothing is left to choose
            known[name] = (lower, lower)
    return ShareOrder.of(domains, known, [name for name in domains if name in budgets]), to_come


def _first_shares(domains: Sequence[str], to_come: Mapping[str, float]) -> dict[str, float]:
    """First guess: what budgets allow, up to equal shares; domains without a budget split the rest."""
    equal = 1 / len(domains)
    scarce = {name: min(mean, equal) for name, mean in to_come.items()}
    others = max(len(domains) - len(scarce), 1)
    return {name: scarce.get(name, (1 - sum(scarce.values())) / others) for name in domains}


def _shapes(domains: Sequence[str], to_come: Mapping[str, float]) -> dict[str, np.ndarray]:
    """Shares (2, domains) in both halves: budgets spent evenly, or in the second half."""
    constant = np.array([*_first_shares(domains, to_come).values()])
    scarce = np.array([name in to_come for name in domains])
    if scarce.all() or not scarce.any():
        return {"constant": np.stack([constant, constant])}
    late = np.where(scarce, 2 * constant, 0.0)
    late /= max(late.sum(), 1.0)
    halves = np.stack([np.zeros(len(domains)), late])
    halves += ~scarce * (1 - halves.sum(axis=1, keepdims=True)) / (~scarce).sum()
    return {"constant": np.stack([constant, constant]), "step": halves}


def _baseline(order: ShareOrder, halves: Mapping[str, np.ndarray]) -> Baseline:
    """A WSD rate, and shares (2,) of every domain in both halves of the steps to come."""

    def baseline(problem: Problem, intervals: int) -> Schedule:
        x = (np.arange(intervals) + 0.5) / intervals
        each = [order.near({name: shares[half] for name, shares in halves.items()}) for half in (0, 1)]
        late = (x > 0.5).astype(int)
        values = {name: np.array([near[name] for near in each])[late] for name in each[0]}
        if "learning_rate" in problem.controls:
            control = problem.continuous["learning_rate"]
            values["learning_rate"] = control.lower + (control.upper - control.lower) * fall("wsd", x)
        known = {name: value for name, value in values.items() if name in problem.controls}
        return Schedule.piecewise(np.linspace(0.0, problem.horizon, intervals + 1), known)

    return baseline


@dataclass(frozen=True)
class _Shown:
    """The amount shown of a domain."""

    index: int

    def __call__(self, x: Any, u: Settings) -> Array:
        del u
        return x["shown"][self.index]


def objective_of(layout: Layout, name: str) -> Objective:
    """The final loss of one domain or target."""
    return Objective.under({f"weight_{other}": float(other == name) for other in layout.losses})


def history_of(fit: "MixtureFit", history: Any, high: float) -> tuple[np.ndarray, np.ndarray]:
    """Rates (done,) and shares (done, domains) of the steps already done.

    By default a linear warm-up to the rate ``high``, on the main domains of the curves' first steps.
    """
    domains = fit.domains
    check = Arguments("problem")
    if history is None:
        rates = high * (np.arange(fit.warmup) + 0.5) / max(fit.warmup, 1)
        first = np.mean([[curve.shares[name][0] for name in domains] for curve in fit.data.curves], axis=0)
        return rates, np.tile(_warm_shares(first), (len(rates), 1))
    if isinstance(history, MixtureCurve | Schedule):
        lengths, rates, _, shares = fit.mixture_run(history, None, "problem: history")[0]
        ends = np.round(np.cumsum(lengths) * fit.data.scale.steps).astype(int)
        counts = np.diff(ends, prepend=0)
        return np.repeat(rates, counts) * fit.data.scale.peak, np.repeat(shares, counts, axis=0)
    names = getattr(history, "columns", history if isinstance(history, Mapping) else None)
    if names is None:
        check.fail("history", history, "must be columns lr and share_NAME, a curve, or a schedule in steps")
    columns = {str(name): history[name] for name in names}
    rate = next((columns[name] for name in ("lr", "learning_rate") if name in columns), None)
    known = None if rate is None else as_rates(rate)
    if known is None:
        check.fail("history", list(columns), "must have lr, a rate of at least 0 for each step done")
    past_shares = {name.removeprefix("share_"): v for name, v in columns.items() if name.startswith("share_")}
    return known, fit.shares_per_step(past_shares, len(known), "problem: history")


def _warm_shares(first: np.ndarray) -> np.ndarray:
    """The warm-up uses the domain that runs begin with, since it would waste scarce data."""
    return np.eye(len(first))[int(np.argmax(first))]


def _given(
    fit: "MixtureFit", rates: Any, shares: Mapping[str, Any] | None, done: int, total: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Given settings of the steps to come, at knots, in units of the fit."""
    scale, check = fit.data.scale, Arguments("problem")
    knots = np.linspace(0.0, (total - done) / scale.steps, 2)
    if rates is None and shares is None:
        return {}, np.append(-1.0, knots)
    columns: dict[str, np.ndarray] = {}
    if rates is not None:
        known = as_rates(rates)
        if known is None or len(known) != total:
            check.fail("rates", rates, f"must be a rate of at least 0 for each of {total} steps")
        columns["learning_rate"] = np.maximum(known / scale.peak, LOWEST)
    else:
        assert shares is not None
        table = fit.shares_per_step(shares, total, "problem")
        columns = {f"share_{name}": table[:, i] for i, name in enumerate(fit.domains)}
    count = min(total - done, 240)
    at = np.linspace(done, total - 1, count)
    knots = (at + 0.5 - done) / scale.steps
    values = {name: np.interp(at, np.arange(total), column) for name, column in columns.items()}
    # A line from 0, one unit of time earlier, leads to the first value, so that a slope sets it too.
    before = float(knots[0]) - 1.0
    return {name: np.append(0.0, v) for name, v in values.items()}, np.append(before, knots)


def true_mixture(fit: "MixtureFit", solution: Solution | Schedule, history: Any = None) -> Schedule:
    """A solution of ``mixture_problem`` in steps, true rates and shares, from the very first step on.

    Args:
        fit: the fitted law.
        solution: the solution; its schedule alone does not say which domains its controls belong to.
        history: the argument that the problem was made with; the schedule begins with it.
    """
    scale = fit.data.scale
    model = solution.problem.model if isinstance(solution, Solution) else None
    system = model.members[0] if isinstance(model, Ensemble) else None
    if not isinstance(solution, Solution) or not isinstance(system, MixtureLaw):
        Arguments("schedule").fail("solution", solution, "must be a solution of a problem of this fit")
    schedule = solution.schedule
    middles = (schedule.grid[1:] + schedule.grid[:-1]) / 2
    settings = []
    for i, time in enumerate(middles):
        u = {name: float(schedule[name][i]) for name in schedule.controls}
        known = {name: float(v) for name, v in system._settings(u, time).items()}
        settings.append([known["learning_rate"], *(float(s) for s in system.shares(u, time))])
    table = np.array(settings)
    high = float(table[:, 0].max())
    if "learning_rate" in schedule.controls:
        high = solution.problem.continuous["learning_rate"].upper
    before = history_of(fit, history, high * scale.peak)
    done = round(float(np.sum(solution.problem.start[0]["shown"])) * scale.steps)
    if len(before[0]) != done:
        raise SpecificationError(
            f"schedule must be made with the history of its problem, of {done} steps, got one of "
            f"{len(before[0])} (by default, the warm-up)"
        )
    shares = np.clip(table[:, 1:], 0.0, 1.0)
    shares /= shares.sum(axis=1, keepdims=True)
    edges, shares = whole_steps(schedule.grid * scale.steps, shares)
    kept = np.diff(edges) > 0
    values = {"learning_rate": np.append(before[0], table[kept, 0] * scale.peak)}
    for i, name in enumerate(fit.domains):
        values[f"share_{name}"] = np.append(before[1][:, i], shares[kept, i])
    grid = np.concatenate([np.arange(done + 1.0), done + edges[1:][kept]])
    return Schedule.piecewise(grid, values)
