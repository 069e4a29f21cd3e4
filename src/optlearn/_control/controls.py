"""What may be chosen: controls over time, budgets on them, and free parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from optlearn._errors import BudgetError, SpecificationError


@dataclass(frozen=True)
class Continuous:
    """A control with any value between two bounds.

    Args:
        lower, upper: bounds, both finite.
        guess: where solvers start; the middle if not given.
        whole: also report the best schedule of whole numbers (``solution.whole``).
    """

    lower: float
    upper: float
    guess: float | None = None
    whole: bool = False

    def __post_init__(self) -> None:
        _check_bounds(self)

    @property
    def start(self) -> float:
        """Where solvers start."""
        return (self.lower + self.upper) / 2 if self.guess is None else self.guess


@dataclass(frozen=True)
class Discrete:
    """A control with one of a few values.

    Args:
        values: at least two different numbers.
        min_dwell: shortest training time (in α) that a value is kept.
        max_switches: how often the value may change.
    """

    values: tuple[float, ...]
    min_dwell: float = 0.0
    max_switches: int | None = None

    def __init__(
        self, values: Sequence[float], min_dwell: float = 0.0, max_switches: int | None = None
    ) -> None:
        numbers = tuple(float(value) for value in values)
        if len(set(numbers)) < 2 or len(set(numbers)) != len(numbers):
            raise SpecificationError(f"Discrete(values={values!r}): at least two different numbers")
        if not np.all(np.isfinite(numbers)):
            raise SpecificationError(f"Discrete(values={values!r}): finite numbers")
        if not min_dwell >= 0:
            raise SpecificationError(f"Discrete(min_dwell={min_dwell!r}): a training time, 0 or more")
        if max_switches is not None and max_switches < 0:
            raise SpecificationError(f"Discrete(max_switches={max_switches!r}): 0 or more")
        object.__setattr__(self, "values", numbers)
        object.__setattr__(self, "min_dwell", float(min_dwell))
        object.__setattr__(self, "max_switches", max_switches)

    @property
    def limited(self) -> bool:
        """Are there limits on switches or dwell?"""
        return self.max_switches is not None or self.min_dwell > 0


Control = Continuous | Discrete


@dataclass(frozen=True)
class Budget:
    """A constraint on a control's mean over training, or on the share of training spent at values.

    Args:
        control: name of the control.
        mean: mean of the control over training (give this or ``share``).
        share: value → share of training time, for discrete controls.
        sense: "equal", or "at most".
    """

    control: str
    mean: float | None = None
    share: Mapping[float, float] = field(default_factory=dict)
    sense: Literal["equal", "at most"] = "equal"

    def __post_init__(self) -> None:
        if (self.mean is None) == (not self.share):
            raise BudgetError(f"Budget({self.control!r}): give either mean=… or share={{value: share}}")
        if self.sense not in ("equal", "at most"):
            raise BudgetError(f"Budget({self.control!r}, sense={self.sense!r}): 'equal' or 'at most'")

    def check(self, control: Control) -> None:
        """Raise if no schedule of ``control`` can meet this budget."""
        name = self.control
        if self.mean is not None:
            low, high = (
                (control.lower, control.upper)
                if isinstance(control, Continuous)
                else (min(control.values), max(control.values))
            )
            # Written so that a NaN is wrong too.
            if not (low <= self.mean and (self.mean <= high or self.sense == "at most")):
                raise BudgetError(
                    f"infeasible budget: mean {name} = {self.mean:g}, but {name} lies between "
                    f"{low:g} and {high:g}"
                )
            return
        if isinstance(control, Continuous):
            raise BudgetError(
                f"Budget({name!r}, share=…) is for discrete controls; use mean=… for a continuous one"
            )
        unknown = [value for value in self.share if float(value) not in control.values]
        if unknown:
            raise BudgetError(f"Budget({name!r}): {unknown} are not among its values {list(control.values)}")
        shares = list(self.share.values())
        too_much = self.sense == "equal" and sum(shares) > 1 + 1e-12
        if any(not 0 <= share <= 1 for share in shares) or too_much:
            raise BudgetError(
                f"infeasible budget: shares {dict(self.share)} of {name!r} must lie between 0 and "
                "1 and add up to at most 1"
            )
        if len(shares) == len(control.values) and sum(shares) < 1 - 1e-9:
            raise BudgetError(
                f"infeasible budget: shares of all values of {name!r} add up to {sum(shares):g}, not 1"
            )

    def rows(self, control: Control) -> list[tuple[np.ndarray, float]]:
        """Rows a and targets t: a·s is t, or at most t.

        s (1,) is the mean of a continuous control, or (n,) the shares of a discrete one's values.
        """
        if isinstance(control, Continuous):
            assert self.mean is not None
            return [(np.ones(1), self.mean)]
        if self.mean is not None:
            return [(np.array(control.values), self.mean)]
        one = np.eye(len(control.values))
        return [(one[control.values.index(float(v))], share) for v, share in self.share.items()]


def check_together(name: str, control: Control, budgets: Sequence[Budget]) -> None:
    """Raise if no schedule of ``control`` meets all its ``budgets``, each feasible by itself."""
    from scipy.optimize import linprog

    if len(budgets) < 2:
        return
    equal: list[tuple[np.ndarray, float]] = []
    at_most: list[tuple[np.ndarray, float]] = []
    for budget in budgets:
        (equal if budget.sense == "equal" else at_most).extend(budget.rows(control))
    if isinstance(control, Discrete):
        size, limits = len(control.values), (0.0, 1.0)
        equal.append((np.ones(size), 1.0))
    else:
        size, limits = 1, (control.lower, control.upper)
    found = linprog(
        np.zeros(size),
        A_eq=[row for row, _ in equal] or None,
        b_eq=[target for _, target in equal] or None,
        A_ub=[row for row, _ in at_most] or None,
        b_ub=[target for _, target in at_most] or None,
        bounds=limits,
    )
    if found.status == 2:
        raise BudgetError(
            f"infeasible budgets: no schedule of {name!r} meets all {len(budgets)} of them at once"
        )


@dataclass(frozen=True)
class Free:
    """A parameter optimised once, not over time.

    Args:
        lower, upper: bounds, both finite.
        guess: where solvers start; the middle if not given.
    """

    lower: float
    upper: float
    guess: float | None = None

    def __post_init__(self) -> None:
        _check_bounds(self)

    @property
    def start(self) -> float:
        """Where solvers start."""
        return (self.lower + self.upper) / 2 if self.guess is None else self.guess


def _check_bounds(bounded: Continuous | Free) -> None:
    """Raise unless bounds and guess make sense; then make them floats."""
    kind, lower, upper, guess = type(bounded).__name__, bounded.lower, bounded.upper, bounded.guess
    if not (np.isfinite(lower) and np.isfinite(upper)):
        raise SpecificationError(f"{kind}(lower={lower!r}, upper={upper!r}): bounds must be finite")
    if not lower < upper:
        raise SpecificationError(f"{kind}(lower={lower!r}, upper={upper!r}): lower must be below upper")
    if guess is not None and not lower <= guess <= upper:
        raise SpecificationError(f"{kind}(guess={guess!r}) lies outside [{lower:g}, {upper:g}]")
    object.__setattr__(bounded, "lower", float(lower))
    object.__setattr__(bounded, "upper", float(upper))
    object.__setattr__(bounded, "guess", None if guess is None else float(guess))
