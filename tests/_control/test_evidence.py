"""Starts are independent, and the result is never above one of them."""

import jax.numpy as jnp
import numpy as np
import pytest

import optlearn as ol


class Reactor(ol.System):
    """A stirred tank with two optima: the cooling is used at first, or hardly at all."""

    names = ("a", "b")
    parameters = {"u": 1.0}  # noqa: RUF012

    def drift(self, x, u):
        reaction = (x["b"] + 0.5) * jnp.exp(25 * x["a"] / (x["a"] + 2))
        return {"a": -(2 + u["u"]) * (x["a"] + 0.25) + reaction, "b": 0.5 - x["b"] - reaction}

    def error(self, x, u):
        return x["a"] ** 2 + x["b"] ** 2 + 0.1 * u["u"] ** 2


class Stiff(ol.System):
    """Few Runge-Kutta steps in an interval are unstable where the rate is high, and end at any error."""

    names = ("e",)
    parameters = {"rate": 1.0}  # noqa: RUF012

    def drift(self, x, u):
        rate = u["rate"]
        return {"e": -(rate**2) * (x["e"] - 0.05 * rate) + 0.1 * (1 - rate / 40)}

    def error(self, x, u):
        return x["e"]


class Rest(ol.System):
    """A state that can be brought to 0 exactly."""

    names = ("e",)
    parameters = {"u": 0.5}  # noqa: RUF012

    def drift(self, x, u):
        return {"e": -u["u"]}

    def error(self, x, u):
        return x["e"] ** 2


def reactor() -> ol.Problem:
    return ol.Problem(
        model=Reactor(),
        start={"a": 0.09, "b": 0.09},
        horizon=0.78,
        controls={"u": ol.Continuous(0.0, 5.0)},
        objective=ol.Objective(final=0.0, average=0.78),
    )


def stiff() -> ol.Problem:
    rate = ol.Continuous(0.0, 12.0, guess=1.0)
    return ol.Problem(model=Stiff(), start={"e": 1.0}, horizon=4.0, controls={"rate": rate}, intervals=4)


