"""What can be optimised: controls over time, and free parameters.

Solvers work on a vector w in which every control owns a few columns (``Relaxation``). A control answers all
questions about its own columns, so a new kind of control is one more subclass of ``Control``.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from typing_extensions import override

from optlearn._arguments import Arguments, as_numbers
from optlearn._arrays import Array
from optlearn._errors import SpecificationError
from optlearn._schedule import Mixture, Schedule
from optlearn._signatures import checked

# Values that differ by less than this, relative to a control's range, are equal.
TOLERANCE = 1e-7


class Control(ABC):
    """A parameter that may change during training.

    Attributes:
        lower, upper: the lowest and highest value, hence also the range of its mean over training.
        values: the few values that it may take; empty if it may take any value between its bounds.
        min_dwell: shortest training time (in α) that a value is kept.
        max_switches: how often the value may change.
        whole_numbers: also report the best schedule of whole numbers.
        modes: if its values are modes, their names and the parameters that they set.
    """

    lower: float
    upper: float
    modes: tuple[tuple[str, tuple[tuple[str, Any], ...]], ...] = ()
    values: tuple[float, ...] = ()
    min_dwell: float = 0.0
    max_switches: int | None = None
    whole_numbers: bool = False

    @property
    def needs_rounding(self) -> bool:
        """Are its columns shares of discrete values, of which a schedule takes one at a time?

        Drift and cost are then linear in these columns.
        """
        return bool(self.values)

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of its values if they are modes."""
        return tuple(name for name, _ in self.modes)

    @property
    def limited(self) -> bool:
        """Is the number of switches or the dwell time limited?"""
        return self.max_switches is not None or self.min_dwell > 0

    @property
    @abstractmethod
    def start(self) -> float:
        """A value to begin with."""

    # --- its columns of w: a single one, its value, unless a subclass overrides this ----------------

    @property
    def size(self) -> int:
        """The number s of its columns of w."""
        return 1

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """(s,) lower and upper bounds of its columns."""
        return np.array([self.lower]), np.array([self.upper])

    @property
    def neutral(self) -> np.ndarray:
        """(s,) columns without any preference: where solvers start."""
        return np.array([self.start])

    @property
    def sum_limited(self) -> bool:
        """Must its columns also add up to at most 1?"""
        return False

    @property
    def vertices(self) -> np.ndarray:
        """(n, s) columns of each of its n pure values."""
        return np.zeros((0, 1))

    def shares(self, columns: np.ndarray) -> np.ndarray:
        """(I, n) shares of its n values, from its columns (I, s)."""
        return np.zeros((len(columns), 0))

    def options(self, columns: Sequence[Array], values: Array) -> list[tuple[Array, Array]]:
        """Pairs of a value and its share, from its s columns, in ``jax.numpy``.

        ``values`` are its few values as a runtime array.
        """
        return [(columns[0], 1.0)]

    def encode(self, name: str, schedule: Schedule) -> np.ndarray:
        """(J, s) its columns on the J intervals of a schedule in which it is called ``name``.

        Raises:
            SpecificationError: a value that is not admissible.
        """
        return schedule[name][:, None]

    def decode(self, columns: np.ndarray, rounded: bool) -> np.ndarray | Mixture:
        """Values (I,) or a mixture, from its columns (I, s); ``rounded``: each row is a pure value."""
        return columns[:, 0].copy()

    # --- budgets and bounds ----------------------------------------------------------------------

    @property
    def mean_row(self) -> np.ndarray:
        """Row a (n,) such that a·shares is its mean value; (1,), for the mean itself, without values."""
        return np.ones(1)

    def reduced(self, row: np.ndarray, target: float) -> tuple[np.ndarray, float]:
        """A constraint row·shares = target, rewritten as a row (s,) and a target for its columns."""
        return row, target

    def nearest(self, values: np.ndarray) -> np.ndarray:
        """The admissible values nearest to ``values``."""
        if not self.values:
            return np.asarray(np.clip(values, self.lower, self.upper))
        admissible = np.array(self.values)
        return np.asarray(admissible[np.argmin(np.abs(admissible - values[..., None]), axis=-1)])

    def broken_bounds(self, name: str, schedule: Schedule) -> list[str]:
        """Violations of its bounds or values by a schedule, in words."""
        mixture = schedule.mixtures.get(name)
        values = schedule[name] if mixture is None else mixture.values[mixture.shares.max(axis=0) > 0]
        return self._outside(name, values)

    @abstractmethod
    def _outside(self, name: str, values: np.ndarray) -> list[str]: ...


