"""One class per misunderstanding; the docstring of each says what to do about it."""


class SpecificationError(ValueError):
    """A model, start or schedule contradicts itself; the message names argument and value."""


class UnphysicalStateError(ValueError):
    """No set of weight vectors has these order parameters.

    A squared norm ``Q_kk`` is negative, a Gram matrix is not positive semidefinite (``M² > Q T``),
    or a number is not finite. At the start it is a slip in the numbers; along a trajectory it
    usually means that a learning rate is too large for the dynamics to stay bounded.
    """


class AccuracyWarning(UserWarning):
    """A Gaussian expectation could not be computed to the accuracy that was asked for."""
