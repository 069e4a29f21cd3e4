"""The objective, and quantities that must not exceed a limit."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from optlearn._arguments import Arguments, as_numbers
from optlearn._arrays import Array, Settings
from optlearn._dynamics.checks import check_settings
from optlearn._dynamics.own_code import Known, Part, digest, is_own, slips_explained
from optlearn._dynamics.system import System
from optlearn._engine.tracing.trace import dependencies
from optlearn._errors import SpecificationError
from optlearn._signatures import checked

Cost = Callable[[Any, Settings], Array]

# Parameter names and the structure of a model → the names that its error reads.
_READ: dict[Hashable, set[str]] = {}


@checked
@dataclass(frozen=True)
class Objective:
    """The quantity to minimise: a function of the final state plus integrals over training.

    Args:
        final: weight of the generalisation error at the end.
        average: weight of the generalisation error averaged over training.
        terminal: further function of the final state, ``terminal(x, u) → scalar``.
        cost: running cost, ``cost(x, u) → scalar``, *averaged* over training: its integral divided by the
            horizon. ``x`` is the state and ``u`` the settings at that time.
        integral: running cost, ``integral(x, u) → scalar``, *integrated* over training time.
        tests: settings under which the error is measured, if different from training: a mapping from
            parameters to values; or pairs of a weight and such a mapping, for a weighted sum of errors.
    """

    final: float = 1.0
    average: float = 0.0
    terminal: Cost | None = None
    cost: Cost | None = None
    tests: Any = ()
    integral: Cost | None = None

    def __post_init__(self) -> None:
        if not (self.final or self.average or self.terminal or self.cost or self.integral):
            raise SpecificationError(
                "Objective: final, average, terminal, cost or integral must be given, got nothing to minimise"
            )
        pairs = [(1.0, self.tests)] if isinstance(self.tests, Mapping) else self.tests
        try:
            # As tuples, which are hashable and compare by value.
            held = [(float(w), tuple(sorted((n, _held(v)) for n, v in dict(t).items()))) for w, t in pairs]
        except (TypeError, ValueError):
            raise SpecificationError(
                f"tests must be a mapping of settings, or pairs of a weight and one, got {self.tests!r}"
            ) from None
        object.__setattr__(self, "tests", tuple(held))

    @classmethod
    def under(cls, *tests: Mapping[str, float], weights: Sequence[float] | None = None) -> "Objective":
        """The final error under settings other than those of training; the mean over several tests.

        Args:
            tests: settings of each test, such as ``{"test_noise": 0.5}``.
            weights: one per test; by default equal and adding up to 1. Any numbers are allowed: 1 and −1 give
                a difference.
        """
        if not tests:
            raise SpecificationError("Objective.under: at least one test")
        shares = [1 / len(tests)] * len(tests) if weights is None else list(weights)
        if len(shares) != len(tests):
            raise SpecificationError(f"weights must be {len(tests)} numbers, one per test, got {weights!r}")
        return cls(tests=tuple(zip(shares, tests, strict=True)))

    @classmethod
    def gap(cls, one: Mapping[str, float], other: Mapping[str, float]) -> "tuple[Objective, Objective]":
        """The difference of the errors under two tests: the larger of the two signed differences."""
        return cls.under(one, other, weights=(1, -1)), cls.under(other, one, weights=(1, -1))

    @classmethod
    def average_error(cls) -> "Objective":
        """The error averaged over training."""
        return cls(final=0.0, average=1.0)

    @classmethod
    def price(cls, per_sample: float = 1.0, per_step: float = 0.0, batch: str = "batch") -> "Objective":
        """The average price of a training step and its samples; per_sample=1 alone counts samples.

        Args:
            per_sample: price of a sample.
            per_step: price of a step, whatever its batch.
            batch: name of the control that sets the number of samples in a step.
        """
        check = Arguments("Objective.price")
        each, step = check.number("per_sample", per_sample, 0.0), check.number("per_step", per_step, 0.0)
        return cls(final=0.0, cost=Price(each, step, batch))

    def error(self, model: System, x: Any, u: Settings) -> Array:
        """The error to minimise: the model's own, or that of the tests."""
        if not self.tests:
            return model.error(x, u)
        total = jax.numpy.zeros(())
        for (weight, _), settings in zip(self.tests, self._tested(model, u), strict=True):
            total = total + weight * model.error(x, settings)
        return total

    def _tested(self, model: System, u: Settings) -> list[dict[str, Array]]:
        """The settings of every test: those of training with some replaced, if the member has them."""
        return [model.settings({**u, **{n: v for n, v in values if n in u}}) for _, values in self.tests]

    def check_tests(self, model: System, x: Any, u: Settings) -> None:
        """Raise if a test is impossible in state ``x``, or changes settings that the error does not read."""
        try:
            for _, values in self.tests:
                model.settings(dict(values))  # the error for an unknown name lists the known ones
            tested = self._tested(model, u)
            for settings in tested:
                check_settings(model, x, settings)
        except SpecificationError as error:
            raise SpecificationError(f"tests: {error}") from None
        for (_, values), settings in zip(self.tests, tested, strict=True):
            names = tuple(name for name, _ in values)
            for name in sorted(set(names) - _read_by_error(model, x, settings, names)):
                raise SpecificationError(
                    f"tests: the error of {type(model).__name__} does not read {name!r}: a test with another "
                    f"{name} is not a different test"
                )

    def key(self, model: System, u: Settings) -> Hashable:
        """Cache key of compiled programs: the objective, with the current code of user functions."""
        return self, digest("Objective", self.parts(model, u))

    def parts(self, model: System, u: Settings) -> list[Part]:
        """Functions that a user may have written, with arguments to trace them."""
        return [
            (name, lambda x, u, f=f: f(x, Known("u", u)), (state, dict(settings)))
            for _, state, settings in model.each(model.state(), u)
            for name in ("terminal", "cost", "integral")
            if (f := getattr(self, name)) is not None
        ]

    def terminal_value(self, model: System, x: Any, u: Settings) -> Array:
        """The terminal part, a function of the final state."""
        return self._sum(self.final, self.terminal, model, x, u)

    def running_value(self, model: System, x: Any, u: Settings, horizon: Array) -> Array:
        """The integrand of the running part, before division by the horizon."""
        averaged = self._sum(self.average, self.cost, model, x, u)
        return averaged if self.integral is None else averaged + horizon * self.integral(x, u)

    def _sum(self, weight: float, cost: Cost | None, model: System, x: Any, u: Settings) -> Array:
        """The weighted error, and a further cost."""
        total = jax.numpy.zeros(())
        if weight:
            total = total + weight * self.error(model, x, u)
        return total if cost is None else total + cost(x, u)

    @property
    def called(self) -> str:
        """Name of its value in summaries and the explorer."""
        if self.terminal is None and self.cost is None and self.integral is None:
            errors = {(1.0, 0.0): "final error", (0.0, 1.0): "mean error over training"}
            return errors.get((self.final, self.average), "objective")
        return "objective"

    @property
    def has_running(self) -> bool:
        """Is there an integral over training?"""
        return bool(self.average) or self.cost is not None or self.integral is not None


