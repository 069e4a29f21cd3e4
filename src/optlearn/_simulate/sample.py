"""The part of an SGD step shared by both simulators: the sample's discrete part and the gradient."""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, Float, Settings
from optlearn._simulate.plan import Prepared, view_weights
from optlearn._theory.drift import SampleGradient, loss_gradient
from optlearn._theory.model import LearningModel
from optlearn._theory.order import OrderParameters
from optlearn._theory.sample import Fields, Latent


class Sample(NamedTuple):
    """Everything in a step except its Gaussian inputs."""

    u: dict[str, Array]  # settings of this step
    weights: Float[Array, " B"]  # of the views
    latent: Latent  # with a leading axis of samples (1 with augmentation, else B)
    sigma: Float[Array, " inputs"]  # standard deviation of each input vector's entries
    assignment: Float[Array, "inputs C"]  # weights of the centroids in each input's mean
    block_sigma: Float[Array, "inputs B"] | None  # factors of ``sigma`` in the blocks of a spectrum


class Gradient(NamedTuple):
    """Gradient of the step's mean loss plus penalty; the penalty enters P, v, extras and trained."""

    D: Float[Array, "inputs K"]  # by the student fields of each input vector
    P: Float[Array, "K K"] | None  # by Q, symmetrised; None if structurally zero
    v: Float[Array, "K H"]  # by the readout
    extras: dict[str, Array]  # by the extras, bulk (and 1/N times the loss) included
    trained: dict[str, Array]  # by the weights behind the first layer
    statistics: dict[str, Array]  # N times the change of the running scalars


def draw_sample(run: Prepared, step: Array, uniforms: Float[Array, " uniforms"]) -> Sample:
    """Convert uniform numbers (plan.uniforms,) to controls, batch size and latents."""
    model, plan, views = run.model, run.plan, run.plan.views
    mixing, picks = uniforms[: plan.mixtures], uniforms[plan.mixtures :]
    u = run.controls.at(step, mixing, run.settings)
    half = picks[0] if plan.fractional else jnp.ones(())
    weights = view_weights(views.count, jnp.asarray(u.get("batch", 1.0)), half)
    table = model.latents(u)
    if plan.latents > 1:
        picks = picks[plan.fractional :]
        cumulative = jnp.cumsum(table.probabilities)[:-1]
        index = jnp.sum(picks[:, None] >= cumulative[None, :], axis=1)
        latent = {name: values[index] for name, values in table.values.items()}
    else:
        latent = {
            name: jnp.broadcast_to(values, (views.samples, *values.shape[1:]))
            for name, values in table.values.items()
        }

    def of_slots(sample: Array) -> tuple[Array, Array, Array | None]:
        drawn = _of_sample(latent, sample)
        blocks = None if model.spectrum is None else jnp.sqrt(model.block_variances(drawn, u))
        return jnp.sqrt(model.variances(drawn, u)), model.assignment(drawn), blocks

    sigma, assignment, blocks = jax.vmap(of_slots)(jnp.arange(views.samples))
    by_input = None if blocks is None else blocks[views.origin]
    return Sample(u, weights, latent, sigma[views.origin], assignment[views.origin], by_input)


def step_gradient(
    run: Prepared,
    sample: Sample,
    student: Float[Array, "inputs K"],
    teacher: Float[Array, "inputs M"],
    noise: Float[Array, " noises"],
    x: OrderParameters,
    gram: Float[Array, "inputs inputs"] | None,
    N: Float[Array, ""],
) -> Gradient:
    """Gradient of one step.

    Unread fields may hold anything. ``noise`` has, for each sample, the further normals and then its label
    noise. ``x`` is summed over blocks; ``gram``, xᵀx/N, is needed only by models with extras.
    """
    model, plan, views, u = run.model.summed, run.plan, run.plan.views, sample.u
    drawn = noise.reshape(views.samples, plan.normals + plan.noise)
    # Unread fields are zero.
    drawn = jnp.pad(drawn, ((0, 0), (0, model.normals + 1 - drawn.shape[1])))

    def of_view(rows: Array, latent: Latent, drawn: Array) -> tuple[SampleGradient, dict[str, Array]]:
        normals, noise = drawn[: plan.normals], drawn[plan.normals]
        fields = Fields(
            student[rows], teacher[rows], noise, jnp.pad(normals, (0, model.normals - plan.normals))
        )
        gradient = loss_gradient(model, fields, x, latent, u)
        if model.extras:
            assert gram is not None
            bulk = jax.grad(model.bulk, argnums=1)(gram[rows][:, rows], x, latent, u).extras
            extras = {name: bulk[name] + gradient.extras[name] / N for name in model.extras}
            gradient = gradient._replace(extras=extras)
        return gradient, model.statistics(fields, x, latent, u)

    per_sample = (0, None, None) if views.redrawn else (0, 0, 0)
    shared = (_of_sample(sample.latent, 0), drawn[0]) if views.redrawn else (sample.latent, drawn)
    by_view, statistics = jax.vmap(of_view, per_sample)(jnp.asarray(views.slot_of), *shared)
    mean, statistics = jax.tree.map(lambda g: jnp.tensordot(sample.weights, g, axes=1), (by_view, statistics))
    pull = jax.grad(model.penalty)(x, u)
    P = mean.Q + pull.Q
    return Gradient(
        D=views.gather(sample.weights[:, None, None] * by_view.student),
        P=(P + P.T) / 2 if plan.pulls_on_weights else None,
        v=mean.v + pull.v,
        extras={name: mean.extras[name] + pull.extras[name] for name in model.extras},
        trained={name: mean.trained[name] + pull.trained[name] for name in model.trained},
        statistics=statistics,
    )


def train_heads(
    model: LearningModel, x: OrderParameters, gradient: Gradient, u: Settings, N: Array
) -> OrderParameters:
    """The same overlaps, with readout, weights behind the first layer and extras after the step."""
    rate = u.get("readout_rate", u["learning_rate"])
    extras = {name: x.extras[name] - u[f"{name}_rate"] / N * by for name, by in gradient.extras.items()}
    return replace(
        x,
        v=x.v - rate / N * gradient.v,
        extras=extras | {name: x.extras[name] + by / N for name, by in gradient.statistics.items()},
        trained={n: x.trained[n] - model.trained_rate(n, u) / N * by for n, by in gradient.trained.items()},
    )


class RowSteps(NamedTuple):
    """How a step changes the rows W (K, N) of all students: W ← Aᵀ W − amountsᵀ X √N, X the inputs."""

    amounts: Float[Array, "inputs K"]  # amount of each input, over N
    A: Float[Array, "K K"] | None  # None: the identity


def row_steps(
    model: LearningModel,
    gradient: Gradient,
    x: OrderParameters,
    u: Settings,
    N: Array,
    scale: Float[Array, " K"] | None = None,
) -> RowSteps:
    """Each row's response to the step's gradient, and its carry from other rows; ``x`` is summed over blocks.

    ``scale`` has the factors of the model's ``scales`` in one block.
    """
    rows, rate, P, D = model.summed.recurrence(x, u), u["learning_rate"] / N, gradient.P, gradient.D
    eye = np.eye(model.students)
    if scale is not None:
        P, D = None if P is None else scale[:, None] * P, scale[None, :] * D
    if rows is None:
        return RowSteps(rate * D, None if P is None else eye - 2 * rate * P.T)
    pulled = 0.0 if P is None else 2 * rows.response @ P
    return RowSteps(D @ rows.response.T / N, eye + (rows.carry - pulled).T / N)


def _of_sample(latent: Latent, sample: Array) -> Latent:
    return {name: values[sample] for name, values in latent.items()}
