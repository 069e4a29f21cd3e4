"""Which cases of a test run in `make test`, and which in `make test-slow` alone."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def slow_but(quick: Collection[str], cases: Iterable[str]) -> list[Any]:
    """All cases, by name; those that are not among the quick ones are marked slow."""
    cases = list(cases)
    assert set(quick) <= set(cases), f"no case {set(quick) - set(cases)}"
    return [pytest.param(name, id=name, marks=[] if name in quick else [pytest.mark.slow]) for name in cases]
