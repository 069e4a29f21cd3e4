"""Budgets, as constraint rows for solvers and in words for people.

Everything that depends on a budget's sense ("equal" or "at most") is decided here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np

from optlearn._control.controls import TOLERANCE, Control
from optlearn._errors import BudgetError
from optlearn._schedule import Schedule
from optlearn._signatures import checked


@checked
@dataclass(frozen=True)
class Budget:
    """A constraint on a control's mean or integral over training, or on the share of training at values.

    Args:
        control: name of the control.
        mean: mean of the control over training (give this, ``share`` or ``total``).
        share: value, or name of a mode → share of training time, for discrete controls.
        sense: "equal", or "at most".
        total: integral of the control over training time: the mean times the horizon, fixed or free.
    """

    control: str
    mean: float | None = None
    share: Mapping[float | str, float] = field(default_factory=dict)
    sense: Literal["equal", "at most"] = "equal"
    total: float | None = None

    def __post_init__(self) -> None:
        if (self.mean is not None) + bool(self.share) + (self.total is not None) != 1:
            raise BudgetError(
                f"Budget: one of mean, share={{value: share}} and total must be given for {self.control!r}, "
                f"got {self.mean!r}, {dict(self.share)!r} and {self.total!r}"
            )

    def numbered(self, control: Control) -> "Budget":
        """The same budget with the numbers of modes in place of their names."""
        if not any(isinstance(value, str) for value in self.share):
            return self
        unknown = [v for v in self.share if isinstance(v, str) and v not in control.labels]
        if unknown:
            modes = ", ".join(control.labels) or "none"
            raise BudgetError(f"Budget({self.control!r}): there is no mode {unknown[0]!r}; modes are {modes}")
        shares: dict[float | str, float] = {
            float(control.labels.index(v)) if isinstance(v, str) else v: s for v, s in self.share.items()
        }
        return replace(self, share=shares)

    def over(self, horizon: float) -> "Budget":
        """The same budget over a fixed horizon, with a total rewritten as a mean."""
        return self if self.total is None else replace(self, mean=self.total / horizon, total=None)

    @property
    def equal(self) -> bool:
        """Must the budget be used up, rather than only not exceeded?"""
        return self.sense == "equal"

    def violation(self, used: float | np.ndarray, target: float) -> np.ndarray:
        """Violation of the target by what was used; 0 where it is met."""
        return violation(np.asarray(used) - target, np.asarray(self.equal))

    def check(self, control: Control, horizons: tuple[float, float]) -> None:
        """Raise if no schedule of ``control`` can meet this budget at any horizon in a range."""
        name = self.control
        if self.total is not None:
            low = min(control.lower * horizon for horizon in horizons)
            high = max(control.upper * horizon for horizon in horizons)
            if not (low <= self.total and (self.total <= high or not self.equal)):
                raise BudgetError(
                    f"infeasible budget: total {name} = {self.total:g}, but {name} lies between "
                    f"{control.lower:g} and {control.upper:g}, and its total between {low:g} and {high:g}"
                )
            return
        if self.mean is not None:
            low, high = control.lower, control.upper
            # Written so that a NaN is wrong too.
            if not (low <= self.mean and (self.mean <= high or not self.equal)):
                raise BudgetError(
                    f"infeasible budget: mean {name} = {self.mean:g}, but {name} lies between "
                    f"{low:g} and {high:g}"
                )
            return
        if not control.values:
            raise BudgetError(
                f"Budget({name!r}, share=…) is for discrete controls; use mean=… for a continuous one"
            )
        unknown = [value for value in self.share if float(value) not in control.values]
        if unknown:
            raise BudgetError(f"Budget({name!r}): {unknown} are not among its values {list(control.values)}")
        shares = list(self.share.values())
        too_much = self.equal and sum(shares) > 1 + 1e-12
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
        """Rows a and targets t of the constraints a·s = t, or a·s ≤ t.

        s (n,) are the shares of a control's values, or (1,) the mean of a continuous control.
        """
        if self.mean is not None:
            return [(control.mean_row, self.mean)]
        units = np.eye(len(control.values))
        return [(units[control.values.index(float(v))], share) for v, share in self.share.items()]

    def column_rows(self, control: Control) -> list[tuple[np.ndarray, float]]:
        """The same for the control's columns of w, without redundant rows."""
        rows = self.rows(control)
        if self.equal and len(self.share) == len(control.values) > 0:
            # The shares of all values add up to 1: the others determine the last one.
            last = list(self.share).index(control.values[-1])
            rows = rows[:last] + rows[last + 1 :]
        return [control.reduced(row, target) for row, target in rows]

    def broken(self, schedule: Schedule) -> list[str]:
        """Violations of this budget by a schedule, in words."""
        name, limit = self.control, "" if self.equal else "at most "
        targets = [(f"share of {name} = {value:g}", share) for value, share in self.share.items()]
        if self.mean is not None:
            targets = [(f"mean {name}", self.mean)]
        if self.total is not None:
            targets = [(f"total {name}", self.total)]
        return [
            f"{what} is {spent:.6g}, the budget {limit}{target:g}"
            for (what, target), spent in zip(targets, used(self, schedule), strict=True)
            if self.violation(spent, target) > TOLERANCE * max(1.0, abs(target))
        ]


