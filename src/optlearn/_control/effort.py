"""How well the parameters of a baseline are sought: to many digits, or roughly where it is a first guess."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_GUESSING = ContextVar("guessing", default=False)


@contextmanager
def first_guesses() -> Iterator[None]:
    """While this lasts, schedules are made to start a solver from, which loses all digits of them at once."""
    token = _GUESSING.set(True)
    try:
        yield
    finally:
        _GUESSING.reset(token)


def guessing() -> bool:
    """Is a schedule that is being made a first guess only?"""
    return _GUESSING.get()
