"""The one place that checks user input: a message names the argument, what is allowed, and the value.

Public functions check their arguments here first, so the functions that they call may rely on them.
"""

from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np

from optlearn._arrays import Array
from optlearn._errors import SpecificationError


class Arguments:
    """Checks of one function's arguments: each returns the value, or raises an error that names it.

    Args:
        owner: the function as the user calls it, such as ``curriculum``.
        error: class of the error to raise.
    """

    def __init__(self, owner: str, error: type[SpecificationError] = SpecificationError) -> None:
        self.owner = owner
        self.error = error

    def fail(self, name: str, value: Any, allowed: str) -> NoReturn:
        """Raise; ``allowed`` continues the sentence after the argument's name: "must be …"."""
        raise self.error(f"{self.owner}: {name} {allowed}, got {_shown(value)}")

    def count(self, name: str, value: Any, lowest: int = 1, highest: float = np.inf) -> int:
        """A whole number from ``lowest`` to ``highest``."""
        if not is_whole(value) or not lowest <= value <= highest:
            limits = f"of at least {lowest}" if np.isinf(highest) else f"from {lowest} to {highest:g}"
            self.fail(name, value, f"must be a whole number {limits}")
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
        limits = _range(lowest, highest, open_below)
        number = self._floats(name, value, f"must be a finite number{limits and ', '}{limits}")
        if number.ndim:
            self.fail(name, value, f"must be one number{limits and ', '}{limits}")
        self._within(name, value, number, lowest, highest, open_below)
        return float(number)

    def level(self, value: Any) -> float:
        """The probability of an interval."""
        number = self._floats("level", value, allowed := "must lie between 0 and 1")
        if number.ndim or not 0 < number < 1:
            self.fail("level", value, allowed)
        return float(number)

    def numbers(
        self,
        name: str,
        value: Any,
        shape: tuple[int, ...] | None = None,
        lowest: float = -np.inf,
        highest: float = np.inf,
    ) -> np.ndarray:
        """An array of finite numbers of the given shape, where a single number is repeated.

        Without a shape: a list of at least one number.
        """
        sizes = "a list of" if shape is None else " by ".join(map(str, shape))
        numbers_of = "1 number," if shape == (1,) else f"{sizes} numbers, each"
        allowed = f"must be {numbers_of} {_range(lowest, highest, False) or 'finite'}"
        numbers = self._floats(name, value, allowed)
        if shape is not None and numbers.ndim == 0:
            numbers = np.full(shape, float(numbers))
        if numbers.shape != shape if shape is not None else (numbers.ndim != 1 or not numbers.size):
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
            self.fail(name, value, f"must be one of {', '.join(names)}")
        return value

    def blocks(self, spectrum: Any) -> int | None:
        """The number of blocks of a spectrum; None without a spectrum."""
        if spectrum is None:
            return None
        blocks = getattr(spectrum, "blocks", None)
        if not isinstance(blocks, int):
            self.fail("spectrum", spectrum, "must be a Spectrum, or None")
        return blocks

    def squared_norm(self, name: str, value: Any, blocks: int | None) -> np.ndarray:
        """One number above 0; with ``blocks`` also one of at least 0 per block, as matrices (B, 1, 1)."""
        if blocks is None or np.ndim(value) == 0:
            return np.asarray(self.number(name, value, 0.0, open_below=True))
        return self.numbers(name, value, (blocks,), lowest=0.0)[:, None, None]

    def gram(self, name: str, value: Any, size: int | None = None, blocks: int | None = None) -> np.ndarray:
        """A Gram matrix: symmetric, positive semidefinite, ``size`` by ``size``.

        A number stands for that multiple of the identity. With ``blocks``, there may be one matrix per block.
        """
        sizes = "a" if size is None else f"a number of at least 0, or a {size} by {size}"
        allowed = f"must be {sizes} symmetric, positive semidefinite matrix"
        matrix = self._floats(name, value, allowed)
        if matrix.ndim == 0 and size is not None:
            matrix = float(matrix) * np.eye(size)
        if blocks is not None:
            allowed += f", or {blocks} of these, one for each block"
        by_block = blocks is not None and matrix.ndim == 3 and len(matrix) == blocks
        square = matrix.ndim == 2 or by_block
        square = square and matrix.shape[-2:] == (size or matrix.shape[-1],) * 2 and matrix.size > 0
        if not square or not np.allclose(matrix, np.swapaxes(matrix, -1, -2), 0, 1e-12):
            self.fail(name, value, allowed)
        lowest = np.linalg.eigvalsh(matrix)[..., 0].min()
        if lowest < -1e-9 * max(1.0, float(np.abs(matrix).max())):
            self.fail(name, value, f"{allowed} (its lowest eigenvalue is {lowest:.6g})")
        return matrix

    def _floats(self, name: str, value: Any, allowed: str) -> np.ndarray:
        numbers = as_numbers(value)
        if numbers is None or not np.all(np.isfinite(numbers)):
            self.fail(name, value, allowed)
        return numbers

    def _within(
        self, name: str, value: Any, numbers: Array, lowest: float, highest: float, open_below: bool
    ) -> None:
        above = numbers > lowest if open_below else numbers >= lowest
        if not (np.all(above) and np.all(numbers <= highest)):
            self.fail(name, value, f"must be {_range(lowest, highest, open_below)}")


def is_whole(value: Any) -> bool:
    """Is it a whole number (neither a float nor True)?"""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def as_numbers(value: Any) -> np.ndarray | None:
    """The value as floats; None unless it consists of numbers (True, "3" and None do not count)."""
    try:
        raw = np.asarray(value)
        if raw.dtype.kind not in "iufO":
            return None
        return raw.astype(float) if raw.dtype.kind != "O" or None not in raw.ravel().tolist() else None
    except (TypeError, ValueError):
        return None


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.size > 16:
        return f"an array of shape {value.shape}"
    text = repr(value.tolist() if isinstance(value, np.ndarray | np.generic) else value)
    return text if len(text) <= 200 else f"{article(type(value).__name__)} ({text[:80]} …)"


def article(word: str) -> str:
    """The word with its article."""
    return f"{'an' if word[0] in 'AEIOUaeiou' else 'a'} {word}"


def _range(lowest: float, highest: float, open_below: bool) -> str:
    """Limits in words; empty without limits."""
    above = f"{'above' if open_below else 'at least'} {lowest:g}" if np.isfinite(lowest) else ""
    below = f"at most {highest:g}" if np.isfinite(highest) else ""
    if above and below:
        return f"{above} and {below}" if open_below else f"from {lowest:g} to {highest:g}"
    return above or below
