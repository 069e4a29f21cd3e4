"""CasADi, loaded when it is first used: batches under XLA run where it is not installed."""

from collections.abc import Callable
from typing import Any

import lazy_loader

casadi: Any = lazy_loader.load("casadi")


def later(name: str) -> Callable[..., Any]:
    """CasADi's function of that name, looked up when it is called."""
    return lambda *arguments: getattr(casadi, name)(*arguments)
