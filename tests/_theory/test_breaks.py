"""Breaks that move with a parameter, and breaks along sums of fields, against closed forms."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import optlearn as ol
from optlearn._errors import SpecificationError
from optlearn._theory.drift import generic_drift, generic_error

drift = jax.jit(generic_drift, static_argnums=3)
error = jax.jit(generic_error, static_argnums=3)
Q = np.array([[0.6, 0.1], [0.1, 0.5]])


class Ramp(ol.LearningModel):
    """E[relu(s − c)] of a sum s of fields."""

    def loss(self, fields, x, latent, u):
        return jax.nn.relu(fields.student[0, 0] + u["factor"] * fields.student[-1, 1] - u["c"])


def ramp(slots):
    further = ("student", slots - 1, 1, -2.0)
    return Ramp(
        students=2,
        slots=slots,
        overlaps=ol.Overlaps(Omega=[[0.3]]),
        clusters=(1,) + (0,) * (slots - 1),
        parameters={"learning_rate": 1.0, "c": 0.4, "factor": -2.0},
        breaks=(ol.Break("student", 0, 0, "c", [further]),),
    )


@pytest.mark.parametrize("slots", [1, 2], ids=["one slot", "two slots"])
def test_a_sum_is_cut_where_it_reaches_a_parameter(slots):
    made = ramp(slots)
    # The centroid's overlaps R are the mean fields of slot 0.
    x = made.state(Q=Q, R=[[0.2], [-0.1]])
    mean = 0.2 + (0.2 if slots == 1 else 0.0)
    spread = np.sqrt(Q[0, 0] + 4 * Q[1, 1] - (4 * Q[0, 1] if slots == 1 else 0.0))

    def known(c):
        return spread * norm.pdf((mean - c) / spread) + (mean - c) * norm.cdf((mean - c) / spread)

    with jax.enable_x64(True):
        for c in (-1.0, 0.4):
            found = error(made, x, made.settings({"c": c}), ol.GaussHermite(32))
            assert found == pytest.approx(known(c), abs=1e-8)
            uncut = error(replace(made, breaks=()), x, made.settings({"c": c}), ol.GaussHermite(32))
            assert abs(uncut - known(c)) > 1e-4


class Hinge(ol.LearningModel):
    def loss(self, fields, x, latent, u):
        return jax.nn.relu(u["margin"] - jnp.sign(fields.teacher[0, 0]) * fields.student[0, 0])


def hinge(**others):
    given = {"students": 1, "overlaps": ol.Overlaps(T=1.0)}
    given |= {"parameters": {"learning_rate": 1.0, "margin": 0.7}}
    breaks = (ol.Break("teacher", 0, 0), *(ol.Break("student", 0, 0, at) for at in ("margin", "-margin")))
    return Hinge(**{**given, "breaks": breaks, **others})


def test_a_margin_moves_its_breaks_and_gradients_by_it_are_exact():
    made = hinge()
    x = made.state(Q11=0.6, M11=0.3)

    def rates(margin, quadrature=None):
        u = {"learning_rate": jnp.asarray(1.0), "margin": margin}
        return made.layout.flatten(drift(made, x, u, quadrature or ol.GaussHermite(24)))

    with jax.enable_x64(True):
        values = rates(0.7)
        np.testing.assert_allclose(values, rates(0.7, ol.GaussHermite(40)), atol=1e-7)
        slopes = jax.jacobian(rates)(0.7)
        np.testing.assert_allclose(slopes, (rates(0.701) - rates(0.699)) / 0.002, atol=1e-5)
        # Without a margin the two breaks meet, and dM = (1 − cosine)/√2π as for the perceptron.
        np.testing.assert_allclose(rates(0.0)[1], (1 - 0.3 / np.sqrt(0.6)) / np.sqrt(2 * np.pi), atol=1e-7)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (ol.Break("student", 0, 0, "margn"), "the name of a parameter, one of learning_rate, margin"),
        (ol.Break("student", 0, 0, np.nan), "at must be a finite number"),
        (ol.Break("student", 0, 0, plus=[("student", 0, 0, -1.0)]), "a field is given twice"),
        (ol.Break("student", 0, 0, plus=[("teacher", 0, 1, -1.0)]), "a field that the model does not have"),
        (ol.Break("student", 0, 0, plus=[("teacher", 0, 0, 0.0)]), "must be a finite number and not 0"),
        (ol.Break("student", 0, 0, plus=[("teacher", 0)]), r"plus must hold \(kind, slot, node, factor\)"),
    ],
)
def test_breaks_that_make_no_sense_are_refused(place, message):
    with pytest.raises(SpecificationError, match=message):
        hinge(breaks=(place,))


def test_averaged_weights_have_the_breaks_of_the_weights():
    place = ol.Break("student", 0, 0, "-margin", [("teacher", 0, 0, 2.0)])
    made = ol.models.with_memory(hinge(breaks=(place,)), averaging=1.0)
    assert made.breaks[1:] == (ol.Break("student", 0, 1, "-margin", [("teacher", 0, 0, 2.0)]),)


class Perceptron(Hinge):
    """A smooth loss of a student, and a metric that jumps where it changes its sign."""

    def loss(self, fields, x, latent, u):
        bend = u["bend"] * jax.nn.relu(fields.student[0, 0])
        return jax.nn.softplus(-jnp.sign(fields.teacher[0, 0]) * fields.student[0, 0]) + bend

    def metric(self, fields, x, latent, u):
        return jnp.where(fields.teacher[0, 0] * fields.student[0, 0] < 0, 1.0, 0.0)


@pytest.mark.parametrize(("bend", "cut"), [(0.0, ["teacher"]), (0.1, ["teacher", "student"])])
def test_the_drift_is_cut_only_where_it_jumps_or_bends(bend, cut):
    model = Perceptron(
        students=1,
        overlaps=ol.Overlaps(T=1.0),
        parameters={"learning_rate": 1.0, "bend": bend},
        breaks=(ol.Break("teacher", 0, 0), ol.Break("student", 0, 0)),
    )
    x = model.state(Q11=0.7, M11=0.4)
    with jax.enable_x64(True):
        resolved = model.resolved(model.probes(x), model.settings())
        assert [place.kind for place in resolved.system.drift_breaks] == cut
        fine = generic_drift(model, x, model.settings(), ol.GaussHermite(64))
        error = model.layout.flatten(resolved.system.drift(x, model.settings())) - model.layout.flatten(fine)
        assert np.abs(error).max() < 1e-6
        # The error jumps there all the same.
        angle = np.arccos(0.4 / np.sqrt(0.7)) / np.pi
        assert resolved.system.error(x, model.settings()) == pytest.approx(angle, abs=1e-6)
