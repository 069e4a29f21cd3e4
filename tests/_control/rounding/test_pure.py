"""Pure schedules of published problems, which no exchange of a few intervals betters."""

import jax.numpy as jnp
import numpy as np
import pytest

import optlearn as ol


class Fishing(ol.System):
    """Lotka-Volterra with fishing that is on or off (Sager)."""

    names = ("prey", "predators")
    parameters = {"fishing": 0.0}  # noqa: RUF012

    def drift(self, x, u):
        a, b, w = x["prey"], x["predators"], u["fishing"]
        return {"prey": a - a * b - 0.4 * a * w, "predators": -b + a * b - 0.2 * b * w}

    def error(self, x, u):
        return (x["prey"] - 1) ** 2 + (x["predators"] - 1) ** 2


class Tanks(ol.System):
    """Three tanks with three modes of flow."""

    names = ("a", "b", "d")
    parameters = {"mode": 1.0}  # noqa: RUF012

    def drift(self, x, u):
        one, two, three = (jnp.where(u["mode"] == k, 1.0, 0.0) for k in (1, 2, 3))
        a, b, d = (jnp.sqrt(x[name]) for name in "abd")
        over = three * jnp.sqrt(0.8) * a
        return {"a": -a + one + 2 * two - over, "b": a - b, "d": b - d + over}

    def error(self, x, u):
        return 2 * (x["b"] - 3) ** 2 + (x["d"] - 3) ** 2


class Aircraft(ol.System):
    """The F-8, which is to be brought to rest by a rudder that is always hard over (Garrard and Jordan)."""

    names = ("a", "b", "c")
    parameters = {"w": 0.05236}  # noqa: RUF012

    def drift(self, x, u):
        a, b, c, w = x["a"], x["b"], x["c"], u["w"]
        return {
            "a": -0.877 * a + c - 0.088 * a * c + 0.47 * a**2 - 0.019 * b**2 - a**2 * c + 3.846 * a**3
            - 0.215 * w + 0.28 * a**2 * w + 0.47 * a * w**2 + 0.63 * w**3,
            "b": c,
            "c": -4.208 * a - 0.396 * c - 0.47 * a**2 - 3.564 * a**3
            - 20.967 * w + 6.265 * a**2 * w + 46 * a * w**2 + 61.4 * w**3,
        }  # fmt: skip

    def error(self, x, u):
        return x["a"] ** 2 + x["b"] ** 2 + x["c"] ** 2


def fishing() -> ol.Problem:
    return ol.Problem(
        model=Fishing(),
        start={"prey": 0.5, "predators": 0.7},
        horizon=12.0,
        controls={"fishing": ol.Discrete([0.0, 1.0])},
        objective=ol.Objective(final=0.0, average=12.0),
    )


def tanks() -> ol.Problem:
    return ol.Problem(
        model=Tanks(),
        start={"a": 2.0, "b": 2.0, "d": 2.0},
        horizon=12.0,
        controls={"mode": ol.Discrete([1.0, 2.0, 3.0])},
        objective=ol.Objective(final=0.0, average=12.0),
    )


def aircraft() -> ol.Problem:
    return ol.Problem(
        model=Aircraft(),
        start={"a": 0.4655, "b": 0.0, "c": 0.0},
        horizon=3.78086,
        controls={"w": ol.Discrete([-0.05236, 0.05236])},
    )


@pytest.mark.filterwarnings("ignore::optlearn.NotConvergedWarning")
@pytest.mark.parametrize(
    ("make", "intervals", "reached"),
    [
        pytest.param(fishing, 50, 1.352071, marks=pytest.mark.slow),
        pytest.param(fishing, 100, 1.346599, marks=pytest.mark.slow),
        pytest.param(tanks, 50, 8.8534, marks=pytest.mark.slow),
        pytest.param(aircraft, 60, 1e-3, marks=pytest.mark.slow),
        pytest.param(aircraft, 100, 1e-3, marks=pytest.mark.slow),
    ],
)
def test_published_problems(make, intervals, reached) -> None:
    found = ol.solve(make(), intervals)
    assert found.objective <= reached
    assert found.relaxed is not None
    assert found.relaxed.objective <= found.objective


@pytest.mark.slow
def test_no_swap_is_better() -> None:
    problem = fishing()
    with pytest.warns(ol.NotConvergedWarning):
        found = ol.solve(problem, 16)
    levels, grid = found.schedule["fishing"], found.schedule.grid
    for i in range(16):
        for j in range(i):
            trial = levels.copy()
            trial[[i, j]] = 1 - trial[[i, j]] if levels[i] == levels[j] else trial[[j, i]]
            other = ol.evaluate(problem, ol.Schedule(grid, {"fishing": trial}), record=2)
            assert other.objective >= found.objective - 1e-6


def test_limits_on_switches_have_a_price_and_no_gap() -> None:
    problem = fishing()
    limited = ol.Discrete([0.0, 1.0], max_switches=3)
    found = ol.solve(ol.Problem(**{**vars_of(problem), "controls": {"fishing": limited}}), 24)
    assert found.certificate.converged
    assert found.certificate.relaxation_gap > 1e-3
    assert np.count_nonzero(np.diff(found.schedule["fishing"])) <= 3


def vars_of(problem: ol.Problem) -> dict:
    return {name: getattr(problem, name) for name in ("model", "start", "horizon", "objective")}
