"""Controls without bounds, and drifts that depend on time."""

import jax.numpy as jnp
import numpy as np
import pytest

import optlearn as ol

INFINITY = float("inf")


class Cart(ol.System):
    """A cart that is pushed."""

    names = ("place", "speed")
    parameters = {"push": 0.0}  # noqa: RUF012

    def drift(self, x, u):
        return {"place": x["speed"], "speed": u["push"]}

    def error(self, x, u):
        return x["place"] ** 2


class Tide(ol.System):
    """A level that follows a gate, at the pace of the tide."""

    names = ("level",)
    parameters = {"gate": 0.0}  # noqa: RUF012

    def drift(self, x, u, alpha):
        return {"level": u["gate"] * jnp.cos(alpha)}

    def error(self, x, u):
        return x["level"]


def to_rest(control, **changes):
    options = {
        "model": Cart(),
        "start": {"place": 1.0, "speed": 0.0},
        "horizon": 1.0,
        "controls": {"push": control},
        "objective": ol.Objective(final=0.0, integral=lambda x, u: u["push"] ** 2),
        "limits": tuple(
            ol.Limit(ol.Objective(final=0.0, terminal=lambda x, u, name=name: x[name]), equals=0.0)
            for name in ("place", "speed")
        ),
        "intervals": 20,
    }
    return ol.Problem(**{**options, **changes})


def test_no_bounds_at_all() -> None:
    problem = to_rest(ol.Continuous(-INFINITY, INFINITY), start={"place": 10.0, "speed": 0.0})
    solution = ol.solve(problem, starts=1)
    assert solution.certificate.converged
    assert solution.objective == pytest.approx(100 * 12 / (1 - 20**-2), rel=1e-8)
    # 57 is beyond the first trial, whose bounds are −10 and 10.
    assert solution.problem.controls["push"].upper == 100.0
    assert "push from -100 to 100" in solution.notes[-1]
    assert ol.evaluate(problem, solution.schedule).objective == pytest.approx(solution.objective)


def test_one_bound_is_kept() -> None:
    solution = ol.solve(to_rest(ol.Continuous(-5.0, INFINITY)), starts=1)
    assert solution.certificate.converged
    assert solution.schedule["push"].min() == pytest.approx(-5.0, abs=1e-6)
    assert solution.objective > 12 / (1 - 20**-2)


def test_an_optimum_that_runs_away() -> None:
    problem = ol.Problem(
        model=Tide(), start={"level": 0.0}, horizon=1.0, intervals=2,
        controls={"gate": ol.Continuous(-INFINITY, INFINITY)},
    )  # fmt: skip
    with pytest.raises(ol.SpecificationError, match="unbounded control 'gate' grows"):
        ol.solve(problem, starts=1, method="direct")


def test_what_is_no_bound() -> None:
    with pytest.raises(ol.SpecificationError, match="lower must be a finite number, or infinite, got nan"):
        ol.Continuous(float("nan"), 1.0)
    with pytest.raises(ol.SpecificationError, match="Free: upper must be a finite number"):
        ol.Free(0.0, INFINITY)
    with pytest.raises(ol.SpecificationError, match="lower must be below upper"):
        ol.Continuous(INFINITY, INFINITY)
    schedule = ol.Schedule.constant(1.0, {"push": -6.0})
    with pytest.raises(ol.SpecificationError, match="its bounds are -5 and inf"):
        ol.evaluate(to_rest(ol.Continuous(-5.0, INFINITY)), schedule)


# --- time ---------------------------------------------------------------------------------------------------


def test_the_drift_may_take_the_time() -> None:
    problem = ol.Problem(
        model=Tide(),
        start={"level": 1.0},
        horizon=np.pi,
        controls={"gate": ol.Continuous(-1, 1)},
        intervals=8,
    )
    solution = ol.solve(problem, starts=2)
    assert solution.certificate.converged
    assert solution.objective == pytest.approx(1 - 2.0, abs=1e-6)  # the gate follows the sign of the tide
    np.testing.assert_allclose(solution.schedule["gate"], [-1] * 4 + [1] * 4, atol=1e-4)
    np.testing.assert_allclose(solution.trajectory["alpha"], solution.trajectory.alpha, atol=1e-9)


def test_what_comes_later_reads_the_clock() -> None:
    problem = ol.Problem(
        model=Tide(), start={"level": 1.0}, horizon=np.pi, intervals=8,
        controls={"gate": ol.Continuous(-1, 1)},
        objective=ol.Objective(final=0.0, integral=lambda x, u: x["alpha"]),
        paths=(ol.Path(lambda x, u: x["level"] - x["alpha"], at_most=2.0),),
    )  # fmt: skip
    schedule = ol.Schedule.constant(np.pi, {"gate": 1.0})
    assert ol.evaluate(problem, schedule).objective == pytest.approx(np.pi**2 / 2)
    solution = ol.solve(problem, starts=1)
    rest = solution.replan(at=np.pi / 2)
    assert rest.trajectory["alpha"][0] == pytest.approx(np.pi / 2)


def test_a_clock_by_any_other_name() -> None:
    class Twice(ol.System):
        names = ("level", "alpha")
        parameters = {"gate": 0.0}  # noqa: RUF012

        def drift(self, x, u, alpha):
            return {"level": u["gate"]}

        def error(self, x, u):
            return x["level"]

    with pytest.raises(ol.SpecificationError, match="drift takes the time"):
        Twice()
