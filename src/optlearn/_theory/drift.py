"""The drift of the order parameters for any loss, by quadrature over the local fields (``sampler``)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, Float, Settings
from optlearn._theory.expectation import GaussHermite, Quadrature, QuasiMonteCarlo, summed_over
from optlearn._theory.model import LearningModel
from optlearn._theory.order import OrderParameters
from optlearn._theory.sample import Fields, Latent
from optlearn._theory.sampler import Sampler, coordinates, fields_read

# Nodes per dimension that keep the default tensor grid below about 10⁵ points.
DEFAULT_NODES = {0: 1, 1: 64, 2: 40, 3: 28, 4: 16, 5: 10}


def default_quadrature(model: LearningModel) -> Quadrature:
    """A quadrature for as many dimensions as the model's integrals have; ``AutoQuadrature`` is checked."""
    nodes = DEFAULT_NODES.get(len(coordinates(model, fields_read(model)).smooth))
    return QuasiMonteCarlo(16) if nodes is None else GaussHermite(nodes)


def generic_drift(
    model: LearningModel, x: OrderParameters, u: Settings, quadrature: Quadrature
) -> OrderParameters:
    """dx/dα of THEORY: any loss, latents, clusters, readout, penalty, batches, augmentation."""
    latents = model.latents(u)
    sums = jax.vmap(lambda latent: _moments(model, x, latent, u, quadrature))(latents.values)
    mean = jax.tree.map(lambda m: jnp.tensordot(latents.probabilities, m, axes=1), sums)
    eta = u["learning_rate"]
    pull = jax.grad(model.summed.penalty)(model.total(x), u)
    # Gradients with respect to the two equal entries of Q differ if a loss reads only one of them.
    P = _symmetric(mean["Q"] + pull.Q)
    batch = u.get("batch", 1.0)
    spread = mean["spread"] / batch
    if model.redrawn:
        # Views of one sample are correlated: their mean keeps part of the noise at any batch size.
        spread = spread + (1 - 1 / batch) * mean["cross"]

    dQ, dM, dR = rows_drift(model, x, u, mean["field_grad"], spread, P)
    extras = {name: -u[f"{name}_rate"] * (mean["bulk"][name] + pull.extras[name]) for name in model.extras}
    extras |= {name: mean["statistics"][name] for name in model.running}
    heads = -u.get("readout_rate", eta) * (mean["v"] + pull.v)
    trained = {n: -model.trained_rate(n, u) * (mean["trained"][n] + pull.trained[n]) for n in model.trained}
    return OrderParameters(dQ, dM, dR, heads, extras, trained)


def rows_drift(
    model: LearningModel,
    x: OrderParameters,
    u: Settings,
    field_grad: Float[Array, "*B n K"],
    spread: Float[Array, "*B K K"],
    P: Float[Array, "K K"],
) -> tuple[Float[Array, "*B K K"], Float[Array, "*B K M"], Float[Array, "*B K C"]]:
    """dQ, dM and dR, block by block under a spectrum.

    ``field_grad`` is E[field gᵀ] of all fields, ``spread`` E[σ² g gᵀ] of a step, and P the derivative of loss
    and penalty by Q, symmetric.
    """
    K, M, eta = model.students, model.teachers, u["learning_rate"]
    rows = model.recurrence(model.total(x), u)
    scales = model.scales(x, u, squares_of(model, spread))

    def moved(
        Q: Array, M_: Array, R: Array, field_grad: Array, spread: Array, scale: Array | None = None
    ) -> tuple[Array, Array, Array]:
        def responded(gradient: Array) -> Array:
            """The response of rows to gradients (K, …)."""
            scaled = gradient if scale is None else scale[:, None] * gradient
            return eta * scaled if rows is None else rows.response @ scaled

        dQ = -responded((field_grad[:K] + 2 * Q @ P).T)
        dM = -responded(field_grad[K : K + M].T + 2 * P @ M_)
        dR = -responded(field_grad[K + M :].T + 2 * P @ R)
        if rows is not None:
            dQ, dM, dR = dQ + rows.carry @ Q, dM + rows.carry @ M_, dR + rows.carry @ R
        return dQ + dQ.T + responded(responded(spread).T), dM, dR

    blocks = moved if model.spectrum is None else jax.vmap(moved)
    return blocks(x.Q, x.M, x.R, field_grad, spread, *(() if scales is None else (scales,)))


def squares_of(model: LearningModel, spread: Float[Array, "*B K K"]) -> Float[Array, "*B K"]:
    """N times the mean squared gradient of a weight, from E[σ² g gᵀ], which includes the blocks' shares."""
    eye = np.eye(model.students).reshape((1,) * (spread.ndim - 2) + spread.shape[-2:])
    squares = jnp.sum(spread * eye, axis=-1)
    return squares if model.spectrum is None else squares / jnp.asarray(model.spectrum.share)[:, None]


def mean_squares(
    model: LearningModel, x: OrderParameters, u: Settings, quadrature: Quadrature | None = None
) -> Float[Array, "*B K"]:
    """The same in a given state, for one sample per step, by quadrature."""
    latents, rule = model.latents(u), quadrature or default_quadrature(model)
    spreads = jax.vmap(lambda latent: _moments(model, x, latent, u, rule)["spread"])(latents.values)
    return squares_of(model, jnp.tensordot(latents.probabilities, spreads, axes=1))