@dataclass(frozen=True)
class _Bounded:
    """A quantity that may take any value between two bounds."""

    lower: Any  # a float after initialisation; infinite without a bound
    upper: Any
    guess: float | None = None

    def __post_init__(self) -> None:
        kind, lower, upper, guess = type(self).__name__, self.lower, self.upper, self.guess
        for name, bound in (("lower", lower), ("upper", upper)):
            number = as_numbers(bound)
            finite = number is not None and number.ndim == 0 and bool(np.isfinite(number))
            if not (finite or (self.may_be_infinite and isinstance(bound, float | int) and np.isinf(bound))):
                allowed = "must be a finite number" + (", or infinite" if self.may_be_infinite else "")
                Arguments(kind).fail(name, bound, allowed)
        if not lower < upper:
            raise SpecificationError(f"{kind}: lower must be below upper, got {lower!r} and {upper!r}")
        if guess is not None:
            guess = Arguments(kind).number("guess", guess, lower, upper)
        vars(self).update(lower=float(lower), upper=float(upper), guess=guess)  # past what is frozen

    @property
    def may_be_infinite(self) -> bool:
        """May a bound be infinite?"""
        return False

    @property
    def bounded(self) -> bool:
        """Are both bounds finite?"""
        return bool(np.isfinite(self.lower) and np.isfinite(self.upper))

    @property
    def start(self) -> float:
        """Where solvers start: the guess, else the middle, else near the only bound, else 0."""
        if self.guess is not None:
            return self.guess
        if self.bounded:
            return (self.lower + self.upper) / 2
        return float(np.clip(0.0, self.lower + 1.0, self.upper - 1.0))


@checked
@dataclass(frozen=True)
class Free(_Bounded):
    """A parameter that is optimised but constant over training.

    Args:
        lower, upper: bounds, both finite.
        guess: where solvers start; the middle if not given.
    """


@checked
@dataclass(frozen=True)
class Continuous(_Bounded, Control):
    """A control that may take any value between two bounds; its column of w is the value.

    Args:
        lower, upper: bounds. Either may be infinite: ``solve`` then looks for the optimum within finite
            bounds, which it widens until they do not matter; the solution's problem has these bounds.
        guess: where solvers start; the middle if not given.
        whole_numbers: also report the best schedule of whole numbers (``solution.whole_numbers``).
    """

    whole_numbers: bool = False

    @property
    @override
    def may_be_infinite(self) -> bool:
        return True

    @override
    def _outside(self, name: str, values: np.ndarray) -> list[str]:
        size = self.upper - self.lower if self.bounded else max(1.0, float(np.abs(values).max()))
        slack = TOLERANCE * size
        if values.min() >= self.lower - slack and values.max() <= self.upper + slack:
            return []
        return [
            f"{name} goes from {values.min():.4g} to {values.max():.4g}; its bounds are "
            f"{self.lower:g} and {self.upper:g}"
        ]


def _modes(
    check: Arguments, values: Mapping[str, Mapping[str, Any]]
) -> tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]:
    """Modes in a hashable form; all must set the same parameters."""
    if len(values) < 2:
        check.fail("values", values, "must be at least two modes")
    first, names = next(iter(values)), sorted(next(iter(values.values())))
    if not names:
        check.fail("values", values, "must be modes that set at least one parameter")
    modes = []
    for mode, parameters in values.items():
        if sorted(parameters) != names:
            raise SpecificationError(
                f"Discrete: all modes must set the same parameters: {mode!r} sets {sorted(parameters)}, "
                f"{first!r} {names}"
            )
        modes.append(
            (mode, tuple((n, _held(check, f"values[{mode!r}][{n!r}]", parameters[n])) for n in names))
        )
    return tuple(modes)


def _held(check: Arguments, name: str, value: Any) -> Any:
    """A number or numbers in a hashable form."""
    numbers = as_numbers(value)
    if numbers is None or not np.all(np.isfinite(numbers)):
        check.fail(name, value, "must be a finite number, or numbers")
    return float(numbers) if numbers.ndim == 0 else tuple(_held(check, name, part) for part in numbers)


