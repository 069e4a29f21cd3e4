"""A CasADi function on NumPy arrays in place: where conversions would take as long as the work itself."""

from typing import Any

import numpy as np


class Buffered:
    """A function of dense arguments and results, and the memory that it reads and writes.

    CasADi stores matrices by columns, so each array here has a row for each column of its matrix.

    Args:
        function: a ``casadi.Function``.

    Attributes:
        inputs: arguments, (columns, rows) each: write into them.
        outputs: results, (columns, rows) each: what the last evaluation has written.
    """

    def __init__(self, function: Any) -> None:
        # CasADi borrows this memory, so it must live as long as the buffer does.
        self.inputs = [np.zeros(function.size_in(i)[::-1]) for i in range(function.n_in())]
        self.outputs = [np.zeros(function.size_out(i)[::-1]) for i in range(function.n_out())]
        self._buffer, self.evaluate = function.buffer()
        for i, argument in enumerate(self.inputs):
            self._buffer.set_arg(i, argument.data)
        for i, result in enumerate(self.outputs):
            self._buffer.set_res(i, result.data)

    def __call__(self, *arguments: np.ndarray) -> tuple[np.ndarray, ...]:
        """Results for arguments that have the shapes of ``inputs``, or as many numbers."""
        for held, argument in zip(self.inputs, arguments, strict=True):
            held[...] = np.reshape(argument, held.shape)
        self.evaluate()
        return tuple(result.copy() for result in self.outputs)
