"""Problems of one structure as lanes: what they share is compiled, what they differ in is an argument."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array
from optlearn._control.controls import Control
from optlearn._control.problem import Problem
from optlearn._control.program.functions import Functions
from optlearn._control.program.stages import EXACT, Stages, step
from optlearn._dynamics.flat import pack, unpacked
from optlearn._errors import SpecificationError


class Lanes(NamedTuple):
    """Numbers of B problems, each array with one row a problem; or those of one, without that axis.

    Attributes:
        constants: (c,) what the rate reads.
        start: (n,) state at α = 0.
        horizon: training time.
        lower, width: (m,) lowest value of each column of w, and its range.
        rows: (b, m) a of each budget: the mean over training of a·v, v in [0, 1], is the target, or at most.
        targets: (b,) of the budgets.
        neutral: (m,) controls, in [0, 1], that prefer nothing.
    """

    constants: Array
    start: Array
    horizon: Array
    lower: Array
    width: Array
    rows: Array
    targets: Array
    neutral: Array


@dataclass(frozen=True)
class Structure:
    """What all lanes share; equal structures share compiled programs.

    Attributes:
        key: equal for problems that differ in numbers only.
        rate: (c, x, w, θ, h) → dx/dα (n,), running cost ().
        final: (c, x, θ) → final cost ().
        stages: of a step.
        intervals: of equal length.
        curved: how many columns of w, the first ones, are no shares.
        budgets: "equal" or "at most" for each; no two of them are of the same control.
        discrete: the discrete control, if there is one.
    """

    key: Hashable
    rate: Callable[..., tuple[Array, Array]]
    final: Callable[..., Array]
    stages: Stages
    intervals: int
    size: int
    curved: int
    budgets: tuple[str, ...]
    discrete: Control | None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structure) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def vertices(self) -> Array:
        """(values, m − curved) shares that stand for one value entirely; a single empty row without any."""
        return np.zeros((1, 0)) if self.discrete is None else self.discrete.vertices

    @property
    def sum_limited(self) -> bool:
        """Must the shares also add up to at most 1?"""
        return self.discrete is not None and self.discrete.sum_limited

    @property
    def exact(self) -> bool:
        """Is a step exact, however long?"""
        return self.stages is EXACT

    def controls(self, lane: Lanes, v: Array) -> Array:
        """(I, m) controls, from numbers v (I, m) in [0, 1]."""
        return lane.lower[None] + lane.width[None] * v

    def step(self, lane: Lanes, x: Array, w: Array, h: Array) -> tuple[Array, Array]:
        """State (n,) and cost after a step of length h under controls w (m,)."""
        none = jnp.zeros(0)
        return step(self.stages, lambda y: self.rate(lane.constants, y, w, none, h), x, h)


def stack(problems: Sequence[Problem], intervals: int | None = None) -> tuple[Structure, Lanes]:
    """The problems as lanes.

    Args:
        problems: that differ in numbers only.
        intervals: of equal length (default: the problems').

    Raises:
        SpecificationError: they differ in more than numbers, or are of a kind that is solved one by one only.
    """
    rows = []
    first = problems[0]
    leading = Functions.of(first)
    known = _traits(leading, intervals or first.intervals)
    for problem in problems:
        _check_kind(problem)
        functions = Functions.of(problem)
        traits = _traits(functions, intervals or problem.intervals)
        differing = [name for name, value in traits.items() if value != known[name]]
        if differing:
            raise SpecificationError(
                f"problems that are solved in a batch must differ in numbers only, got {differing[0]} of "
                f"{_called(problem)} unlike that of {_called(first)}: {_shown(traits[differing[0]])} and "
                f"{_shown(known[differing[0]])}; solve them one by one (executor='serial' or 'processes')"
            )
        rows.append(_lane(functions))
    shared = _structure(leading, intervals or first.intervals, known)
    return shared, Lanes(*(np.array(column) for column in zip(*rows, strict=True)))


def _check_kind(problem: Problem) -> None:
    """Raise for what only the one-by-one solvers know how to do."""
    limited = [name for name, control in problem.discrete.items() if control.limited]
    whole = [name for name, control in problem.controls.items() if control.whole_numbers]
    rows = Functions.of(problem).relaxation.budget_rows.rows
    refusals = {
        "a horizon to be found (reach)": problem.reach is not None,
        "several costs (a worst case, rivals or limits)": problem.weighing is not None,
        f"free parameters ({', '.join(problem.free)})": bool(problem.free),
        "several discrete controls": len(problem.discrete) > 1,
        "a discrete and a continuous control together": bool(problem.discrete and problem.continuous),
        f"max_switches or min_dwell of {limited}": bool(limited),
        f"whole numbers of {whole}": bool(whole),
        "several budgets of one control": bool(np.any(np.count_nonzero(rows, axis=0) > 1)),
        "expectations by quadrature": problem.model.current().refined() is not None,
    }
    for what, refused in refusals.items():
        if refused:
            raise SpecificationError(
                "problems that are solved in a batch must have continuous controls or one discrete control, "
                f"at most one budget of each, and one cost, got {what} in {_called(problem)}; solve them one "
                "by one (executor='serial' or 'processes')"
            )


def _traits(functions: Functions, intervals: int) -> dict[str, Hashable]:
    values = {n: len(c.values) for n, c in functions.problem.discrete.items()}
    return {
        **functions.key,
        "the values of the controls": tuple(values.items()),
        "the budgets": _senses(functions),
        "the number of intervals": intervals,
    }


def _senses(functions: Functions) -> tuple[str, ...]:
    return tuple("equal" if equal else "at most" for equal in functions.relaxation.budget_rows.equal)


def _structure(functions: Functions, intervals: int, traits: dict[str, Hashable]) -> Structure:
    return Structure(
        key=tuple(traits.values()),
        rate=unpacked(functions.rate, functions.constants),
        final=unpacked(functions.final, functions.constants),
        stages=functions.stages,
        intervals=intervals,
        size=functions.relaxation.size,
        curved=functions.relaxation.curved,
        budgets=_senses(functions),
        discrete=next(iter(functions.problem.discrete.values()), None),
    )


def _lane(functions: Functions) -> Lanes:
    problem, relaxation = functions.problem, functions.relaxation
    low, high = relaxation.bounds
    rows, targets, _ = relaxation.budget_rows
    return Lanes(
        constants=pack(functions.constants),
        start=problem.flat_start,
        horizon=np.asarray(problem.horizon),
        lower=low,
        width=high - low,
        rows=rows * (high - low),
        targets=targets - rows @ low,
        neutral=(relaxation.neutral - low) / (high - low),
    )


def _called(problem: Problem) -> str:
    call = problem.made_by
    return problem.name if call is None else f"{problem.name} ({call.arguments})"


def _shown(trait: Any) -> str:
    text = str(trait)
    return text if len(text) <= 120 else text[:117] + "…"
