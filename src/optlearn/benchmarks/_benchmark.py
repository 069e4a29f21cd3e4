"""Benchmarks: published equations, bounds and costs, and the known optimum."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from optlearn._arrays import Array, Settings
from optlearn._control.budgets import Budget
from optlearn._control.controls import Control, Free
from optlearn._control.objective import Limit, Objective
from optlearn._control.path import Path
from optlearn._control.problem import Problem
from optlearn._dynamics.system import System
from optlearn._errors import SpecificationError
from optlearn._pytrees import field as pytree_field
from optlearn._signatures import checked

Function = Callable[[Mapping[str, Any], Settings], Any]

# Share of the reference by which a solution that is reported as converged may be worse.
MISSED = 1e-4


@dataclass(frozen=True)
class Reference:
    """The known optimum.

    Attributes:
        objective: the lowest known value with controls constant on ``intervals`` equal intervals, integrated
            accurately; maximised quantities have a minus sign.
        intervals: number of intervals of that grid.
        evidence: why no lower value exists: it can be derived by hand ("exact"), the problem is convex, other
            solvers published it as global, or at least twenty random starts of an independent transcription
            lead to nothing lower. "" if none of this holds: a lower value may exist.
        published: the optimum in continuous time according to the source; None if the source has none.
        size: scale of relative differences, if the objective is nearly 0.
    """

    objective: float
    intervals: int
    evidence: Literal["exact", "convex", "published", "many starts", ""]
    published: float | None = None
    size: float | None = None

    @property
    def known_global(self) -> bool:
        """Is it known that no schedule on this grid is better?"""
        return self.evidence != ""

    def excess(self, objective: float) -> float:
        """Relative excess of an objective over the reference; negative if it is lower."""
        return (objective - self.objective) / (self.size or abs(self.objective))

    def missed_by(self, objective: float) -> bool:
        """Is an objective higher than the reference by more than one part in ten thousand?"""
        return not self.excess(objective) <= MISSED


@dataclass(frozen=True, eq=False)
class Benchmark:
    """A published problem of optimal control.

    Attributes:
        name: unique, as a Python name.
        equations: dx/dt as a function of the state and the controls, both by name.
        start: state at time 0.
        controls: the controls.
        horizon: final time, or the range of a free final time.
        source: publication.
        tests: what makes it hard.
        reference: the known optimum.
        cost: running cost, integrated over time.
        final: cost of the final state.
        limits: constraints at the end.
        paths: constraints throughout.
        budgets: budgets on the controls.
    """

    name: str
    equations: Function
    start: Mapping[str, float]
    controls: Mapping[str, Control]
    horizon: float | Free
    source: str
    tests: str
    reference: Reference
    cost: Function | None = None
    final: Function | None = None
    limits: tuple[Limit, ...] = ()
    paths: tuple[Path, ...] = ()
    budgets: tuple[Budget, ...] = ()

    @property
    def title(self) -> str:
        """Its description in one line."""
        return (self.equations.__doc__ or "").partition("\n")[0].rstrip(".")

    @checked
    def problem(self, intervals: int | None = None) -> Problem:
        """The problem for ``ol.solve``.

        Args:
            intervals: number of equal intervals with constant controls (default: that of the reference).
        """
        return Problem(
            model=Equations(self),
            start=dict(self.start),
            horizon=self.horizon,
            controls=self.controls,
            budgets=self.budgets,
            objective=Objective(final=0.0, terminal=self.final, integral=self.cost),
            limits=self.limits,
            paths=self.paths,
            intervals=self.reference.intervals if intervals is None else intervals,
            name=self.name,
        )


class Equations(System):
    """The dynamics of a benchmark."""

    benchmark: Benchmark = pytree_field(static=True)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the state."""
        return tuple(self.benchmark.start)

    @property
    def parameters(self) -> Mapping[str, Array]:
        """The controls, with the values that solvers start from."""
        return {name: control.start for name, control in self.benchmark.controls.items()}

    def drift(self, x: Array, u: Settings) -> Array:
        """dx/dt."""
        return self.benchmark.equations(x, u)

    def error(self, x: Array, u: Settings) -> Array:
        """The final cost, or the running cost if there is none."""
        shown = self.benchmark.final or self.benchmark.cost
        assert shown is not None
        return shown(x, u)


_BENCHMARKS: dict[str, Benchmark] = {}


def benchmark(**parts: Any) -> Callable[[Function], Benchmark]:
    """Register a function of state and controls, with the other fields of a ``Benchmark``, under its name."""

    def register(equations: Function) -> Benchmark:
        made = Benchmark(name=equations.__name__, equations=equations, **parts)
        _BENCHMARKS[made.name] = made
        return made

    return register


def ends(value: float, function: Function) -> Limit:
    """A function of the final state that must have a value."""
    return Limit(Objective(final=0.0, terminal=function), equals=value)


def ends_below(value: float, function: Function) -> Limit:
    """A function of the final state that must not exceed a value."""
    return Limit(Objective(final=0.0, terminal=function), at_most=value)


def named(*names: str) -> tuple[Benchmark, ...]:
    """The benchmarks with these names; all by default."""
    unknown = [name for name in names if name not in _BENCHMARKS]
    if unknown:
        raise SpecificationError(f"no benchmark {unknown[0]!r}; there are {', '.join(_BENCHMARKS)}")
    return tuple(_BENCHMARKS[name] for name in names or _BENCHMARKS)