class BudgetRows(NamedTuple):
    """All budgets of a problem on the vector w (m,): the mean over training of a·w is = t, or ≤ t."""

    rows: np.ndarray  # (b, m) a
    targets: np.ndarray  # (b,) t
    equal: np.ndarray  # (b,) whether it must equal t

    @property
    def limits(self) -> tuple[np.ndarray, np.ndarray]:
        """(b,) lower and upper limits of the means of a·w."""
        return np.where(self.equal, self.targets, -np.inf), self.targets

    def violation(self, means: np.ndarray) -> np.ndarray:
        """(b,) violation of each budget by means (m,) of w over training."""
        return violation(self.rows @ means - self.targets, self.equal)

    def error(self, w: np.ndarray) -> float:
        """Largest violation by w (I, m), in the units of a control's mean or share."""
        if not len(self.targets):
            return 0.0
        violations = violation((self.rows @ w.T).mean(axis=1) - self.targets, self.equal)
        # Means of zeros and ones carry only round-off; counts that fit the grid are exact.
        return float(np.max(np.where(violations < 1e-12, 0.0, violations)))


def violation(excess: np.ndarray, equal: np.ndarray) -> np.ndarray:
    """The part of an excess over a target that violates it: all of it if ``equal``, else what is above."""
    return np.asarray(np.where(equal, np.abs(excess), np.maximum(excess, 0.0)))


def budget_rows(
    budgets: Sequence[Budget], controls: Mapping[str, Control], blocks: Mapping[str, slice]
) -> BudgetRows:
    """The budgets on the vector w, in which each control has the columns in ``blocks``."""
    size = max(block.stop for block in blocks.values())
    parts = [(b, *part) for b in budgets for part in b.column_rows(controls[b.control])]
    rows = np.zeros((len(parts), size))
    for row, (budget, columns, _) in zip(rows, parts, strict=True):
        row[blocks[budget.control]] = columns
    equal = np.array([budget.equal for budget, _, _ in parts], dtype=bool)
    return BudgetRows(rows, np.array([target for _, _, target in parts]), equal)


def check_together(name: str, control: Control, budgets: Sequence[Budget]) -> None:
    """Raise if no schedule of ``control`` meets all its ``budgets``, each feasible by itself."""
    if len(budgets) < 2:
        return
    from scipy.optimize import linprog

    rows, targets, equal = budget_rows(budgets, {name: control}, {name: slice(0, control.size)})
    if control.sum_limited:
        rows, targets = np.vstack([rows, np.ones(control.size)]), np.append(targets, 1.0)
        equal = np.append(equal, False)
    feasible = linprog(
        np.zeros(control.size), rows[~equal], targets[~equal], rows[equal], targets[equal],
        np.column_stack(control.bounds),
    )  # fmt: skip
    if feasible.status == 2:
        raise BudgetError(
            f"infeasible budgets: no schedule of {name!r} meets all {len(budgets)} of them at once"
        )


def used(budget: Budget, schedule: Schedule) -> list[float]:
    """How much of a budget a schedule uses: mean or total of its control, or the share of each value."""
    name, lengths = budget.control, np.diff(schedule.grid) / schedule.horizon
    if budget.mean is not None:
        return [float(lengths @ schedule[name])]
    if budget.total is not None:
        return [float(np.diff(schedule.grid) @ schedule[name])]
    if name not in schedule.mixtures:
        return [float(lengths[np.abs(schedule[name] - value) <= TOLERANCE].sum()) for value in budget.share]
    mixture = schedule.mixtures[name]
    near = [np.abs(mixture.values - value) <= TOLERANCE for value in budget.share]
    return [float(lengths @ mixture.shares[:, columns].sum(axis=1)) for columns in near]
