"""Loss curves: logged columns, their checks, and intervals of constant rate."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from optlearn._arguments import as_numbers
from optlearn._errors import SpecificationError, warn
from optlearn._signatures import checked

MOST_POINTS = 400  # of a curve in a fit; denser logs are averaged
PIECES = 5  # of an interval between two losses, where the rate was logged in between
WARMUP_PIECES = 20
EARLY = 0.02  # of a run, during which the network hardly improves
FIRST = 5  # early losses whose medians are compared
BITS = 1.4  # ratio of losses above which their units seem to differ (bits are nats × 1.44)
UNITS = 4.0  # ratio of final losses that no choice of rates explains


class LawWarning(UserWarning):
    """The law does not describe the logs, or a question goes beyond them."""


@checked
@dataclass(frozen=True)
class Curve:
    """One training run.

    Attributes:
        name: shown in tables.
        step: (n,) steps done when the loss was logged, increasing.
        rate: (n,) learning rates then.
        loss: (n,) losses.
        batch: (n,) batch sizes; None: the same in all runs.
        between: steps (m,) and rates (m,) that were logged without a loss; None: there are none.
    """

    name: str
    step: np.ndarray
    rate: np.ndarray
    loss: np.ndarray
    batch: np.ndarray | None = None
    between: tuple[np.ndarray, np.ndarray] | None = None

    def __post_init__(self) -> None:
        who = f"curve {self.name!r}"
        for what in ("step", "rate", "loss", "batch"):
            column = getattr(self, what)
            if column is not None:
                object.__setattr__(self, what, real(who, what, column))
        step, rate, loss = self.step, self.rate, self.loss
        columns = {"step": step, "rate": rate, "loss": loss}
        if self.batch is not None:
            columns["batch"] = self.batch
        for what, column in columns.items():
            if np.shape(column) != np.shape(step) or np.ndim(step) != 1:
                raise SpecificationError(
                    f"{who}: {what} must be one number for each step, got shape {np.shape(column)} for steps "
                    f"of shape {np.shape(step)}"
                )
        if self.between is not None:
            shapes = [np.shape(part) for part in self.between]
            if [len(shape) for shape in shapes] != [1, 1] or shapes[0] != shapes[1]:
                raise SpecificationError(
                    f"{who}: between must be steps and the rates there, two lists of numbers, got shapes "
                    f"{shapes}"
                )
            object.__setattr__(self, "between", tuple(real(who, "between", part) for part in self.between))
            for what, part in zip(("steps", "rates"), self.between, strict=True):
                if not np.all(np.isfinite(part)):
                    row = int(np.flatnonzero(~np.isfinite(part))[0])
                    raise SpecificationError(
                        f"{who}: {what} between the losses must be finite, got {part[row]} in row {row + 1}"
                    )
        if len(step) < 3:
            raise SpecificationError(f"{who} must have at least 3 points, got {len(step)}")
        for what, column in columns.items():
            if not np.all(np.isfinite(column)):
                row = int(np.flatnonzero(~np.isfinite(column))[0])
                at = f"row {row + 1}" if what == "step" else f"step {step[row]:g}"
                why = {
                    "rate": "; a rate is needed at every logged step: fill in the last one (ffill), "
                    "or give rates=…",
                    "loss": "; if the run diverged, leave out what follows. Blank where no loss was logged, "
                    "it may be in a frame or a file",
                }
                raise SpecificationError(f"{who}: {what} is {column[row]} at {at}{why.get(what, '')}")
        for steps in (step, step[:0] if self.between is None else self.between[0]):
            check_steps(who, steps, np.diff(steps) <= 0)
        for what, column in zip(("steps", "rates"), self.known, strict=True):
            if np.any(column < 0):
                row = int(np.flatnonzero(column < 0)[0])
                at = f" at step {self.known[0][row]:g}" if what == "rates" else ""
                raise SpecificationError(f"{who}: {what} must be at least 0, got {column[row]:g}{at}")
        if np.any(loss <= 0):
            row = int(np.flatnonzero(loss <= 0)[0])
            raise SpecificationError(
                f"{who}: losses must be above 0, got {loss[row]:g} at step {step[row]:g} (is it an accuracy "
                "or a reward? The law is for a loss in nats or bits)"
            )
        if self.batch is not None and np.any(self.batch <= 0):
            row = int(np.flatnonzero(self.batch <= 0)[0])
            raise SpecificationError(
                f"{who}: batch sizes must be above 0, got {self.batch[row]:g} at step {step[row]:g}"
            )

    @cached_property
    def known(self) -> tuple[np.ndarray, np.ndarray]:
        """Steps and rates of all logged rows, with or without a loss."""
        if self.between is None:
            return self.step, self.rate
        step, first = np.unique(np.append(self.step, self.between[0]), return_index=True)
        return step, np.append(self.rate, self.between[1])[first]

    @property
    def steps(self) -> float:
        """The last step with a logged loss."""
        return float(self.step[-1])

    @property
    def done(self) -> float:
        """The last logged step, with or without a loss."""
        return float(self.known[0][-1])

    @property
    def rise(self) -> float:
        """The last step of a logged warm-up; 0 if the rate does not rise at first."""
        step, rate = self.known
        if rate[1] <= rate[0]:
            return 0.0
        return float(step[np.argmax(rate >= 0.99 * rate.max())])

    def until(self, last: float) -> "Curve":
        """The part of the run that was known after ``last`` steps."""
        kept, known = self.step <= last, None
        if self.between is not None:
            steps, rates = self.between
            known = (steps[steps <= last], rates[steps <= last])
        batch = None if self.batch is None else self.batch[kept]
        return replace(
            self, step=self.step[kept], rate=self.rate[kept], loss=self.loss[kept], batch=batch, between=known
        )

    def from_step(self, first: float) -> np.ndarray:
        """(n,) which points are at or after a step."""
        return self.step >= first

    def binned(self, first: float) -> tuple[np.ndarray, np.ndarray]:
        """Steps and losses from step ``first`` on, dense logs averaged over neighbours (in the logarithm)."""
        kept = self.from_step(first)
        if kept.sum() < 3:
            raise SpecificationError(
                f"curve {self.name!r} must have at least 3 points from step {first:g} on, got {kept.sum()}"
            )
        size = -(-int(kept.sum()) // MOST_POINTS)
        groups = np.arange(kept.sum()) // size
        count = np.bincount(groups)
        return tuple(  # type: ignore[return-value]
            back(np.bincount(groups, weights=go(column[kept])) / count)
            for column, go, back in ((self.step, np.asarray, np.asarray), (self.loss, np.log, np.exp))
        )

    def edges(self, at: np.ndarray, warmup: float) -> np.ndarray:
        """Steps from 0 through ``at`` (increasing) that resolve a warm-up, and rates logged in between."""
        step, first = self.known[0], at[0]
        unlogged = min(step[0], first)
        rise = np.linspace(0.0, min(warmup, unlogged) or unlogged, WARMUP_PIECES + 1)
        early = step[step < first]  # no losses are used there, and rates are averaged in between
        early = early[:: max(-(-len(early) // MOST_POINTS), 1)]
        before = np.unique(np.concatenate([rise, [unlogged], early, [first]]))
        pieces = 1 if self.between is None else PIECES
        fine = np.interp(np.arange((len(at) - 1) * pieces + 1) / pieces, np.arange(len(at)), at)
        return np.append(before if first > 0 else np.zeros(2), fine[1:])

    def ends(self, at: np.ndarray, warmup: float) -> np.ndarray:
        """(len(at),) which intervals between ``edges`` end at these steps."""
        pieces = 1 if self.between is None else PIECES
        return len(self.edges(at, warmup)) - 2 - pieces * np.arange(len(at))[::-1]

    def intervals(self, edges: np.ndarray, warmup: float, usual_batch: float) -> tuple[np.ndarray, ...]:
        """Lengths, mean rates and batches (in the usual one) between increasing steps ``edges``.

        The rate is linear between logged points, so a jump between two of them counts as one halfway. Before
        the first point the rate warms up linearly to the first logged one over ``warmup`` steps and stays
        there; if it still rises at the first point, the warm-up ends at that point.
        """
        known_step, known_rate = self.known
        if known_step[0] > 0:
            before = [0.0, warmup] if 0 < warmup < known_step[0] else [0.0]
            rising = warmup > 0 or known_rate[1] > known_rate[0]
            rise = [0.0 if rising else known_rate[0], known_rate[0]][: len(before)]
            known_step, known_rate = np.append(before, known_step), np.append(rise, known_rate)
        # The mean of the piecewise linear rate, by its integral.
        nodes = np.union1d(known_step, edges)
        at_nodes = np.interp(nodes, known_step, known_rate)
        integral = np.append(0.0, np.cumsum(np.diff(nodes) * (at_nodes[1:] + at_nodes[:-1]) / 2))
        lengths = np.diff(edges)
        total = np.diff(np.interp(edges, nodes, integral))
        rates = np.divide(total, lengths, out=np.interp(edges[1:], nodes, at_nodes), where=lengths > 0)
        batches = np.ones_like(rates)
        if self.batch is not None:  # a logged batch size applies since the previous row
            at = np.searchsorted(self.step, (edges[1:] + edges[:-1]) / 2)
            batches = self.batch[np.minimum(at, len(self.batch) - 1)] / usual_batch
        return lengths, rates, batches


def check_steps(who: str, steps: np.ndarray, back: np.ndarray) -> None:
    """Raise if any of the differences between neighbouring steps goes back."""
    if np.any(back):
        i = int(np.argmax(back))
        raise SpecificationError(
            f"{who}: steps must increase, but {steps[i]:g} is followed by {steps[i + 1]:g}. If the run was "
            "restarted from a checkpoint, leave out the rows that were done twice; if rows are out of order, "
            "sort them by step"
        )


def best_and_last(loss: np.ndarray) -> tuple[float, float]:
    """The lowest and the last loss of a run, each a median over a tenth of the points."""
    tenth = max(len(loss) // 10, 1)
    return float(np.median(np.sort(loss)[:tenth])), float(np.median(loss[-tenth:]))


def real(who: str, what: str, column: Any) -> np.ndarray:
    """A column as real numbers."""
    try:
        numbers = as_numbers(column)
    except OverflowError as error:  # a whole number that is too large
        raise SpecificationError(f"{who}: {what} must be real numbers: {error}") from error
    if numbers is None:
        raise SpecificationError(f"{who}: {what} must be real numbers, got {column!r}")
    return numbers


def as_rates(value: Any) -> np.ndarray | None:
    """(steps,) a rate for each step, finite and at least 0; None if it is anything else."""
    rates = as_numbers(value)
    good = rates is not None and rates.ndim == 1 and np.all(np.isfinite(rates) & (rates >= 0))
    return rates if good else None


def check_together(curves: Sequence[Curve], same_unit: bool = False) -> None:
    """Raise if the curves cannot be of one network and one loss."""
    names = [curve.name for curve in curves]
    if len(set(names)) < len(names):
        raise SpecificationError(f"curves must have different names, got {', '.join(names)}")
    with_batch = [curve.batch is not None for curve in curves]
    if any(with_batch) and not all(with_batch):
        raise SpecificationError(
            f"batch must be logged in all curves or in none; {names[with_batch.index(False)]!r} has none"
        )
    for curve in curves:
        best, last = best_and_last(curve.loss)
        if last > UNITS * best:
            raise SpecificationError(
                f"curve {curve.name!r}: the run diverged: its loss was {best:.4g} and ends at {last:.4g}; "
                "leave out what follows its lowest loss, or the run"
            )
    if not same_unit:
        _check_units(curves)


def _check_units(curves: Sequence[Curve]) -> None:
    """Raise, or warn, if losses seem to be of several kinds or units.

    Without early losses this is only a warning, unless the ratio is very large.
    """
    ratio, pair, early = _units_apart(curves)
    if ratio <= BITS:
        return
    message = f"curves must be losses of one network in one unit, but {pair}. If they are, say same_unit=True"
    if early or ratio > UNITS:
        raise SpecificationError(message)
    warn(message, LawWarning)


def check_prior_unit(run: Curve, other: Curve) -> None:
    """Warn if a run of the prior and a run seem to have losses of different kinds or units."""
    ratio, pair, _ = _units_apart([run, replace(other, name=f"prior: {other.name}")])
    if ratio > BITS:
        warn(
            f"prior must be of losses in the unit of the curves, whose noise it tells, but {pair}. If it is, "
            "say same_unit=True",
            LawWarning,
        )


def _units_apart(curves: Sequence[Curve]) -> tuple[float, str, bool]:
    """The ratio of losses that should be alike, the two farthest apart, and whether they are early ones.

    Untrained networks are equally bad, so medians of early losses at the same steps reveal the unit (a single
    loss may be that of one batch). If early losses were not logged, losses at the end of the shortest run are
    compared, which may differ because of the rates too.
    """
    at = max(curve.step[0] for curve in curves)
    last = EARLY * min(curve.steps for curve in curves)
    if early := bool(at <= last):
        logged = [curve.step[(curve.step >= at) & (curve.step <= last)] for curve in curves]
        steps = min(logged, key=len)[:FIRST] if all(map(len, logged)) else [at]
        at = float(np.median(steps))
        losses = [
            float(np.median(np.exp(np.interp(steps, curve.step, np.log(curve.loss))))) for curve in curves
        ]
    else:
        at = min(curve.steps for curve in curves)
        parts = [curve.loss[curve.step <= max(at, curve.step[0])] for curve in curves]
        losses = [float(np.median(part[-max(len(part) // 10, 1) :])) for part in parts]
    low, high = int(np.argmin(losses)), int(np.argmax(losses))
    one, other = (f"{curves[i].name!r} has {losses[i]:.4g} at step {at:g}" for i in (low, high))
    pair = f"{one} and {other} (bits are nats × 1.44, a perplexity is the exponential)"
    return losses[high] / losses[low], pair, early
