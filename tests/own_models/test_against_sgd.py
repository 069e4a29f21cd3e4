"""Own models against SGD of the weights: losses and a loop that know nothing of fields and overlaps."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks import own_problems
from jax.scipy.special import erf

import optlearn as ol

N, RUNS, TESTS = 150, 64, 2000
Z = 4.0  # standard errors. 67 numbers are compared, of 64 runs each: a false alarm with 1 % of all seeds


# Losses of one sample. w: (K, N); theta: all weights behind; x: (L, N); teacher: (M, N); u: settings, with a
# normal and a uniform number of the sample among them.


def logistic(w, theta, x, teacher, u):
    label = jnp.where(u["uniform"] < 0.15, -1.0, 1.0) * jnp.sign(teacher[0] @ x[0])
    decay = u["decay"] * (w[0] @ w[0]) / x.shape[1] / 2
    return jnp.log1p(jnp.exp(-label * (w[0] @ x[0]) / np.sqrt(x.shape[1]))) + decay


def hinge(w, theta, x, teacher, u):
    label = jnp.sign(teacher[0] @ x[0])
    return jnp.maximum(u["margin"] - label * (w[0] @ x[0]) / np.sqrt(x.shape[1]), 0.0)


def misclassified(w, theta, x, teacher, u):
    return jnp.where((w[0] @ x[0]) * (teacher[0] @ x[0]) < 0, 1.0, 0.0)


def three_layers(w, theta, x, teacher, u):
    first, target = (erf(rows @ x[0] / np.sqrt(2 * x.shape[1])) for rows in (w, teacher))
    second = jnp.tanh(theta["hidden"] @ first + theta["bias"])
    return (theta["readout"] @ second - target.sum() - 0.1 * u["normal"]) ** 2 / 2


def softmax(w, theta, x, teacher, u):
    scores, values = w @ x.T / np.sqrt(x.shape[1])
    true_scores, true_values = teacher @ x.T / np.sqrt(x.shape[1])
    attended, wanted = jnp.exp(scores), jnp.exp(2 * true_scores)
    missed = attended @ values / attended.sum() - wanted @ values / wanted.sum()
    return missed**2 / 2 + (values - true_values).sum() ** 2 / 4


def relu_committee(w, theta, x, teacher, u):
    mine, theirs = (jnp.maximum(rows @ x[0], 0.0).sum() / np.sqrt(x.shape[1]) for rows in (w, teacher))
    return (mine - theirs) ** 2 / 2


# Problem, loss, what the error averages, and settings that hold for a quarter of training each.
CASES = {
    "logistic": (
        own_problems.logistic,
        logistic,
        misclassified,
        {"learning_rate": [2.0, 3.0, 1.0, 0.5], "decay": [0.0, 0.1, 0.3, 0.2]},
    ),
    "hinge": (
        own_problems.hinge,
        hinge,
        misclassified,
        {"learning_rate": [2.0, 1.5, 1.0, 0.3], "margin": [1.5, 0.2, 1.0, 0.5]},
    ),
    "three layers, constant rates": (
        own_problems.three_layers,
        three_layers,
        three_layers,
        {"learning_rate": [1.0] * 4, "upper_rate": [0.5] * 4},
    ),
    "three layers": (
        own_problems.three_layers,
        three_layers,
        three_layers,
        {"learning_rate": [1.5, 1.0, 1.5, 0.5], "upper_rate": [0.3, 1.0, 0.5, 2.0]},
    ),
    "softmax": (own_problems.softmax, softmax, softmax, {"learning_rate": [1.0, 0.5, 0.8, 0.2]}),
    "ReLU committee": (
        own_problems.relu_committee,
        relu_committee,
        relu_committee,
        {"learning_rate": [0.2, 0.4, 0.3, 0.1]},
    ),
}


@partial(jax.jit, static_argnums=(0, 1, 2))
@partial(jax.vmap, in_axes=(None, None, None, None, None, 0))
def sgd(loss, metric, shape, start, settings, key):
    """Q, M, all other weights and the error at the end of a run for each key; a step for each setting."""
    slots, N = shape
    (K, M), (first, train, tests) = start["M"].shape, jax.random.split(key, 3)
    free = jnp.sqrt(N) * jnp.linalg.qr(jax.random.normal(first, (N, K + M)))[0].T
    teacher, across = free[:M], jnp.linalg.cholesky(start["Q"] - start["M"] @ start["M"].T)
    w, theta = start["M"] @ teacher + across @ free[M:], start["theta"]

    def sample(key):
        of_input, of_noise, of_label = jax.random.split(key, 3)
        numbers = {"normal": jax.random.normal(of_noise), "uniform": jax.random.uniform(of_label)}
        return jax.random.normal(of_input, (slots, N)), numbers

    def step(weights, now):
        u, (x, numbers) = now[0], sample(now[1])
        slopes = jax.grad(loss, (0, 1))(*weights, x, teacher, {**u, **numbers})
        rate = u.get("upper_rate", 0.0) / N
        theta = jax.tree.map(lambda weight, slope: weight - rate * slope, weights[1], slopes[1])
        return (weights[0] - u["learning_rate"] * slopes[0], theta), None

    steps = settings["learning_rate"].shape[0]
    (w, theta), _ = jax.lax.scan(step, (w, theta), (settings, jax.random.split(train, steps)))
    inputs = jax.random.normal(tests, (TESTS, slots, N))
    clean = {"normal": 0.0, "uniform": 1.0, **jax.tree.map(lambda s: s[-1], settings)}
    error = jax.vmap(lambda x: metric(w, theta, x, teacher, clean))(inputs).mean()
    return {"Q": w @ w.T / N, "M": w @ teacher.T / N, **theta, "error": error}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_weights_end_where_order_parameters_do(name):
    make, loss, metric, quarters = CASES[name]
    problem = replace(make(), quadrature=ol.AutoQuadrature(accuracy=2e-3, points=300_000))
    schedule = ol.Schedule.piecewise(np.linspace(0, problem.horizon, 5), quarters)
    theory = ol.evaluate(problem, schedule, record=2)
    end = problem.model.layout.unflatten(theory.states[-1])
    x = problem.start
    start = {"Q": x.Q, "M": x.M, "theta": dict(x.trained)}
    means, variances = {}, {}
    for size in (N, 2 * N):
        settings = schedule.at(np.arange(round(problem.horizon * size)) / size)
        keys = jax.random.split(jax.random.key(size), RUNS)
        ends = sgd(loss, metric, (problem.model.slots, size), start, settings, keys)
        means[size] = {part: np.mean(found, axis=0) for part, found in ends.items()}
        variances[size] = {part: np.var(found, axis=0, ddof=1) / RUNS for part, found in ends.items()}
    known = {"Q": end.Q, "M": end.M, **end.trained, "error": theory["error"][-1]}
    for part, value in known.items():
        # From two sizes, without what is proportional to 1/N.
        mean = 2 * means[2 * N][part] - means[N][part]
        width = np.sqrt(4 * variances[2 * N][part] + variances[N][part])
        z = (mean - value) / width
        assert np.all(np.abs(z) < Z), (part, z)