@checked
@dataclass(frozen=True)
class Discrete(Control):
    """A control that takes one of n values; its columns of w are the shares of all but the last.

    The drift under mixed values is the mean of their drifts. This is both outer convexification and the
    physics of drawing samples at random.

    Args:
        values: at least two different numbers; or modes by name, each with its values of several parameters
            of the model: ``{"easy": {"noise": 0.1, "share": 0.9}, "hard": {"noise": 0.5, "share": 0.1}}``.
            Modes are numbered from 0 in this order; these numbers are the control's values.
        min_dwell: shortest training time (in α) that a value is kept.
        max_switches: how often the value may change.

    Attributes:
        modes: pairs of a mode's name and the parameters that it sets; empty if the values are numbers.
    """

    values: tuple[float, ...]
    min_dwell: float = 0.0
    max_switches: int | None = None
    modes: tuple[tuple[str, tuple[tuple[str, Any], ...]], ...] = ()
    lower: float = field(init=False, repr=False, compare=False)
    upper: float = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        values: Sequence[float] | Mapping[str, Mapping[str, Any]],
        min_dwell: float = 0.0,
        max_switches: int | None = None,
    ) -> None:
        check = Arguments("Discrete")
        modes: tuple[tuple[str, tuple[tuple[str, Any], ...]], ...] = ()
        if isinstance(values, Mapping):
            modes = _modes(check, values)
            values = list(range(len(modes)))
        numbers = tuple(check.numbers("values", values).tolist())
        if len(set(numbers)) < 2 or len(set(numbers)) != len(numbers):
            check.fail("values", values, "must be at least two different numbers")
        check.number("min_dwell", min_dwell, 0.0)
        if max_switches is not None:
            check.count("max_switches", max_switches, 0)
        vars(self).update(  # past what is frozen
            values=numbers, min_dwell=float(min_dwell), max_switches=max_switches, modes=modes,
            lower=min(numbers), upper=max(numbers),
        )  # fmt: skip

    @property
    def given(self) -> Any:
        """Its values as the user wrote them: numbers, or modes by name."""
        return {name: dict(parameters) for name, parameters in self.modes} or self.values

    @property
    @override
    def start(self) -> float:
        return self.values[0]

    @property
    @override
    def size(self) -> int:
        return len(self.values) - 1

    @property
    @override
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(self.size), np.ones(self.size)

    @property
    @override
    def neutral(self) -> np.ndarray:
        return np.full(self.size, 1 / len(self.values))

    @property
    @override
    def sum_limited(self) -> bool:
        return self.size > 1

    @property
    @override
    def vertices(self) -> np.ndarray:
        return np.eye(len(self.values))[:, :-1]

    @override
    def shares(self, columns: np.ndarray) -> np.ndarray:
        # Round-off may take them beyond 0 and 1.
        shares = np.clip(np.column_stack([columns, 1 - columns.sum(axis=1)]), 0.0, 1.0)
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    @override
    def options(self, columns: Sequence[Array], values: Array) -> list[tuple[Array, Array]]:
        shares = [*columns, 1 - sum(columns)]
        return [(values[i], share) for i, share in enumerate(shares)]

    @override
    def encode(self, name: str, schedule: Schedule) -> np.ndarray:
        shares = np.zeros((schedule.intervals, len(self.values)))
        if name in schedule.mixtures:
            mixture = schedule.mixtures[name]
            for i, value in enumerate(mixture.values):
                shares[:, self._position(name, value)] += mixture.shares[:, i]
        else:
            for interval, value in enumerate(schedule.values[name]):
                shares[interval, self._position(name, value)] = 1.0
        return shares[:, :-1]

    @override
    def decode(self, columns: np.ndarray, rounded: bool) -> np.ndarray | Mixture:
        shares = self.shares(columns)
        if rounded:
            return np.array(self.values)[np.argmax(shares, axis=1)]
        return Mixture(np.array(self.values), shares)

    @property
    @override
    def mean_row(self) -> np.ndarray:
        return np.array(self.values)

    @override
    def reduced(self, row: np.ndarray, target: float) -> tuple[np.ndarray, float]:
        # The last share is 1 minus the others.
        return row[:-1] - row[-1], target - float(row[-1])

    def _position(self, name: str, value: float) -> int:
        close = [i for i, v in enumerate(self.values) if abs(v - value) <= 1e-9 * max(1.0, abs(v))]
        if not close:
            raise SpecificationError(f"{name!r} = {value:g} is not among its values {list(self.values)}")
        return close[0]

    @override
    def _outside(self, name: str, values: np.ndarray) -> list[str]:
        admissible = np.array(self.values)
        foreign = [v for v in np.unique(values) if np.min(np.abs(admissible - v)) > TOLERANCE]
        if not foreign:
            return []
        shown = ", ".join(f"{value:g}" for value in foreign[:3]) + (", …" if len(foreign) > 3 else "")
        return [f"{name} = {shown} is not among its values {', '.join(f'{v:g}' for v in admissible)}"]
