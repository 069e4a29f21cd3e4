"""Both simulators, and the theory, of networks with several layers against SGD written from the loss."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import optlearn as ol
from optlearn._theory.sampler import fields_read

# |z| below this for 19 order parameters of three kinds of run: a correct program fails with probability
# 57 · 6e-5 = 4e-3, once for all, since the seeds are fixed.
THRESHOLD = 4.0
N, SEEDS, HORIZON, RATES = 300, 24, 2.0, {"first": 1.0, "hidden": 0.5, "bias": 0.2, "readout": 0.8}
START = {
    "Q": [[0.5, 0.02], [0.02, 0.4]],
    "M": [[0.1, 0.02], [0.03, 0.08]],
    "hidden": [[1.0, -0.4], [0.3, 0.6], [-0.5, 0.2]],
    "bias": [0.1, -0.2, 0.3],
    "readout": [0.7, 0.4, -0.6],
}


class ThreeLayers(ol.LearningModel):
    def loss(self, fields, x, latent, u):
        inner = jnp.tanh(x.trained["hidden"] @ jnp.tanh(fields.student[0]) + x.trained["bias"])
        label = jnp.sum(jnp.tanh(fields.teacher[0])) + u["sigma_n"] * fields.noise
        return (x.trained["readout"] @ inner - label) ** 2 / 2


@pytest.fixture(scope="module")
def problem():
    model = ThreeLayers(
        students=2,
        overlaps=ol.Overlaps(T=np.eye(2)),
        parameters={"learning_rate": RATES["first"], "sigma_n": 0.3}
        | {f"{name}_rate": RATES[name] for name in ("hidden", "bias", "readout")},
        trained={"hidden": (3, 2), "bias": (3,), "readout": (3,)},
    )
    return model, ol.Schedule.constant(HORIZON, {"learning_rate": RATES["first"]}), model.state(**START)


@pytest.fixture(scope="module")
def theory(problem):
    model, schedule, start = problem
    return ol.integrate(model, schedule, start=start, record=2, quadrature=ol.QuasiMonteCarlo(12)).states[-1]


def back_propagation(rng):
    """One run of SGD of all layers in NumPy; gradients by hand."""
    gram = np.block([[np.array(START["Q"]), np.array(START["M"])], [np.array(START["M"]).T, np.eye(2)]])
    directions = np.linalg.qr(rng.standard_normal((N, 4)))[0].T * np.sqrt(N)
    w, teacher = np.split(np.linalg.cholesky(gram) @ directions, 2)
    A, b, c = (np.array(START[name]) for name in ("hidden", "bias", "readout"))
    for _ in range(int(HORIZON * N)):
        x = rng.standard_normal(N)
        y = np.tanh(teacher @ x / np.sqrt(N)).sum() + 0.3 * rng.standard_normal()
        h = np.tanh(w @ x / np.sqrt(N))
        g = np.tanh(A @ h + b)
        delta = c @ g - y
        back = delta * c * (1 - g**2)
        to_first = (A.T @ back) * (1 - h**2)
        c = c - RATES["readout"] / N * delta * g
        A = A - RATES["hidden"] / N * np.outer(back, h)
        b = b - RATES["bias"] / N * back
        w = w - RATES["first"] / np.sqrt(N) * np.outer(to_first, x)
    Q, M = w @ w.T / N, w @ teacher.T / N
    return np.concatenate([Q[np.triu_indices(2)], M.ravel(), A.ravel(), b, c])


def scores(states, expected):
    error = states.std(axis=0, ddof=1) / np.sqrt(len(states))
    return np.abs(states.mean(axis=0) - expected) / error


def test_sgd_by_hand_follows_the_theory(theory):
    runs = np.stack([back_propagation(np.random.default_rng([7, seed])) for seed in range(SEEDS)])
    assert np.max(scores(runs, theory)) < THRESHOLD


@pytest.mark.parametrize("mode", ["overlaps", pytest.param("weights", marks=pytest.mark.slow)])
def test_simulators_train_all_layers(problem, theory, mode):
    model, schedule, start = problem
    runs = ol.simulate(
        model, schedule, start=start, N=N, seeds=SEEDS, mode=mode, seed=1, record=2, error=False
    )
    assert runs.order_parameters == model.layout.names
    assert np.max(scores(runs.states[:, -1], theory)) < THRESHOLD


def test_a_rule_of_its_own_still_trains_the_layers_above(problem):
    # Fields that only the loss of the upper layers reads are integrated over and simulated too.
    model, _, start = problem

    class Blind(ThreeLayers):
        def update(self, fields, x, latent, u):
            return jnp.zeros((1, 2))

    blind = Blind(
        students=2, overlaps=model.overlaps, parameters=dict(model.parameters), trained=model.trained
    )
    with jax.enable_x64(True):
        moved, known = (
            jax.jit(lambda x, made=made: made.drift(x, made.settings(), ol.GaussHermite(4, 3)))(start)
            for made in (blind, model)
        )
    for name in model.trained:
        np.testing.assert_allclose(moved.trained[name], known.trained[name], rtol=1e-12)
    assert not np.any(moved.Q)
    assert not np.any(moved.M)
    assert np.array_equal(fields_read(blind).student, fields_read(model).student)
