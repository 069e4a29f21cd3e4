"""A step of training in numbers: a classical Runge-Kutta step, or the exact one of a system that has one.

Both are stages of slopes; the exact step has a single stage, whose slope is (end − x)/h.
"""

from collections.abc import Callable
from typing import Any, NamedTuple


class Stages(NamedTuple):
    """The stages of a step.

    Attributes:
        nodes: position of each in the step, and weight of the slope before it.
        parts: of the step that its slope stands for; whole numbers.
    """

    nodes: tuple[float, ...]
    parts: tuple[int, ...]

    @property
    def weights(self) -> tuple[float, ...]:
        """The parts as shares of the step."""
        return tuple(part / sum(self.parts) for part in self.parts)


CLASSICAL = Stages((0.0, 0.5, 0.5, 1.0), (1, 2, 2, 1))
EXACT = Stages((0.0,), (1,))


def step(stages: Stages, rate: Callable[[Any], tuple[Any, Any]], x: Any, h: Any) -> tuple[Any, Any]:
    """State and cost after one step of length h from x, for a rate x → (slope, running cost)."""
    slope: Any = 0.0
    total: Any = 0.0
    costs: Any = 0.0
    # Summed in whole numbers: one rounding less for each stage.
    for node, part in zip(*stages, strict=True):
        slope, cost = rate(x + node * h * slope)
        total, costs = total + part * slope, costs + part * cost
    return x + h / sum(stages.parts) * total, h / sum(stages.parts) * costs
