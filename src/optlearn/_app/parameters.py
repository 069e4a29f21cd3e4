"""What can be moved: the arguments of a scenario as sliders, switches and choices.

Everything is read from the scenario's signature and docstring, so a new scenario has its page at once;
``tables`` only adds words and better ranges.
"""

import inspect
import math
import re
import typing
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from optlearn import scenarios
from optlearn._app.tables import CHOICES, MAIN, RANGES, WORDS
from optlearn._errors import SpecificationError

Value = float | int | bool | str

FIRST = 5  # main arguments of a scenario without an entry in ``MAIN``


@dataclass(frozen=True)
class Parameter(ABC):
    """An argument of a scenario, or one entry of it (``Delta[1]``).

    Attributes:
        name: of the argument.
        label: what it is called on the page.
        symbol: of the paper, or "".
        help: its line in the scenario's docstring.
        default: its value at first.
        main: is it shown without asking for more?
    """

    name: str
    label: str
    symbol: str
    help: str
    default: Value
    main: bool

    @abstractmethod
    def read(self, text: str) -> Value:
        """The value of what was typed or chosen.

        Raises:
            SpecificationError: names the argument, what was typed, and what is allowed.
        """


@dataclass(frozen=True)
class Number(Parameter):
    """A number from ``low`` to ``high``; ``step`` is that of its slider."""

    low: float
    high: float
    step: float
    whole: bool

    def read(self, text: str) -> Value:
        """A number in the range."""
        try:
            value = float(text.strip())
        except ValueError:
            value = math.nan
        # Written so that NaN is wrong too.
        if not self.low <= value <= self.high or (self.whole and value != int(value)):
            kind = "whole number" if self.whole else "number"
            typed = text.strip() or "nothing"
            raise SpecificationError(
                f"{self.name} = {typed}: must be a {kind} from {self.low:g} to {self.high:g}"
            )
        return int(value) if self.whole else value


@dataclass(frozen=True)
class Flag(Parameter):
    """Yes or no."""

    def read(self, text: str) -> Value:
        """``true`` or ``false``."""
        known = {"true": True, "false": False}
        if text.strip().lower() not in known:
            raise SpecificationError(f"{self.name} = {text}: must be true or false")
        return known[text.strip().lower()]


@dataclass(frozen=True)
class Choice(Parameter):
    """One of a few words."""

    known: tuple[str, ...]

    def read(self, text: str) -> Value:
        """One of the words."""
        if text not in self.known:
            raise SpecificationError(f"{self.name} = {text}: must be one of {', '.join(self.known)}")
        return text


@cache
def parameters(scenario: str) -> tuple[Parameter, ...]:
    """What can be moved in a scenario, the main ones first."""
    function = getattr(scenarios, scenario)
    helps, hints = _helps(function), typing.get_type_hints(function)
    defaults: dict[str, Any] = {}
    for name, argument in inspect.signature(function).parameters.items():
        if isinstance(argument.default, Sequence) and not isinstance(argument.default, str):
            defaults |= {f"{name}[{i}]": entry for i, entry in enumerate(argument.default)}
        else:
            defaults[name] = argument.default
    made = [
        parameter
        for name, default in defaults.items()
        if (parameter := _parameter(scenario, name, default, helps.get(_argument(name), ""), hints))
        is not None
    ]
    main = MAIN.get(scenario, tuple(parameter.name for parameter in made[:FIRST]))
    shown = {parameter.name: replace(parameter, main=parameter.name in main) for parameter in made}
    return tuple(shown[name] for name in [*main, *(name for name in shown if name not in main)])


def arguments(scenario: str, values: Mapping[str, Value]) -> dict[str, Any]:
    """Arguments of the scenario's function, of which entries are put together again."""
    made: dict[str, Any] = {}
    for name, value in sorted(values.items()):
        argument = _argument(name)
        if argument == name:
            made[name] = value
        else:
            made[argument] = (*made.get(argument, ()), value)
    return made


def typed(scenario: str, given: Mapping[str, Any]) -> dict[str, str]:
    """Arguments of the scenario's function as they would be typed into the controls.

    Raises:
        SpecificationError: an argument has no control, or its control does not take the value.
    """
    known = {parameter.name: parameter for parameter in parameters(scenario)}
    texts = {}
    for name, value in given.items():
        several = isinstance(value, Sequence) and not isinstance(value, str)
        entries = {f"{name}[{i}]": entry for i, entry in enumerate(value)} if several else {name: value}
        for key, entry in entries.items():
            if key not in known:
                raise SpecificationError(f"{key}: {scenario} has no such control; it has {', '.join(known)}")
            texts[key] = as_text(entry)
            known[key].read(texts[key])
    return texts


def as_text(value: Any) -> str:
    """A value as it would be typed."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def defaults(scenario: str) -> dict[str, Value]:
    """Name → value at first."""
    return {parameter.name: parameter.default for parameter in parameters(scenario)}


def _argument(name: str) -> str:
    return name.partition("[")[0]


def _parameter(
    scenario: str, name: str, default: Any, help_text: str, hints: Mapping[str, Any]
) -> Parameter | None:
    """None for what no control on the page can set, such as a matrix."""
    label, symbol = WORDS.get(name, (name.replace("_", " ").replace("[", " [").capitalize(), ""))
    common = (name, label, symbol, help_text)
    if isinstance(default, bool):
        return Flag(*common, default, main=False)
    if isinstance(default, int | float):
        # A whole number by its default is one, unless the signature says otherwise.
        whole = isinstance(default, int) and hints.get(name) is not float
        low, high, step = RANGES.get((scenario, name)) or around(default, whole)
        return Number(*common, default, False, low, high, step, whole)
    known = CHOICES.get(name) or tuple(w for w in typing.get_args(hints.get(name)) if isinstance(w, str))
    if isinstance(default, str) and default in known:
        return Choice(*common, default, False, known)
    return None


def around(default: float, whole: bool = False) -> tuple[float, float, float]:
    """A sensible range and step for a number of which only the default is known."""
    if whole:
        low = default // 4 if abs(default) > 20 else min(default, 1)
        return float(low), float(max(2 * default, default + 3)), 1.0
    if default == 0:
        return 0.0, 1.0, 0.01
    size = abs(default)
    step = _step(size / 20)
    below, above = math.floor(0.75 * size / step), math.ceil(2 * size / step)
    if default < 0:
        below, above = above, below
    return _decimal(default - below * step), _decimal(default + above * step), _decimal(step)


def _decimal(value: float) -> float:
    """Without the round-off of sums."""
    return float(f"{value:.12g}")


def _step(value: float) -> float:
    """The largest of 1, 2 and 5 times a power of ten that is not above a value."""
    power = 10.0 ** math.floor(math.log10(value))
    return max(factor * power for factor in (1, 2, 5) if factor * power <= value * (1 + 1e-9))


def _helps(function: Any) -> dict[str, str]:
    """Argument → its description in a docstring of Google's style."""
    _, _, section = (inspect.getdoc(function) or "").partition("\nArgs:\n")
    found: dict[str, list[str]] = {}
    name = ""
    for line in section.splitlines():
        if not line.startswith("    "):
            break
        if begins := re.match(r"    (\w+): (.*)", line):
            name = begins[1]
            found[name] = [begins[2]]
        elif name:
            found[name].append(line.strip())
    return {name: " ".join(lines).replace("``", "") for name, lines in found.items()}
