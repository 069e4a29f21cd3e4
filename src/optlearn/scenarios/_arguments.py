"""The arguments of a scenario as inputs: text fields, sliders, switches and choices.

Everything is read from the function's signature and docstring. Loads nothing heavy.
"""

import inspect
import math
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from optlearn._control.scenario_call import COMMON
from optlearn._errors import SpecificationError

Value = float | int | bool | str | None
Range = tuple[float, float, float]  # lowest, highest and step

FIRST = 5  # number of main arguments of a scenario whose entry names none

# Arguments of many scenarios → label on a page, and symbol. The label of any other argument is its name.
WORDS: Mapping[str, tuple[str, str]] = {
    "alpha_F": ("Training time, steps/N", "α_F"),
    "eta": ("Learning rate", "η"),
    "weight_decay": ("Weight decay", "λ"),
    "Delta[0]": ("Variance, easy samples", "Δ₁"),
    "Delta[1]": ("Variance, hard samples", "Δ₂"),
    "T": ("Teacher's squared norm", "T"),
    "easy_share": ("Share of easy samples", ""),
    "test_easy_share": ("Share of easy samples, test", ""),
    "joint": ("Optimise the learning rate too", ""),
    "max_learning_rate": ("Largest learning rate", "η"),
    "K": ("Student's hidden nodes", "K"),
    "M": ("Teacher's hidden nodes", "M"),
    "sigma_n": ("Label noise", "σ_n"),
    "Delta_F": ("Noise at test time", "Δ_F"),
    "sigma": ("Spread of the inputs", "σ"),
    "N": ("Input dimension", "N"),
    "start": ("Start", ""),
    "skip_rate": ("Learning rate of the skip", "η_b"),
    "finite_size": ("Keep terms that the paper neglects", ""),
    "mean_batch": ("Mean batch", "B"),
    "max_batch": ("Largest batch", "B"),
    "control": ("What is controlled", ""),
    "share": ("Minority's share of the data", ""),
    "variance[0]": ("Variance, majority", ""),
    "variance[1]": ("Variance, minority", ""),
    "mean[0]": ("Distance from the origin, majority", ""),
    "mean[1]": ("Distance from the origin, minority", ""),
    "alignment[0]": ("Teacher along the centroids, majority", ""),
    "alignment[1]": ("Teacher along the centroids, minority", ""),
    "objective": ("Which error counts", ""),
    "threshold_range[0]": ("Lowest threshold, less the teacher's", ""),
    "threshold_range[1]": ("Highest threshold, less the teacher's", ""),
    "tokens": ("Tokens of a sample", "L"),
    "heads": ("Heads", ""),
    "exponent": ("Exponent of the variances", "a"),
    "teacher_exponent": ("Exponent of the teacher", "b"),
    "sigma_n2": ("Variance of the label noise", "σ²"),
    "max_rate": ("Largest learning rate", "η"),
    "decisions": ("Decisions in an episode", "T"),
    "max_decisions": ("Longest episode", "T"),
    "mistakes": ("Mistakes that are forgiven", ""),
    "penalty": ("Penalty for failure", "p"),
    "max_gain": ("Largest gain", "G"),
}
# Labels for entries of a sequence without labels of their own.
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")


@dataclass(frozen=True)
class Argument(ABC):
    """An argument of a scenario, or one entry of it (``Delta[1]``).

    Attributes:
        name: name of the argument.
        label: its label on a page.
        symbol: its symbol in the paper, or "".
        help: its description in the scenario's docstring.
        default: its initial value.
        main: whether it is shown without asking for more.
    """

    name: str
    label: str
    symbol: str
    help: str
    default: Any
    main: bool

    @abstractmethod
    def read(self, text: str) -> Value:
        """The value of a typed or chosen text.

        Raises:
            SpecificationError: names the argument, the text, and what is allowed.
        """

    @property
    @abstractmethod
    def allowed(self) -> str:
        """The allowed values, in words."""


@dataclass(frozen=True)
class Number(Argument):
    """A number from ``low`` to ``high``; ``step`` is that of its slider.

    With ``optional`` it may be left empty, which gives None: the scenario then chooses the value.
    """

    low: float
    high: float
    step: float
    whole: bool
    optional: bool = False

    def read(self, text: str) -> Value:
        """A number in the range, or None if empty text is allowed."""
        if self.optional and text.strip().lower() in ("", "none"):
            return None
        try:
            value = float(text.strip())
        except ValueError:
            value = math.nan
        # Written so that NaN fails too.
        if not self.low <= value <= self.high or (self.whole and value != int(value)):
            kind = "whole number" if self.whole else "number"
            typed = text.strip() or "nothing"
            raise SpecificationError(f"{self.name} must be a {kind} from {self.allowed}, got {typed}")
        return int(value) if self.whole else value

    @property
    def allowed(self) -> str:
        """The range."""
        return f"{self.low:g} to {self.high:g}{', or empty' if self.optional else ''}"


