"""Checks of the factories' arguments: a message names argument, value and what is allowed."""

from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np

from optlearn._arrays import Array
from optlearn._errors import SpecificationError


class Arguments:
    """The checks of one factory; ``owner`` is its name, for the messages.

    Args:
        owner: the factory as the user calls it, such as ``curriculum``.
    """

    def __init__(self, owner: str) -> None:
        self.owner = owner

    def fail(self, name: str, value: Any, allowed: str) -> NoReturn:
        """Raise with a message that names argument, value and what is allowed."""
        shown = value.tolist() if isinstance(value, np.ndarray) else value
        raise SpecificationError(f"{self.owner}({name}={shown!r}): {allowed}")

    def count(self, name: str, value: Any, lowest: int = 1) -> int:
        """A whole number of at least ``lowest``."""
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not whole or value < lowest:
            self.fail(name, value, f"must be a whole number of at least {lowest}")
        return int(value)

    def flag(self, name: str, value: Any) -> bool:
        """True or False."""
        if not isinstance(value, bool | np.bool_):
            self.fail(name, value, "must be True or False")
        return bool(value)

    def number(
        self,
        name: str,
        value: Any,
        lowest: float = -np.inf,
        highest: float = np.inf,
        *,
        open_below: bool = False,
    ) -> float:
        """A finite number from ``lowest`` to ``highest`` (above ``lowest`` if ``open_below``)."""
        allowed = f"must be {_range(lowest, highest, open_below)}"
        number = self._floats(name, value, allowed)
        if number.ndim:
            self.fail(name, value, allowed)
        self._within(name, value, number, lowest, highest, open_below)
        return float(number)

    def numbers(
        self,
        name: str,
        value: Any,
        shape: tuple[int, ...],
        lowest: float = -np.inf,
        highest: float = np.inf,
    ) -> np.ndarray:
        """An array of finite numbers of the given shape; a single number is repeated."""
        sizes = " by ".join(map(str, shape))
        allowed = f"must be {sizes} numbers, each {_range(lowest, highest, False)}"
        numbers = self._floats(name, value, allowed)
        if numbers.ndim == 0:
            numbers = np.full(shape, float(numbers))
        if numbers.shape != shape:
            self.fail(name, value, allowed)
        self._within(name, value, numbers, lowest, highest, False)
        return numbers

    def probabilities(self, name: str, value: Any, count: int) -> np.ndarray:
        """``count`` probabilities that sum to 1; equal ones if ``value`` is None."""
        if value is None:
            return np.full(count, 1 / count)
        allowed = f"must be {count} probabilities (from 0 to 1) that sum to 1"
        numbers = self._floats(name, value, allowed)
        good = numbers.shape == (count,) and np.all(numbers >= 0) and abs(numbers.sum() - 1) < 1e-9
        if not good:
            self.fail(name, value, allowed)
        return numbers

    def one_of(self, name: str, value: Any, known: Iterable[str]) -> str:
        """One of the ``known`` names."""
        names = sorted(known)
        if not isinstance(value, str) or value not in names:
            self.fail(name, value, f"known: {', '.join(names)}")
        return value

    def blocks(self, spectrum: Any) -> int | None:
        """How many blocks a spectrum has; None: there is no spectrum."""
        from optlearn._theory.spectrum import Spectrum

        if spectrum is None:
            return None
        if not isinstance(spectrum, Spectrum):
            self.fail("spectrum", spectrum, "must be a Spectrum, or None")
        return spectrum.blocks

    def squared_norm(self, name: str, value: Any, blocks: int | None) -> np.ndarray:
        """One number above 0; with ``blocks`` also one of at least 0 for each, as matrices (B, 1, 1)."""
        if blocks is None or np.ndim(value) == 0:
            return np.asarray(self.number(name, value, 0.0, open_below=True))
        return self.numbers(name, value, (blocks,), lowest=0.0)[:, None, None]

    def gram(self, name: str, value: Any, size: int | None = None, blocks: int | None = None) -> np.ndarray:
        """A Gram matrix: symmetric, positive semidefinite, ``size`` by ``size``.

        A number stands for that multiple of the identity. With ``blocks``, there may be one for each.
        """
        from optlearn._theory.order import Overlaps  # loads JAX, which no other check needs

        allowed = "must be a symmetric, positive semidefinite matrix"
        if size is not None:
            allowed = f"must be a number of at least 0, or a {size} by {size} symmetric, "
            allowed += "positive semidefinite matrix"
        matrix = self._floats(name, value, allowed)
        if matrix.ndim == 0 and size is not None:
            matrix = float(matrix) * np.eye(size)
        if blocks is not None:
            allowed += f", or {blocks} of these, one for each block"
        by_block = blocks is not None and matrix.ndim == 3 and len(matrix) == blocks
        if not (matrix.ndim == 2 or by_block) or (size is not None and matrix.shape[-2:] != (size, size)):
            self.fail(name, value, allowed)
        try:
            Overlaps(T=matrix)
        except SpecificationError as error:
            raise SpecificationError(f"{self.owner}({name}={value!r}): {allowed}; {error}") from None
        return matrix

    def _floats(self, name: str, value: Any, allowed: str) -> np.ndarray:
        if isinstance(value, bool | str):
            self.fail(name, value, f"not a number; {allowed}")
        try:
            numbers = np.asarray(value, dtype=float)
        except (TypeError, ValueError):
            self.fail(name, value, allowed)
        if not np.all(np.isfinite(numbers)):
            self.fail(name, value, f"not finite; {allowed}")
        return numbers

    def _within(
        self,
        name: str,
        value: Any,
        numbers: Array,
        lowest: float,
        highest: float,
        open_below: bool,
    ) -> None:
        above = numbers > lowest if open_below else numbers >= lowest
        if not (np.all(above) and np.all(numbers <= highest)):
            self.fail(name, value, f"must be {_range(lowest, highest, open_below)}")


def _range(lowest: float, highest: float, open_below: bool) -> str:
    if np.isinf(lowest) and np.isinf(highest):
        return "a finite number"
    if np.isinf(highest):
        return f"{'above' if open_below else 'at least'} {lowest:g}"
    if np.isinf(lowest):
        return f"at most {highest:g}"
    if open_below:
        return f"above {lowest:g} and at most {highest:g}"
    return f"from {lowest:g} to {highest:g}"
