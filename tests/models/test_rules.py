"""Local rules: reference values, quadrature against closed forms, adjoints, simulators and bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.marks import slow_but

import optlearn as ol
from optlearn._errors import SpecificationError
from optlearn.models import clipped, sign_learner

# Start Q = 0.5, M = 0.1, T = 1, η = 1: training time, then Q, M and the error (None: not given).
REFERENCE = [
    (sign_learner("hebb"), 5, (22.213378870, 4.089422804, None)),
    (sign_learner("perceptron"), 10, (1.120953812, 0.972773998, 0.129164513)),
    (sign_learner("margin", threshold=0.5), 10, (5.442873109, 2.145555945, 0.128466972)),
    (clipped(), 5, (0.978896446, 0.910887234, None)),
]
IDS = ["hebb", "perceptron", "margin", "clipped"]
every_rule = pytest.mark.parametrize("model", [row[0] for row in REFERENCE], ids=IDS)


@pytest.mark.parametrize(("model", "horizon", "expected"), REFERENCE, ids=IDS)
def test_reference_values(model, horizon, expected):
    schedule = ol.Schedule.constant(horizon, {"learning_rate": 1.0})
    found = ol.integrate(model, schedule, start=model.state(Q11=0.5, M11=0.1), record=2)
    for name, value in zip(("Q11", "M11", "error"), expected, strict=True):
        if value is not None:
            assert found[name][-1] == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("rule", ["hebb", "perceptron"])
def test_quadrature_meets_the_closed_form(rule):
    model = sign_learner(rule)
    x, u = model.state(Q11=0.7, M11=0.3), model.settings()
    closed, integrated = model.drift(x, u), model.drift(x, u, quadrature=ol.GaussHermite(60))
    np.testing.assert_allclose(closed.Q, integrated.Q, atol=1e-12)
    np.testing.assert_allclose(closed.M, integrated.M, atol=1e-12)


@every_rule
def test_adjoints_are_finite_differences(model):
    x, u = model.state(Q11=0.7, M11=0.3), model.settings()

    def drift(flat, u):
        return model.layout.flatten(model.drift(model.layout.unflatten(flat), u))

    flat, step = jnp.asarray(model.layout.flatten(x)), 1e-6
    jacobian = jax.jacrev(drift)(flat, u)
    for i in range(2):
        shift = step * jnp.eye(2)[i]
        difference = (drift(flat + shift, u) - drift(flat - shift, u)) / (2 * step)
        np.testing.assert_allclose(jacobian[:, i], difference, atol=1e-8)


class Tanh(ol.LearningModel):
    """A smooth rule that is no gradient of the loss: g = tanh(λ) − sign λ*."""

    def loss(self, fields, x, latent, u):
        return (fields.student[0, 0] - fields.teacher[0, 0]) ** 2 / 2

    def update(self, fields, x, latent, u):
        return jnp.tanh(fields.student) - jnp.sign(fields.teacher)


def own(kind, **changes):
    given = {"students": 1, "overlaps": ol.Overlaps(T=np.eye(1)), "parameters": {"learning_rate": 0.5}}
    return kind(**given | changes)


@pytest.mark.parametrize(
    "quadrature",
    [
        pytest.param({}, id="plain", marks=pytest.mark.slow),
        pytest.param({"breaks": (ol.Break("teacher", 0, 0),)}, id="cut"),
    ],
)
def test_adjoints_of_a_rule_see_the_rule_and_not_a_loss(quadrature):
    # A loss Σ stop_gradient(g) λ would give the same drift, and these derivatives wrong.
    model, rule = own(Tanh, **quadrature), ol.GaussHermite(60)
    u = model.settings()

    @jax.jit
    def drift(flat):
        return model.layout.flatten(model.drift(model.layout.unflatten(flat), u, quadrature=rule))

    flat, step = jnp.asarray(model.layout.flatten(model.state(Q11=0.7, M11=0.3))), 1e-5
    jacobian = jax.jit(jax.jacrev(drift))(flat)
    for i in range(2):
        shift = step * jnp.eye(2)[i]
        difference = (drift(flat + shift) - drift(flat - shift)) / (2 * step)
        np.testing.assert_allclose(jacobian[:, i], difference, atol=1e-7)


class Trick(Tanh):
    """The same rule as the gradient of a loss that hides its derivative."""

    update = ol.LearningModel.update

    def loss(self, fields, x, latent, u):
        rule = jnp.tanh(fields.student) - jnp.sign(fields.teacher)
        return jnp.sum(jax.lax.stop_gradient(rule) * fields.student)


def test_hidden_derivatives_would_be_found_out():
    rule, flat = ol.GaussHermite(24), jnp.array([0.7, 0.3])

    def drift_of(kind):
        model = own(kind, breaks=(ol.Break("teacher", 0, 0),))

        @jax.jit
        def drift(flat):
            return model.layout.flatten(
                model.drift(model.layout.unflatten(flat), model.settings(), quadrature=rule)
            )

        return drift

    honest, trick = drift_of(Tanh), drift_of(Trick)
    np.testing.assert_allclose(honest(flat), trick(flat), rtol=1e-12)
    step = 1e-5 * jnp.eye(2)[0]
    difference = (honest(flat + step) - honest(flat - step)) / 2e-5
    right, wrong = (jax.jit(jax.jacrev(drift))(flat)[:, 0] for drift in (honest, trick))
    np.testing.assert_allclose(right, difference, atol=1e-7)
    assert np.abs(wrong - difference).max() > 0.03


@every_rule
@pytest.mark.parametrize("mode", slow_but(["weights"], ["overlaps", "weights"]))
def test_sgd_follows_the_drift(model, mode):
    schedule = ol.Schedule.constant(1.0, {"learning_rate": 1.0})
    start = model.state(Q11=0.5, M11=0.1)
    theory = ol.integrate(model, schedule, start=start, record=2)
    runs = ol.simulate(model, schedule, start=start, N=400, seeds=64, mode=mode, record=2)
    for name in ("Q11", "M11"):
        ends = runs[name][:, -1]
        assert abs(ends.mean() - theory[name][-1]) < 4.5 * ends.std(ddof=1) / 8 + 0.003


def test_bad_rules():
    def integrate(update):
        kind = type("Own", (Tanh,), {"update": update, "__annotations__": {}})
        model = own(kind)
        schedule = ol.Schedule.constant(1.0, {"learning_rate": 0.5})
        return ol.integrate(model, schedule, start=model.state(Q11=0.5), quadrature=ol.GaussHermite(8))

    with pytest.raises(SpecificationError, match=r"Own.update returns an array of shape \(\); .* \(1, 1\)"):
        integrate(lambda self, fields, x, latent, u: fields.student[0, 0])
    with pytest.raises(SpecificationError, match=r"Own.update is .*nan.*; it must be finite"):
        integrate(lambda self, fields, x, latent, u: jnp.log(-1 - fields.student**2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sign_learner("oja"), "rule must be one of hebb, margin, perceptron, got 'oja'"),
        (lambda: sign_learner("margin", threshold=-1), "threshold"),
        (lambda: sign_learner(T=0), "T must be above 0, got 0"),
        (lambda: clipped(clip=-0.1), "clip"),
        (lambda: clipped(sigma_n=-1), "sigma_n"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(SpecificationError, match=message):
        make()


class Between(sign_learner("margin").__class__):
    """Hebb's rule where |λ| < 0.6, a threshold that does not move with Q: two breaks of one field."""

    def update(self, fields, x, latent, u):
        return jnp.where(jnp.abs(fields.student) < 0.6, -jnp.sign(fields.teacher), 0.0)

    def closed_drift(self, x, u):
        return None


def between(edges):
    given = {"students": 1, "overlaps": ol.Overlaps(T=np.eye(1)), "parameters": {"learning_rate": 1.0}}
    cuts = tuple(ol.Break("student", 0, 0, at) for at in edges)
    return Between(**given, breaks=(ol.Break("teacher", 0, 0), *cuts))


def test_a_field_may_break_at_several_places():
    known = sign_learner("margin")
    x = known.state(Q11=0.7, M11=0.3)
    closed = known.drift(x, known.settings({"threshold": 0.6 / np.sqrt(0.7)}))

    def drift(edges):
        model = between(edges)
        found = jax.jit(lambda x: model.drift(x, model.settings(), quadrature=ol.GaussHermite(24)))(x)
        return np.array([found.Q[0, 0], found.M[0, 0]])

    expected = [closed.Q[0, 0], closed.M[0, 0]]
    np.testing.assert_allclose(drift((-0.6, 0.6)), expected, atol=1e-8)
    # In any order; a cut far out, where nothing is, does no harm.
    np.testing.assert_allclose(drift((40.0, 0.6, -0.6)), expected, atol=1e-8)
    assert np.abs(drift((0.6,)) - expected).max() > 1e-5
