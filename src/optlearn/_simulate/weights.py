"""SGD on real N-dimensional weights, one seed after the other in one compiled program.

Seeds are the outer loop: the vectors of one seed stay in the processor's cache while it trains.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, Float, Int, Key, Settings
from optlearn._errors import SpecificationError
from optlearn._pytrees import Pytree
from optlearn._simulate.normals import as_normal, as_share, input_noise, symmetric_uniforms
from optlearn._simulate.plan import Prepared
from optlearn._simulate.sample import (
    Gradient,
    Sample,
    draw_sample,
    row_steps,
    step_gradient,
    train_heads,
)
from optlearn._theory.model import LearningModel
from optlearn._theory.order import OrderParameters, gram_matrix
from optlearn._theory.sampler import partial_cholesky

# Up to this many inner products, separate fused multiply-and-sum operations are faster than one thin matrix
# product (XLA on a CPU: 47 against 114 µs for three of length 30,000), and the compiler drops unused ones.
SEPARATE_PRODUCTS = 16
# XLA uses at most 256-bit vectors by default; wider ones make drawing inputs 10-15 % faster.
WIDE_VECTORS = {"xla_cpu_prefer_vector_width": 512}

# Vectors of N entries, optionally with a leading axis of seeds.
Vectors = tuple[Float[Array, "*S N"], ...]


class WeightState(Pytree):
    """Learners with a leading axis of seeds; everything but the vectors is in float64."""

    w: Vectors  # K, the student's weights
    fixed: Vectors  # M + C, teachers and centroids
    v: Float[Array, "*S K H"]  # readout
    extras: dict[str, Array]  # name → (S,)
    trained: dict[str, Array]  # name → (S, …), weights behind the first layer
    memory: Any = None  # the optimiser's memory of each weight, arrays (S, K, N)


def initial_weights(
    model: LearningModel,
    start: OrderParameters,
    N: int,
    seeds: int,
    seed: int,
    dtype: str,
    settings: Settings | None = None,
) -> WeightState:
    """Vectors in random directions, different for each seed, with exactly the overlaps of ``start``."""
    grams = np.asarray(gram_matrix(start, model.block_overlaps))
    sizes = [N] if model.spectrum is None else list(model.spectrum.directions(N))
    factors = [
        block_factor(gram, size)
        for gram, size in zip(grams.reshape(-1, *grams.shape[-2:]), sizes, strict=True)
    ]
    n = grams.shape[-1]
    vectors = np.empty((seeds, n, N), dtype=dtype)
    for index in range(seeds):
        random, first = np.random.default_rng([seed, index]), 0
        for factor, size in zip(factors, sizes, strict=True):
            # Orthonormal, so that the overlaps are exact rather than only up to 1/√N.
            orthonormal, _ = np.linalg.qr(random.standard_normal((size, factor.shape[1])))
            vectors[index, :, first : first + size] = np.sqrt(N) * factor @ orthonormal.T
            first += size
    K = model.students
    variance = np.ones(N) if model.spectrum is None else _by_direction(model, sizes)
    memory = model.weight_memory(start, variance, N, model.settings() if settings is None else settings)
    return WeightState(
        w=tuple(jnp.asarray(vectors[:, i]) for i in range(K)),
        fixed=tuple(jnp.asarray(vectors[:, i]) for i in range(K, n)),
        v=jnp.tile(jnp.asarray(start.v)[None], (seeds, 1, 1)),
        extras={name: jnp.full(seeds, start.extras[name]) for name in model.layout.extras},
        trained={name: jnp.repeat(start.trained[name][None], seeds, axis=0) for name in model.trained},
        memory=jax.tree.map(lambda part: jnp.repeat(jnp.asarray(part, dtype)[None], seeds, axis=0), memory),
    )


def _by_direction(model: LearningModel, sizes: list[int]) -> Float[np.ndarray, " N"]:
    """(N,) variances of the inputs' entries; their mean over several clusters."""
    assert model.spectrum is not None
    variance = np.atleast_2d(np.asarray(model.spectrum.variance)).mean(axis=0)
    return np.repeat(variance, sizes)


