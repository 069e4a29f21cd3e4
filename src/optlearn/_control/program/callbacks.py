"""Compiled programs inside CasADi expressions.

Only the direct method needs expressions, and of them only the rate and the final cost with their derivatives:
steps, sensitivities and the sparse matrices of the nonlinear program are made of these.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import casadi
import numpy as np

# Results kept: values, Jacobian and Hessian of a program ask for the same points in turn.
_KEPT_POINTS = 4096


class Callback(casadi.Callback):
    """A function of columns of numbers as a CasADi function without derivatives.

    CasADi does not keep a callback alive: whoever builds expressions of it must.

    Args:
        name: of the function.
        inputs: lengths of its arguments.
        outputs: shapes of its results.
        function: the function; its results are columns with the entries in C order.
    """

    def __init__(
        self, name: str, inputs: list[int], outputs: list[tuple[int, int]], function: Callable[..., Any]
    ) -> None:
        casadi.Callback.__init__(self)
        self._inputs, self._outputs, self._function = inputs, outputs, function
        self._known: OrderedDict[bytes, list[Any]] = OrderedDict()
        self.construct(name, {})

    def get_n_in(self) -> int:
        """How many arguments."""
        return len(self._inputs)

    def get_n_out(self) -> int:
        """How many results."""
        return len(self._outputs)

    def get_sparsity_in(self, i: int) -> Any:
        """A dense column."""
        return casadi.Sparsity.dense(self._inputs[i], 1)

    def get_sparsity_out(self, i: int) -> Any:
        """A dense matrix."""
        return casadi.Sparsity.dense(*self._outputs[i])

    def eval(self, arg: Sequence[Any]) -> list[Any]:
        """The results for columns of numbers."""
        arrays = [np.array(column) for column in arg]
        point = b"".join(array.tobytes() for array in arrays)
        if point not in self._known:
            found = self._function(*arrays)
            found = found if isinstance(found, tuple) else (found,)
            self._known[point] = [
                casadi.DM(np.array(part).reshape(shape))
                for part, shape in zip(found, self._outputs, strict=True)
            ]
            if len(self._known) > _KEPT_POINTS:
                self._known.popitem(last=False)
        return self._known[point]