@dataclass(frozen=True)
class Flag(Argument):
    """Yes or no."""

    def read(self, text: str) -> Value:
        """``true`` or ``false``."""
        word = text.strip().lower()
        if word not in ("true", "false"):
            raise SpecificationError(f"{self.name} must be {self.allowed}, got {text}")
        return word == "true"

    @property
    def allowed(self) -> str:
        """Both."""
        return "true or false"


@dataclass(frozen=True)
class Choice(Argument):
    """One of a few words."""

    known: tuple[str, ...]

    def read(self, text: str) -> Value:
        """One of the words."""
        if text not in self.known:
            raise SpecificationError(f"{self.name} must be one of {self.allowed}, got {text}")
        return text

    @property
    def allowed(self) -> str:
        """The words."""
        return ", ".join(self.known)


@dataclass(frozen=True)
class CodeOnly(Argument):
    """An argument that no control on a page can set, such as a matrix; ``reason`` says why."""

    reason: str

    def read(self, text: str) -> Value:
        """Never."""
        raise SpecificationError(f"{self.name} = {text}: has no control, since it is {self.reason}")

    @property
    def allowed(self) -> str:
        """Why there is no control."""
        return self.reason


def arguments_of(
    function: Callable[..., Any],
    ranges: Mapping[str, Range],
    main: Sequence[str],
    code_only: Mapping[str, str],
) -> tuple[Argument, ...]:
    """All arguments of a scenario's function, the main ones (by default the first few) first.

    Every argument has a default, which also suggests a missing range. ``code_only`` says why an argument has
    no control; an argument with neither is an error, and so are names of unknown arguments.
    """
    arguments = {argument.name: argument for argument in _arguments(function, ranges, code_only)}
    for name in (*ranges, *main, *code_only):
        if name not in arguments:
            raise SpecificationError(f"{function.__name__}: its entry names the unknown argument {name!r}")
    shown = [name for name in arguments if name not in code_only]
    first = list(main) or shown[:FIRST]
    arguments |= {name: replace(arguments[name], main=True) for name in first}
    others = (name for name in arguments if name not in first)
    return tuple(arguments[name] for name in (*first, *others))


def _arguments(
    function: Callable[..., Any], ranges: Mapping[str, Range], code_only: Mapping[str, str]
) -> Iterator[Argument]:
    helps = descriptions(function)
    for name, parameter in inspect.signature(function).parameters.items():
        if name in COMMON:
            continue  # they change the question, and do not belong to a scenario's own numbers
        default = parameter.default
        several = isinstance(default, Sequence) and not isinstance(default, str) and name not in code_only
        entries = {f"{name}[{i}]": entry for i, entry in enumerate(default)} if several else {name: default}
        for entry, value in entries.items():
            label, symbol = WORDS.get(entry) or (_plain_label(entry), "")
            common = (entry, label, symbol, helps.get(name, ""), value, False)
            if name in code_only:
                yield CodeOnly(*common, code_only[name])
            else:
                yield _control(function.__name__, common, parameter.annotation, ranges.get(entry))


def _plain_label(name: str) -> str:
    """``mean[1]`` → "Mean, second"."""
    name, _, place = name.replace("_", " ").partition("[")
    return f"{name.capitalize()}, {ORDINALS[int(place[:-1])]}" if place else name.capitalize()


def _control(
    owner: str, common: tuple[str, str, str, str, Any, bool], annotation: Any, limits: Range | None
) -> Argument:
    name, default = common[0], common[4]
    if isinstance(default, bool):
        return Flag(*common)
    kinds = typing.get_args(annotation) or (annotation,)
    optional = type(None) in kinds
    if isinstance(default, int | float):
        # A whole-number default means whole numbers, unless the signature says otherwise.
        whole = isinstance(default, int) and float not in kinds
        return Number(*common, *(limits or around(default, whole)), whole, optional)
    if default is None and limits is not None:
        return Number(*common, *limits, float not in kinds, optional)
    choices = tuple(words(annotation))
    if isinstance(default, str) and default in choices:
        return Choice(*common, choices)
    raise SpecificationError(f"{owner}({name}={default!r}): has no control; say why in code_only")


def words(annotation: Any) -> Iterator[str]:
    """The words that a ``Literal`` allows, also as part of a union."""
    for part in typing.get_args(annotation):
        if isinstance(part, str):
            yield part
        else:
            yield from words(part)


def take_ranges(function: Callable[..., Any]) -> dict[str, Range]:
    """Moves ranges out of a function's annotations, which keep the types that users read."""
    ranges: dict[str, Range] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if typing.get_origin(parameter.annotation) is typing.Annotated:
            function.__annotations__[name], *limits = typing.get_args(parameter.annotation)
            several = isinstance(parameter.default, tuple)
            ranges |= {f"{name}[{i}]" if several else name: limit for i, limit in enumerate(limits)}
    return ranges


def descriptions(function: Callable[..., Any]) -> dict[str, str]:
    """Argument → its description in the docstring."""
    from docstring_parser import DocstringStyle, parse

    parsed = parse(inspect.getdoc(function) or "", style=DocstringStyle.GOOGLE)
    return {p.arg_name: " ".join((p.description or "").split()).replace("``", "") for p in parsed.params}


def around(default: float, whole: bool = False) -> Range:
    """A sensible range and step for a number with only a default."""
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
