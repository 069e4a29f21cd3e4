"""A system whose optimum is known by hand, and problems of it."""

from typing import ClassVar

import pytest

import optlearn as ol


class Pull(ol.System):
    """Pulled up by the control, down by itself; the error is the distance from a target."""

    names = ("height",)
    parameters: ClassVar = {"force": 0.5, "target": 1.0, "decay": 0.3}

    def drift(self, x, u):
        return {"height": u["force"] - u["decay"] * x["height"]}

    def error(self, x, u):
        return (x["height"] - u["target"]) ** 2

    def check(self, x):
        return None if x["height"] > -1 else f"height = {x['height']:g}; it must be above -1"


def effort(x, u):
    return 0.05 * u["force"] ** 2


@pytest.fixture
def pull():
    """Reach the target with little effort."""
    return ol.Problem(
        model=Pull(),
        start={"height": 0.0},
        horizon=2.0,
        controls={"force": ol.Continuous(0.0, 2.0)},
        intervals=10,
        objective=ol.Objective(cost=effort),
        name="pull",
    )
