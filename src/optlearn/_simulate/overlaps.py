"""The exact Markov chain of the overlaps at finite N: the cost of a step does not depend on N.

Given the Gram matrix G of students, teachers and centroids, the fields of an isotropic Gaussian input are
F ξ with F Fᵀ = G, and what it has outside their span has a Gram matrix of its own, Wishart with N − n
degrees of freedom. The next G follows from these alone. (Where G is singular, F has zero columns: then
ξ has entries along further orthonormal directions, so it is n, not the rank, that is subtracted.)
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, Settings
from optlearn._simulate.controls import Controls
from optlearn._simulate.normals import as_normal, as_share, chi_square, symmetric_uniforms
from optlearn._simulate.plan import Plan
from optlearn._simulate.sample import draw_sample, step_gradient, train_heads
from optlearn._theory.gaussian import gram_matrix, partial_cholesky
from optlearn._theory.model import LearningModel
from optlearn._theory.order import OrderParameters

# Steps whose random numbers are drawn at once.
BLOCK = 32


class Draws(eqx.Module):
    """Random numbers of steps of one seed.

    Attributes:
        xi: (…, inputs, n) components of the inputs' noise in the span of all vectors.
        bartlett: (…, inputs, inputs) lower-triangular B with Wishart matrix ``B Bᵀ`` outside that span.
        uniforms: (…, plan.uniforms).
        noise: (…, samples) label noise.
    """

    xi: Array
    bartlett: Array
    uniforms: Array
    noise: Array


def initial_overlaps(start: OrderParameters, seeds: int) -> OrderParameters:
    """``start`` with a leading axis of seeds."""
    return jax.tree.map(
        lambda leaf: jnp.tile(jnp.asarray(leaf)[None], (seeds,) + (1,) * np.ndim(leaf)), start
    )


@partial(jax.jit, static_argnames=("plan",))
def advance_overlaps(
    plan: Plan,
    model: LearningModel,
    settings: Settings,
    controls: Controls,
    keys: Array,
    N: Array,
    state: OrderParameters,
    begin: Array,
    end: Array,
) -> OrderParameters:
    """SGD steps ``begin`` to ``end`` of every seed."""

    def block(number: Array, now: OrderParameters) -> OrderParameters:
        # Keyed by the block's place in the whole run: where a run is interrupted to record changes nothing.
        def draw(key: Array) -> Draws:
            return draw_block(plan, jax.random.fold_in(key, number), N)

        draws = jax.vmap(draw, out_axes=1)(keys)
        offset = number * BLOCK

        def body(step: Array, now: OrderParameters) -> OrderParameters:
            here = jax.tree.map(lambda numbers: numbers[step - offset], draws)
            one = partial(chain_step, plan, model, settings, controls, N, step)
            return jax.vmap(one)(now, here)

        return jax.lax.fori_loop(jnp.maximum(begin, offset), jnp.minimum(end, offset + BLOCK), body, now)

    return jax.lax.fori_loop(begin // BLOCK, (end + BLOCK - 1) // BLOCK, block, state)


def draw_block(plan: Plan, key: Array, N: Array) -> Draws:
    """Random numbers of BLOCK steps of one seed, the steps along the first axis."""
    L, n = plan.views.inputs, plan.vectors
    sizes = [L * n, L * (L - 1) // 2, plan.noises, plan.uniforms]
    for_numbers, for_squares = jax.random.split(key)
    numbers = symmetric_uniforms(for_numbers, (BLOCK, sum(sizes)))
    ends = [int(end) for end in np.cumsum(sizes)]
    normals = as_normal(numbers[:, : ends[2]])
    squares = chi_square(for_squares, N - n - jnp.arange(float(L))[None, :], (BLOCK, L))
    # Row l of Bartlett's factor: l normals, the root of a χ², zeros.
    diagonal, below = jnp.sqrt(squares), normals[:, ends[0] : ends[1]]
    rows, first = [], 0
    for row in range(L):
        zeros = jnp.zeros((BLOCK, L - row - 1))
        parts = [below[:, first : first + row], diagonal[:, row : row + 1], zeros]
        rows.append(jnp.concatenate(parts, axis=1))
        first += row
    return Draws(
        xi=normals[:, : ends[0]].reshape(BLOCK, L, n),
        bartlett=jnp.stack(rows, axis=1),
        uniforms=as_share(numbers[:, ends[2] :]),
        noise=normals[:, ends[1] :] if plan.noise else jnp.zeros((BLOCK, plan.views.samples)),
    )


def chain_step(
    plan: Plan,
    model: LearningModel,
    settings: Settings,
    controls: Controls,
    N: Array,
    step: Array,
    x: OrderParameters,
    draws: Draws,
) -> OrderParameters:
    """One step of one seed, all 1/N terms kept."""
    K, M = model.students, model.overlaps.T.shape[0]
    sample = draw_sample(model, plan, controls, settings, step, draws.uniforms)
    sigma, a = sample.sigma[:, None], sample.assignment
    G = gram_matrix(x, model.overlaps)
    F = partial_cholesky(G, tuple(range(plan.vectors)), jitter=0.0)
    spread = sigma * (draws.xi @ F.T)
    fields = a @ G[K + M :] + spread
    # x_l·x_l'/N of all inputs: centroid parts, their cross terms with the noise, and the noise itself.
    cross = a @ spread[:, K + M :].T
    noise = sigma * sigma.T * (draws.xi @ draws.xi.T + draws.bartlett @ draws.bartlett.T)
    gram = (a @ G[K + M :, K + M :] @ a.T + cross + cross.T + noise) / N
    student, teacher, centroid = fields[:, :K], fields[:, K : K + M], fields[:, K + M :]
    gradient = step_gradient(model, plan, sample, student, teacher, draws.noise, x, gram, N)
    rate = sample.u["learning_rate"] / N
    D = gradient.D
    Q, toward_teachers, toward_centroids = x.Q, x.M, x.R
    pulled = student
    if gradient.P is not None:
        A = jnp.eye(K) - 2 * rate * gradient.P
        Q, toward_teachers, toward_centroids = A.T @ Q @ A, A.T @ x.M, A.T @ x.R
        pulled = student @ A
    turn = pulled.T @ D
    Q = Q - rate * (turn + turn.T) + rate**2 * N * (D.T @ gram @ D)
    v, extras = train_heads(x, gradient, sample.u, N)
    return OrderParameters(
        Q=(Q + Q.T) / 2,
        M=toward_teachers - rate * D.T @ teacher,
        R=toward_centroids - rate * D.T @ centroid,
        v=v,
        extras=extras,
    )
