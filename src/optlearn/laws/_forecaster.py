"""Forecasts during training: the logged losses, when to forecast, and control of the rate."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from optlearn._arguments import Arguments
from optlearn._errors import SpecificationError, warn
from optlearn._signatures import checked
from optlearn.laws._curves import Curve, LawWarning
from optlearn.laws._fit import as_fits
from optlearn.laws._forecast import EARLIEST, Forecast, forecast
from optlearn.laws._readers import read_curves

if TYPE_CHECKING:
    from optlearn.laws._forecast_huggingface import HuggingFaceForecast
    from optlearn.laws._forecast_keras import KerasForecast
    from optlearn.laws._forecast_lightning import LightningForecast

LOOKS = 20  # forecasts per run, by default
LEAST_POINTS = 12  # losses below which no forecast is made
MOST_ROWS = 2000  # per run; beyond twice as many, they are averaged over equal spans of steps

Row = tuple[int, float, float]  # steps done, rate and loss


class Forecaster:
    """Follows a training run, forecasts its end and, if asked, begins the decay when it is due.

    In a loop of your own, ``forecaster.step(optimizer, loss)`` after every optimiser step; in trainers,
    ``to_lightning()``, ``to_huggingface()`` and ``to_keras()`` are callbacks. ``state_dict`` and
    ``load_state_dict`` resume it.

    Args:
        steps: of the whole training.
        prior: a fit of other runs, or several, as in ``laws.fit``.
        pilots: other curves of the same network.
        every: steps from one forecast to the next (default: a 20th of the training).
        first: steps before the first forecast (default: a fifth of the training).
        take_over: when a forecast says that the decay should begin, lower the rate linearly from then on.
        end: rate at the end of the decay, as a share of the rate before it.
        report: called with every forecast (default: prints its summary; None: nothing).
        level: probability of the intervals.
    """

    @checked
    def __init__(
        self,
        steps: int,
        *,
        prior: Any = None,
        pilots: Any = None,
        every: int | None = None,
        first: int | None = None,
        take_over: bool = False,
        end: float = 0.0,
        report: Callable[[Forecast], object] | None = lambda latest: print(latest.summary()),
        level: float = 0.95,
    ) -> None:
        check = Arguments("Forecaster")
        check.count("steps", steps)
        check.number("end", end, 0.0, 1.0)
        for name, value in (("every", every), ("first", first)):
            if value is not None:
                check.count(name, value)
        if first is not None and first >= steps:
            check.fail("first", first, f"must be below the {steps} steps of the training")
        self.steps, self.take_over, self.end, self.report = steps, take_over, end, report
        self.every = max(1, steps // LOOKS) if every is None else every
        check.level(level)
        others = None if pilots is None else read_curves(pilots)
        self._asked: dict[str, Any] = {"prior": as_fits(prior), "pilots": others, "end": end, "level": level}
        self._next = max(int(EARLIEST * steps) + 1, steps // 5 if first is None else first)
        self._done = 0
        self._rows: list[Row] = []
        self._decay: tuple[int, float, int] | None = None  # its start, the rate before, when it was decided
        self._given: list[float] | None = None
        self.latest: Forecast | None = None

    @property
    def decaying(self) -> bool:
        """Whether the rate has been taken over."""
        return self._decay is not None

    def log(self, step: int, rate: float, loss: float) -> Forecast | None:
        """Log a loss after ``step`` steps; returns a forecast, if one was due.

        When a resumed run repeats steps, their earlier rows are dropped, and so is a decay that was decided
        on later. A loss that is not a number above 0, or whose rate is not a number of at least 0, is left
        out. A failed forecast, as for an exploding loss, is only a warning: it is no reason to stop training.
        """
        done, rate, loss = map(_number, (step, rate, loss))
        if not (done >= 0 and done % 1 == 0):
            Arguments("Forecaster").fail("step", step, "must be a whole number of steps done")
        self._done = step = int(done)
        while self._rows and self._rows[-1][0] >= step:
            self._rows.pop()
        if self._decay is not None and step < self._decay[2]:
            self._next, self._decay, self._given = self._decay[2], None, None
        if np.isfinite([rate, loss]).all() and rate >= 0 and loss > 0:
            self._rows.append((step, rate, loss))
        if len(self._rows) > 2 * MOST_ROWS:
            self._rows = _averaged(self._rows)
        due = step >= self._next and len(self._rows) >= LEAST_POINTS and step < self.steps
        if not due or self.decaying:
            return None
        self._next = step + self.every
        try:
            self.latest = self.forecast()
        except SpecificationError as error:
            warn(f"no forecast after step {step}: {error}", LawWarning)
            return None
        if self.report is not None:
            self.report(self.latest)
        if self.take_over and self.latest.decay.start < step + self.every:
            # The next look would come too late.
            self._decay = (max(self.latest.decay.start, step), rate, step)
        return self.latest

    def forecast(self) -> Forecast:
        """The forecast from the rows logged so far."""
        if len(self._rows) < LEAST_POINTS:
            raise SpecificationError(f"forecast needs at least {LEAST_POINTS} losses, got {len(self._rows)}")
        rows = _averaged(self._rows) if len(self._rows) > MOST_ROWS else self._rows
        step, rate, loss = np.array(rows).T
        return forecast(Curve("run", step, rate, loss), self.steps, **self._asked)

    def rate(self, step: int, given: float) -> float:
        """The rate of the next step, after ``step`` of them: ``given``, unless the decay has begun."""
        if self._decay is None or step < self._decay[0]:
            return given
        start, before, _ = self._decay
        share = min(max((self.steps - step - 0.5) / max(self.steps - start, 1), 0.0), 1.0)
        return before * (self.end + (1 - self.end) * share)

    def step(self, optimizer: Any, loss: float, step: int | None = None) -> Forecast | None:
        """After an optimiser step in a loop of PyTorch: log the loss, and set the rate of the next step.

        With a scheduler of the loop's own, call this after ``scheduler.step()``. Groups of parameters keep
        the ratios of their rates; the first whose rate is above 0 is the one that counts.

        Args:
            optimizer: the rates are in its ``param_groups``.
            loss: of the step just done.
            step: steps done (default: one more than at the last call).
        """
        new_forecast = self.log(
            self._done + 1 if step is None else step,
            leading([group["lr"] for group in optimizer.param_groups]),
            loss,
        )
        self.set_rates(optimizer, self._done)
        return new_forecast

    def set_rates(self, optimizer: Any, step: int) -> None:
        """Set the rates of a PyTorch optimiser for the next step, after ``step`` of them."""
        if self._decay is None or step < self._decay[0]:
            return
        groups = optimizer.param_groups
        if self._given is None:
            self._given = [float(group["lr"]) for group in groups]
        for group, own in zip(groups, self._given, strict=True):
            group["lr"] = self.rate(step, own) * own / (leading(self._given) or 1.0)

    def state_dict(self) -> dict[str, Any]:
        """The state that a resumed run needs, in plain numbers."""
        return {
            "steps": self.steps,
            "done": self._done,
            "rows": [list(row) for row in self._rows],
            "next": self._next,
            "decay": None if self._decay is None else list(self._decay),
            "given": self._given,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned, in a training run of as many steps."""
        check = Arguments("Forecaster")
        try:
            rows = [(int(step), float(rate), float(loss)) for step, rate, loss in state["rows"]]
            done = int(state.get("done", rows[-1][0] if rows else 0))
            upcoming, decay, before = int(state["next"]), state["decay"], state["given"]
            before = None if before is None else [float(rate) for rate in before]
            if decay is not None:  # older states do not say when it was decided
                start, rate, *decided = decay
                decay = (int(start), float(rate), int(decided[0] if decided else min(start, done)))
        except (AttributeError, KeyError, TypeError, ValueError):
            check.fail("state", state, "must be what state_dict gave")
        if state.get("steps", self.steps) != self.steps:
            check.fail("steps", self.steps, f"must be the {state['steps']} of the training that was saved")
        self._rows, self._done, self._next, self._decay, self._given = rows, done, upcoming, decay, before

    # --- trainers ----------------------------------------------------------------------------------

    def to_huggingface(self) -> "HuggingFaceForecast":
        """A callback for Hugging Face's ``Trainer``; its state is saved in checkpoints."""
        from optlearn.laws._forecast_huggingface import HuggingFaceForecast

        return HuggingFaceForecast(self)

    def to_lightning(self, loss: str = "train_loss") -> "LightningForecast":
        """A callback for Lightning's ``Trainer``, for the logged metric ``loss``; saved in checkpoints."""
        from optlearn.laws._forecast_lightning import LightningForecast

        return LightningForecast(self, loss)

    def to_keras(self) -> "KerasForecast":
        """A callback for Keras' ``fit``."""
        from optlearn.laws._forecast_keras import KerasForecast

        return KerasForecast(self)


def _number(value: Any) -> float:
    """A logged value as a number; NaN if it is not one."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def leading(rates: Sequence[float]) -> float:
    """The first rate above 0, since groups before it are frozen; 0 if all are."""
    return next((float(rate) for rate in rates if rate > 0), 0.0)


def _averaged(rows: Sequence[Row]) -> list[Row]:
    """Means over MOST_ROWS equal spans of steps (of losses in the logarithm); the last row is kept."""
    step, rate, loss = np.array(rows).T
    _, span, count = np.unique(MOST_ROWS * step // step[-1], return_inverse=True, return_counts=True)
    step, rate, log = (np.bincount(span, weights=column) / count for column in (step, rate, np.log(loss)))
    return list(zip(np.rint(step).astype(int).tolist(), rate.tolist(), np.exp(log).tolist(), strict=True))