def generic_error(
    model: LearningModel, x: OrderParameters, u: Settings, quadrature: Quadrature
) -> Float[Array, ""]:
    """Mean of the metric over test samples, without the extensive part ``N · bulk``."""
    settings = model.test_settings(u)
    latents = model.test_latents(settings)
    sampler = Sampler(model, x, settings, fields_read(model, "metric"))
    summed, whole = model.summed, model.total(x)

    def mean_given(latent: Latent) -> Array:
        slots = sampler.slots(latent)

        def over(quadrature: Quadrature) -> Array:
            points, weights, build = sampler.quadrature_points(slots, quadrature)
            values = jax.vmap(lambda xi: summed.metric(build(xi), whole, latent, settings))(points)
            return weights @ values

        return summed_over(quadrature, over)

    return latents.probabilities @ jax.vmap(mean_given)(latents.values)


def _moments(
    model: LearningModel, x: OrderParameters, latent: Latent, u: Settings, quadrature: Quadrature
) -> dict[str, Any]:
    """Expectations in the drift, given one latent."""
    sampler = Sampler(model, x, u, fields_read(model))
    slots = sampler.slots(latent)
    summed, whole = model.summed, model.total(x)

    def over(quadrature: Quadrature) -> dict[str, Any]:
        points, weights, build = sampler.quadrature_points(slots, quadrature)
        gradients = jax.vmap(lambda xi: loss_gradient(summed, build(xi), whole, latent, u))(points)
        D2 = gradients.student
        means: dict[str, Any] = {
            "field_grad": sampler.field_gradient(slots, points, weights, D2),
            "spread": sampler.spread(slots, weights, D2, D2, np.ones(model.slots)),
            "Q": jnp.tensordot(weights, gradients.Q, axes=1),
            "v": jnp.tensordot(weights, gradients.v, axes=1),
            "trained": {name: jnp.tensordot(weights, by, axes=1) for name, by in gradients.trained.items()},
        }
        if model.running:
            statistics = jax.vmap(lambda xi: summed.statistics(build(xi), whole, latent, u))(points)
            means["statistics"] = {name: weights @ values for name, values in statistics.items()}
        if model.finite_size:
            means["extras"] = {name: weights @ gradients.extras[name] for name in model.extras}
        return means

    result = summed_over(quadrature, over)
    if model.extras:
        gram = jnp.diag(model.input_power(latent, u))
        if model.finite_size:
            gram = gram + slots.assignment @ summed.overlaps.Omega @ slots.assignment.T / u["N"]
        result["bulk"] = jax.grad(summed.bulk, argnums=1)(gram, whole, latent, u).extras
        if model.finite_size:
            result["bulk"] = {
                name: force + result["extras"][name] / u["N"] for name, force in result["bulk"].items()
            }
    if model.redrawn:
        result["cross"] = _cross_view(model, x, latent, u, quadrature)
    return result


def _cross_view(
    model: LearningModel, x: OrderParameters, latent: Latent, u: Settings, quadrature: Quadrature
) -> Array:
    """E[D₂ᵀ σ² D₂'] of two views of one sample that share all but the redrawn slots."""
    sampler = Sampler(model, x, u, fields_read(model))
    slots, where = sampler.slots(latent), sampler.where
    owner = np.repeat(np.arange(model.slots), [len(p) for p in where.pivots])
    redrawn = np.concatenate(
        [np.isin(owner, model.redrawn), np.zeros(where.normals + where.noise, dtype=bool)]
    )
    dimension, doubled = len(where.smooth), int(redrawn.sum())
    # The second view's redrawn coordinates are appended; only the first view is cut at breaks.
    first = np.arange(dimension)
    second = first.copy()
    second[redrawn] = dimension + np.arange(doubled)
    cut = sampler.cut(slots)
    points, weights = quadrature.points(
        where.smooth + (False,) * doubled, lambda j, prefix: cut(j, prefix) if j < dimension else None
    )
    build = sampler.fields_map(slots)
    summed, whole = model.summed, model.total(x)

    def shared_gradient(xi: Array) -> Array:
        return loss_gradient(summed, build(xi), whole, latent, u).student

    D_a = jax.vmap(shared_gradient)(points[:, first])
    D_b = jax.vmap(shared_gradient)(points[:, second])
    shared = np.array([slot not in model.redrawn for slot in range(model.slots)], dtype=float)
    return _symmetric(sampler.spread(slots, weights, D_a, D_b, shared))


class SampleGradient(NamedTuple):
    """Effect of one sample: the gradient of its loss, with the model's own rule, if any, as D₂."""

    student: Float[Array, "L K"]  # D₂
    Q: Float[Array, "K K"]  # D₃; under a rule the loss does not act on Q
    v: Float[Array, "K H"]  # D₄
    extras: dict[str, Array]
    trained: dict[str, Array]


def loss_gradient(
    model: LearningModel, fields: Fields, x: OrderParameters, latent: Latent, u: Settings
) -> SampleGradient:
    """The gradients of one sample."""
    if not model.has_rule:
        by_fields, by_state = jax.grad(model.loss, argnums=(0, 1))(fields, x, latent, u)
        student, Q = by_fields.student, by_state.Q
    else:
        by_state = jax.grad(model.loss, argnums=1)(fields, x, latent, u)
        student, Q = model.update(fields, x, latent, u), jnp.zeros_like(x.Q)
    return SampleGradient(student, Q, by_state.v, by_state.extras, by_state.trained)


def _symmetric(matrix: Array) -> Array:
    return (matrix + jnp.swapaxes(matrix, -1, -2)) / 2
