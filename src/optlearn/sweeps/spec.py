"""The specification of a sweep: scenario, varying and fixed arguments, and solver options."""

import hashlib
import inspect
import itertools
import json
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from optlearn._arguments import Arguments
from optlearn._control.problem import Problem
from optlearn._control.solution import Solution
from optlearn._errors import SpecificationError
from optlearn._json import plain
from optlearn.scenarios._files import find, is_file

Scenario = str | Callable[..., Problem]
Reduce = Callable[[Solution], Mapping[str, Any]]
Index = tuple[int, ...]
Value = float | int | bool | str

# Number of points solved in sequence, each from the previous solution. Longer rows are cut: results must not
# depend on the number of workers, and one row should not keep all but one worker idle.
CHAIN = 8


@dataclass(frozen=True)
class Spec:
    """A complete, checked sweep: equal specifications give equal results.

    Attributes:
        scenario: name of a scenario; a file that defines ``problem``, such as "my_problem.py"; or a function
            of its arguments that returns a ``Problem``.
        over: argument → the values it takes, kept as numbers, words and flags; the first varies slowest.
        fixed: arguments that stay the same.
        options: options of ``solve``.
        baselines: names of the baselines to evaluate.
        reduce: computes further results to store for each solution.
        chain: see ``CHAIN``; 1 for no warm starts.
        warm_starts: number of first guesses of a point with a neighbour's solution, including that one.
    """

    scenario: Scenario
    over: Mapping[str, Sequence[Value]]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    baselines: tuple[str, ...] = ()
    reduce: Reduce | None = None
    chain: int = CHAIN
    warm_starts: int = 2

    def __post_init__(self) -> None:
        if callable(self.scenario) and _is_ready(self.scenario):
            object.__setattr__(self, "scenario", getattr(self.scenario, "__name__", ""))
        if isinstance(self.scenario, str) and is_file(self.scenario):  # for processes elsewhere
            object.__setattr__(self, "scenario", str(Path(self.scenario).resolve()))
        function, over = scenario_function(self.scenario), self.over
        if not over or not hasattr(over, "items"):
            raise SpecificationError(
                f"over must be argument → values, such as {{'eta': [1, 2]}}, got {over!r}"
            )
        object.__setattr__(self, "over", {name: _values(name, values) for name, values in over.items()})
        object.__setattr__(self, "fixed", dict(self.fixed))
        _check_arguments(function, _name(self.scenario), self.over, self.fixed)
        check = Arguments("sweep")
        check.count("chain", self.chain)
        check.count("warm_starts", self.warm_starts)
        if self.reduce is not None and not callable(self.reduce):
            raise SpecificationError(
                f"reduce must be a function of a Solution that returns a mapping, got {self.reduce!r}"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values of each varying argument."""
        return tuple(len(values) for values in self.over.values())

    @property
    def size(self) -> int:
        """Number of points."""
        return int(np.prod(self.shape))

    def indices(self) -> list[Index]:
        """All points, the last argument varying fastest."""
        return list(itertools.product(*(range(n) for n in self.shape)))

    def chains(self) -> list[tuple[Index, ...]]:
        """Rows along the last argument, cut into pieces of nearly equal length."""
        length = self.shape[-1]
        pieces = -(-length // self.chain)
        cuts = [piece * length // pieces for piece in range(pieces + 1)]
        rows = itertools.product(*(range(n) for n in self.shape[:-1]))
        return [
            tuple((*row, last) for last in range(first, end))
            for row in rows
            for first, end in itertools.pairwise(cuts)
        ]

    def coordinates(self, index: Index) -> dict[str, Value]:
        """Values of the varying arguments at a point."""
        return {name: values[i] for (name, values), i in zip(self.over.items(), index, strict=True)}

    def problem(self, index: Index) -> Problem:
        """The problem at a point."""
        return scenario_function(self.scenario)(**self.fixed, **self.coordinates(index))

    def to_json(self) -> dict[str, Any]:
        """The identity of a sweep in JSON types."""
        return {
            "scenario": _name(self.scenario),
            "over": {name: list(values) for name, values in self.over.items()},
            "fixed": plain(self.fixed, other=repr),
            "options": plain(dict(sorted(self.options.items())), other=repr),
            "baselines": list(self.baselines),
            "reduce": None if self.reduce is None else _name(self.reduce),
            "chain": self.chain,
            "warm_starts": self.warm_starts,
        }

    @property
    def id(self) -> str:
        """A digest of ``to_json``."""
        return digest(self.to_json())[:16]

    def own_code(self) -> str:
        """Digest of the source of the caller's own file and functions; empty if there are none."""
        functions = [f for f in (self.scenario, self.reduce) if callable(f) and not _is_ready(f)]
        sources = [_source(function) for function in functions]
        if isinstance(self.scenario, str) and is_file(self.scenario):
            sources.append(Path(self.scenario).read_text(encoding="utf-8"))
        return digest(sources) if sources else ""


def scenario_function(scenario: Scenario) -> Callable[..., Problem]:
    """The function of a scenario, or of a file that defines ``problem``."""
    if callable(scenario):
        return scenario
    return find(scenario).function


def check_picklable(spec: Spec) -> None:
    """Raise unless another process can find the functions of the sweep by their names."""
    for argument, function in (("scenario", spec.scenario), ("reduce", spec.reduce)):
        if not callable(function):
            continue
        advice = "define it at the top level of a module or script, or use executor='serial'"
        try:
            pickle.dumps(function)
        except Exception as error:
            raise SpecificationError(
                f"{argument}={function!r} cannot be sent to another process ({error}): {advice}"
            ) from error
        module = getattr(function, "__module__", None)
        if module == "__main__" and not hasattr(sys.modules["__main__"], "__file__"):
            raise SpecificationError(
                f"{argument}={function!r} was typed in this session, where another process cannot find it: "
                "put it in a module, or use executor='serial'"
            )


def digest(value: Any) -> str:
    """SHA-256 of the canonical JSON of a value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _values(name: str, values: Any) -> tuple[Value, ...]:
    """Distinct numbers, words or flags."""
    if isinstance(values, str) or not np.iterable(values):
        raise SpecificationError(f"over[{name!r}] must be a list or array of values, got {values!r}")
    # NumPy and JAX scalars become Python numbers, which JSON supports.
    plain_values = [value.item() if getattr(value, "ndim", None) == 0 else value for value in values]
    for value in plain_values:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not isinstance(value, str | bool) and not (number and np.isfinite(value)):
            raise SpecificationError(
                f"over[{name!r}] must hold finite numbers, words or flags, got {value!r}"
            )
    if not plain_values:
        raise SpecificationError(f"over[{name!r}] must hold at least one value, got none")
    if len({type(value) in (int, float) for value in plain_values}) > 1:
        raise SpecificationError(f"over[{name!r}] must hold numbers only, or none, got {plain_values!r}")
    twice = [value for value in plain_values if plain_values.count(value) > 1]
    if twice:
        raise SpecificationError(f"over[{name!r}] must hold every value once, got {twice[0]!r} more often")
    return tuple(plain_values)


def _check_arguments(
    function: Callable[..., Problem], owner: str, over: Mapping[str, Any], fixed: Mapping[str, Any]
) -> None:
    for name in over:
        if name in fixed:
            raise SpecificationError(f"{name!r} is both fixed and swept over")
    parameters = inspect.signature(function).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return
    for name in (*over, *fixed):
        if name not in parameters:
            has = ", ".join(parameters) or "none, since its problem is not a function"
            raise SpecificationError(f"{owner} has no argument {name!r}; it has {has}")


def _is_ready(function: Callable[..., Any]) -> bool:
    """Is it the function of an optlearn scenario?"""
    return str(getattr(function, "__module__", "")).startswith("optlearn.scenarios.")


def _name(function: str | Callable[..., Any]) -> str:
    if isinstance(function, str):
        return function
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', '?')}:{name}"


def _source(function: Callable[..., Any]) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return _name(function)
