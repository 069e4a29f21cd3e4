"""Published optimal-control problems with known optima, for testing the solvers.

Each is formulated as ``ol.System`` and ``ol.Problem``; none is about learning. ``problems()`` returns all of
them with their sources and references::

    (tank,) = ol.benchmarks.problems("two_optima_cstr")
    solution = ol.solve(tank.problem())
    tank.reference.excess(solution.objective)

``python -m benchmarks control`` solves them all by every method, and compares with CasADi and IPOPT.
"""

from optlearn._signatures import checked

# Each of these fills the register.
from optlearn.benchmarks import _mechanics, _multiextremal, _populations, _reactors, _singular  # noqa: F401
from optlearn.benchmarks._benchmark import Benchmark, Reference, named

__all__ = ["Benchmark", "Reference", "problems"]


@checked
def problems(*names: str) -> tuple[Benchmark, ...]:
    """The benchmarks with these names; all of them by default.

    Args:
        names: such as "lotka".
    """
    return named(*names)
