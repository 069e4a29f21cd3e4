"""Trained weights behind the first layer: their names, their drift, and networks of several layers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import erf

import optlearn as ol
from optlearn._errors import SpecificationError
from optlearn._theory.drift import generic_drift

SHAPES = {"hidden": (3, 2), "bias": (3,), "readout": (3,)}
RATES = {"hidden_rate": 0.5, "bias_rate": 0.5, "readout_rate": 0.5}
WEIGHTS = np.random.default_rng(3).standard_normal((2, 6)) * 0.5
START = {"Q": [[0.5, 0.02], [0.02, 0.4]], "M": [[0.1, 0.02], [0.03, 0.08]]}


def three_layers(fields, hidden, bias, readout, sigma_n):
    units = erf(fields.student[0] / np.sqrt(2))
    label = jnp.sum(erf(fields.teacher[0] / np.sqrt(2))) + sigma_n * fields.noise
    return (readout @ jnp.tanh(hidden @ units + bias) - label) ** 2 / 2


class ThreeLayers(ol.LearningModel):
    def loss(self, fields, x, latent, u):
        return three_layers(fields, **x.trained, sigma_n=u["sigma_n"])

    def penalty(self, x, u):
        return u["decay"] * (jnp.sum(x.trained["hidden"] ** 2) + jnp.sum(x.v**2)) / 2


class Packed(ol.LearningModel):
    """The same network, its upper layers in a readout of six heads."""

    def loss(self, fields, x, latent, u):
        theta = x.v.reshape(-1)
        return three_layers(fields, theta[:6].reshape(3, 2), theta[6:9], theta[9:], u["sigma_n"])


def model(kind=ThreeLayers, **others):
    given = {"students": 2, "overlaps": ol.Overlaps(T=np.eye(2)), "trained": SHAPES, **others}
    parameters = {"learning_rate": 1.0, "sigma_n": 0.1, "decay": 0.0, **RATES, **given.pop("parameters", {})}
    return kind(**given, parameters=parameters)


drift = jax.jit(generic_drift, static_argnums=3)


def start_of(made):
    theta = WEIGHTS.reshape(-1)
    return made.state(**START, hidden=theta[:6].reshape(3, 2), bias=theta[6:9], readout=theta[9:])


def test_entries_have_names_and_the_flat_state_goes_there_and_back():
    made = model(
        trained={"hidden": (3, 2), "W2": [2, 1], "gain": (), "bias": 11},
        extras=("b",),
        parameters={"b_rate": 1},
    )
    names = made.layout.names
    assert names[7:13] == ("hidden11", "hidden12", "hidden21", "hidden22", "hidden31", "hidden32")
    assert names[13:18] == ("W2_11", "W2_21", "gain", "bias1", "bias2")
    assert names[-2:] == ("bias11", "b")
    x = made.state(**START, hidden=2.0, hidden21=3.0, W2=[[4.0], [5.0]], gain=6.0, bias11=7.0, b=8.0)
    flat = made.layout.flatten(x)
    for leading in ((), (4,)):
        states = np.broadcast_to(flat, (*leading, len(names)))
        again = made.layout.unflatten(states)
        assert again.trained["hidden"].shape == (*leading, 3, 2)
        assert np.array_equal(made.layout.flatten(again), states)
        for place, name in enumerate(names):
            assert np.array_equal(again[name], states[..., place]), name
    assert np.array_equal(x["hidden"], [[2, 2], [3, 2], [2, 2]])
    assert not made.layout.nonnegative[7:].any()


def test_drift_is_that_of_the_same_weights_in_a_readout():
    quadrature = ol.GaussHermite(4, 3)
    apart, packed = model(), model(Packed, trained={}, heads=6)
    with jax.enable_x64(True):
        moved = drift(apart, start_of(apart), apart.settings(), quadrature)
        known = drift(packed, packed.state(**START, v=WEIGHTS), packed.settings(), quadrature)
    np.testing.assert_allclose(
        np.concatenate([moved.trained[name].ravel() for name in SHAPES]),
        known.v.ravel(),
        rtol=1e-12,
        atol=1e-15,
    )
    for part in ("Q", "M", "R"):
        np.testing.assert_allclose(getattr(moved, part), getattr(known, part), rtol=1e-12, atol=1e-15)


def test_each_array_has_a_rate_by_default_that_of_the_first_layer_and_the_penalty_acts():
    made = model(parameters={"decay": 0.3})
    x, quadrature = start_of(made), ol.GaussHermite(4, 3)
    with jax.enable_x64(True):
        before = drift(made, x, made.settings({"decay": 0.0}), quadrature).trained
        decayed = drift(made, x, made.settings(), quadrature).trained
        np.testing.assert_allclose(decayed["hidden"], before["hidden"] - 0.5 * 0.3 * x["hidden"], rtol=1e-12)
        np.testing.assert_allclose(decayed["bias"], before["bias"], rtol=1e-12)
        without = {
            k: v for k, v in made.settings({"decay": 0.0, "learning_rate": 2.0}).items() if k != "bias_rate"
        }
        faster = drift(made, x, without, quadrature).trained
    np.testing.assert_allclose(faster["bias"], 4 * before["bias"], rtol=1e-12)
    np.testing.assert_allclose(faster["readout"], before["readout"], rtol=1e-12)


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"trained": {"hidden": (0,)}}, "trained must map names to shapes"),
        ({"trained": {"hidden": 2.5}}, "trained must map names to shapes"),
        ({"trained": {"the layer": (2,)}}, "trained must map names to shapes"),
        ({"trained": [("hidden", (2,))]}, "trained must map names to shapes"),
        ({"trained": {"Q": (2,)}}, "'Q' is taken"),
        ({"trained": {"h": (2,), "h1": ()}}, "'h1' is taken"),
        ({"trained": {"b": ()}, "extras": ("b",), "parameters": {"b_rate": 1}}, "'b' is taken"),
        ({"heads": 1}, "must not hold 'readout' beside heads=1"),
    ],
)
def test_names_and_shapes_that_make_no_sense_are_refused(others, message):
    with pytest.raises(SpecificationError, match=message):
        model(**others)


def test_a_start_of_the_wrong_shape_is_refused():
    made = model()
    with pytest.raises(SpecificationError, match=r"hidden must have shape \(3, 2\)"):
        made.state(hidden=np.zeros((2, 3)))
    other = model(trained={**SHAPES, "hidden": (2, 3)})
    with pytest.raises(SpecificationError, match=r"hidden has shape \(2, 3\); the model needs \(3, 2\)"):
        made.initial_state(other.state(**START))


@pytest.mark.slow
def test_three_layers_end_where_the_reference_does():
    # Four fields of a network whose tanh units grow steep: quasi-random points, to about 3e-5 here.
    made = model()
    run = ol.integrate(
        made,
        ol.Schedule.constant(20, {"learning_rate": 1.0}),
        start=start_of(made),
        record=[0, 2, 5, 10, 20],
        quadrature=ol.QuasiMonteCarlo(17),
    )
    np.testing.assert_allclose(run["error"][1:], [0.26907, 0.10722, 0.05781, 0.04352], atol=1e-4)
