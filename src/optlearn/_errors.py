"""Errors and warnings: one class per misunderstanding, each naming the help topic that explains it.

``optlearn help TOPIC`` prints such a page: a Markdown file in ``_help``, named like its topic, which is
installed with the package.
"""

import sys
import warnings
from pathlib import Path
from typing import ClassVar

_PACKAGE = Path(__file__).parent
# Frames of the package, of decorators around its functions, and of the machinery of classes and dataclasses
# are not the user's code.
_PASSED_OVER = ("contextlib.py", "functools.py", "_ufunc_config.py", "<frozen abc>", "<string>")


def explained(topic: str) -> str:
    """Points to the help topic that explains an error or warning; appended to its message."""
    return f"More: optlearn help {topic}"


def count_of(number: int, noun: str) -> str:
    """A number with its noun: "1 step", "2 steps"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def how_to_install(*extras: str) -> str:
    """The command that installs optional parts; the package is not on a package index."""
    names = ",".join(extras)
    return (
        f"pip install -c constraints.txt '.[{names}]' in the folder of the repository, "
        f"or pip install -c constraints.txt 'optlearn[{names}] @ file:///PATH/TO/optlearn.whl'"
    )


def missing_extra(package: str, purpose: str) -> ModuleNotFoundError:
    """The error for a missing optional package; it says how to install it."""
    advice = how_to_install(package)
    return ModuleNotFoundError(f"{purpose} needs {package}, which is not installed: {advice}", name=package)


class DataFileError(OSError):
    """A file is truncated, altered or of another kind. The message names it."""


class SpecificationError(ValueError):
    """A model, start, schedule or argument contradicts itself; the message names it and its value."""

    topic: ClassVar[str] = "arguments"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.add_note(explained(self.topic))


class CallError(SpecificationError, TypeError):
    """A function is called with an unknown argument, or without a required one."""


class BudgetError(SpecificationError):
    """No schedule meets a budget, either on any grid or exactly on this one."""

    topic = "budgets"


class RunawayError(SpecificationError):
    """The dynamics diverge under every first guess, usually because the learning rate is too large."""


class UnphysicalStateError(ValueError):
    """No set of weight vectors has these order parameters.

    A squared norm ``Q_kk`` is negative, a Gram matrix is not positive semidefinite (``M² > Q T``),
    or a number is not finite. At the start this is a mistake in the numbers; along a trajectory it
    usually means that a learning rate is too large for the dynamics to stay bounded.
    """

    topic: ClassVar[str] = "unphysical-states"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.add_note(explained(self.topic))


class AccuracyWarning(UserWarning):
    """A Gaussian expectation could not be computed to the requested accuracy."""


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the user's line that caused it: the innermost frame outside the package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and (
        frame.f_code.co_filename.startswith(str(_PACKAGE)) or frame.f_code.co_filename.endswith(_PASSED_OVER)
    ):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def topics() -> dict[str, str]:
    """Every topic → its title."""
    pages = {
        path.stem: path.read_text(encoding="utf-8") for path in sorted((_PACKAGE / "_help").glob("*.md"))
    }
    return {topic: text.partition("\n")[0].removeprefix("# ") for topic, text in pages.items()}


def page(topic: str) -> str:
    """The page of a topic, as Markdown."""
    if topic not in topics():
        raise SpecificationError(f"topic must be one of {', '.join(topics())}, got {topic!r}")
    return (_PACKAGE / "_help" / f"{topic}.md").read_text(encoding="utf-8")
