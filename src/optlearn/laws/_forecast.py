"""A run in progress: where it will end under common schedules, and when to begin its decay."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from optlearn._arguments import Arguments
from optlearn._errors import warn
from optlearn._schedule import Schedule
from optlearn._signatures import checked
from optlearn.laws._curves import MOST_POINTS, Curve, LawWarning, as_rates
from optlearn.laws._fit import LAW_ERROR, as_fits, fit
from optlearn.laws._fitted_law import DRAWS, LawFit, around_best
from optlearn.laws._law import Course, loss_after, state_after
from optlearn.laws._readers import read_curves
from optlearn.practice.shapes import fall

# Decays over these shares of the remaining steps are compared; the best length is interpolated.
SHARES = np.geomspace(0.02, 1.0, 28)
PIECES = 120  # intervals of the remaining steps, shorter and shorter towards the end, where decays happen
LATE = 0.9  # of the run so far: losses after that are compared with a forecast from half of the run
GAIN = 0.1  # error of the law about the gain of a decay, as a share of that gain (in the log of the loss)
FEWEST = 8  # a run without a prior needs at least as many losses that count
HALF_POINTS = 6  # a check on half of a run needs at least as many losses in it
# A warning is due where a forecast from half of the run misses its present loss by more than this share. Runs
# of language models have .7 % at most, those of the law itself 1.6 (one of 60 has 3.4); where a loss stands
# still, rises or falls with every epoch, it is 3 to 11 %.
MISSED = 0.02
FALLEN = 0.5  # of the highest rate: a run below it is in its decay
EARLIEST = 0.02  # share of the training before which there is too little to forecast from
CONTRADICTED = 0.05  # share of the run's rates: a plan that differs by more on average is for another run


class Final(NamedTuple):
    """A final loss, with the ends of its interval."""

    loss: float
    low: float
    high: float


class Decay(NamedTuple):
    """When to begin a linear decay that ends with the training, in steps, with the ends of an interval."""

    start: int
    length: int
    earliest: int
    latest: int


@dataclass(frozen=True, eq=False)
class Forecast:
    """The forecast of a run in progress; made by ``forecast``.

    Attributes:
        fit: the law of the run.
        curve: the run so far.
        steps: of the whole training.
        level: probability of the intervals.
        finals: final losses, by name of the schedule from now on: "constant", "wsd" (the best decay under
            the law), "linear", "cosine" (both from now to the end), and "planned", if there is a plan.
        now: the loss after the steps done, without the noise of a point.
        decay: when to begin the decay.
        end: rate at the end of a decay, as a share of the present one.
        doubts: sentences, with numbers, on where the law does not describe the run.
    """

    fit: LawFit
    curve: Curve
    steps: int
    level: float
    finals: Mapping[str, Final]
    now: Final
    decay: Decay
    end: float
    doubts: tuple[str, ...]

    @property
    def done(self) -> int:
        """Steps done."""
        return int(self.curve.done)

    @property
    def fallen_to(self) -> float:
        """The present rate, as a share of the highest of the run."""
        rates = self.curve.known[1]
        return float(rates[-1] / rates.max())

    @property
    def begin_now(self) -> bool:
        """Whether the decay should have begun."""
        return self.decay.start <= self.done

    def schedule(self) -> Schedule:
        """Rates of the remaining steps, counted from the first of them: constant, then the decay."""
        edges = _edges(self.done, self.steps)
        rate = float(self.curve.known[1][-1])
        share = self.decay.length / (self.steps - self.done)
        values = rate * _falls("wsd", edges, self.end, share)
        return Schedule.piecewise(edges - self.done, {"learning_rate": values})

    def summary(self) -> str:
        """A table of final losses, and when to begin the decay."""
        rate, percent = self.curve.known[1][-1], f"{100 * self.level:g} %"
        lines = [
            f"{self.curve.name}: {self.done} of {self.steps} steps, rate {rate:g}; intervals of {percent}",
            f"  {'stopping now':<14}{self.now.loss:9.4f}  ({self.now.low:.4f} to {self.now.high:.4f})",
        ]
        lines += [
            f"  {name:<14}{final.loss:9.4f}  ({final.low:.4f} to {final.high:.4f})"
            for name, final in self.finals.items()
        ]
        what = "begin the decay"
        if self.fallen_to < FALLEN:
            lines.append(f"  the decay has begun: the rate is {self.fallen_to:.2g} of its peak")
            what = "hold it, and begin the rest of the decay"
        when = "now" if self.begin_now else f"at step {self.decay.start}"
        lines.append(
            f"  {what} {when}, over {self.decay.length} steps (the start lies between "
            f"{self.decay.earliest} and {self.decay.latest})"
        )
        return "\n".join([*lines, *(f"  ! {doubt}" for doubt in self.doubts)])

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return {
            "run": self.curve.name,
            "done": self.done,
            "steps": self.steps,
            "fallen_to": self.fallen_to,
            "level": self.level,
            "now": self.now._asdict(),
            "finals": {name: final._asdict() for name, final in self.finals.items()},
            "decay": self.decay._asdict(),
            "doubts": list(self.doubts),
        }


@checked
def forecast(
    curve: Any,
    steps: int,
    *,
    prior: Any = None,
    pilots: Any = None,
    plan: Any = None,
    end: float = 0.0,
    level: float = 0.95,
    warmup: float | None = None,
    first_step: float | None = None,
    same_unit: bool = False,
    rates: Mapping[str, Any] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> Forecast:
    """Final losses of a run in progress, and when to begin its decay.

    Args:
        curve: the run so far: a file, a table or a curve, as in ``fit``.
        steps: of the whole training.
        prior: a fit of other runs, a folder of their logs, or several, as in ``fit``: of smaller networks,
            say. Without one and without pilots, the gain of a decay is known to within a factor of three.
        pilots: other curves of the same network, to be fitted with it.
        plan: (steps,) rates that the run is meant to have, or a schedule of them in steps, for its final loss
            under "planned". Only those of the remaining steps are used.
        end: rate at the end of a decay, as a share of the present one.
        level: probability of the intervals.
        warmup: steps of a linear warm-up that was not logged.
        first_step: losses before it are left out, as in ``fit``.
        same_unit: losses of the run, prior and pilots are known to be in one unit.
        rates: for logs without rates, by name of the run or pilot, as in ``fit``.
        draws: plausible parameters to try.
        seed: of the draws.
    """
    check = Arguments("forecast")
    check.count("steps", steps)
    check.number("end", end, 0.0, 1.0)
    check.count("draws", draws, 2)
    check.level(level)
    run, *others = read_curves(curve, rates=rates)
    if others:
        check.fail("curve", [c.name for c in (run, *others)], "must be a single run; others are pilots=…")
    done = int(run.done)
    if steps <= done:
        check.fail("steps", steps, f"must exceed the {done} of the run: they are those of the whole training")
    if done < EARLIEST * steps:
        most = int(done / EARLIEST)
        check.fail(
            "steps", steps, f"must be at most {most}: {done} of them are known, and less than "
            f"{100 * EARLIEST:g} % says next to nothing"
        )  # fmt: skip
    planned = planned_rates(plan, steps, run)
    if planned is None and run.known[1][-1] == 0:
        allowed = "must end at a rate above 0, which can decay; leave out its end, or say plan=…"
        check.fail("curve", 0, allowed)
    curves = [run] if pilots is None else [run, *read_curves(pilots, same_unit, rates)]
    fits = as_fits(prior, warmup=warmup, same_unit=same_unit, seed=seed)
    alone = not fits and len(curves) < 2

    def law_of(part: Curve, starts: int) -> LawFit:
        return fit(
            [part, *curves[1:]],
            prior=fits, warmup=warmup, first_step=first_step, starts=starts, seed=seed, alone=alone,
            same_unit=same_unit,
        )  # fmt: skip

    law = law_of(run, 3)
    counted = int(run.from_step(law.data.first).sum())
    if alone and counted < FEWEST:
        allowed = f"must have at least {FEWEST} losses from step {law.data.first:g} on, or a prior"
        check.fail("curve", counted, allowed)
    members = law.sized(law.draws(draws, seed), None)
    missed = _missed_before(law, run, lambda half: law_of(half, 1))
    # If half of this run is too short to check the law, other runs do; without them nothing does.
    per_doubling = (MISSED if alone else 0.0) if missed is None else missed
    ahead = _Ahead(law, run, steps, members, per_doubling * np.log2(steps / run.steps))
    prediction = ahead.forecast(planned, end, level)
    if missed is None and alone:
        doubt = (
            f"the first half of the run has fewer than {HALF_POINTS} losses that count, too few to check the "
            f"law with: intervals allow for an error of {100 * MISSED:.2g} % for every doubling of the steps"
        )
    elif missed is not None and missed > MISSED:
        doubt = (
            f"from its first half the present loss of the run would have been missed by {100 * missed:.2g} "
            "%: it does not follow the law, or has not for long, and may end outside of the intervals"
        )
    else:
        return prediction
    warn(doubt, LawWarning)
    return replace(prediction, doubts=(*prediction.doubts, doubt))


def _missed_before(law: LawFit, run: Curve, law_of: Callable[[Curve], LawFit]) -> float | None:
    """Error of a forecast of the present loss from the first half of the run, as a share of the loss.

    A law with wrong exponents was wrong in the same way before, and its error grows with the distance: this
    is the error for every doubling of the steps. None if half of the run is too short.
    """
    middle = run.steps / 2
    if ((run.step >= law.data.first) & (run.step <= middle)).sum() < HALF_POINTS:
        return None
    half = run.until(middle)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LawWarning)  # extrapolation is intended here
        predicted = law_of(half).predict(run)
    late = run.step >= LATE * run.steps
    return abs(float(np.mean(np.log(predicted[late] / run.loss[late]))))


class _Ahead:
    """Continuations of a run, for each of the plausible ``members`` (K, 15)."""

    def __init__(self, law: LawFit, run: Curve, steps: int, members: np.ndarray, missed: float = 0.0) -> None:
        self.law, self.run, self.steps, self.members, self.missed = law, run, steps, members, missed
        self.done, self.rate = int(run.done), float(run.known[1][-1])
        self.edges = _edges(self.done, steps)
        # Rates are averaged in between, and logged more often than losses.
        until = np.union1d(run.step[:: -(-len(run.step) // MOST_POINTS)], run.done)
        past = law.data.intervals(run, run.edges(until, law.data.warmup))
        self.batch = float(past[2][-1])
        self.now = loss_after(members, Course.stack([past]))[:, 0, -1]
        self.state = state_after(members, Course.stack([past]))

    def losses(self, rates: Sequence[np.ndarray]) -> np.ndarray:
        """(K, schedules) final losses under rates (PIECES,) from now on; the batch stays as it is."""
        scale = self.law.data.scale
        lengths, batches = np.diff(self.edges) / scale.steps, np.full(PIECES, self.batch)
        course = Course.stack([(lengths, each / scale.peak, batches) for each in rates])
        return loss_after(self.members, course, self.state)[:, :, -1]

    def forecast(self, plan: np.ndarray | None, end: float, level: float) -> Forecast:
        """The whole forecast; ``plan`` (left,): rates of the remaining steps."""
        left = self.steps - self.done
        decays = [self.rate * _falls("wsd", self.edges, end, share) for share in SHARES]
        length, lengths = _best_lengths(self.losses(decays), left)
        schedules = {
            "constant": np.full(PIECES, self.rate),
            "wsd": self.rate * _falls("wsd", self.edges, end, length / left),
            "linear": self.rate * _falls("linear", self.edges, end),
            "cosine": self.rate * _falls("cosine", self.edges, end),
        }
        if plan is not None:
            schedules["planned"] = _means(plan, self.edges - self.done)
            highest = plan.max(keepdims=True) / self.law.data.scale.peak
            self.law.warn_beyond((np.zeros(1), highest, np.ones(1)))
        finals = self.losses(list(schedules.values())).T
        gains = np.log(finals[:, 0] / finals[0, 0])  # over the constant rate, at the best parameters
        late, early = np.quantile(lengths, [(1 - level) / 2, (1 + level) / 2])
        return Forecast(
            fit=self.law,
            curve=self.run,
            steps=self.steps,
            level=level,
            finals={
                name: _final(self.law, each, level, float(np.hypot(self.missed, GAIN * gain)))
                for name, each, gain in zip(schedules, finals, gains, strict=True)
            },
            now=_final(self.law, self.now, level),
            decay=Decay(
                self.steps - round(length), round(length), self.steps - round(early), self.steps - round(late)
            ),
            end=end,
            doubts=self.law.doubts,
        )


def _means(rates: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """(PIECES,) means of a rate for every step between ``edges``."""
    whole = np.interp(edges, np.arange(len(rates) + 1), np.append(0.0, np.cumsum(rates)))
    return np.diff(whole) / np.diff(edges)


def planned_rates(plan: Any, steps: int, run: Curve) -> np.ndarray | None:
    """(left,) rates of the remaining steps; warns if earlier ones are not those of the run."""
    if plan is None:
        return None
    rates = None
    if not isinstance(plan, Schedule):
        rates = as_rates(plan)
    elif "learning_rate" in plan.controls and round(plan.horizon) == steps:
        rates = as_rates(plan["learning_rate"][np.searchsorted(plan.grid[1:-1], np.arange(steps), "right")])
    if rates is None or len(rates) != steps:
        allowed = f"must be {steps} rates of at least 0, one for every step, or a schedule of them in steps"
        Arguments("forecast").fail("plan", plan, allowed)
    step, had = run.known
    off = np.abs(np.interp(step, np.arange(steps) + 1.0, rates) - had).sum()
    if off > CONTRADICTED * had.sum() > 0:
        warn(
            f"plan must hold the rates of all steps, those that are done too, but differs from what "
            f"{run.name!r} logged by {100 * off / had.sum():.2g} % on average; only the rates from step "
            f"{run.done:g} on are used",
            LawWarning,
        )
    return rates[int(run.done) :]


def _edges(done: int, steps: int) -> np.ndarray:
    """(PIECES + 1,) steps from now to the end."""
    left = np.linspace(1.0, 0.0, PIECES + 1) ** 1.7
    return steps - (steps - done) * left


def _falls(shape: str, edges: np.ndarray, end: float, form: float | None = None) -> np.ndarray:
    """(PIECES,) shares of the present rate."""
    share = ((edges[1:] + edges[:-1]) / 2 - edges[0]) / (edges[-1] - edges[0])
    return end + (1 - end) * fall(shape, share, form)


def _best_lengths(losses: np.ndarray, left: int) -> tuple[float, np.ndarray]:
    """The length of decay, in steps, that is best on average, and the best length for each draw.

    Args:
        losses: (draws, SHARES) final losses.
        left: number of remaining steps.
    """
    logs = np.log(SHARES)

    def lowest(values: np.ndarray) -> float:
        """The lowest point of a parabola through the best and its neighbours."""
        i = int(np.clip(values.argmin(), 1, len(values) - 2))
        a, b, _ = np.polyfit(logs[i - 1 : i + 2] - logs[i], values[i - 1 : i + 2], 2)
        step = float(logs[1] - logs[0])
        if values.argmin() in (0, len(values) - 1) or a <= 0:
            return float(logs[values.argmin()])
        return float(logs[i] + np.clip(-b / (2 * a), -step, step))

    return left * float(np.exp(lowest(losses.mean(axis=0)))), left * np.exp([lowest(each) for each in losses])


def _final(law: LawFit, losses: np.ndarray, level: float, ahead: float = 0.0) -> Final:
    """The loss at the best parameters, with its interval.

    The interval includes the uncertainty of the parameters, the error of the law, another error ``ahead`` (a
    share of the loss), and the noise of a point.
    """
    missed = np.hypot(max(law.law_error, LAW_ERROR / 2), ahead)
    low, high = around_best(losses, level, float(np.hypot(missed, law.point_noise)))
    return Final(float(losses[0]), float(low), float(high))
