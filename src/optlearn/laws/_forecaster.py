"""Forecasts during a training: what is logged, when to look ahead, and the rate that is then taken over."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from optlearn._arguments import Arguments
from optlearn._errors import SpecificationError, warn
from optlearn._signatures import checked
from optlearn.laws._curves import Curve, LawWarning
from optlearn.laws._fit import as_fits
from optlearn.laws._forecast import EARLIEST, Forecast, forecast

if TYPE_CHECKING:
    from optlearn.laws._forecast_huggingface import HuggingFaceForecast
    from optlearn.laws._forecast_keras import KerasForecast
    from optlearn.laws._forecast_lightning import LightningForecast

LOOKS = 20  # forecasts of a training, by default
LEAST_POINTS = 12  # losses without which there is nothing to tell from


class Forecaster:
    """Follows a training, says where it will end and, if asked, decays the rate when it is time.

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
        end: rate that the decay ends at, as a share of the one before it.
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
        report: Callable[[Forecast], object] | None = lambda found: print(found.summary()),
        level: float = 0.95,
    ) -> None:
        check = Arguments("Forecaster")
        check.count("steps", steps)
        check.number("end", end, 0.0, 1.0)
        for name, value in (("every", every), ("first", first)):
            if value is not None:
                check.count(name, value)
        self.steps, self.take_over, self.end, self.report = steps, take_over, end, report
        self.every = max(1, steps // LOOKS) if every is None else every
        check.level(level)
        self._asked = {"prior": as_fits(prior), "pilots": pilots, "end": end, "level": level}
        self._next = max(int(EARLIEST * steps) + 1, steps // 5 if first is None else first)
        self._done = 0
        self._rows: list[tuple[int, float, float]] = []
        self._decay: tuple[int, float] | None = None
        self._given: list[float] | None = None
        self.latest: Forecast | None = None

    @property
    def decaying(self) -> bool:
        """Whether the rate has been taken over."""
        return self._decay is not None

    def log(self, step: int, rate: float, loss: float) -> Forecast | None:
        """Take in a loss after ``step`` steps; a forecast, if one was due.

        Steps that a resumed run does again replace what was logged of them. A loss that is no number above 0
        says nothing of where a training ends, and is left out. A forecast that cannot be made, as of a loss
        that explodes, is a warning: it is no reason to end a training.
        """
        self._done = int(step)
        while self._rows and self._rows[-1][0] >= step:
            self._rows.pop()
        if np.isfinite(loss) and loss > 0:
            self._rows.append((int(step), float(rate), float(loss)))
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
            self._decay = (max(self.latest.decay.start, step), float(rate))
        return self.latest

    def forecast(self) -> Forecast:
        """The forecast of what was logged so far."""
        if len(self._rows) < LEAST_POINTS:
            raise SpecificationError(f"forecast needs at least {LEAST_POINTS} losses, got {len(self._rows)}")
        step, rate, loss = (np.array(column) for column in zip(*self._rows, strict=True))
        return forecast(Curve("run", step, rate, loss), self.steps, **self._asked)

    def rate(self, step: int, given: float) -> float:
        """The rate of the next step, after ``step`` of them: that ``given``, unless the decay has begun."""
        if self._decay is None or step < self._decay[0]:
            return given
        start, before = self._decay
        share = min(max((self.steps - step - 0.5) / max(self.steps - start, 1), 0.0), 1.0)
        return before * (self.end + (1 - self.end) * share)

    def step(self, optimizer: Any, loss: float, step: int | None = None) -> Forecast | None:
        """After an optimiser step in a loop of PyTorch: log the loss, and set the rate of the next step.

        With a scheduler of the loop's own, call this after ``scheduler.step()``. Groups of parameters keep
        the ratios of their rates.

        Args:
            optimizer: whose ``param_groups`` have the rates.
            loss: of the step that was done.
            step: steps done (default: one more than at the last call).
        """
        done = self._done + 1 if step is None else int(step)
        found = self.log(done, float(optimizer.param_groups[0]["lr"]), float(loss))
        self.set_rates(optimizer, done)
        return found

    def set_rates(self, optimizer: Any, step: int) -> None:
        """Set the rates of a PyTorch optimiser for the next step, after ``step`` of them."""
        if self._decay is None or step < self._decay[0]:
            return
        groups = optimizer.param_groups
        if self._given is None:
            self._given = [float(group["lr"]) for group in groups]
        for group, given in zip(groups, self._given, strict=True):
            group["lr"] = self.rate(step, given) * given / self._given[0]

    def state_dict(self) -> dict[str, Any]:
        """What a resumed training needs, in plain numbers."""
        return {
            "done": self._done,
            "rows": [list(row) for row in self._rows],
            "next": self._next,
            "decay": None if self._decay is None else list(self._decay),
            "given": self._given,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        self._rows = [(int(step), float(rate), float(loss)) for step, rate, loss in state["rows"]]
        self._done = int(state.get("done", self._rows[-1][0] if self._rows else 0))
        self._next = int(state["next"])
        self._decay = None if state["decay"] is None else (int(state["decay"][0]), float(state["decay"][1]))
        self._given = state["given"]

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
