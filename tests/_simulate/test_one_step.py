"""One step on the weights is a step down the gradient of the whole loss, as JAX differentiates it."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from optlearn._schedule import Schedule
from optlearn._simulate.normals import as_normal, as_share, input_noise, make_keys, symmetric_uniforms
from optlearn._simulate.run import prepare, simulate
from optlearn._simulate.sample import draw_sample
from optlearn._simulate.weights import advance_weights, initial_weights
from optlearn._theory.order import OrderParameters
from optlearn._theory.sample import Fields
from optlearn.models import committee, curriculum

N, STEP = 13, 9


def whole_loss(model, plan, sample, x, noise, w, fixed, v, extras):
    """Mean over the views of N · bulk + loss, and the penalty, as functions of the weights (K, N)."""
    M = model.overlaps.T.shape[0]
    state = OrderParameters(w @ w.T / N, w @ fixed[:M].T / N, w @ fixed[M:].T / N, v, extras)
    total, bulk = 0.0, 0.0
    for view, rows in enumerate(plan.views.slot_of):
        own = 0 if plan.views.redrawn else view
        latent = {name: values[own] for name, values in sample.latent.items()}
        inputs = x[rows]
        fields = Fields(inputs @ w.T / np.sqrt(N), inputs @ fixed[:M].T / np.sqrt(N), noise[own])
        weight = sample.weights[view]
        total = total + weight * model.loss(fields, state, latent, sample.u)
        gram = inputs @ inputs.T / N
        bulk = bulk + weight * N * model.bulk(gram, state, latent, sample.u)
    return total + bulk, model.penalty(state, sample.u)


@jax.jit
def reference(run, key, before):
    """Settings of the step and gradients by (w, v, extras) of loss and penalty, from the same numbers."""
    plan, model = run.plan, run.model
    keys = [jax.random.fold_in(key, 3 * STEP + i) for i in range(3)]
    numbers = symmetric_uniforms(keys[2], (plan.uniforms + plan.noises,))
    noise = as_normal(numbers[plan.uniforms :]) if plan.noise else jnp.zeros(plan.views.samples)
    shares = as_share(numbers[: plan.uniforms])
    sample = draw_sample(run, np.int64(STEP), shares)
    w = jnp.stack(before.w)[:, 0]
    fixed = jnp.stack(before.fixed)[:, 0]
    M = model.overlaps.T.shape[0]
    g = jnp.stack(input_noise(keys[0], keys[1], plan.views.inputs, N, "float64"))
    x = sample.assignment @ fixed[M:] / np.sqrt(N) + sample.sigma[:, None] * g
    extras = {name: value[0] for name, value in before.extras.items()}

    def part(index, w, v, extras):
        return whole_loss(model, plan, sample, x, noise, w, fixed, v, extras)[index]

    gradients = [jax.grad(partial(part, i), (0, 1, 2))(w, before.v[0], extras) for i in range(2)]
    return sample.u, *gradients


def test_a_step_is_down_the_gradient(case):
    if not case.one_step:
        pytest.skip("the other cases have all its features")
    model = case.model
    run = prepare(model, case.schedule, case.start, N, case.parameters)
    key = make_keys(5, 1)
    before = initial_weights(model, case.start, N, 1, 0, "float64")
    after = advance_weights(run, key, before, np.int64(STEP), np.int64(STEP + 1))

    u, loss, penalty = reference(run, key[0], before)
    w, v = jnp.stack(before.w)[:, 0], before.v[0]
    expected = w - u["learning_rate"] * (loss[0] + penalty[0])
    np.testing.assert_allclose(jnp.stack(after.w)[:, 0], expected, rtol=0, atol=1e-12)
    rate = u.get("readout_rate", u["learning_rate"])
    np.testing.assert_allclose(after.v[0], v - rate / N * (loss[1] + penalty[1]), atol=1e-13)
    for name in model.extras:
        slope = loss[2][name] / N + penalty[2][name]
        expected = before.extras[name][0] - u[f"{name}_rate"] / N * slope
        np.testing.assert_allclose(after.extras[name][0], expected, atol=1e-13)
    assert np.abs(jnp.stack(after.w)[:, 0] - w).max() > 1e-3


@pytest.mark.slow
def test_the_teachers_never_move():
    model = curriculum()
    schedule = Schedule.constant(1.0, {})
    start = model.state(Q11=1)
    run = prepare(model, schedule, start, N, None)
    plan = run.plan
    before = initial_weights(model, start, N, 2, 0, "float64")
    after = advance_weights(run, make_keys(0, 2), before, np.int64(0), np.int64(5))
    np.testing.assert_array_equal(after.fixed[0], before.fixed[0])
    # Structural zeros: the loss reads λ11, λ22 and λ*11 alone.
    assert plan.student == ((True, False), (False, True))
    assert plan.teacher == ((True,), (False,))
    assert not plan.noise
    assert plan.pulls_on_weights


@pytest.mark.parametrize("mode", ["overlaps", "weights"])
def test_the_pull_of_a_penalty_alone_is_exact(mode):
    class OnlyPenalty(type(committee())):
        def loss(self, fields, x, latent, u):
            return 0.0 * fields.student[0, 0] + 0.7 * x.Q[0, 1]

    made = committee(weight_decay=0.5)
    fields = {part.name: getattr(made, part.name) for part in dataclasses.fields(made)}
    model = OnlyPenalty(**fields)
    Q, M = np.array([[1.0, 0.2], [0.2, 0.6]]), np.array([[0.3], [-0.4]])
    found = simulate(
        model,
        Schedule.constant(1.0, {}),
        start=model.state(Q=Q, M=M),
        N=20,
        seeds=2,
        mode=mode,
        record=[1.0],
        error=False,
        **({"dtype": "float64"} if mode == "weights" else {}),
    )
    A = np.eye(2) - 2 / 20 * np.array([[0.25, 0.35], [0.35, 0.25]])
    power = np.linalg.matrix_power(A, 20)
    expected = model.layout.flatten(model.state(Q=power.T @ Q @ power, M=power.T @ M))
    np.testing.assert_allclose(found.states[:, 0], np.stack([expected] * 2), rtol=1e-11)
