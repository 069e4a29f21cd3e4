"""A user's own code: what it computes now is what programs compute, and slips in it are named."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import optlearn as ol
from optlearn._dynamics import own_code
from optlearn._errors import SpecificationError

STRENGTH = 1.0  # read by the loss below; tests change it
SCHEDULE = ol.Schedule.constant(1.0, {"learning_rate": 0.5})


class Own(ol.LearningModel):
    """Linear regression with a loss of changeable strength."""

    power = 2.0

    def loss(self, fields, x, latent, u):
        return STRENGTH / 2 * jnp.abs(fields.student[0, 0] - fields.teacher[0, 0]) ** self.power


def own(**options):
    return Own(
        students=1, overlaps=ol.Overlaps(T=1.0), parameters={"learning_rate": 0.5, "scale": 1.0}, **options
    )


def final_error(model):
    found = ol.integrate(model, SCHEDULE, start=model.state(Q11=0.5), quadrature=ol.GaussHermite(8), record=2)
    return found["error"][-1]


def test_a_changed_global_is_seen(monkeypatch):
    model = own()
    before = final_error(model)
    monkeypatch.setattr(f"{__name__}.STRENGTH", 2.0)
    after = final_error(model)
    assert after != pytest.approx(before, rel=1e-3)
    assert final_error(own()) == after
    monkeypatch.undo()
    assert final_error(model) == before


def test_a_changed_class_attribute_is_seen(monkeypatch):
    before = final_error(own())
    monkeypatch.setattr(Own, "power", 2.5)
    assert final_error(own()) != pytest.approx(before, rel=1e-3)


@pytest.mark.slow
def test_simulations_see_it_too(monkeypatch):
    def error(model):
        run = ol.simulate(model, SCHEDULE, start=model.state(Q11=0.5), N=50, seeds=2, record=2)
        return run["error"][:, -1]

    before = error(own())
    monkeypatch.setattr(f"{__name__}.STRENGTH", 2.0)
    assert np.all(np.abs(error(own()) - before) > 1e-3)


def test_a_changed_closure_of_a_cost_is_seen():
    price = {"rate": 1.0}
    problem = ol.Problem(
        model=ol.models.committee(K=1, M=1),
        start={"Q11": 0.2},
        horizon=1.0,
        controls={"learning_rate": ol.Continuous(0, 2)},
        objective=ol.Objective(cost=lambda x, u: price["rate"] * u["learning_rate"]),
    )
    first = ol.evaluate(problem, SCHEDULE).objective
    price["rate"] = 3.0
    assert ol.evaluate(problem, SCHEDULE).objective == pytest.approx(first + 2 * 0.5, rel=1e-9)


def test_only_own_classes_are_traced_again():
    assert own_code.is_own(Own)
    assert not own_code.is_own(ol.models.Committee)
    model = ol.models.committee()
    assert model.current() is model
    assert own().current() == own().current()


def loss(body):
    """A model with this loss."""
    return type("Slip", (Own,), {"__annotations__": {}, "loss": body})(
        students=1, overlaps=ol.Overlaps(T=1.0), parameters={"learning_rate": 0.5, "scale": 1.0}
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            lambda self, f, x, c, u: u["nosie"] * f.student[0, 0] ** 2,
            r"Slip.loss: u\['nosie'\] does not exist; there is learning_rate, scale",
        ),
        (
            lambda self, f, x, c, u: f.student[0, 0] if f.student[0, 0] > 0 else f.teacher[0, 0],
            "Slip.loss must not ask for the value .* jnp.where",
        ),
        (lambda self, f, x, c, u: f.students[0, 0], "Slip.loss fails with AttributeError: .*'students'"),
        (lambda self, f, x, c, u: f.student[0, 3] ** 2, "Slip.loss fails with IndexError: index 3"),
        (lambda self, f, x, c, u: x["Q12"], "Slip.loss fails with KeyError: .*no order parameter 'Q12'"),
        (lambda self, f, x, c, u: jnp.log(-jnp.abs(f.student[0, 0])), "Slip.loss is nan"),
    ],
)
def test_slips_in_a_loss_are_named(body, message):
    model = loss(body)
    with pytest.raises(SpecificationError, match=message):
        ol.integrate(model, SCHEDULE, start=model.state(Q11=0.5))


def test_slips_in_a_cost_are_named():
    problem = ol.Problem(
        model=ol.models.committee(K=1, M=1),
        start={"Q11": 0.2},
        horizon=1.0,
        controls={"learning_rate": ol.Continuous(0, 2)},
        objective=ol.Objective(cost=lambda x, u: u["rate"]),
    )
    with pytest.raises(SpecificationError, match=r"Objective.cost: u\['rate'\] does not exist; there is"):
        ol.solve(problem, intervals=4)


def test_a_misspelt_method_is_named():
    def misspelt():
        class Misspelt(ol.LearningModel):
            def loss(self, fields, x, latent, u):
                return (fields.teacher[0, 0] - fields.student[0, 0]) ** 2 / 2

            def latent(self, u):
                return None

        return Misspelt

    with pytest.warns(UserWarning, match=r"nothing uses Misspelt\.latent; did you mean latents\?") as told:
        misspelt()
    assert told[0].filename == __file__
    with pytest.warns(UserWarning, match=r"Other\.errror; did you mean error\?"):

        class Other(ol.System):
            names = ("e",)

            def drift(self, x, u):
                return x

            def errror(self, x, u):
                return x["e"]

    with pytest.warns(UserWarning, match=r"Third\.Penalties; did you mean penalty\?"):

        class Third(ol.LearningModel):
            def Penalties(self, x, u):
                return x.Q[0, 0]


def test_helpers_and_data_of_other_names_are_no_slips():
    class Fine(ol.System):
        metrics: float
        names = ("e",)
        parameters = {"rate": 0.5}  # noqa: RUF012

        def drift(self, x, u):
            return {"e": -self.drifts(x, u)}

        def drifts(self, x, u):
            return u["rate"] * x["e"]

        def error(self, x, u):
            return x["e"]

        def rates(self):
            return 1.0

    assert Fine(metrics=1.0).rates() == 1.0


def test_a_parameter_that_nothing_reads_is_named_once():
    class Noisy(ol.System):
        names = ("e",)
        parameters = {"rate": 0.5, "noise": 0.1, "price": 1.0}  # noqa: RUF012

        def drift(self, x, u):
            return {"e": -u["rate"] * x["e"]}

        def error(self, x, u):
            return x["e"]

    rate = {"rate": ol.Continuous(0, 1)}
    with pytest.warns(
        UserWarning, match="nothing reads the parameter 'noise' of Noisy; .* is price, rate"
    ) as told:
        problem = ol.Problem(
            model=Noisy(), start={"e": 1.0}, horizon=1, controls=rate,
            objective=ol.Objective(cost=lambda x, u: u["price"] * u["rate"]),
        )  # fmt: skip
    assert len(told) == 1
    assert told[0].filename == __file__
    problem.with_parameters(noise=0.2)


def test_test_settings_read_what_they_use_and_not_what_they_hand_on():
    class Tested(ol.LearningModel):
        def loss(self, fields, x, latent, u):
            return (fields.teacher[0, 0] - fields.student[0, 0] + u["noise"] * fields.noise) ** 2 / 2

        def test_settings(self, u):
            return {**u, "noise": u["test_noise"]}

    numbers = {"learning_rate": 0.1, "noise": 0.3, "test_noise": 0.0, "lost": 1.0}
    model = Tested(students=1, overlaps=ol.Overlaps(T=1.0), parameters=numbers)
    rate = {"learning_rate": ol.Continuous(0, 1)}
    with pytest.warns(UserWarning, match="nothing reads the parameter 'lost'") as told:
        ol.Problem(model=model, start=model.state(Q11=0.5), horizon=1, controls=rate)
    assert len(told) == 1


class Layered(ol.LearningModel):
    def loss(self, fields, x, latent, u):
        return (fields.teacher[0, 0] - x.trained["hidden"] * fields.student[0, 0]) ** 2 / 2


class RatesOfItsOwn(Layered):
    def trained_rate(self, name, u):
        return u["upper"]

    def scales(self, x, u, squares):
        return u["slow"] * jnp.ones(1)


def unread(kind, **others):
    """Names of parameters that a problem of ``kind`` says nothing reads."""
    parameters = dict.fromkeys(others.pop("names"), 0.5)
    model = kind(
        students=1, overlaps=ol.Overlaps(T=1.0), trained={"hidden": ()},
        parameters={"learning_rate": 0.5, **parameters}, **others,
    )  # fmt: skip
    rate = {"learning_rate": ol.Continuous(0, 1)}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ol.Problem(model=model, start=model.state(Q11=0.5, hidden=1.0), horizon=1, controls=rate)
    return [str(warning.message).split("'")[1] for warning in told if "nothing reads" in str(warning.message)]


def test_only_rates_of_what_is_trained_are_read():
    assert unread(Layered, names=["hidden_rate"]) == []
    assert unread(Layered, names=["hiden_rate", "readout_rate"]) == ["hiden_rate", "readout_rate"]


def test_what_rates_and_breaks_read_is_read():
    assert unread(RatesOfItsOwn, names=["upper", "slow", "unread"]) == ["unread"]
    assert unread(Layered, names=["margin"], breaks=[ol.Break("student", 0, 0, at="-margin")]) == []
