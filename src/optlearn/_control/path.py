"""What must stay within limits all along training."""

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

# Share of itself by which a limit may be exceeded somewhere along training.
KEPT = 1e-5


@checked
@dataclass(frozen=True)
class Path:
    """A path constraint: a quantity that must stay within limits throughout training.

    Args:
        quantity: what is limited: the name of a state, of an observable or ``"error"``, as in a trajectory;
            a function ``quantity(x, u) → scalar`` of the state and the settings at that time; or an
            ``Objective``, such as the error under other settings. Of an ensemble, its mean over the members;
            of mixed controls, its mean over their values.
        at_most: the most that it may be.
        at_least: the least that it may be.
        name: what to call it in messages and plots (default: the name that it has).
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
        """The quantity as an objective; None if it has a name."""
        if isinstance(self.quantity, str):
            return None
        if isinstance(self.quantity, Objective):
            return self.quantity
        return Objective(final=0.0, terminal=self.quantity)

    @property
    def label(self) -> str:
        """What it is called."""
        if self.name or isinstance(self.quantity, str):
            return self.name or str(self.quantity)
        called = "error" if isinstance(self.quantity, Objective) else getattr(self.quantity, "__name__", "")
        return called if called.isidentifier() else "path"

    @property
    def bounds(self) -> "list[PathBound]":
        """Its sides, one or two."""
        sides = {1: self.at_most, -1: self.at_least}
        return [PathBound(self, sign) for sign, limit in sides.items() if limit is not None]

    @property
    def words(self) -> str:
        """It and its limits, in words."""
        sides = {"at least": self.at_least, "at most": self.at_most}
        limits = [f"{side} {value:g}" for side, value in sides.items() if value is not None]
        return f"{self.label} {' and '.join(limits)}"

    def check(self, model: System, x: Any, u: Settings) -> None:
        """Raise unless it is a number in state x under settings u."""
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
        """What is limited, with what own functions compute now: programs are kept by this."""
        return self.quantity if self.objective is None else self.objective.key(model, u)

    def reads(self, names: Iterable[str], model: System, x: Any, u: Settings) -> tuple[bool, bool]:
        """Whether it depends on the state, and on any of the settings ``names``."""

        def values(given: Any, u: Any) -> list[Array]:
            return [self.value(*member) for member in model.each(given[0], {**u, **given[1]})]

        flags = dependencies(values, (x, {name: u[name] for name in names}), u)
        state, settings = (any(map(np.any, jax.tree.leaves(part))) for part in flags)
        return state, settings


@dataclass(frozen=True)
class PathBound:
    """One side of a path: sign · quantity ≤ limit.

    Attributes:
        path: of which it is a side.
        sign: 1 for the most, −1 for the least that it may be.
    """

    path: Path
    sign: int

    @property
    def limit(self) -> float:
        """The most that sign · quantity may be."""
        given = self.path.at_most if self.sign > 0 else self.path.at_least
        return self.sign * float(given)  # type: ignore[arg-type]

    @property
    def size(self) -> float:
        """Beside which it is small or large by how much the limit is exceeded; of a limit of 0, the other."""
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
        value: of the quantity there.
        at: training time.
        size: beside which it is much or little: the limit, or the largest value if that is 0.
    """

    bound: PathBound
    value: float
    at: float
    size: float

    @property
    def amount(self) -> float:
        """By how much the limit is exceeded; 0 if it is kept."""
        return max(0.0, self.bound.sign * self.value - self.bound.limit)

    @property
    def share(self) -> float:
        """The same as a share of its size."""
        return self.amount / self.size

    @property
    def kept(self) -> bool:
        """Up to what counts as small? Not a number is not kept."""
        return self.share <= KEPT

    @property
    def words(self) -> str:
        """What happens there."""
        path = self.bound.path
        return f"{path.label} is {self.value:.6g} at α = {self.at:.4g}, {self.bound.words} is allowed"