def _read_by_error(model: System, x: Any, u: dict[str, Array], names: tuple[str, ...]) -> set[str]:
    """The parameters among ``names`` that the error depends on."""
    leaves, structure = jax.tree.flatten((model, x, u))
    key = (names, structure, tuple(map(np.shape, leaves)))
    if key in _READ:
        return _READ[key]
    named = {name: u[name] for name in names}
    with slips_explained(f"{type(model).__name__}.error"):
        flags = dependencies(lambda named, x, u: model.error(x, {**u, **named}), named, x, u)
    read = {name for name, entries in flags.items() if np.any(entries)}
    if not is_own(type(model)):  # user code may read something else the next time
        _READ[key] = read
    return read


def _held(value: Any) -> Any:
    """A number or numbers in a hashable form."""
    numbers = as_numbers(value)
    if numbers is None:
        raise TypeError
    return float(numbers) if numbers.ndim == 0 else tuple(map(_held, numbers))


@dataclass(frozen=True)
class Price:
    """A running cost: a price for every step, and one for each of its samples."""

    per_sample: float
    per_step: float
    batch: str

    def __call__(self, x: Any, u: Settings) -> Array:
        return self.per_step + self.per_sample * u[self.batch]


@checked
@dataclass(frozen=True)
class Limit:
    """A quantity that must not exceed a value at the end of training, or must equal it.

    Args:
        objective: the limited quantity; for an ensemble, its mean over the members.
        at_most: its largest allowed value.
        equals: instead of ``at_most``, the exact value that it must have.
        name: its name in messages.
    """

    objective: Objective
    at_most: float | None = None
    equals: float | None = None
    name: str = "a limited quantity"

    def __post_init__(self) -> None:
        if (self.at_most is None) == (self.equals is None):
            raise SpecificationError(
                f"Limit: give at_most or equals, one of them, got {self.at_most!r} and {self.equals!r}"
            )
        if self.objective.has_running:
            raise SpecificationError(
                "Limit: what is averaged or integrated over training has no limit of its own: give it to "
                "ol.pareto, or make it a state whose drift is the integrand"
            )

    @property
    def value(self) -> float:
        """The largest allowed value, or the required one."""
        return float(self.at_most if self.equals is None else self.equals)  # type: ignore[arg-type]

    @property
    def words(self) -> str:
        """The limit, in words."""
        return f"exactly {self.value:g}" if self.equals is not None else f"at most {self.value:g}"

    def broken_by(self, value: float) -> str:
        """The message about a final value that violates it."""
        return f"{self.name} is {value:.6g} at the end; it must be {self.words}"
