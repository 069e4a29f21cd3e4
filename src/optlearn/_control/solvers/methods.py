"""All methods of solution: a new one is a line here."""

from collections.abc import Mapping

from optlearn._control.solvers.auto import Auto
from optlearn._control.solvers.base import Method
from optlearn._control.solvers.direct import Direct
from optlearn._control.solvers.greedy import Greedy
from optlearn._control.solvers.indirect import Indirect
from optlearn._errors import SpecificationError

_ALL: tuple[type[Method], ...] = (Auto, Direct, Indirect, Greedy)

METHODS: Mapping[str, str] = {method.name: method.description for method in _ALL}


def make_method(name: str, max_iterations: int | None, tolerance: float | None) -> Method:
    """The method of that name, with its options."""
    for method in _ALL:
        if method.name == name:
            return method(max_iterations, tolerance)
    raise SpecificationError(f"method must be one of {', '.join(METHODS)}, got {name!r}")