@pytest.mark.parametrize("seed", [0, pytest.param(slice(1, 8), marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "intervals", [40, *(pytest.param(n, marks=pytest.mark.slow) for n in (100, 160, 400))]
)
def test_the_lower_of_two_optima_is_found(seed, intervals) -> None:
    for each in range(8)[seed] if isinstance(seed, slice) else [seed]:
        found = ol.solve(reactor(), intervals, seed=each)
        assert found.objective < 0.1334
        assert found.certificate.converged
        # Several starts end at the other one, and no agreement hides it.
        starts = found.certificate.starts
        assert 2 <= starts.agreeing < starts.tried
        assert starts.spread == pytest.approx(0.1111, abs=2e-3)


def test_unstable_steps_do_not_count() -> None:
    found = ol.solve(stiff())
    assert found.certificate.converged
    guess = ol.evaluate(stiff(), ol.Schedule.constant(4.0, {"rate": 1.0})).objective
    assert found.objective == pytest.approx(0.1175, abs=1e-3)
    assert found.objective < guess
    assert any("led astray" in note for note in found.notes)


def test_the_result_is_never_above_a_start() -> None:
    """Steps that the user insists on lead solvers where they please."""
    guess = ol.evaluate(stiff(), ol.Schedule.constant(4.0, {"rate": 1.0})).objective
    with pytest.warns(ol.NotConvergedWarning, match="steps are too long for the dynamics"):
        found = ol.solve(stiff(), steps=1)
    assert found.objective <= guess
    with pytest.warns(ol.NotConvergedWarning, match="no further progress"):
        kept = ol.solve(stiff(), 8, "indirect", steps=1)
    assert kept.objective == pytest.approx(guess, rel=1e-9)
    assert any("neutral" in note for note in kept.notes)


def test_an_objective_that_is_zero_is_certified() -> None:
    problem = ol.Problem(
        model=Rest(), start={"e": 1.0}, horizon=2.0, controls={"u": ol.Continuous(0.0, 3.0)}, intervals=10
    )
    found = ol.solve(problem)
    assert found.certificate.converged
    assert found.objective < 1e-8
    strict = ol.solve(problem, negligible=1e-3)
    assert strict.certificate.negligible == 1e-3
    with pytest.raises(ol.SpecificationError, match="negligible must be"):
        ol.solve(problem, negligible=-1.0)


class Cart(ol.System):
    """A push changes the speed."""

    names = ("place", "speed")
    parameters = {"push": 0.0}  # noqa: RUF012

    def drift(self, x, u):
        return {"place": x["speed"], "speed": u["push"]}

    def error(self, x, u):
        return u["push"] ** 2


def final(factors: tuple[float, float]) -> ol.Objective:
    return ol.Objective(final=0.0, terminal=lambda x, u: factors[0] * x["place"] + factors[1] * x["speed"])


def test_an_error_that_is_zero_to_the_last_digit_is_certified() -> None:
    """Its derivative is 0 there, as that of an error that jumps is everywhere."""

    class Square(ol.System):
        names = ("e",)
        parameters = {"u": 0.0}  # noqa: RUF012

        def drift(self, x, u):
            return {"e": u["u"]}

        def error(self, x, u):
            return x["e"] ** 2

    controls = {"u": ol.Continuous(-1, 1)}
    problem = ol.Problem(model=Square(), start={"e": 1.0}, horizon=2.0, controls=controls, intervals=8)
    solution = ol.solve(problem)
    assert solution.objective < 1e-20
    assert solution.certificate.converged, solution.certificate.reasons


@pytest.mark.parametrize(
    ("limits", "optimum"),
    [
        ([{"equals": 0.0, "of": (1.0, 0.0)}, {"equals": 0.0, "of": (0.0, 1.0)}], 12 / (1 - 1 / 20**2)),
        # With ten times the unit, at a place that is not 0, from one side.
        ([{"at_most": 0.0, "of": (10.0, 0.0)}], 3 / (1 - 1 / (4 * 20**2))),
    ],
)
def test_limits_at_the_end_may_be_zero_or_equalities(limits, optimum) -> None:
    problem = ol.Problem(
        model=Cart(),
        start={"place": 1.0, "speed": 0.0},
        horizon=1.0,
        controls={"push": ol.Continuous(-10.0, 10.0)},
        objective=ol.Objective.average_error(),
        limits=tuple(ol.Limit(final(limit.pop("of")), **limit) for limit in limits),
        intervals=20,
    )
    found = ol.solve(problem)
    assert found.certificate.converged
    assert found.objective == pytest.approx(optimum, rel=1e-6)
    assert ol.solve(problem, method="indirect", starts=1).objective == pytest.approx(optimum, rel=1e-4)


@pytest.mark.parametrize("wrong", [{}, {"at_most": 1.0, "equals": 1.0}])
def test_a_limit_has_one_finite_value(wrong) -> None:
    with pytest.raises(ol.SpecificationError, match="at_most or equals"):
        ol.Limit(ol.Objective(), **wrong)


def test_a_lone_start_is_no_evidence() -> None:
    from optlearn._control.certificate import Starts

    assert Starts.of([0.1, 0.2, 0.2]).lone
    assert not Starts.of([0.1, 0.1, 0.2]).lone
    assert not Starts.of([1e-9, 2e-9], negligible=1e-8).lone
    assert np.isfinite(Starts.of([0.1, 0.3]).spread)


def test_an_objective_without_a_derivative_is_not_certified() -> None:
    class Step(ol.System):
        names = ("e",)
        parameters = {"u": 0.5}  # noqa: RUF012

        def drift(self, x, u):
            return {"e": -u["u"]}

        def error(self, x, u):
            return jnp.where(x["e"] > -0.5, 1.0, 0.0)

    controls = {"u": ol.Continuous(0.0, 1.0)}
    problem = ol.Problem(model=Step(), start={"e": 1.0}, horizon=1.0, controls=controls, intervals=4)
    with pytest.warns(ol.NotConvergedWarning, match="derivative of the objective is 0"):
        ol.solve(problem)


def test_a_limit_out_of_reach_is_told() -> None:
    problem = ol.Problem(
        model=Cart(),
        start={"place": 1.0, "speed": 0.0},
        horizon=1.0,
        controls={"push": ol.Continuous(-1.0, 1.0)},
        objective=ol.Objective.average_error(),
        limits=(ol.Limit(final((1.0, 0.0)), equals=9.0),),
        intervals=10,
    )
    with pytest.warns(ol.NotConvergedWarning, match="is 1 at the end; it must be exactly 9: no schedule"):
        ol.solve(problem)


class Pendulum(ol.System):
    """Pushed towards a place, where it is to be nearly at rest."""

    names = ("e", "v")
    parameters = {"u": 0.0, "b": 1.0, "r": 0.1, "t": 2.0, "w": 1.0}  # noqa: RUF012

    def drift(self, x, u):
        return {"e": x["v"], "v": -jnp.sin(x["e"]) - u["r"] * x["v"] + u["b"] * u["u"]}

    def error(self, x, u):
        away = jnp.cos(x["e"]) - jnp.cos(u["t"])
        return away**2 + 0.1 * u["w"] * x["v"] ** 2 + 0.01 * x["e"] + 1


def pendulum(limit: float, horizon: float, start: tuple[float, float], **parameters: float) -> ol.Problem:
    speed = ol.Objective(final=0.0, terminal=lambda x, u: x["v"] ** 2)
    return ol.Problem(
        model=Pendulum(),
        start={"e": start[0], "v": start[1]},
        horizon=horizon,
        controls={"u": ol.Continuous(-1.0, 1.0)},
        parameters=parameters,
        limits=(ol.Limit(speed, at_most=limit),),
        intervals=4,
    )


def test_scouts_find_another_basin_under_a_limit() -> None:
    """Six of eleven starts agree on 0.97928; brute force knows 0.9635."""
    found = ol.solve(
        pendulum(0.04, 5.916055, (1.473897, 1.166714), b=0.966941, r=0.235437, t=2.069172, w=0.584972)
    )
    assert found.objective < 0.9613
    assert found.certificate.converged
    assert found.trajectory["v"][-1] ** 2 <= 0.04 * (1 + 1e-6)
    assert found.certificate.starts.unscouted == ""


def test_a_limit_holds_with_finer_steps_and_is_used_up() -> None:
    """Steps that suffice for the objective missed this limit by 4e-5 of itself, at a price of 16."""
    found = ol.solve(
        pendulum(0.0188145, 3.132128, (1.011328, 0.906829), b=0.580441, r=0.228733, t=2.400559, w=0.948184)
    )
    assert found.certificate.converged
    assert found.trajectory["v"][-1] ** 2 == pytest.approx(0.0188145, rel=1e-6)


def test_the_summary_says_where_no_scouts_looked() -> None:
    problem = ol.Problem(
        model=Cart(),
        start={"place": 0.0, "speed": 1.0},
        horizon=1.0,
        controls={"push": ol.Continuous(-10.0, 10.0)},
        objective=ol.Objective.average_error(),
        paths=(ol.Path("place", at_most=0.2),),
        intervals=10,
    )
    found = ol.solve(problem)
    assert found.certificate.starts.unscouted == "path limits"
    assert "no scouts looked for other optima, because of path limits" in found.summary()


class Scaled(ol.System):
    """One system in any unit of its error and of its control, with wells."""

    names = ("e",)
    parameters = {"u": 0.5, "unit": 1.0}  # noqa: RUF012

    def drift(self, x, u):
        rate, e = u["u"] / u["unit"], x["e"] / u["unit"]
        return {
            "e": u["unit"] * (-2 * rate * e + 0.3 * rate**2 * (1 + e) + 0.1 * jnp.cos(9 * rate)),
        }

    def error(self, x, u):
        return x["e"]


@pytest.mark.parametrize("unit", [1e-6, 1e-3, 1e6])
def test_units_do_not_matter(unit) -> None:
    """With finer steps an interior point once left the optimum for one 13 times as high."""
    problem = ol.Problem(
        model=Scaled(),
        start={"e": unit},
        horizon=3.0,
        controls={"u": ol.Continuous(0.0, unit)},
        parameters={"unit": unit},
        intervals=12,
    )
    found = ol.solve(problem)
    assert found.certificate.converged
    assert found.objective == pytest.approx(0.00379508077 * unit, rel=1e-7)


def test_large_states_meet_their_ends() -> None:
    """Round-off of states of a million is above any absolute tolerance of their steps."""

    class Far(Cart):
        def error(self, x, u):
            return (u["push"] / 1e6) ** 2

    problem = ol.Problem(
        model=Far(),
        start={"place": 1e6, "speed": 0.0},
        horizon=1.0,
        controls={"push": ol.Continuous(-2e7, 2e7)},
        objective=ol.Objective.average_error(),
        limits=tuple(ol.Limit(final(f), equals=0.0) for f in ((1.0, 0.0), (0.0, 1.0))),
        intervals=20,
    )
    found = ol.solve(problem, starts=1)
    assert found.certificate.converged
    assert found.objective == pytest.approx(12 / (1 - 1 / 400), rel=1e-8)


def test_an_objective_that_nothing_changes_is_told() -> None:
    class Constant(Rest):
        def error(self, x, u):
            return 0.0 * x["e"]

    problem = ol.Problem(
        model=Constant(), start={"e": 1.0}, horizon=2.0, controls={"u": ol.Continuous(0.0, 3.0)}, intervals=4
    )
    with pytest.warns(ol.NotConvergedWarning, match="derivative of the objective is 0"):
        assert ol.solve(problem).objective == 0