@partial(jax.jit, compiler_options=WIDE_VECTORS)
def advance_weights(
    run: Prepared, keys: Key[Array, " S"], state: WeightState, begin: Int[Array, ""], end: Int[Array, ""]
) -> WeightState:
    """SGD steps ``begin`` to ``end`` of every seed."""

    def one_seed(item: tuple[Array, WeightState]) -> WeightState:
        key, learner = item
        return jax.lax.fori_loop(begin, end, lambda step, now: _step(run, key, now, step), learner)

    return jax.lax.map(one_seed, (keys, state))


@partial(jax.jit, static_argnames=("teachers", "directions"))
def weight_overlaps(state: WeightState, teachers: int, directions: tuple[int, ...] = ()) -> OrderParameters:
    """Order parameters (S, …) in float64, whatever the precision of the weights; block by block."""

    def one_seed(item: tuple[Vectors, Vectors]) -> Array:
        w, fixed = item
        students = jnp.stack(w).astype(jnp.float64)
        others = jnp.stack(w + fixed).astype(jnp.float64)
        if not directions:
            return students @ others.T / students.shape[1]
        ends = np.cumsum(directions)
        parts = zip(jnp.split(students, ends[:-1], axis=1), jnp.split(others, ends[:-1], axis=1), strict=True)
        return jnp.stack([a @ b.T for a, b in parts]) / students.shape[1]

    rows = jax.lax.map(one_seed, (state.w, state.fixed))
    K = len(state.w)
    M, R = rows[..., K : K + teachers], rows[..., K + teachers :]
    return OrderParameters(rows[..., :K], M, R, state.v, state.extras, state.trained)


def block_factor(gram: Float[np.ndarray, "n n"], directions: int) -> Float[np.ndarray, "n r"]:
    """(n, r) F with F Fᵀ = gram, r ≤ directions; fewer directions than vectors must span them."""
    n = len(gram)
    if directions >= n:
        return np.asarray(_cholesky(gram))
    values, vectors = np.linalg.eigh(gram)
    if np.any(np.abs(values[: n - directions]) > 1e-9 * max(1.0, values[-1])):
        raise SpecificationError(
            f"a block of {directions} directions cannot hold {n} vectors with the overlaps {gram.tolist()}: "
            f"their rank is at most {directions}. A larger N gives every block more directions"
        )
    return vectors[:, n - directions :] * np.sqrt(np.maximum(values[n - directions :], 0.0))


@jax.jit
def _cholesky(gram: Array) -> Array:
    return partial_cholesky(gram, tuple(range(gram.shape[0])), jitter=0.0)


def _step(run: Prepared, key: Array, now: WeightState, step: Array) -> WeightState:
    """One SGD step of one seed (no seed axis)."""
    model, plan, M = run.model, run.plan, run.model.teachers
    N, dtype = now.w[0].shape[0], now.w[0].dtype
    teachers, centroids = now.fixed[:M], now.fixed[M:]
    for_pairs, for_last, for_numbers = (jax.random.fold_in(key, 3 * step + i) for i in range(3))
    numbers = symmetric_uniforms(for_numbers, (plan.uniforms + plan.noises,))
    uniforms, noise = as_share(numbers[: plan.uniforms]), as_normal(numbers[plan.uniforms :])
    sample = draw_sample(run, step, uniforms)
    g = input_noise(for_pairs, for_last, plan.views.inputs, N, dtype.name)
    inputs = _inputs(g, sample, centroids, plan.directions)
    # The compiler removes parts of x that neither loss nor penalty reads.
    Q, to_teachers, to_centroids = (_products(now.w, others) / N for others in (now.w, teachers, centroids))
    x = OrderParameters(Q, to_teachers, to_centroids, now.v, now.extras, now.trained)
    gradient = step_gradient(
        run,
        sample,
        student=_products(inputs, now.w, plan.student_read) / np.sqrt(N),
        teacher=_products(inputs, teachers, plan.teacher_read) / np.sqrt(N),
        noise=noise,
        x=x,
        gram=_products(inputs, inputs, plan.views.together) / N if model.extras else None,
        N=jnp.asarray(float(N)),
    )
    memory = now.memory
    scales = model.scales(x, sample.u, None) if memory is None else None
    if memory is not None or scales is not None:
        w, memory = _each_weight(run, now, inputs, gradient, x, sample.u, scales)
    else:
        amounts, A = row_steps(model, gradient, x, sample.u, jnp.asarray(float(N)))
        w = _minus(now.w, inputs, (np.sqrt(N) * amounts).astype(dtype), plan.student_moved)
        if A is not None:
            w = _minus(w, now.w, (np.eye(len(w)) - A).astype(dtype))
    x = train_heads(model, x, gradient, sample.u, jnp.asarray(float(N)))
    return WeightState(w, now.fixed, x.v, x.extras, x.trained, memory)


