"""Published problems: each is solved to its reference, or is not called converged."""

import warnings

import pytest

import optlearn as ol

# Solved by default within about half a second of CPU.
QUICK = ("cart_to_rest", "cart_one_sided", "farthest_rest", "hager", "max_range", "rayleigh")
REST = [b.name for b in ol.benchmarks.problems() if b.name not in QUICK]
# More CPU time than the others together: ``python -m benchmarks control`` has them.
LONG = {"lee_ramirez", "lotka_pure", "park_ramirez", "egerstedt"}


def check(name: str) -> ol.Solution:
    (benchmark,) = ol.benchmarks.problems(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ol.NotConvergedWarning)
        solution = ol.solve(benchmark.problem())
    missed = benchmark.reference.missed_by(solution.objective)
    assert not (solution.certificate.converged and missed)
    assert not missed
    return solution


@pytest.mark.parametrize("name", QUICK)
def test_quick_problems_are_solved(name) -> None:
    assert check(name).certificate.converged


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in REST if name not in LONG])
def test_other_problems_are_solved(name) -> None:
    check(name)


def test_every_problem_says_what_it_is() -> None:
    problems = ol.benchmarks.problems()
    assert len(problems) >= 30
    for benchmark in problems:
        assert benchmark.title
        assert benchmark.source
        assert benchmark.tests
        assert benchmark.problem(4).intervals == 4


def test_an_unknown_problem_names_those_that_there_are() -> None:
    with pytest.raises(ol.SpecificationError, match="no benchmark 'lotke'; there are cart_to_rest"):
        ol.benchmarks.problems("lotke")
