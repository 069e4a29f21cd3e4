"""One class per misunderstanding; each names the section of the documentation that explains it."""

from typing import ClassVar

# Where the documentation lies, relative to the repository; `make docs` builds it as web pages.
PAGE = "docs/errors.md"


def explained(section: str) -> str:
    """Where a kind of error or warning is explained, to be added to its message."""
    return f"See {PAGE}#{section}"


class SpecificationError(ValueError):
    """A model, start, schedule or argument contradicts itself; the message names it and its value."""

    section: ClassVar[str] = "arguments"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.add_note(explained(self.section))


class BudgetError(SpecificationError):
    """No schedule meets a budget: on any grid, or exactly on this one."""

    section = "budgets"


class UnphysicalStateError(ValueError):
    """No set of weight vectors has these order parameters.

    A squared norm ``Q_kk`` is negative, a Gram matrix is not positive semidefinite (``M² > Q T``),
    or a number is not finite. At the start it is a slip in the numbers; along a trajectory it
    usually means that a learning rate is too large for the dynamics to stay bounded.
    """

    section: ClassVar[str] = "unphysical-states"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.add_note(explained(self.section))


class AccuracyWarning(UserWarning):
    """A Gaussian expectation could not be computed to the accuracy that was asked for."""