def _each_weight(
    run: Prepared,
    now: WeightState,
    inputs: Vectors,
    gradient: Gradient,
    x: OrderParameters,
    u: Settings,
    scales: Float[Array, "*B K"] | None,
) -> tuple[Vectors, Any]:
    """Weights after a step with a separate rate for each weight, and the optimiser's memory after it."""
    model, N, dtype = run.model, now.w[0].shape[0], now.w[0].dtype
    w, rows = jnp.stack(now.w), model.summed.recurrence(x, u)
    gradients = (gradient.D.T / np.sqrt(N)).astype(dtype) @ jnp.stack(inputs)
    if gradient.P is not None:
        gradients = gradients + (2 / N * gradient.P).astype(dtype) @ w
    memory = now.memory
    if memory is None:
        assert scales is not None
        if run.plan.directions:
            blocks = np.repeat(np.arange(len(run.plan.directions)), run.plan.directions)
            gradients = scales.T.astype(dtype)[:, blocks] * gradients
        else:
            gradients = scales.astype(dtype)[:, None] * gradients
        response = u["learning_rate"] * jnp.eye(len(w)) if rows is None else rows.response
        moves = -response.astype(dtype) @ gradients
    else:
        moves, memory = model.weight_steps(gradients, memory, u)
    if rows is not None:
        moves = moves + (rows.carry / N).astype(dtype) @ w
    return tuple(w + moves.astype(dtype)), memory


def _inputs(noise: list[Array], sample: Sample, centroids: Vectors, directions: tuple[int, ...]) -> Vectors:
    """Input vectors ``μ/√N + σ g``, with √c_b as a factor of g in block b."""
    N, dtype = noise[0].shape[0], noise[0].dtype
    sigma = sample.sigma.astype(dtype)
    inputs = tuple(sigma[i] * vector for i, vector in enumerate(noise))
    if sample.block_sigma is not None:
        blocks = np.repeat(np.arange(len(directions)), directions)
        widths = sample.block_sigma.astype(dtype)
        inputs = tuple(widths[i][blocks] * vector for i, vector in enumerate(inputs))
    if not centroids:
        return inputs
    return _minus(inputs, centroids, (-sample.assignment.T / np.sqrt(N)).astype(dtype))


def _products(left: Vectors, right: Vectors, needed: np.ndarray | None = None) -> Array:
    """(a, b) inner products in float64; arbitrary where not ``needed``."""
    shape = (len(left), len(right))
    needed = np.ones(shape, bool) if needed is None else needed
    if not needed.any():
        return jnp.zeros(shape)
    if needed.sum() > SEPARATE_PRODUCTS:
        return (jnp.stack(left) @ jnp.stack(right).T).astype(jnp.float64)
    nothing = jnp.zeros((), left[0].dtype)
    entries = [jnp.sum(left[a] * right[b]) if needed[a, b] else nothing for a, b in np.ndindex(*shape)]
    return jnp.stack(entries).reshape(shape).astype(jnp.float64)


def _minus(
    vectors: Vectors, directions: Vectors, amounts: Array, nonzero: np.ndarray | None = None
) -> Vectors:
    """Vectors a minus Σ_b amounts[b, a] · direction b, over amounts that may be nonzero."""
    nonzero = np.ones(amounts.shape, bool) if nonzero is None else nonzero
    if nonzero.sum() > SEPARATE_PRODUCTS:
        step = amounts.T @ jnp.stack(directions)
        return tuple(vector - step[a] for a, vector in enumerate(vectors))
    changed = list(vectors)
    for b, a in np.argwhere(nonzero):
        changed[a] = changed[a] - amounts[b, a] * directions[b]
    return tuple(changed)
