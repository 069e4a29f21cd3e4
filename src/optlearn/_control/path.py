"""Quantities that must stay within limits throughout training."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, Settings
from optlearn._control.objective import Objective
from optlearn._dynamics.own_code import Known, slips_explained
from optlearn._dynamics.system import System
from optlearn._engine.tracing.trace import dependencies
from optlearn._errors import SpecificationError
from optlearn._signatures import checked

# Relative excess over a limit that is tolerated along training.
KEPT = 1e-5


@checked
@dataclass(frozen=True)
class Path:
    """A path constraint: a quantity that must stay within limits throughout training.

    Args:
        quantity: the limited quantity: the name of a state or observable, or ``"error"``, as in a trajectory;
            a function ``quantity(x, u) → scalar`` of the state and the settings at that time; or an
            ``Objective``, such as the error under other settings. For an ensemble, its mean over the members;
            for mixed controls, its mean over their values.
        at_most: its largest allowed value.
        at_least: its smallest allowed value.
        name: its name in messages and plots (default: that of the quantity).
    """

    quantity: str | Objective | Callable[[Any, Settings], Array]
    at_most: float | None = None
    at_least: float | None = None
    name: str = ""

    def __post_init__(self) -> None:
        if self.at_most is None and self.at_least is None:
            raise SpecificationError("Path: give at_most, at_least or both, got neither")
        if self.at_most is not None and self.at_least is not None and self.at_least >= self.at_most:
            raise SpecificationError(
                f"Path: at_least must be below at_most, got {self.at_least:g} and {self.at_most:g}"
            )
        if self.objective is not None and self.objective.has_running:
            raise SpecificationError(
                "Path: what is averaged or integrated over training has no value at a time: limit its "
                "integrand, or the whole at the end (ol.pareto)"
            )

    @property
    def objective(self) -> Objective | None:
        """The quantity as an objective; None if it is given by name."""
        if isinstance(self.quantity, str):
            return None
        if isinstance(self.quantity, Objective):
            return self.quantity
        return Objective(final=0.0, terminal=self.quantity)

    @property
    def label(self) -> str:
        """Its name in messages and plots."""
        if self.name or isinstance(self.quantity, str):
            return self.name or str(self.quantity)
        called = "error" if isinstance(self.quantity, Objective) else getattr(self.quantity, "__name__", "")
        return called if called.isidentifier() else "path"

    @property
    def bounds(self) -> "list[PathBound]":
        """Its one or two bounds."""
        sides = {1: self.at_most, -1: self.at_least}
        return [PathBound(self, sign) for sign, limit in sides.items() if limit is not None]

    @property
    def words(self) -> str:
        """The path and its limits, in words."""
        sides = {"at least": self.at_least, "at most": self.at_most}
        limits = [f"{side} {value:g}" for side, value in sides.items() if value is not None]
        return f"{self.label} {' and '.join(limits)}"

    def check(self, model: System, x: Any, u: Settings) -> None:
        """Raise unless the quantity is a number in state x under settings u."""
        for system, state, settings in model.each(x, u):
            named = Known("x", state) if isinstance(state, dict) else state
            with slips_explained(f"Path {self.label!r}"):
                shape = np.shape(self.value(system, named, Known("u", settings)))
            if shape != ():
                raise SpecificationError(
                    f"Path: quantity must be one number at each time, got shape {shape} of {self.label!r}"
                )

    def value(self, model: System, x: Any, u: Settings) -> Array:
        """The quantity in state x under settings u."""
        if self.objective is not None:
            return self.objective.terminal_value(model, x, u)
        names = model.layout.names
        if self.quantity in names:
            return jnp.asarray(model.layout.flatten(x))[names.index(str(self.quantity))]
        outputs = model.outputs(x, u)
        if self.quantity not in outputs:
            raise SpecificationError(
                f"quantity must be one of {', '.join([*names, *outputs])}, or a function, got "
                f"{self.quantity!r}"
            )
        return outputs[str(self.quantity)]

    def key(self, model: System, u: Settings) -> Hashable:
        """Cache key of compiled programs: the quantity, with the current code of user functions."""
        return self.quantity if self.objective is None else self.objective.key(model, u)

    def reads(self, names: Iterable[str], model: System, x: Any, u: Settings) -> tuple[bool, bool]:
        """Whether the quantity depends on the state, and on any of the settings ``names``."""

        def values(given: Any, u: Any) -> list[Array]:
            return [self.value(*member) for member in model.each(given[0], {**u, **given[1]})]

        flags = dependencies(values, (x, {name: u[name] for name in names}), u)
        state, settings = (any(map(np.any, jax.tree.leaves(part))) for part in flags)
        return state, settings


@dataclass(frozen=True)
class PathBound:
    """One bound of a path: sign · quantity ≤ limit.

    Attributes:
        path: the path that it belongs to.
        sign: 1 for an upper bound, −1 for a lower bound.
    """

    path: Path
    sign: int

    @property
    def limit(self) -> float:
        """Upper limit of sign · quantity."""
        bound = self.path.at_most if self.sign > 0 else self.path.at_least
        return self.sign * float(bound)  # type: ignore[arg-type]

    @property
    def size(self) -> float:
        """The scale of an excess: the limit's size; if that is 0, the other limit's."""
        return abs(self.limit) or abs(self.path.at_most or 0.0) or abs(self.path.at_least or 0.0) or 1.0

    @property
    def words(self) -> str:
        """The limit, in words."""
        return f"at {'most' if self.sign > 0 else 'least'} {self.sign * self.limit:g}"


@dataclass(frozen=True)
class Excess:
    """Where a path comes nearest to its limit, or exceeds it most.

    Attributes:
        bound: the limit.
        value: the quantity's value there.
        at: training time.
        size: scale of the excess: the limit, or the largest value if the limit is 0.
    """

    bound: PathBound
    value: float
    at: float
    size: float

    @property
    def amount(self) -> float:
        """The excess over the limit; 0 if it is kept."""
        return max(0.0, self.bound.sign * self.value - self.bound.limit)

    @property
    def share(self) -> float:
        """The excess as a share of ``size``."""
        return self.amount / self.size

    @property
    def kept(self) -> bool:
        """Is the limit kept to within what counts as small? NaN counts as broken."""
        return self.share <= KEPT

    @property
    def words(self) -> str:
        """Value and limit, in words."""
        path = self.bound.path
        return f"{path.label} is {self.value:.6g} at α = {self.at:.4g}, {self.bound.words} is allowed"
