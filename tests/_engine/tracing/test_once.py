"""A solve needs the drift of its system in several functions, and traces it once."""

from typing import ClassVar

import optlearn as ol
from optlearn._engine.tracing.trace import interpretations


class Chain(ol.System):
    """Three numbers, each pulled by the one before; the length tells its drift from other functions."""

    names = ("a", "b", "c")
    parameters: ClassVar = {"force": 0.5}

    def drift(self, x, u):
        return {"a": u["force"] - x["a"], "b": x["a"] - x["b"], "c": x["b"] - x["c"]}

    def error(self, x, u):
        return (x["c"] - 3) ** 2


def test_a_solve_converts_its_drift_once():
    problem = ol.Problem(
        model=Chain(),
        start={"a": 0.0, "b": 0.0, "c": 0.0},
        horizon=3.0,
        controls={"force": ol.Continuous(0.0, 2.0)},
        intervals=6,
    )
    drift = ("_traced_once", ((3,),))
    before = interpretations[drift]
    ol.solve(problem, starts=1)
    assert interpretations[drift] == before + 1
