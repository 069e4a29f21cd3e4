"""Every closed form agrees with the quadrature of the same model's loss and metric.

Norms are kept small where the integral has many dimensions: Gauss-Hermite converges like a power of
the fields' variance for erf, and is exact for linear networks.
"""

import jax
import numpy as np
import pytest
from tests.marks import slow_but

from optlearn._theory.expectation import GaussHermite, QuasiMonteCarlo
from optlearn.models import autoencoder, committee, curriculum

POLYNOMIAL = GaussHermite(3, 2)
MIXTURE = {"sigma": (0.3, 0.5), "cluster_probabilities": (0.3, 0.7), "test_noise": 0.2}

# name: (model, settings, rule, largest squared norm)
CASES = {
    "curriculum easy": (curriculum(weight_decay=0.1), {}, GaussHermite(40), 0.8),
    "curriculum hard": (curriculum(weight_decay=0.1), {"difficulty": 2.0}, GaussHermite(34), 0.6),
    "erf 1-1": (
        committee(1, 1, sigma_n=0.3, batch=3, weight_decay=0.1),
        {},
        GaussHermite(56, 2),
        0.8,
    ),
    "erf 2-1 dropout": (
        committee(2, 1, T=0.2, sigma_n=0.3, dropout=True, activation_probability=0.7),
        {"rescaling": 0.6, "batch": 2.0},
        GaussHermite(17, 2),
        0.15,
    ),
    "erf 2-2": (
        committee(2, 2, T=[[0.1, 0.03], [0.03, 0.06]], sigma_n=0.3, eta=2.0),
        {},
        GaussHermite(11, 2),
        0.1,
    ),
    "erf 2-2 heads": (
        committee(
            2,
            2,
            T=0.1,
            heads=2,
            sigma_n=0.3,
            task_share=(0.3, 0.7),
            test_share=(0.2, 0.8),
            readout_rate=0.4,
        ),
        {},
        GaussHermite(13, 2),
        0.1,
    ),
    "erf 2-1 dropout head": (
        committee(2, 1, T=0.1, heads=1, dropout=True, activation_probability=0.4),
        {},
        GaussHermite(14, 2),
        0.1,
    ),
    "linear 1-1": (committee(1, 1, activation="linear", sigma_n=0.3), {}, POLYNOMIAL, 1.5),
    "linear 2-1 dropout": (
        committee(2, 1, activation="linear", sigma_n=0.3, dropout=True, activation_probability=0.7),
        {},
        POLYNOMIAL,
        1.5,
    ),
    "linear 2-2 heads": (
        committee(
            2,
            2,
            T=[[1, 0.2], [0.2, 0.5]],
            activation="linear",
            heads=3,
            sigma_n=0.3,
            batch=4,
            teacher_readout=np.arange(6.0).reshape(2, 3) - 2,
            task_share=(0.3, 0.6, 0.1),
        ),
        {},
        POLYNOMIAL,
        1.5,
    ),
    "autoencoder": (autoencoder(), {"test_noise": 0.1}, POLYNOMIAL, 1.0),
    "autoencoder fixed skip": (autoencoder(trained_skip=False), {}, POLYNOMIAL, 1.0),
    "autoencoder mixture": (autoencoder(3, **MIXTURE), {}, POLYNOMIAL, 1.0),
    "autoencoder augmented": (
        autoencoder(augmentation=True, batch=3, **MIXTURE),
        {},
        POLYNOMIAL,
        1.0,
    ),
    "autoencoder finite size": (
        autoencoder(finite_size=True, N=20, **MIXTURE),
        {},
        POLYNOMIAL,
        1.0,
    ),
}


# One of each kind; the others combine the same terms.
QUICK = ("erf 2-2", "erf 2-1 dropout", "linear 2-2 heads", "curriculum easy", "autoencoder mixture")


@pytest.mark.parametrize("case", slow_but(QUICK, CASES))
def test_closed_form_is_the_quadrature(case, tools):
    model, overrides, rule, largest = CASES[case]
    u = model.settings(overrides)
    states = tools.random_states(model, 50, largest)
    # The metric of the curriculum jumps where no coordinate is cut: see the test below.
    functions = [tools.flat_drift]
    functions += [] if case.startswith("curriculum") else [tools.flat_error]

    @tools.jit
    def both(states, u):
        def one(flat):
            return [(f(model)(flat, u), f(model, rule)(flat, u)) for f in functions]

        return jax.lax.map(one, states, batch_size=5)

    for closed, generic in both(states, u):
        deviation = np.abs(closed - generic).reshape(50, -1).max(axis=1)
        size = np.abs(closed).reshape(50, -1).max(axis=1)
        assert np.max(deviation / size) < 1e-8


def test_curriculum_error_is_the_rate_of_wrong_signs(tools):
    model = curriculum(Delta=(0.5, 2.0), easy_share=0.3)
    states, u = tools.random_states(model, 10, 1.0), model.settings()
    closed = jax.vmap(lambda flat: tools.flat_error(model)(flat, u))(states)
    sampled = tools.jit(
        lambda states: jax.lax.map(lambda flat: tools.flat_error(model, QuasiMonteCarlo(17))(flat, u), states)
    )(states)
    np.testing.assert_allclose(closed, sampled, rtol=0, atol=1e-3)


def test_activations_without_closed_forms():
    x = committee(2, 1, activation="relu").state(Q11=1, Q22=1)
    relu = committee(2, 1, activation="relu")
    assert relu.closed_drift(x, relu.settings()) is None
    assert relu.closed_error(x, relu.settings()) is not None
    mixed = committee(2, 1, activation="erf", teacher_activation="linear")
    assert mixed.closed_drift(x, mixed.settings()) is None
    assert mixed.closed_error(x, mixed.settings()) is None
    curved = autoencoder(activation="erf")
    start = curved.state(Q11=1)
    assert curved.closed_drift(start, curved.settings()) is None
    assert curved.closed_error(start, curved.settings()) is None


def test_relu_error_is_the_quadrature(tools):
    model = committee(2, 1, T=0.7, activation="relu")
    assert len(model.breaks) == 3
    states, u = tools.random_states(model, 5, 1.0), model.settings()
    compare = tools.jit(
        lambda states: jax.lax.map(
            lambda flat: (
                tools.flat_error(model)(flat, u),
                tools.flat_error(model, GaussHermite(40))(flat, u),
            ),
            states,
        )
    )
    closed, generic = compare(states)
    np.testing.assert_allclose(closed, generic, rtol=1e-8)
